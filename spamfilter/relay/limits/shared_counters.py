"""Numbers and names in memory that all processes of a relay share, so that a limit holds over all of them together.

Invariant: a process writes its own numbers alone, each in one step, so that nothing needs a lock and nobody can die
holding one; only the addresses of probes are written by all. What is taken is written first and counted then, and given
back if it was too much: together the processes never take more than a limit allows, and two that ask for the last place
in the same microsecond may both be told that there is none.
"""

import mmap
from collections.abc import Iterator, MutableSet

import numpy as np

from spamfilter.relay.metrics import FIGURES

PLACES = 65_536
"""Connections that one process counts: as many as a port has on the other side; of its memory only what is used."""
ADDRESSES, LONGEST = 20, 512
"""Probes of `doctor` at a time, and the bytes of one's address: 43 of the probe's own, and a host's name of 255."""


class Addresses(MutableSet[str]):
    """A set of at most ADDRESSES addresses, each of one line of less than LONGEST bytes; `add` raises OverflowError."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ADDRESSES * LONGEST)

    def __contains__(self, address: object) -> bool:
        return self._place(_line(str(address))) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter([line.decode() for line in self._memory[:].replace(b"\0", b"").split(b"\n") if line])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def add(self, address: str) -> None:
        line = _line(address)
        if self._place(line) < 0:
            free = [start for start in range(0, len(self._memory), LONGEST) if not self._memory[start]]
            if not free or len(line) > LONGEST:
                raise OverflowError("no room for another address")
            self._memory[free[0] : free[0] + len(line)] = line

    def discard(self, address: str) -> None:
        place = self._place(_line(address))
        if place >= 0:
            self._memory[place : place + LONGEST] = bytes(LONGEST)

    def _place(self, line: bytes) -> int:
        for start in range(0, len(self._memory), LONGEST):
            if self._memory[start] and self._memory[start : start + len(line)] == line:
                return start
        return -1


def _line(address: str) -> bytes:
    return b"\n" + address.encode(errors="replace") + b"\n"


class Shared:
    """What each process writes in its row, `own`, and all read.

    figures: its metrics. held: bytes of mail that it holds. open: connections that it has. origins: of these, keyed
    hashes of the clients' addresses, 0 where there is none. state: 0 until it is ready, then one more for each time
    that it has read the configuration. canaries: addresses that `doctor` was given.

    The rows are made before the processes are; a row outlives its process, and is the next one's.
    """

    def __init__(self, processes: int = 1) -> None:
        self.own = 0
        self.figures = [_memory(FIGURES).cast("d") for _ in range(processes)]
        self.held = _memory(processes).cast("q")
        self.open = _memory(processes).cast("q")
        self.state = _memory(processes).cast("q")
        self.origins = [np.frombuffer(_memory(PLACES), np.int64) for _ in range(processes)]
        self.used = _memory(processes).cast("q")
        self.canaries = Addresses()

    @property
    def has_others(self) -> bool:
        """Whether there are workers: then 0 is the keeper, and they come after it."""
        return len(self.open) > 1

    def clear(self, number: int) -> None:
        """Give back what a process held that has ended; what it has counted stays."""
        self.held[number] = self.open[number] = self.state[number] = self.used[number] = 0
        self.origins[number][:] = 0

    def of_client(self, origin: int) -> int:
        """Connections of this client to all processes."""
        used = zip(self.origins, self.used, strict=True)
        return sum(int(np.count_nonzero(row[:most] == origin)) for row, most in used if most)


def _memory(count: int) -> memoryview:
    """Room for so many numbers of eight bytes, all 0, that a fork shares."""
    return memoryview(mmap.mmap(-1, 8 * count))[: 8 * count]
