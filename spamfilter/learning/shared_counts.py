"""Counts in memory that all processes of a relay share: one process writes them, the others read them without a lock.

The memory is one anonymous file, which exists before the processes are forked. A table of words is changed where it is,
word by word in aligned numbers, so that a reader sees a count from before a learning or from after it. A table that
grows is written anew behind all others, and the pages of the old one go back to the system; no part of the file is used
twice. All other numbers are one record: the writer writes them to the record that nobody reads, and then increases the
version, which is odd while a learning is written.

Guarantee: whenever the writer ends, the record that readers use is whole, and so are the tables that it names; of the
learning that was being written some words may be counted. The version stays odd then, until the next writer has put
all counts beside these and changed over.
"""

import mmap
import os
import pickle
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, TypeVar

import numpy as np

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.count_table import BUCKET, HashedTable, Memory
from spamfilter.bayes.counts import Counts, Label, Tallies
from spamfilter.bayes.model import State
from spamfilter.bayes.token_arrays import Integers
from spamfilter.bayes.voices import Voices

Result = TypeVar("Result")

RECORD = 2**23
"""Bytes for each of the two records: 500 are used, and 3 million where four voices keep tallies of counts up to 45,000.
What is not used takes no memory."""
TABLES = mmap.PAGESIZE + 2 * RECORD
"""Where the tables begin, behind the version and the records."""
HEAD = struct.Struct("qI")
"""Length and checksum before a record: whatever order a processor writes in, half a record is not taken for one."""
PATIENCE = 0.002
"""Seconds to wait for counts that stand still: four times what it takes to write a learning. After that a message is
judged by counts of which some may be a learning ahead of others; it waits no more for a writer that was killed."""


class Place(NamedTuple):
    """A table in the file: its first byte, and its shape."""

    start: int
    buckets: int
    width: int

    @property
    def size(self) -> int:
        """Bytes, in whole pages."""
        return -(-self.buckets * BUCKET * self.width * 8 // mmap.PAGESIZE) * mmap.PAGESIZE


class Totals(NamedTuple):
    """The counts of a voice but for its words. used: as of its table."""

    messages: dict[str, int]
    occurrences: dict[str, int]
    vocabulary: int
    tallies: Tallies | None
    place: Place
    used: int


class Record(NamedTuple):
    """What changes with each learning. number: of the record; voices: pickled, since they hardly ever change."""

    number: int
    voices: bytes
    last: int
    learnt: dict[Label, int]
    calibration: Calibration
    totals: dict[str, Totals]


class Held(NamedTuple):
    """A record as the model takes it."""

    number: int
    state: State
    voices: Voices


class SharedCounts:
    """The counts of a relay. Create it, and publish counts, before the processes are forked."""

    def __init__(self) -> None:
        self._file = os.memfd_create("spamfilter-counts")
        os.ftruncate(self._file, TABLES)
        self._records = memoryview(mmap.mmap(self._file, TABLES))
        self._version = self._records[:8].cast("q")
        self._stuck = 0
        self._held = Held(0, State({}, {}, Calibration(), 0), ())
        self._read: dict[Place, Integers] = {}
        self._written: dict[int, Place] = {}
        self._used: set[Place] = set()

    def held(self) -> Held:
        """The counts of now, to be read only; their words go on to change."""
        while (number := self._version[0] >> 1) != self._held.number:
            record = self._record(number)
            if record is not None:
                places = {voice: totals.place for voice, totals in record.totals.items()}
                known = self._read
                self._read = {place: self._table(place, mmap.ACCESS_READ, known) for place in places.values()}
                self._held = _held(record, self._read)
        return self._held

    def steady(self, work: Callable[[Held], Result]) -> Result:
        """The result of work with counts that no learning changes meanwhile, if that can be had within PATIENCE."""
        give_up = 0.0
        while (version := self._version[0]) != self._stuck:
            if not version & 1:
                result = work(self.held())
                if self._version[0] == version:
                    return result
            now = time.monotonic()
            give_up = give_up or now + PATIENCE
            if now > give_up:
                self._stuck = version
                break
            if version & 1:
                time.sleep(PATIENCE / 40)
        return work(self.held())

    # The writer's side

    def taken_over(self) -> Held:
        """The counts for a process that will write them; after another writer that was killed only to be replaced."""
        record = None
        while record is None:
            record = self._record(self._version[0] >> 1)
        tables = {totals.place: self._table(totals.place, mmap.ACCESS_WRITE) for totals in record.totals.values()}
        self._written = {_address(table): place for place, table in tables.items()}
        self._used = set(tables)
        return _held(record, tables, self._memory)

    def replace(self, state: State, voices: Voices) -> State:
        """Let everybody judge with these counts; returns them as they are here, to be changed."""
        for counts in state.counts.values():
            assert isinstance(counts.kept, HashedTable)
            counts.kept = counts.kept.copied(self._memory)
        with self.changing(state, voices):
            pass
        return state

    @contextmanager
    def changing(self, state: State, voices: Voices) -> Iterator[None]:
        """Change the state in here, and publish it at the end. After an error it must be replaced."""
        self._version[0] |= 1
        yield
        number = (self._version[0] >> 1) + 1
        places = {}
        for voice, counts in state.counts.items():
            assert counts.kept.table is not None
            places[voice] = self._written[_address(counts.kept.table)]
        totals = {
            voice: Totals(
                counts.messages, counts.occurrences, counts.vocabulary, counts.tallies,
                places[voice], counts.kept.used if isinstance(counts.kept, HashedTable) else 0,
            )
            for voice, counts in state.counts.items()
        }  # fmt: skip
        content = pickle.dumps(
            Record(number, pickle.dumps(voices), state.last, state.learnt, state.calibration, totals)
        )
        start = self._start(number)
        if len(content) > RECORD - HEAD.size:
            raise OverflowError(f"the totals of the counts take {len(content)} bytes, and there is room for {RECORD}")
        HEAD.pack_into(self._records, start, len(content), zlib.crc32(content))
        self._records[start + HEAD.size : start + HEAD.size + len(content)] = content
        self._version[0] = 2 * number
        if self._used != (used := set(places.values())):
            self._release(used)

    def _memory(self, buckets: int, width: int) -> Integers:
        """Room for a table, behind all others. Raises OSError if the machine has no memory for it."""
        place = Place(os.fstat(self._file).st_size, buckets, width)
        os.posix_fallocate(self._file, place.start, place.size)  # now, and not as a SIGBUS at the first write
        table = self._table(place, mmap.ACCESS_WRITE)
        self._written[_address(table)] = place
        return table

    def _release(self, used: set[Place]) -> None:
        """Give back what is between these tables, also what a writer has left that was killed."""
        end = TABLES
        for start, after in sorted((place.start, place.start + place.size) for place in used):
            if start > end:
                with closing(mmap.mmap(self._file, start - end, offset=end)) as gap:
                    gap.madvise(mmap.MADV_REMOVE)
            end = after
        self._used = used
        self._written = {address: place for address, place in self._written.items() if place in used}

    def _table(self, place: Place, access: int, known: dict[Place, Integers] | None = None) -> Integers:
        if known and place in known:
            return known[place]
        mapped = mmap.mmap(self._file, place.size, offset=place.start, access=access)
        shape = place.buckets, BUCKET, place.width
        return np.frombuffer(mapped, np.int64, place.buckets * BUCKET * place.width).reshape(shape)

    def _record(self, number: int) -> Record | None:
        """The record with this number; None if the writer has overwritten it by now."""
        start = self._start(number)
        size, checksum = HEAD.unpack_from(self._records, start)
        content = bytes(self._records[start + HEAD.size : start + HEAD.size + size])
        if zlib.crc32(content) != checksum:
            return None
        record: Record = pickle.loads(content)  # noqa: S301 - of a process of this relay, which alone have the file
        return record if record.number == number else None

    @staticmethod
    def _start(number: int) -> int:
        """The first byte of the record with this number: two of them take turns."""
        return mmap.PAGESIZE + number % 2 * RECORD


def _held(record: Record, tables: dict[Place, Integers], memory: Memory | None = None) -> Held:
    counts = {}
    for voice, totals in record.totals.items():
        counts[voice] = Counts(HashedTable.of(tables[totals.place], totals.used, memory))
        counts[voice].messages, counts[voice].occurrences = totals.messages, totals.occurrences
        counts[voice].vocabulary, counts[voice].tallies = totals.vocabulary, totals.tallies
    voices: Voices = pickle.loads(record.voices)  # noqa: S301 - as in _record
    return Held(record.number, State(counts, record.learnt, record.calibration, record.last), voices)


def _address(table: Integers) -> int:
    """Where an array begins in memory."""
    return int(table.ctypes.data)
