"""Cuts a sequence into batches."""

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, sleep
from typing import TypeVar

PAUSE = 0.12
"""Seconds between two pieces that are a transaction each: a process that waits for SQLite's lock looks for it every
tenth of a second, and would give up without a gap."""

Item = TypeVar("Item")


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The same items, at most so many at a time: for one transaction, or for one question to the store."""
    return (items[start : start + size] for start in range(0, len(items), size))


def paused(pieces: Iterable[Item]) -> Iterator[Item]:
    """These pieces of work, with a sleep of PAUSE seconds before each but the first, in which others can write."""
    for number, piece in enumerate(pieces):
        if number:
            sleep(PAUSE)
        yield piece


def in_time(pieces: Iterable[Item], seconds: float) -> Iterator[Item]:
    """The first piece of work, and further ones until so many seconds are over."""
    end = monotonic() + seconds
    for piece in pieces:
        yield piece
        if monotonic() > end:
            return
