"""The messages that the arguments of a command name: ids, files, folders, standard input.

Heavy modules are imported only where they are used: a mark over the feedback socket needs none of them.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spamfilter.commands.command import standard_input
from spamfilter.errors import InputError

if TYPE_CHECKING:
    from spamfilter.learning.filter import Filter
    from spamfilter.learning.marks import MailAtHand, Subject

TOGETHER = 100
"""Mails of files about which the journal is asked at once: some megabytes of messages."""


def named_mails(names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
    """Each message: the name and the bytes of a mail, or an id and None. Raises InputError at a wrong name."""
    from spamfilter.mail import mailboxes
    from spamfilter.system.ids import id_in

    for name in names:
        if name == "-":
            yield "standard input", standard_input()
        elif os.path.lexists(name):
            for found in mailboxes.find(Path(name)):
                yield found.name, found.read()
        elif not name:
            raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
        elif id := id_in(name):
            yield id, None
        else:
            raise InputError(f"{name}: not a file, a folder or an id (26 letters and digits)")


def subjects(filter: "Filter", names: Iterable[str]) -> "Iterator[Subject]":
    """The messages of these names, in order. At a wrong name it raises InputError, after the messages before it."""
    from spamfilter.learning.marks import by_mails, mail_at_hand

    waiting: list[MailAtHand] = []
    try:
        for name, mail in named_mails(names):
            if mail is not None:
                waiting.append(mail_at_hand(filter, name, mail))
            if mail is None or len(waiting) == TOGETHER:
                yield from by_mails(filter, waiting)
                waiting.clear()
            if mail is None:
                yield _of_id(filter, name)
    except InputError:
        yield from by_mails(filter, waiting)
        raise
    yield from by_mails(filter, waiting)


def _of_id(filter: "Filter", id: str) -> "Subject":
    from spamfilter.learning.marks import by_id

    subject = by_id(filter.store, id)
    if not any(voice.name in subject.reading.tokens for voice in filter.voices):
        raise InputError(f"{id}: judged under another configuration ([learn] voices); give its file instead")
    return subject
