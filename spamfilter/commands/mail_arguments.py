"""The messages that the arguments of a command name, read from the database or from files."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from spamfilter.commands.command import standard_input
from spamfilter.errors import InputError
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import MailAtHand, Subject, by_id, by_mail, by_mails, mail_at_hand
from spamfilter.mail import mailboxes
from spamfilter.system.ids import id_in

TOGETHER = 100
"""Mails of files about which the journal is asked at once: some megabytes of messages."""


def subjects(filter: Filter, names: Iterable[str]) -> Iterator[Subject]:
    """The messages of these names, one after the other. Raises InputError at a wrong name, after what comes before."""
    waiting: list[MailAtHand] = []
    try:
        for name in names:
            if name != "-" and name and os.path.lexists(name):
                for found in mailboxes.find(Path(name)):
                    waiting.append(mail_at_hand(filter, found.name, found.read()))
                    if len(waiting) == TOGETHER:
                        yield from by_mails(filter, waiting)
                        waiting.clear()
            else:
                yield from by_mails(filter, waiting)
                waiting.clear()
                yield _without_file(filter, name)
    except InputError:
        yield from by_mails(filter, waiting)
        raise
    yield from by_mails(filter, waiting)


def _without_file(filter: Filter, name: str) -> Subject:
    """The message of standard input, or of an id."""
    if name == "-":
        return by_mail(filter, "standard input", standard_input())
    if not name:
        raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
    if id := id_in(name):
        subject = by_id(filter.store, id)
        if not any(voice.name in subject.reading.tokens for voice in filter.voices):
            raise InputError(f"{name}: judged under another configuration ([learn] voices); give its file instead")
        return subject
    raise InputError(f"{name}: not a file, a folder or an id (26 letters and digits)")


def named(subject: Subject) -> dict[str, str]:
    """A subject as the JSON output names it."""
    return {"id": subject.id} if subject.id else {"file": subject.name}
