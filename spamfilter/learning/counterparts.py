"""Counterparts: with each mail that a person marks as spam, the filter learns some ham that it has let through.

People mark the spam that they see, and hardly ever the ham. What new mail of both classes has in common, such as the
header lines of a new mail server, is then learnt from spam alone: a filter that had learnt 200 mails of each class of
SpamAssassin's mail, and then 21 marks of spam, called 13 % of further ham spam and 34 % unsure; with counterparts
none and 6 % (benchmarks/counterparts.py).

Guarantee: nothing is learnt without a person's mark, and at most EACH mails for one. A mark or a training of a
counterpart itself replaces it. When the mark of spam is taken back, its counterparts are, too, and nothing brings them
back.
Guarantee: a counterpart was called ham when it came, is called ham with all that was learnt since, the mark included,
and nobody has ever marked it. So copies of the marked spam that had passed, too, are no counterparts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from spamfilter.bayes.groups import group_in
from spamfilter.bayes.labels import COUNTERPART
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading, Training
from spamfilter.stores import Entry, JournalEntry, Store, Wanted

EACH = 3
"""Counterparts of one mark, at most. With one, users who mark spam alone and leave ham in Junk lose twice as much of
it; with three, those who mark three in ten of the missed spams have up to 4 % less spam tagged than with one."""
LATEST = 200
"""Mails of which counterparts are chosen: the latest that were surely ham and are unmarked."""
OF_DOMAIN = 4
"""Most of these mails from one domain, by their reverse-path, so that a busy sender leaves room for others."""
READ = 1000
"""Most mails of the journal that are looked at to find these."""
SURE = 0.1
"""The greatest probability of spam that a counterpart may have, when it came and now."""
SURER = 0.75
"""Share of the LATEST mails that may be chosen, the surest ham; of these the least sure are tried first, because the
filter has little to learn from the surest. Among the mails left out is spam that nobody has marked: where users mark
three in ten of the missed spams, about one counterpart in a hundred is spam, and one in six if the least sure mails are
chosen."""
TRIED = 8
"""Mails that are judged again to find them."""
SENT_A_DAY = 2
"""Counterparts of a group in 24 hours that came from one domain, as for answers (see `automatic_rules`)."""
A_DAY = 300
"""Counterparts of a group in 24 hours."""
OF_ALL = 3000
"""Counterparts of all groups in 24 hours."""


def candidates(filter: Filter, group: str, window: timedelta) -> list[JournalEntry]:
    """Mails of the journal for this group ('': for everybody), without tokens, in the order to try them in.

    window: the journal keeps tokens for so long at most.
    """
    now = datetime.now(UTC)
    # Later ones, dated by a clock that was ahead, would use up the day of their domains for years.
    learnt = filter.store.learnings(now - timedelta(days=1), COUNTERPART)
    today = [entry.digest for entry in learnt if entry.at <= now]
    mails = filter.store.journal_of(today).values()
    of_domain = Counter(_domain(mail) for mail in mails if filter.group_of(mail.recipients) == group)
    if len(today) >= OF_ALL or of_domain.total() >= A_DAY:
        return []
    found, chosen = _latest(filter, group, now - window, of_domain), list[JournalEntry]()
    found.sort(key=lambda entry: entry.log_odds)
    for mail in reversed(found[: round(len(found) * SURER)]):
        domain = _domain(mail)
        if of_domain[domain] < SENT_A_DAY:
            of_domain[domain] += 1
            chosen.append(mail)
    return chosen[:TRIED]


def _latest(filter: Filter, group: str, since: datetime, of_domain: Counter[str]) -> list[JournalEntry]:
    """The latest mails for a group that were surely ham and are unmarked, without those of domains that have had enough
    today."""
    # The journal has addresses as they were written, and so maybe others than the group's name.
    plain = group.isascii() and "xn--" not in group
    to = "" if not (group and plain) else f"<{group}>" if "@" in group else f"@{group}>"
    wanted = Wanted(class_="ham", action="pass", most=SURE, recipient=to, since=since)
    found, listed, before = dict[bytes, JournalEntry](), Counter[str](), ""
    for _ in range(READ // LATEST):
        page = filter.store.search(wanted, LATEST, before)
        theirs = [mail for mail in page if filter.group_of(mail.recipients) == group]
        said = filter.store.histories([mail.digest for mail in theirs])
        for mail in theirs:
            domain = _domain(mail)
            has_room = of_domain[domain] < SENT_A_DAY and listed[domain] < OF_DOMAIN and mail.digest not in found
            # A bounce, which has no sender, may have spam in it.
            if mail.sender and has_room and _is_unmarked(said[mail.digest]):
                listed[domain] += 1
                found[mail.digest] = mail
        if len(page) < LATEST or len(found) >= LATEST:
            break
        before = page[-1].id
    return [*found.values()][:LATEST]


def learn(training: Training, store: Store, mails: Iterable[JournalEntry], marked: Reading, at: datetime) -> int:
    """Learn the counterparts of a message that was just marked as spam; returns how many there were.

    mails: the candidates, of the group that was taught. at: the moment of the mark's learning, by which `Training`
    finds its counterparts again.
    """
    group, learnt = group_in(marked.tokens), 0
    for mail in mails:
        entry = store.find_journal(mail.id)
        tokens = entry.tokens if entry is not None else None
        # The group as it was named when the mail came.
        if tokens is None or group_in(tokens) != group or not _is_unmarked(training.ledger.history(mail.digest)):
            continue
        learnt += training.add(Reading(mail.digest, tokens), "ham", COUNTERPART, COUNTERPART, at, SURE)
        if learnt == EACH:
            break
    return learnt


def _domain(mail: JournalEntry) -> str:
    return mail.sender.rpartition("@")[2].lower()


def _is_unmarked(history: Sequence[Entry]) -> bool:
    """Whether a message is not learnt, and never was but as a counterpart."""
    return all(entry.source == COUNTERPART for entry in history) and (not history or bool(history[-1].undoes))
