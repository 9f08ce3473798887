"""What a user names, to what the filter knows of it.

A mail that went through the relay is taken as it was judged, from the journal, found by the id in
its header: on its way to the user it may have been altered. Only where the journal does not have
it, or where the id is somebody else's, the mail itself is read.
"""

import time
from dataclasses import dataclass

from spamfilter.errors import InputError
from spamfilter.filter import Filter, Reading
from spamfilter.journal import is_id
from spamfilter.marking import header_end
from spamfilter.message import Message, parse
from spamfilter.stores import JournalEntry, Store

WRITTEN_WITHIN = 1.5
"""Seconds to wait for an id that is not in the journal yet: the relay writes it a second behind."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A message that a command speaks about: its name for people, its id ('' if unknown), what was seen."""

    name: str
    id: str
    reading: Reading


def by_id(store: Store, id: str) -> Subject:
    """The message of a journal id. Raises InputError, with what to do instead."""
    id = id.upper()
    give_up = time.monotonic() + WRITTEN_WITHIN
    while (entry := store.find_journal(id)) is None:
        if time.monotonic() > give_up:
            raise InputError(
                f"{id}: no message of this id in the journal of {store.where}; it may be too old: name its file"
            )
        time.sleep(0.1)
    if entry.tokens is None:
        raise InputError(f"{id}: its tokens are not kept any more ([feedback] window_days); name its file instead")
    return Subject(id, id, Reading(entry.digest, entry.tokens))


def by_mail(filter: Filter, name: str, mail: bytes) -> Subject:
    """The message in these bytes, as it was judged if it passed the relay."""
    message = parse(mail)
    reading = filter.read(message)
    entry = _judged(filter.store, mail, message, reading)
    if entry is not None and entry.tokens is not None:
        # Voices that were chosen since see the mail as it is now.
        return Subject(name, entry.id, Reading(entry.digest, {**reading.tokens, **entry.tokens}))
    return Subject(name, entry.id if entry else "", reading)


def _judged(store: Store, mail: bytes, message: Message, reading: Reading) -> JournalEntry | None:
    """The journal's entry of this very mail, if its header names one."""
    id = header_id(mail)
    entry = store.find_journal(id) if id else None
    if entry is None:
        return None
    same = entry.digest == reading.digest or (entry.message_id and entry.message_id == message.field(b"message-id"))
    return entry if same else None


def header_id(mail: bytes) -> str:
    """The value of X-Spamfilter-Id in a mail's header, '' without a valid one."""
    head = mail[: header_end(mail)] if b"\r\n" in mail[:1000] else mail.partition(b"\n\n")[0]
    for line in head.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"x-spamfilter-id":
            words = value.decode("ascii", "replace").split()
            return words[0].upper() if words and is_id(words[0]) else ""
    return ""
