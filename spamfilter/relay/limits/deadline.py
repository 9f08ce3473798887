"""A deadline that is set for each command and almost never passes."""

import asyncio
import math
from collections.abc import Callable


class Deadline:
    """Calls `passed` at the time that was set last, by the event loop's clock.

    Setting a later time costs almost nothing: the timer stays, and compares the times when it fires.
    """

    def __init__(self, passed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._passed = passed
        self._at = self._woken = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Set the deadline; math.inf: never."""
        self._at = at
        if at < self._woken:
            if self._timer is not None:
                self._timer.cancel()
            self._woken = at
            self._timer = self._loop.call_at(at, self._wake)

    def cancel(self) -> None:
        """Cancel for good: a deadline that is set later never passes."""
        self._woken = -math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer, self._woken = None, math.inf
        if self._at > self._loop.time():
            self.set(self._at)
            return
        self._at = math.inf
        self._passed()
