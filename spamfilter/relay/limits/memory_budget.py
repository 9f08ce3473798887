"""The memory for mail in flight: what is being received, and what is on its way to the next hop.

Guarantee: together, in all processes of the relay, no more is held than `most` bytes. Nobody waits for room, so that
nobody can wait for ever: what does not fit is refused, and comes again. A mail that is alone fits if it is no larger
than `most`.
"""

from types import TracebackType

from spamfilter.relay.limits.shared_counters import Shared


class Memory:
    """most: bytes; may change."""

    def __init__(self, most: int, shared: Shared | None = None) -> None:
        self.most = most
        self._shared = shared or Shared()

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return sum(self._shared.held)

    @property
    def own(self) -> int:
        """Those of this process."""
        return self._shared.held[self._shared.own]

    def fits(self, size: int) -> bool:
        """Whether there is room for so many bytes more."""
        return self.used + size <= self.most

    def take(self, size: int) -> bool:
        """Hold so many bytes more, or with a negative number fewer; False if there is no room."""
        held, own = self._shared.held, self._shared.own
        held[own] += size
        if size > 0 and self.used > self.most:
            held[own] -= size
            return False
        return True


class Held:
    """The bytes of one mail, none at first; as a context it lets go of them at its end."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold so many bytes in all; False if there is no room, and then it holds what it had."""
        if not self._memory.take(size - self._size):
            return False
        self._size = size
        return True

    def release(self) -> None:
        """Let go of all bytes."""
        self._memory.take(-self._size)
        self._size = 0

    def __enter__(self) -> "Held":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
