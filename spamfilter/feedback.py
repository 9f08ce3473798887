"""What a user says of a message: which message is meant, and whether that may be learnt.

A mail that went through the relay is taken as it was judged, from the journal: on its way to the user a list, a
mail system or a mail program may have altered it. It is found by the id in its header, by its digest, or by its
Message-ID, and taken for the same only if it says the same, so that nobody teaches under the name of another mail.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spamfilter.counts import Label
from spamfilter.errors import InputError, Refused
from spamfilter.filter import BULK, Change, Filter, Reading, Training
from spamfilter.ids import is_id
from spamfilter.journal import CANARY
from spamfilter.marking import header_end
from spamfilter.message import Message, parse
from spamfilter.stores import Entry, JournalEntry, Store
from spamfilter.voices import VoiceTokens

WRITTEN_WITHIN = 1.5
"""Seconds to wait for an id that is not in the journal yet: the relay writes it a second behind."""
SAME = 0.7
"""Share of the words of the shorter of two mails that the other must have, if one is a copy of the other. A list's
footer or a warning on top adds words and takes none; re-encoding changes no word."""
DAY = timedelta(days=1)

AUTOMATIC = "automatic"
"""The source of learnings by configured rules, which anybody may correct and which correct nobody."""
NOBODYS = (BULK, AUTOMATIC, CANARY)
"""Sources whose learnings anybody's mark replaces: no person has spoken."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who teaches, and by which way: cli, imap, address, review, release, web.

    master: may change what others have taught, and has no limit: whoever owns the database.
    """

    name: str
    source: str
    master: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A message that a command speaks about: its name for people, its id ('' if unknown), what was seen."""

    name: str
    id: str
    reading: Reading


def mark(filter: Filter, subject: Subject, label: Label | None, author: Author, marks_a_day: int) -> Change:
    """Learn a message as its author says, or with label None forget it.

    Raises Refused where another person has said otherwise, or the author has had their day's share; then nothing has
    changed. A mark of a rule changes nothing that was learnt.
    """
    with filter.training() as training:
        active = training.active(subject.reading.digest)
        if active is not None and active.label != label:
            if author.source == AUTOMATIC:
                return training.learn(subject.reading, active.label, active.source)
            _may_change(active, author, subject.name)
        if not author.master and (active.label if active else None) != label:
            _has_left(filter.store, author, marks_a_day)
        return _marked(training, subject, label, author)


def _marked(training: Training, subject: Subject, label: Label | None, author: Author) -> Change:
    if label is None:
        return training.forget(subject.reading, author.source, author.name)
    return training.learn(subject.reading, label, author.source, author.name)


def _may_change(active: Entry, author: Author, name: str) -> None:
    if not author.master and active.by != author.name and active.source not in NOBODYS:
        raise Refused(
            f"{name}: learnt as {active.label} by {active.by or 'somebody else'}; only they or the administrator can"
            " change that"
        )


def _has_left(store: Store, author: Author, marks_a_day: int) -> None:
    if store.entries_by(author.name, datetime.now(UTC) - DAY) >= marks_a_day:
        raise Refused(
            f"{author.name or 'nobody'}: {marks_a_day} marks in 24 hours are the limit ([feedback] marks_a_day);"
            " go on tomorrow, or ask the administrator"
        )


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
    tokens = entry.tokens
    if tokens is None:
        with store.learning() as learning:
            active = learning.active(entry.digest)
        tokens = active.tokens if active else None
    if tokens is None:
        raise InputError(
            f"{id}: its tokens are not kept any more ([feedback] window_days, window_megabytes); name its file instead"
        )
    return Subject(id, id, Reading(entry.digest, tokens))


def by_mail(filter: Filter, name: str, mail: bytes) -> Subject:
    """The message in these bytes, as it was judged if it passed the relay."""
    message = parse(mail)
    reading = filter.read(message)
    for entry in _candidates(filter.store, mail, message, reading.digest):
        if entry.tokens is None:
            if entry.digest == reading.digest or _named_alike(entry, mail, message):
                return Subject(name, entry.id, Reading(entry.digest, reading.tokens))
        elif entry.digest == reading.digest or similar(entry.tokens, reading.tokens):
            # Voices that were chosen since see the mail as it is now.
            return Subject(name, entry.id, Reading(entry.digest, {**reading.tokens, **entry.tokens}))
    return Subject(name, "", reading)


def _candidates(store: Store, mail: bytes, message: Message, digest: bytes) -> Iterator[JournalEntry]:
    """Entries of the journal that may be of this mail, the likeliest first."""
    id = header_id(mail)
    named = store.find_journal(id) if id else None
    if named is not None:
        yield named
    same = store.journal_of([digest]).get(digest)
    if same is not None:
        yield store.find_journal(same.id) or same
    yield from store.journal_named(message.field(b"message-id"))


def _named_alike(entry: JournalEntry, mail: bytes, message: Message) -> bool:
    """Whether both names agree, where the words of the judged mail are not kept any more."""
    return entry.id == header_id(mail) and bool(entry.message_id) and entry.message_id == message.field(b"message-id")


def similar(one: VoiceTokens, other: VoiceTokens) -> bool:
    """Whether two mails say the same, up to what lists and mail systems add."""
    words = [set(tokens) for name in one if name in other for tokens in (one[name], other[name])]
    found = [
        (len(mine & theirs), min(len(mine), len(theirs))) for mine, theirs in zip(words[::2], words[1::2], strict=True)
    ]
    shared, smaller = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
    return smaller > 0 and shared >= SAME * smaller


def header_id(mail: bytes) -> str:
    """The value of X-Spamfilter-Id in a mail's header, '' without a valid one."""
    head = mail[: header_end(mail)] if b"\r\n" in mail[:1000] else mail.partition(b"\n\n")[0]
    for line in head.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"x-spamfilter-id":
            words = value.decode("ascii", "replace").split()
            return words[0].upper() if words and is_id(words[0]) else ""
    return ""
