"""How a bulk training is cut: batches of mails that are learnt all or none, and transactions of some batches."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from spamfilter.learning.reader import Batches, Numbered, Read, Reader
from spamfilter.learning.rounds import Groups

BATCH = 128
"""Mails that are learnt all or none."""
TOGETHER = 24
"""Batches of one transaction, at most: one sync of the disk for all of them, and each word is written once."""
WORDS = 1_200_000
"""Words of mails read for one transaction, after which it takes in no further batch: some sixty megabytes, with those
of voices that learn in the first round only."""
GATHERED = 1.0
"""Seconds of reading after which a transaction takes in no further batch: what a run that is stopped may have lost."""
LOCKED = 0.5
"""Seconds after which a transaction that has begun takes in no further batch: others may wait for it."""

Batch = TypeVar("Batch")


def batches(mails: Sequence[Numbered]) -> Batches:
    """These mails in batches."""
    return [mails[start : start + BATCH] for start in range(0, len(mails), BATCH)]


class Gathering:
    """Whether there is enough for a transaction."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.begin()

    def begin(self) -> None:
        """Nothing is gathered."""
        self._number, self._words, self._began = 0, self._reader.words, time.monotonic()

    def is_enough(self) -> bool:
        """Whether it is, with one batch more."""
        self._number += 1
        return (
            self._number >= TOGETHER
            or self._reader.words - self._words > WORDS
            or time.monotonic() - self._began > GATHERED
        )


def gathered(reader: Reader, mails: Sequence[Numbered]) -> Groups:
    """These mails for a round after the first."""
    group: list[list[Read]] = []
    gathering = Gathering(reader)
    with closing(reader.again(batches(mails))) as found:
        for batch in found:
            group.append(batch)
            if gathering.is_enough():
                yield group
                group = []
                gathering.begin()
    if group:
        yield group


def before_an_error(found: Generator[Batch, None, None], then: Callable[[], None]) -> Generator[Batch, None, None]:
    """What is found; where that breaks off, `then` is called before anybody hears of it."""
    while True:
        try:
            batch = next(found, None)
        except BaseException:
            then()
            raise
        if batch is None:
            return
        yield batch


def while_others_can_wait(group: Sequence[Batch]) -> Iterator[Batch]:
    """The first of these, in a transaction, and the others until LOCKED seconds have passed."""
    began = time.monotonic()
    for batch in group:
        yield batch
        if time.monotonic() - began > LOCKED:
            return
