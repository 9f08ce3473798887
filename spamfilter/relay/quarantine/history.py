"""What became of a mail in quarantine, from its events and its file.

Invariant: "delivered" is noted after the next hop's 250 and before the file goes; "deleted" and "expired" are noted
before the file goes. So after a crash a delivery that is noted counts, whatever the file says; of the others the file
decides: while the file is there, the mail is kept.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from spamfilter.stores import JournalEntry, QuarantineEvent, Store
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import moment_text


def settled_for(events: Iterable[QuarantineEvent]) -> set[str]:
    """The recipients that have the mail, or have deleted it for themselves."""
    return {name for event in events if event.outcome in ("delivered", "deleted") for name in event.recipients}


def announced_to(events: Iterable[QuarantineEvent]) -> set[str]:
    """The recipients that a digest has told of the mail."""
    return {name for event in events if event.outcome == "announced" for name in event.recipients}


def ending_of(events: Sequence[QuarantineEvent]) -> QuarantineEvent | None:
    """The last event by which a mail left the quarantine, for all recipients or some; None if there is none."""
    return next((event for event in reversed(events) if event.outcome != "announced"), None)


def was_kept(entry: JournalEntry) -> bool:
    """Whether a mail of the journal came into quarantine: its client has not heard that it must send the mail again."""
    return entry.action == "quarantine" and entry.reply.startswith("2")


def other_host(entry: JournalEntry, host: str) -> str:
    """The name of the host that has kept a mail, if that is another one; a quarantine is of one host."""
    return entry.host if host and entry.host != host and was_kept(entry) else ""


def kept_elsewhere(store: Store, host: str, folder: Path, id: str) -> str:
    """The name of the other host that has kept a mail, unless it is noted what became of the mail; else ''.

    folder: the quarantine of this host, which may have had another name when it kept the mail.
    """
    entry = store.find_journal(id)
    other = other_host(entry, host) if entry else ""
    if not other or any(folder.glob(f"*/*{id}*")):
        return ""
    return "" if ending_of(store.quarantine_events([id]).get(id, [])) else other


UNREADABLE = "unknown, because the quarantine cannot be read"
"""The state of a mail for a user without the right to read the quarantine."""


def state_of(kept: bool, events: Sequence[QuarantineEvent], elsewhere: str, readable: bool) -> str:
    """kept, delivered, deleted or expired; gone: the file was removed, and nobody has noted why. elsewhere: the other
    host that has kept it. readable: whether its file was looked for."""
    if kept:
        return "kept"
    if ending := ending_of(events):
        return ending.outcome
    if elsewhere:
        return f"on {elsewhere}"
    return "gone" if readable else UNREADABLE


def event_text(event: QuarantineEvent) -> str:
    """An event as a sentence, for people."""
    word = "for" if event.outcome == "deleted" else "to"
    to = f" {word} {harmless(', '.join(event.recipients))}" if event.recipients else ""
    by = f" by {harmless(event.by)}" if event.by else ""
    return f"{event.outcome}{to}{by}, {moment_text(event.at)}"
