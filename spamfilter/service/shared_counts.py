"""Counts in memory that all processes of a relay share: one process writes them, the others read them without a lock.

The address space is mapped before the processes are forked, and larger than any counts; what is not used takes no
memory. A table of words is changed where it is, word by word in aligned numbers, so that a reader sees a count from
before a learning or from after it. A table that grows is written anew behind all others, and the pages of the old one
go back to the system. All other numbers are one record: the writer writes them to the record that nobody reads, and
then increases the version, which is odd while a learning is written. A reader that finds another version after its work
does it again.

Guarantee: whenever the writer ends, the record that readers use is whole, and so are the tables that it names; of the
learning that was being written some words may be counted. The version stays odd then, until the next writer has put
all counts beside these and changed over.
"""

import mmap
import pickle
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.count_table import BUCKET, HashedTable, Memory
from spamfilter.bayes.counts import Counts, Tallies
from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import State
from spamfilter.bayes.token_arrays import Integers
from spamfilter.bayes.voices import Voices

Result = TypeVar("Result")

RECORD = 2**23
"""Bytes for each of the two records: 500 are used, and 3 million where four voices keep tallies of counts up to 45,000.
What is not used takes no memory."""
TABLES = mmap.PAGESIZE + 2 * RECORD
"""Where the tables begin, behind the version and the records."""
SIZE = 2**37
LEAST = 2**28
"""Bytes of address space, which a process of 64 bits has a thousand times: for the counts of two billion words, and for
those that replace them. Where the system gives no more than its memory (vm.overcommit_memory = 2), or a limit is set,
half as much is asked for, and again, down to LEAST: for some million words. As much again stays free."""
MAP_NORESERVE = 0x4000
"""The flag of mmap(2) by which only memory that is used counts; Python 3.11 has no name for it."""
HEAD = struct.Struct("qI")
"""Length and checksum before a record: whatever order a processor writes in, half a record is not taken for one."""
PATIENCE = 0.002
"""Seconds to wait for counts that stand still: four times what it takes to write a learning. After that a message is
judged by counts of which some may be a learning ahead of others; it waits no more for a writer that was killed."""


class Place(NamedTuple):
    """A table in the memory: its first byte, and its shape."""

    start: int
    buckets: int
    width: int

    @property
    def end(self) -> int:
        """The first byte of the next page behind it."""
        return self.start - (-self.buckets * BUCKET * self.width * 8 // mmap.PAGESIZE) * mmap.PAGESIZE


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
        self._shared = _mapped()
        self._shared.madvise(mmap.MADV_DONTDUMP)
        self._address = np.frombuffer(self._shared, np.uint8).ctypes.data
        self._records = memoryview(self._shared)
        self._version = self._records[:8].cast("q")
        self._stuck = 0
        self._held = Held(0, State({}, {}, Calibration(), 0), ())
        self._taken: set[Place] = set()
        self._end = TABLES

    def held(self) -> Held:
        """The counts of now, to be read only; their words go on to change."""
        while (number := self._version[0] >> 1) != self._held.number:
            record = self._record(number)
            if record is not None:
                self._held = self._built(record)
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
        """The counts for a process that will write them; after a writer that was killed, `replace` them first."""
        record = None
        while record is None:
            record = self._record(self._version[0] >> 1)
        self._release({totals.place for totals in record.totals.values()})
        return self._built(record, self._memory)

    def replace(self, state: State, voices: Voices) -> State:
        """Let all processes judge with these counts; returns them as they are here, to be changed."""
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
        totals = {voice: self._totals(counts) for voice, counts in state.counts.items()}
        content = pickle.dumps(
            Record(number, pickle.dumps(voices), state.last, state.learnt, state.calibration, totals)
        )
        start = self._start(number)
        if len(content) > RECORD - HEAD.size:
            raise OverflowError(f"the totals of the counts take {len(content)} bytes, and there is room for {RECORD}")
        HEAD.pack_into(self._records, start, len(content), zlib.crc32(content))
        self._records[start + HEAD.size : start + HEAD.size + len(content)] = content
        self._version[0] = 2 * number
        if self._taken != (used := {each.place for each in totals.values()}):
            self._release(used)

    def _totals(self, counts: Counts) -> Totals:
        table, tallies = counts.kept, counts.tallies
        assert isinstance(table, HashedTable)
        buckets, _, width = table.table.shape
        place = Place(table.table.ctypes.data - self._address, buckets, width)
        return Totals(counts.messages, counts.occurrences, counts.vocabulary, tallies, place, table.used)

    def _memory(self, buckets: int, width: int) -> Integers:
        """An empty table behind all others, or where one was once. Raises MemoryError if there is no room."""
        for start in (self._end, TABLES, *(place.end for place in self._taken)):
            place = Place(start, buckets, width)
            is_free = all(place.end <= other.start or other.end <= start for other in self._taken)
            if is_free and place.end <= len(self._shared):
                self._taken.add(place)
                self._end = place.end
                return self._table(place)
        raise MemoryError(f"the counts take more than the {len(self._shared)} bytes that could be mapped for them")

    def _release(self, used: set[Place]) -> None:
        """Give back all but these tables, also what a writer has left that was killed."""
        end, size = TABLES, len(self._shared)
        for start, after in sorted([*((place.start, place.end) for place in used), (size, size)]):
            if start > end:
                self._shared.madvise(mmap.MADV_REMOVE, end, start - end)
            end = after
        self._taken = used

    def _table(self, place: Place) -> Integers:
        table = np.frombuffer(self._shared, np.int64, place.buckets * BUCKET * place.width, place.start)
        return table.reshape(place.buckets, BUCKET, place.width)

    def _record(self, number: int) -> Record | None:
        """The record with this number; None if the writer has overwritten it by now."""
        start = self._start(number)
        size, checksum = HEAD.unpack_from(self._records, start)
        content = bytes(self._records[start + HEAD.size : start + RECORD][:size])
        if zlib.crc32(content) != checksum:
            return None
        record: Record = pickle.loads(content)  # noqa: S301 - of a process of this relay, which alone have the memory
        return record if record.number == number else None

    def _built(self, record: Record, memory: Memory | None = None) -> Held:
        """memory: for a writer; a reader's tables are read-only."""
        counts = {}
        for voice, totals in record.totals.items():
            table = self._table(totals.place)
            table.flags.writeable = memory is not None
            counts[voice] = Counts(HashedTable.of(table, totals.used, memory))
            counts[voice].messages, counts[voice].occurrences = totals.messages, totals.occurrences
            counts[voice].vocabulary, counts[voice].tallies = totals.vocabulary, totals.tallies
        voices: Voices = pickle.loads(record.voices)  # noqa: S301 - as in _record
        return Held(record.number, State(counts, record.learnt, record.calibration, record.last), voices)

    @staticmethod
    def _start(number: int) -> int:
        """The first byte of the record with this number: two of them take turns."""
        return mmap.PAGESIZE + number % 2 * RECORD


def _mapped() -> mmap.mmap:
    """Memory for all counts. Raises OSError if there is not even address space for LEAST."""
    size = SIZE
    while True:
        try:
            with _anonymous(size):  # as much again stays for all else: the stacks of threads, the mail
                return _anonymous(size)
        except OSError:
            if size <= LEAST:
                raise
            size //= 2


def _anonymous(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
