"""Cuts a sequence into batches."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The same items, at most so many at a time: for one transaction, or for one question to the store."""
    return (items[start : start + size] for start in range(0, len(items), size))
