"""Numbers and names in shared memory, so that a limit holds over all processes of a relay together.

Invariant: a process writes only its own numbers, each in one step, so no lock is needed, and no process can die holding
one; only the addresses of probes are written by all. A process first takes its share, then counts, and gives it back if
that was too much: together they never exceed a limit, but two that ask for the last place at the same moment may both
be denied.
"""

import mmap
from collections.abc import Iterator, MutableSet

import numpy as np

from spamfilter.relay.metrics import FIGURES

BUCKETS = 16_384
"""Counters for addresses, chosen by hash. Two addresses with the same counter have together what one may have; of a
thousand addresses one in sixteen shares its counter."""
MOST_PROBES = 20
"""Probes of `doctor` at a time: more than administrators and monitoring programs need."""
LONGEST = 512
"""Bytes of an address, of which a probe takes 43 and the name of a host up to 255; and of a text, which is a sentence
with a path."""


class Addresses(MutableSet[str]):
    """At most MOST_PROBES addresses, each of one line of less than LONGEST bytes; `add` raises OverflowError."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, MOST_PROBES * LONGEST)

    def __contains__(self, address: object) -> bool:
        return self._memory.find(_line(str(address))) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter([line.decode() for line in self._memory[:].replace(b"\0", b"").split(b"\n") if line])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def add(self, address: str) -> None:
        line = _line(address)
        if self._memory.find(line) < 0:
            free = [start for start in range(0, len(self._memory), LONGEST) if not self._memory[start]]
            if not free or len(line) > LONGEST:
                raise OverflowError("no room for another address")
            self._memory[free[0] : free[0] + len(line)] = line

    def discard(self, address: str) -> None:
        place = self._memory.find(_line(address))
        if place >= 0:
            self._memory[place : place + LONGEST] = bytes(LONGEST)


def _line(address: str) -> bytes:
    return b"\n" + address.encode(errors="replace") + b"\n"


class Texts:
    """A text for each process, '' at first, cut to LONGEST bytes. A reader may get a part of the old text and a part of
    the new one while the process writes."""

    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, processes * LONGEST)

    def __getitem__(self, process: int) -> str:
        return self._memory[process * LONGEST : (process + 1) * LONGEST].rstrip(b"\0").decode(errors="replace")

    def __setitem__(self, process: int, text: str) -> None:
        line = text.encode(errors="replace")[:LONGEST].ljust(LONGEST, b"\0")
        self._memory[process * LONGEST : (process + 1) * LONGEST] = line


class Counts:
    """How much clients have of one resource, with a row for each process. all: all of them; strangers: those that are
    not trusted."""

    def __init__(self, processes: int) -> None:
        self.all = _memory(processes).cast("q")
        self.strangers = _memory(processes).cast("q")
        self._addresses = [np.frombuffer(_memory(BUCKETS), np.int64) for _ in range(processes)]

    def add(self, process: int, origin: int, size: int) -> None:
        """Count something for a process. origin: hash of a stranger's address, 0 for a trusted client."""
        self.all[process] += size
        if origin:
            self.strangers[process] += size
            self._addresses[process][origin % BUCKETS] += size

    def of(self, origin: int) -> int:
        """What a stranger's address has in all processes."""
        return sum(int(row[origin % BUCKETS]) for row in self._addresses)

    def clear(self, process: int) -> None:
        self.all[process] = self.strangers[process] = 0
        self._addresses[process][:] = 0


class Shared:
    """A row for each process, which all can read. own: the number of this process.

    figures: metrics. connections, memory (bytes of mail), conversations (with the next hop): what clients have of them.
    state: 0 until the process is ready, then increased each time it has read the configuration. beats: when it showed
    last that it does not hang, by time.monotonic. rules: one number, increased by the keeper when the database has
    other rules on senders. canaries: addresses of probes. journal_errors: why the last write of the journal failed.

    The rows exist before the processes start; a process that is restarted gets the same row.
    """

    def __init__(self, processes: int = 1) -> None:
        self.own = 0
        self.figures = [_memory(FIGURES).cast("d") for _ in range(processes)]
        self.connections, self.memory, self.conversations = (Counts(processes) for _ in range(3))
        self.state = _memory(processes).cast("q")
        self.beats = _memory(processes).cast("d")
        self.rules = _memory(1).cast("q")
        self.canaries = Addresses()
        self.journal_errors = Texts(processes)

    @property
    def has_others(self) -> bool:
        """Whether there are several processes: 0 is the keeper, and the workers follow."""
        return len(self.state) > 1

    def clear(self, number: int) -> None:
        """Release what a process held that has exited; its counters stay."""
        for counts in (self.connections, self.memory, self.conversations):
            counts.clear(number)
        self.state[number] = 0
        self.journal_errors[number] = ""


def _memory(count: int) -> memoryview:
    """Memory for this many numbers of eight bytes, all 0, which forked processes share."""
    return memoryview(mmap.mmap(-1, 8 * count))[: 8 * count]
