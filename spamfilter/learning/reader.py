"""Reads the mails of a bulk training, and keeps of the first ones what later rounds look at.

Guarantee: what it gives of mails that stay where and as they are depends neither on the number of processes that read
nor on how many mails it keeps.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from spamfilter.bayes.folded import folded
from spamfilter.bayes.labels import Label
from spamfilter.bayes.voices import Packed, pack
from spamfilter.errors import InputError
from spamfilter.learning.ahead import ahead
from spamfilter.learning.filter import Filter, Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

KEPT = 12_000_000
"""Words of mails, each once for each mail, that later rounds have at hand: of some 20,000 mails, eight kilobytes each.
The others are read anew in each round."""
FEWEST = 200
"""Mails for which other processes are started: they are there after some milliseconds."""

MOST = 3
"""Processes that are worth their memory: this one learns what two or three can read."""


def readers() -> int:
    """Processes that should read ahead here: one for each core, since the one that learns waits now and then, or none
    where there is one core.
    """
    cores = len(os.sched_getaffinity(0))
    return min(cores, MOST) if cores > 1 else 0


Numbered = tuple[int, Label, Mail]
"""A mail with its label and its number in the run."""
Batches = Sequence[Sequence[Numbered]]


class Read(NamedTuple):
    """A mail as it was read. kept: as it was read in the first round."""

    number: int
    label: Label
    name: str
    reading: Reading
    kept: bool


class Reader:
    """words: in all mails that it has read, of voices that learn in later rounds."""

    def __init__(self, filter: Filter, processes: int = 0) -> None:
        """processes: that read ahead, besides this one."""
        self.words = 0
        self._filter = filter
        self._processes = processes
        self._reinforced = [voice.name for voice in filter.voices if voice.likelihood.reinforces()]
        self._kept: dict[str, Reading] = {}
        self._room = KEPT

    def first(self, batches: Batches, problems: list[str]) -> Generator[list[Read], None, None]:
        """The mails of each batch, as far as they can be read."""
        return self._readings(batches, self._read, {}, problems, packs=True)

    def again(self, batches: Batches) -> Generator[list[Read], None, None]:
        """The same for a later round, of the voices that learn then."""
        return self._readings(batches, self._read_again, self._kept, [], packs=False)

    def at_hand(self, mails: Sequence[Numbered]) -> list[Read] | None:
        """The same without batches, if all of them are kept."""
        found = [(number, label, mail.name, self._kept.get(mail.name)) for number, label, mail in mails]
        kept = [Read(number, label, name, reading, True) for number, label, name, reading in found if reading]
        return kept if len(kept) == len(mails) else None

    def _readings(
        self,
        batches: Batches,
        read: Callable[[Mail], Reading],
        kept: Mapping[str, Reading],
        problems: list[str],
        packs: bool,
    ) -> Generator[list[Read], None, None]:
        mails = [mail for batch in batches for *_, mail in batch if mail.name not in kept]
        processes = self._processes if len(mails) >= FEWEST else 0
        with closing(ahead(read, mails, processes, packs)) as found:
            for batch in batches:
                readings = []
                for number, label, mail in batch:
                    reading = kept.get(mail.name)
                    try:
                        here = reading or self._noted(mail, next(found) or read(mail), packs)
                    except InputError as error:
                        problems.append(str(error))
                    else:
                        readings.append(Read(number, label, mail.name, here, reading is not None))
                yield readings

    def _read(self, mail: Mail) -> Reading:
        return self._filter.read(parse(mail.read()))

    def _read_again(self, mail: Mail) -> Reading:
        reading = self._read(mail)
        return Reading(reading.digest, {voice: reading.tokens[voice] for voice in self._reinforced})

    def _noted(self, mail: Mail, found: Reading | InputError, packs: bool) -> Reading:
        """What has been read; for later rounds it is kept, as it is packed for the ledger, while there is room."""
        if isinstance(found, InputError):
            raise found
        size = sum(len(found.tokens[voice]) for voice in self._reinforced)
        self.words += size
        if not packs or size > self._room or mail.name in self._kept:
            return found
        tokens = found.tokens
        packed = tokens if isinstance(tokens, Packed) else Packed(pack(tokens), tokens)
        few = folded(packed, self._reinforced)
        if few is not None:
            self._room -= size
            self._kept[mail.name] = Reading(found.digest, few)
        return Reading(found.digest, packed)
