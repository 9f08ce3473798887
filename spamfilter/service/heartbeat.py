"""The heartbeat of each process, by which a supervisor, or systemd, notices one that hangs.

Guarantee: a process whose event loop stands still for HUNG_SECONDS, or the keeper if the thread that writes the journal
does, is ended and replaced: by the supervisor, and where the relay is one process, by systemd (WatchdogSec=).
"""

import mmap
import time

from spamfilter.system.process import notify

BEAT_EVERY = 5.0
"""Seconds between two beats: a tenth of what is allowed, so that a busy machine ends no healthy process."""
HUNG_SECONDS = 60.0
"""Longer than anything that a healthy process waits for: a locked database, 10 s for each of a few batches. The same as
WatchdogSec= in systemd/spamfilter.service."""


class Heartbeats:
    """The time of the last beat of each process, in memory that all of them share, by the clock that never jumps."""

    def __init__(self, processes: int) -> None:
        self._at = memoryview(mmap.mmap(-1, 8 * processes))[: 8 * processes].cast("d")

    def beat(self, number: int) -> None:
        self._at[number] = time.monotonic()

    def hung(self, number: int) -> bool:
        """Whether this process has not beaten for HUNG_SECONDS."""
        return time.monotonic() > self._at[number] + HUNG_SECONDS


def watchdog() -> None:
    """The beat of the process that systemd watches."""
    notify("WATCHDOG=1")
