"""The memory budget for mail in flight: being received, or on its way to the next hop.

Guarantee: all processes of the relay together hold at most `most` bytes. No mail waits for memory: one that does not
fit is deferred, and its client sends it again. A single mail of at most `most` bytes always fits.
"""

from spamfilter.relay.limits.shared_counters import Shared


class Memory:
    """The budget of this process. most: bytes for all processes; may change."""

    def __init__(self, most: int, shared: Shared | None = None) -> None:
        self.most = most
        self._shared = shared or Shared()

    @property
    def used(self) -> int:
        """Bytes held by all processes."""
        return sum(self._shared.held)

    @property
    def own(self) -> int:
        """Bytes held by this process."""
        return self._shared.held[self._shared.own]

    def fits(self, size: int) -> bool:
        """Whether this many more bytes fit."""
        return self.used + size <= self.most

    def take(self, size: int) -> bool:
        """Hold more bytes, or with a negative size fewer; False if they do not fit."""
        held, own = self._shared.held, self._shared.own
        held[own] += size
        if size > 0 and self.used > self.most:
            held[own] -= size
            return False
        return True


class Held:
    """The bytes of one mail, none at first."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold this many bytes in all; False if they do not fit, and then nothing changes."""
        if not self._memory.take(size - self._size):
            return False
        self._size = size
        return True

    def release(self) -> None:
        """Release all bytes."""
        self._memory.take(-self._size)
        self._size = 0
