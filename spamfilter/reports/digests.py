"""Digests: mails to users that say what is kept for them, each kept mail once.

Guarantee: a digest goes to recipients in [digest] domains alone, straight to the next hop, and is never judged. The
mails that it lists are noted after the next hop's 250. If the program crashes before the note, or the note fails, that
user alone has them listed again. While the database cannot be written, no digest is sent, and after a note that fails
no further one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spamfilter.config.addresses import is_mailbox
from spamfilter.config.settings import Settings
from spamfilter.config.translation import translator
from spamfilter.errors import ConfigError, InputError
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.quarantine import Quarantine
from spamfilter.relay.quarantine.history import announced_to
from spamfilter.relay.sender_lists.decision import Lists, Origin
from spamfilter.reports.digest_links import link_of, user_of
from spamfilter.reports.html import environment
from spamfilter.reports.mail import own_mail
from spamfilter.stores import JournalEntry, QuarantineEvent, Store
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import day_text, moment_of, moment_text

LAST = "last_digest"
"""The name of the database's setting with the time of the last digests."""
UNSENT = "unsent_digests"
"""The name of the setting with the addresses whose digest is still to be sent, because the next hop did not take it for
now, or the run was interrupted, as by a database that cannot be written any more."""
WORDS = 5
"""Words that a reader takes in at a glance."""
SUBJECT = 120


@dataclass(frozen=True, slots=True)
class Listed:
    """A kept mail in a digest. words: those that counted most for spam. recipients: as the envelope names them."""

    id: str
    at: datetime
    sender: str
    subject: str
    words: Sequence[str]
    recipients: Sequence[str]


@dataclass(frozen=True, slots=True)
class Digest:
    """All that is new for one address, the latest first."""

    address: str
    mails: Sequence[Listed]

    def events(self, now: datetime) -> list[QuarantineEvent]:
        """The events to note once the digest is sent."""
        return [QuarantineEvent(mail.id, now, "announced", mail.recipients, "") for mail in self.mails]


def is_due(hours: Sequence[int], last: datetime | None, now: datetime) -> bool:
    """Whether an hour of the day has come since the last digests; late is better than never.

    Both times are local, each with the offset of its own day. A last time in the future was noted while the clock was
    ahead, and is ignored.
    """
    clock = now.replace(tzinfo=None)
    days = (clock, clock - timedelta(days=1))
    moments = [day.replace(hour=hour, minute=0, second=0, microsecond=0) for day in days for hour in hours]
    past = [moment for moment in moments if moment <= clock]
    return bool(past) and (last is None or last > now or last.replace(tzinfo=None) < max(past))


def new_digests(settings: Settings, store: Store) -> list[Digest]:
    """A digest for each address that has kept mail of which no digest has told. Raises ConfigError.

    Mail of senders whom a user has blocked by the page of a digest is in none of that user's.
    """
    domains = {domain.lower() for domain in settings.digest.domains or settings.relay.domains}
    if not domains:
        raise ConfigError('digest.domains = []: name the domains whose users get digests, as in ["example.org"]')
    feedback = settings.feedback
    nobody = {*feedback.traps, *feedback.spam_addresses, *feedback.ham_addresses, *settings.digest.without}
    kept = Quarantine(settings.quarantine_path(), store)
    mails = kept.mails()
    events = kept.events([mail.id for mail in mails])
    blocks = [rule for rule in store.rules() if rule.kind == "block" and rule.by == user_of(rule.whom)]
    lists, blocking = Lists(blocks), {rule.whom for rule in blocks}
    found: dict[str, list[Listed]] = {}
    for mail in reversed(mails):
        known = announced_to(events.get(mail.id, []))
        told: dict[str, list[str]] = {}
        for recipient in mail.recipients:
            address = mailbox_of(recipient)
            ours = _is_plain(address) and address.rpartition("@")[2] in domains and address not in nobody
            if recipient not in known and ours:
                told.setdefault(address, []).append(recipient)
        # Each recipient's rules are looked up, because the journal names the rule of one recipient only.
        if asked := [*told.keys() & blocking]:
            try:
                origin = Origin(kept.read(mail), mail.sender, "")
            except InputError:
                continue  # the mail was deleted or delivered since the list was made
            for address, use in zip(asked, lists.uses(origin, asked, datetime.now(UTC)), strict=True):
                if use is not None:
                    del told[address]
        words = spam_words(store.find_journal(mail.id) if told else None)
        for address, recipients in told.items():
            listed = Listed(mail.id, mail.at, mail.shown_sender, mail.subject, words, recipients)
            found.setdefault(address, []).append(listed)
    return [Digest(address, listed) for address, listed in sorted(found.items())]


def _is_plain(address: str) -> bool:
    """Whether every program reads an address in the same way; letters may be of any script (RFC 6531).

    >>> _is_plain("gr\u00fcn@example.org"), _is_plain("x\u202e@example.org"), _is_plain("=?q?@example.org")
    (True, False, False)
    """
    # A To field with =? would be decoded.
    return is_mailbox("".join("x" if letter.isalnum() else letter for letter in address)) and "=?" not in address


def spam_words(entry: JournalEntry | None) -> list[str]:
    """The plain words that counted most for spam when the mail came."""
    found = []
    for token, weight in entry.evidence if entry else ():
        word = token.rpartition(":")[2]
        if weight > 0 and word.isalnum() and word not in found:
            found.append(word)
    return found[:WORDS]


def digest_mail(digest: Digest, settings: Settings, sender: str, key: bytes, now: datetime) -> bytes:
    """The digest as `own_mail` makes it."""
    options = settings.digest
    say = translator(settings.feedback.language)
    day = day_text(now + timedelta(days=options.link_days))
    expires = moment_of(day, end=True)  # the mail names a day, and readers take it for a whole one
    base = f"{options.url.rstrip('/')}/kept/{link_of(key, digest.address, expires)}"
    facts: dict[str, Any] = {
        "say": say, "address": digest.address, "mails": digest.mails[: options.entries], "base": base,
        "more": max(len(digest.mails) - options.entries, 0), "day": day,
        "subject_of": lambda mail: mail.subject[:SUBJECT] or say("(no subject)"),
        "deleted": _deleted(say, settings.verdict.quarantine_days), "language": settings.feedback.language,
    }  # fmt: skip
    subject = say("Mail kept as spam: {number}", number=len(digest.mails))
    page = environment("spamfilter.reports").get_template("digest.html").render(facts)
    return own_mail(sender, digest.address, subject, now, _plain(facts), page)


def _deleted(say: Callable[..., str], days: float) -> str:
    if days == 1:
        return say("What you do not need, you may leave alone: it is deleted after a day.")
    return say("What you do not need, you may leave alone: it is deleted after {days} days.", days=f"{days:g}")


def _plain(facts: Mapping[str, Any]) -> str:
    say, subject_of, base = facts["say"], facts["subject_of"], facts["base"]
    lines = [say("These mails to {address} look like spam and were kept:", address=facts["address"]), ""]
    for mail in facts["mails"]:
        lines += [harmless(subject_of(mail)), f"  {say('From')}: {harmless(mail.sender) or '<>'}"]
        lines.append(f"  {say('Received')}: {moment_text(mail.at)}")
        if mail.words:
            lines.append("  " + say("Words that count as spam: {words}", words=harmless(", ".join(mail.words))))
        lines += [f"  {say('Look at it or deliver it')}: {base}/{mail.id}", ""]
    if facts["more"]:
        lines += [say("{number} more are on the page.", number=facts["more"]), ""]
    lines += [say("All kept mails, until {day}:", day=facts["day"]), f"{base}", ""]
    lines.append(facts["deleted"])
    return "\n".join(lines) + "\n"
