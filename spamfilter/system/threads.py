"""Threads for work that blocks, and what happens where the system gives no more of them.

Guarantee: work that a pool takes is done, and work that it does not take is not done later. Python's own pool puts the
work into its queue and then raises, if it can start no further thread: a mail whose client has heard 451 would reach
the Maildir all the same.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

from spamfilter.errors import NoThread


class Threads(ThreadPoolExecutor):
    """A pool of one thread, which it starts at once, and of more where the system gives them. Raises NoThread."""

    def __init__(self, most: int | None = None, name: str = "") -> None:
        """most: threads; None: as many as Python's own pool has."""
        super().__init__(most, name)
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            raise NoThread from error

    def _adjust_thread_count(self) -> None:
        with suppress(RuntimeError):  # the threads that run do the work, later
            super()._adjust_thread_count()


def start(thread: Thread) -> None:
    """Start a thread. Raises NoThread."""
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread from error
