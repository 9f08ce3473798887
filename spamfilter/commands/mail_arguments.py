"""The messages that the arguments of a command name: ids, files, folders, standard input.

Heavy modules are imported only where they are used: a mark over the feedback socket needs none of them.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spamfilter.commands.command import standard_input
from spamfilter.errors import InputError, NotMail

if TYPE_CHECKING:
    from spamfilter.learning.filter import Filter
    from spamfilter.learning.marks import MailAtHand, Subject

TOGETHER = 100
"""Mails of files about which the journal is asked at once: some megabytes of messages."""


def named_mails(names: Iterable[str], problems: list[str]) -> Iterator[tuple[str, bytes | None]]:
    """Each message: the name and the bytes of a mail, or an id and None. Raises InputError at a wrong name.

    problems: takes a sentence for each file that is no mail and is passed over.
    """
    from spamfilter.mail import mailboxes
    from spamfilter.system.ids import id_in

    for name in names:
        if name == "-":
            try:
                mail = mailboxes.checked("standard input", standard_input())
            except NotMail as error:
                problems.append(str(error))
            else:
                yield "standard input", mail
        elif os.path.lexists(name):
            for found in mailboxes.find(Path(name)):
                try:
                    mail = found.read()
                except NotMail as error:
                    problems.append(str(error))
                else:
                    yield found.name, mail
        elif not name:
            raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
        elif id := id_in(name):
            yield id, None
        else:
            raise InputError(f"{name}: not a file, a folder or an id (26 letters and digits)")


def subjects(filter: "Filter", names: Iterable[str], problems: list[str]) -> "Iterator[Subject]":
    """The messages of these names, in order. At a wrong name it raises InputError, after the messages before it.

    problems: as in `named_mails`.
    """
    from spamfilter.learning.marks import by_mails, mail_at_hand

    waiting: list[MailAtHand] = []
    try:
        for name, mail in named_mails(names, problems):
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
