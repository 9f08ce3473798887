"""The memory for mail in flight: what is being received, and what is on its way to the next hop.

Guarantee: together no more is held than `most` bytes. Nobody waits for room, so that nobody can wait for ever: what
does not fit is refused, and comes again. A mail that is alone fits if it is no larger than `most`.
"""

from types import TracebackType


class Memory:
    """most: bytes; may change. used: bytes that are held."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def fits(self, size: int) -> bool:
        """Whether there is room for so many bytes more."""
        return self.used + size <= self.most


class Held:
    """The bytes of one mail, none at first; as a context it lets go of them at its end."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold so many bytes in all; False if there is no room, and then it holds what it had."""
        more = size - self._size
        if more > 0 and not self._memory.fits(more):
            return False
        self._memory.used += more
        self._size = size
        return True

    def passed_on(self) -> "Held":
        """The same bytes in other hands."""
        other = Held(self._memory)
        other._size, self._size = self._size, 0
        return other

    def release(self) -> None:
        """Let go of all bytes."""
        self._memory.used -= self._size
        self._size = 0

    def __enter__(self) -> "Held":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
