"""Reads the mails of a bulk training, and keeps of the first ones what later rounds look at.

Guarantee: what it gives depends on the mails alone, and neither on the number of processes that read nor on how many
mails it keeps.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from spamfilter.ahead import ahead
from spamfilter.errors import InputError
from spamfilter.features import Tokens
from spamfilter.filter import Filter, Reading
from spamfilter.labels import Label
from spamfilter.mailboxes import Mail
from spamfilter.message import parse
from spamfilter.seen import Seen
from spamfilter.stores import Entry

KEPT = 3_000_000
"""Words of mails, each once for each mail, that later rounds have at hand: a hundred megabytes, some 5,000 mails. The
others are read anew in each round."""
FEWEST = 200
"""Mails for which other processes are started: they are there after some milliseconds."""

MOST = 3
"""Processes that are worth their memory: this one learns what two or three can read."""


def readers() -> int:
    """Processes that should read ahead here: one for each core besides the one that learns."""
    return min(len(os.sched_getaffinity(0)) - 1, MOST)


Batches = Sequence[Sequence[tuple[Label, Mail]]]
Read = tuple[Label, str, Reading]
"""A mail as it was read, with its label and its name."""


class Reader:
    """words: in all readings that it gave, of voices that learn in later rounds."""

    def __init__(self, filter: Filter, processes: int = 0) -> None:
        """processes: that read ahead, besides this one."""
        self.words = 0
        self._filter = filter
        self._processes = processes
        self._reinforced = [voice.name for voice in filter.voices if voice.likelihood.reinforces()]
        self._kept: dict[str, Reading] = {}
        self._learnings: dict[bytes, Entry] = {}
        self._others = filter.others
        self._room = KEPT

    def first(self, batches: Batches, problems: list[str]) -> Generator[list[Read], None, None]:
        """The mails of each batch, as far as they can be read."""
        return self._readings(batches, {}, problems)

    def again(self, batches: Batches) -> Generator[list[Read], None, None]:
        """The same for a later round."""
        return self._readings(batches, dict(self._kept), [])

    def learnt(self, name: str, entry: Entry) -> None:
        """Remember what was learnt of a mail that was read here, if it is at hand."""
        kept = self._kept.get(name)
        if kept is not None and all(_same(tokens, entry.tokens[voice]) for voice, tokens in kept.tokens.items()):
            self._learnings[entry.digest] = replace(entry, tokens=kept.tokens)

    def reinforced(self, entry: Entry) -> None:
        """Remember that this is in the place of a learning known here."""
        self._learnings[entry.digest] = entry

    def learning_of(self, digest: bytes) -> Entry | None:
        """The learning of a mail as the ledger has it, if it is known here; within a transaction."""
        if self._others != self._filter.others:
            self._others = self._filter.others
            self._learnings.clear()  # somebody may have changed it
        return self._learnings.get(digest)

    def _readings(
        self, batches: Batches, kept: Mapping[str, Reading], problems: list[str]
    ) -> Generator[list[Read], None, None]:
        mails = [mail for batch in batches for _, mail in batch if mail.name not in kept]
        processes = self._processes if len(mails) >= FEWEST else 0
        with closing(ahead(self._read, mails, processes)) as found:
            for batch in batches:
                readings = []
                for label, mail in batch:
                    try:
                        reading = kept.get(mail.name) or self._found(mail, next(found))
                    except InputError as error:
                        problems.append(str(error))
                    else:
                        readings.append((label, mail.name, reading))
                yield readings

    def _read(self, mail: Mail) -> Reading:
        return self._filter.read(parse(mail.read()))

    def _found(self, mail: Mail, found: Reading | InputError | None) -> Reading:
        """What has been read ahead, or is read now."""
        if isinstance(found, InputError):
            raise found
        reading = found or self._read(mail)
        seen = {voice: tokens for voice in self._reinforced if isinstance(tokens := reading.tokens[voice], Seen)}
        size = sum(map(len, seen.values()))
        self.words += size
        if len(seen) == len(self._reinforced) and size <= self._room and mail.name not in self._kept:
            self._room -= size
            bare = {voice: some.bare() for voice, some in seen.items()}
            self._kept[mail.name] = Reading(reading.digest, bare)
        return reading


def _same(one: Tokens, other: Tokens) -> bool:
    """Whether these are the same tokens of one reading."""
    return isinstance(one, Seen) and isinstance(other, Seen) and one.spellings is other.spellings
