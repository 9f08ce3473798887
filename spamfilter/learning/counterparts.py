"""Counterparts: with each mail that a person marks as spam, the filter learns some ham that it has let through.

People mark the spam that they see, and hardly ever the ham. What new mail of both classes has in common, such as the
header lines of a new mail server, is then learnt from spam alone: a filter that had learnt 200 mails of each class of
SpamAssassin's mail, and then 21 marks of spam, called 13 % of further ham spam and 34 % unsure; with counterparts
none and 6 % (benchmarks/counterparts.py).

Guarantee: nothing is learnt without a person's mark, and at most EACH mails for one. Who marks or trains a
counterpart itself is believed, and it is theirs. When the mark is taken back, its counterparts are, too, and nothing
brings them back.
Guarantee: a counterpart was called ham when it came, is called ham with all that was learnt since, the mark included,
and nobody has ever marked it. So copies of the marked spam, which had passed as well, are none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from spamfilter.bayes.groups import group_in
from spamfilter.bayes.labels import COUNTERPART
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading, Training
from spamfilter.stores import Entry, JournalEntry, Store, Wanted

EACH = 3
"""Counterparts of one mark, at most. With one, users who mark spam alone and leave ham in Junk lose twice as much of
it; with three, those who mark three in ten of the missed spams have up to 4 % less spam tagged than with one."""
LATEST, OF_DOMAIN, READ = 200, 4, 2000
"""Mails called ham of which they are chosen; most of them of one domain, by their reverse-path, so that a busy sender
leaves room for others; mails that are looked at for them."""
SURE = 0.1
"""The greatest probability of spam that a counterpart may have, when it came and now."""
SURER = 0.75
"""Share of the latest mails that are surely ham before it: of the surest ones the filter has little to learn, and among
the least sure ones is spam that nobody has marked. Where users mark three in ten of the missed spams, one counterpart
in eighty is spam, and one in six if the least sure are chosen."""
TRIED = 8
"""Mails that are judged again to find them."""
SENT_A_DAY, A_DAY = 2, 300
"""Counterparts of a group in 24 hours: those from one domain, as for answers (see `automatic_rules`), and all."""


def candidates(filter: Filter, group: str, window: timedelta) -> list[JournalEntry]:
    """Mails of the journal for this group ('': for everybody), without tokens, in the order to try them in.

    window: how far back the journal has tokens.
    """
    store, now = filter.store, datetime.now(UTC)
    today = store.journal_of([entry.digest for entry in store.learnings(now - timedelta(days=1), COUNTERPART)])
    of_domain = Counter(_domain(mail) for mail in today.values() if filter.group_of(mail.recipients) == group)
    if of_domain.total() >= A_DAY:
        return []
    found = sorted(_latest(filter, group, now - window, of_domain), key=lambda entry: entry.log_odds)
    said, chosen = store.histories([entry.digest for entry in found]), list[JournalEntry]()
    for mail in reversed(found[: round(len(found) * SURER)]):
        domain = _domain(mail)
        if of_domain[domain] < SENT_A_DAY and _is_unmarked(said[mail.digest]):
            of_domain[domain] += 1
            chosen.append(mail)
    return chosen[:TRIED]


def _latest(filter: Filter, group: str, since: datetime, of_domain: Mapping[str, int]) -> list[JournalEntry]:
    """The latest mails for a group that were surely ham, without those of domains that have enough for this day."""
    to = f"<{group}>" if "@" in group else group and f"@{group}>"
    wanted = Wanted(class_="ham", action="pass", most=SURE, recipient=to, since=since)
    found, listed, before = list[JournalEntry](), Counter[str](), ""
    for _ in range(READ // LATEST):
        page = filter.store.search(wanted, LATEST, before)
        for mail in page:
            domain, theirs = _domain(mail), filter.group_of(mail.recipients) == group
            if theirs and of_domain.get(domain, 0) < SENT_A_DAY and listed[domain] < OF_DOMAIN:
                listed[domain] += 1
                found.append(mail)
        if len(page) < LATEST or len(found) >= LATEST:
            break
        before = page[-1].id
    return found[:LATEST]


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
        if tokens is None or group_in(tokens) != group or not _is_unmarked(training.history(mail.digest)):
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
