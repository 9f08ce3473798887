"""The messages that the arguments of a command name, read from the database or from files."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from spamfilter.commands.command import standard_input
from spamfilter.errors import InputError
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import Subject, by_id, by_mail
from spamfilter.mail import mailboxes
from spamfilter.system.ids import id_in


def subjects(filter: Filter, names: Iterable[str]) -> Iterator[Subject]:
    """The messages of these names, one after the other."""
    for name in names:
        if name == "-":
            yield by_mail(filter, "standard input", standard_input())
        elif not name:
            raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
        elif os.path.lexists(name):
            for found in mailboxes.find(Path(name)):
                yield by_mail(filter, found.name, found.read())
        elif id := id_in(name):
            subject = by_id(filter.store, id)
            if not any(voice.name in subject.reading.tokens for voice in filter.voices):
                raise InputError(f"{name}: judged by other voices than today's; name its file instead")
            yield subject
        else:
            raise InputError(f"{name}: no such file or folder, and no id (26 letters and digits)")


def named(subject: Subject) -> dict[str, str]:
    """A subject as the JSON output names it."""
    return {"id": subject.id} if subject.id else {"file": subject.name}
