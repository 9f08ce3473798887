"""Reads the mails of a bulk training, and keeps of the first ones what later rounds look at.

Guarantee: what it gives depends on the mails alone, and neither on the number of processes that read nor on how many
mails it keeps.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from spamfilter.ahead import ahead
from spamfilter.errors import InputError
from spamfilter.features import Tokens
from spamfilter.filter import Filter, Reading
from spamfilter.labels import Label
from spamfilter.mailboxes import Mail
from spamfilter.message import parse
from spamfilter.seen import Integers, Seen, Unspelt, hashed
from spamfilter.stores import Entry

KEPT = 3_000_000
"""Words of mails, each once for each mail, that later rounds have at hand: a hundred megabytes, some 5,000 mails."""
UNSPELT = 10_000_000
"""The same of further mails by their hashes alone: eighty megabytes, some 17,000 mails. Those that shall learn more are
read anew; and of mails beyond that all are, in each round."""
FEWEST = 200
"""Mails for which other processes are started: they are there after some milliseconds."""

MOST = 3
"""Processes that are worth their memory: this one learns what two or three can read."""


def readers() -> int:
    """Processes that should read ahead here: one for each core, since the one that learns waits for them now and then;
    none where there is one core."""
    cores = len(os.sched_getaffinity(0))
    return min(cores, MOST) if cores > 1 else 0


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
        self._unspelt: dict[str, Mail] = {}
        self._learnings: dict[bytes, Entry] = {}
        self._others = filter.others
        self._room, self._unspelt_room = KEPT, UNSPELT

    def first(self, batches: Batches, problems: list[str]) -> Generator[list[Read], None, None]:
        """The mails of each batch, as far as they can be read."""
        return self._readings(batches, {}, self._read, True, problems)

    def again(self, batches: Batches) -> Generator[list[Read], None, None]:
        """The same for a later round, of the voices that learn then; some of them need `spelt` before they do."""
        return self._readings(batches, dict(self._kept), self._read_again, False, [])

    def spelt(self, name: str, reading: Reading) -> Reading | None:
        """A reading of `again` with the words themselves; None where the mail has changed, or gone."""
        mail = self._unspelt.get(name)
        if mail is None:
            return reading
        try:
            found = self._read_again(mail)
        except InputError:
            return None
        return found if found.digest == reading.digest else None

    def learnt(self, name: str, entry: Entry) -> None:
        """Remember what was learnt of a mail that was read here, if it is at hand."""
        kept = self._kept.get(name)
        if kept is not None and all(
            _hashes(entry.tokens[voice]) is _hashes(tokens) for voice, tokens in kept.tokens.items()
        ):
            self._learnings[entry.digest] = replace(entry, tokens=kept.tokens)

    def reinforced(self, entry: Entry) -> None:
        """Remember that this is in the place of a learning that may be known here."""
        before = self._learnings.get(entry.digest)
        if before is not None:
            self._learnings[entry.digest] = replace(entry, tokens=before.tokens)

    def learning_of(self, reading: Reading) -> Entry | None:
        """The learning of a mail as the ledger has it, if it is known here; within a transaction."""
        if self._others != self._filter.others:
            self._others = self._filter.others
            self._learnings.clear()  # somebody may have changed it
        entry = self._learnings.get(reading.digest)
        if entry is None or not any(isinstance(tokens, Unspelt) for tokens in entry.tokens.values()):
            return entry
        same = all(
            np.array_equal(_hashes(reading.tokens[voice]), _hashes(tokens)) for voice, tokens in entry.tokens.items()
        )
        return replace(entry, tokens=reading.tokens) if same else None

    def _readings(
        self,
        batches: Batches,
        kept: Mapping[str, Reading],
        read: Callable[[Mail], Reading],
        packs: bool,
        problems: list[str],
    ) -> Generator[list[Read], None, None]:
        mails = [mail for batch in batches for _, mail in batch if mail.name not in kept]
        processes = self._processes if len(mails) >= FEWEST else 0
        with closing(ahead(read, mails, processes, packs)) as found:
            for batch in batches:
                readings = []
                for label, mail in batch:
                    try:
                        reading = kept.get(mail.name) or self._noted(mail, next(found) or read(mail))
                    except InputError as error:
                        problems.append(str(error))
                    else:
                        readings.append((label, mail.name, reading))
                yield readings

    def _read(self, mail: Mail) -> Reading:
        return self._filter.read(parse(mail.read()))

    def _read_again(self, mail: Mail) -> Reading:
        """What voices that learn in later rounds see."""
        reading = self._read(mail)
        return Reading(reading.digest, {voice: reading.tokens[voice] for voice in self._reinforced})

    def _noted(self, mail: Mail, found: Reading | InputError) -> Reading:
        """What has been read, kept for later rounds while there is room."""
        if isinstance(found, InputError):
            raise found
        seen = {voice: tokens for voice in self._reinforced if isinstance(tokens := found.tokens[voice], Seen)}
        size = sum(map(len, seen.values()))
        self.words += size
        if len(seen) == len(self._reinforced) and mail.name not in self._kept:
            if size <= self._room:
                self._room -= size
                self._kept[mail.name] = Reading(found.digest, {voice: some.bare() for voice, some in seen.items()})
            elif size <= self._unspelt_room:
                self._unspelt_room -= size
                self._unspelt[mail.name] = mail
                hashes = {voice: Unspelt(some.spellings.hashes) for voice, some in seen.items()}
                self._kept[mail.name] = Reading(found.digest, hashes)
        return found


def _hashes(tokens: Tokens) -> Integers:
    return tokens.spellings.hashes if isinstance(tokens, Seen) else hashed(list(tokens))
