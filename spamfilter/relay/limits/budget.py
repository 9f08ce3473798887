"""Budgets of what all clients share: memory for mail in flight, conversations with the next hop.

Guarantee: all processes of the relay together give away at most `most`. Strangers, the clients that are not trusted,
get a part of it, so that trusted clients keep a reserve; one address of theirs gets a share of that part.
"""

import asyncio
import sys

from spamfilter.relay.limits.shared_counters import Counts, Shared
from spamfilter.system.process import return_free_memory

CONVERSATIONS, CONVERSATIONS_EACH = 50, 10
"""Conversations with the next hop of all strangers, and of one address: Postfix takes a hundred at a time, of which
trusted clients, and connections that are kept, need the rest."""

FREED, FREED_SECONDS = 16 * 10**6, 1.0
"""Bytes of mail that a process has finished before it gives free memory back to the system, and how long after that. A
hundred megabytes in mails of less than half a megabyte left a process with that much until its end."""


class Budget:
    """The budget of this process. The bounds may change.

    most: what all processes may give away; strangers: what strangers may have of that; each: one address of theirs.
    """

    def __init__(self, counts: Counts, shared: Shared, most: int, strangers: int, each: int) -> None:
        self.most, self.strangers, self.each = most, strangers, each
        self._counts = counts
        self._shared = shared

    @property
    def used(self) -> int:
        """What all processes have given away."""
        return sum(self._counts.all)

    @property
    def own(self) -> int:
        """What this process has given away."""
        return self._counts.all[self._shared.own]

    def fits(self, size: int, origin: int = 0) -> bool:
        """Whether there is so much more for a client. origin: hash of a stranger's address, 0 for a trusted client."""
        if self.used + size > self.most:
            return False
        counts = self._counts
        return not origin or (sum(counts.strangers) + size <= self.strangers and counts.of(origin) + size <= self.each)

    def take(self, size: int, origin: int = 0) -> bool:
        """Take more, or with a negative size give back; False if there is not so much."""
        self._counts.add(self._shared.own, origin, size)
        if size > 0 and not self.fits(0, origin):
            self._counts.add(self._shared.own, origin, -size)
            return False
        return True


class Memory(Budget):
    """Bytes of mail in flight: being received, or on its way to the next hop.

    No mail waits for memory: one that does not fit is deferred, and its client sends it again. A single mail of the
    largest size always fits.
    """

    def __init__(self, most: int, shared: Shared, largest: int = 0) -> None:
        super().__init__(shared.memory, shared, most, most, most)
        self.bound(most, largest)
        self._peak = 0  # of this process, since free memory was given back

    def bound(self, most: int, largest: int) -> None:
        """Set the bounds. largest: bytes of the largest mail."""
        self.most = most
        self.strangers = max(most * 3 // 4, largest)
        self.each = max(most // 8, largest)

    def take(self, size: int, origin: int = 0) -> bool:
        taken = super().take(size, origin)
        if size > 0:
            self._peak = max(self._peak, self.own)
        elif self._peak - self.own > FREED:
            self._peak = self.own
            # The mail is still in use here.
            asyncio.get_running_loop().call_later(FREED_SECONDS, return_free_memory)
        return taken


def conversations(shared: Shared) -> Budget:
    """Conversations with the next hop; only strangers are bounded."""
    return Budget(shared.conversations, shared, sys.maxsize, CONVERSATIONS, CONVERSATIONS_EACH)


class Reservation:
    """What one mail or client has of a budget, nothing at first. origin: hash of a stranger's address, 0: trusted."""

    def __init__(self, budget: Budget, origin: int = 0) -> None:
        self._budget = budget
        self._origin = origin
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold so much in all; False if there is not so much, and then nothing changes."""
        if not self._budget.take(size - self._size, self._origin):
            return False
        self._size = size
        return True

    def release(self) -> None:
        self.grow(0)
