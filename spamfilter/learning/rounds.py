"""The rounds of bulk training after the first: what is still judged badly learns more, up to a bound for each message.

They are decided one after the other, on counts of their own, before any of it is written: so each learning gives way
once to one with the greater amount, and whoever stops in between has lost nothing but the time.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from threading import Event
from typing import NamedTuple

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import BULK, Label
from spamfilter.bayes.token_arrays import Integers
from spamfilter.bayes.tokens import Tokens
from spamfilter.bayes.voices import Voice
from spamfilter.learning.filter import Filter
from spamfilter.learning.reader import Read
from spamfilter.stores import Entry

ROUNDS = 5
"""The first one, too. Three leave ham and spam out of balance, eight add little."""

TOGETHER = 256
"""Mails that a voice looks at in one call: some milliseconds, in which Python does nothing else for it."""

Groups = Generator[list[list[Read]], None, None]
"""Mails as they were read, some batches at a time."""
Amounts = dict[str, dict[int, int]]
"""Voice -> number of a mail -> what it is to have added, where that is more than before."""


class Rounds:
    """What the mails of a run have added in the first one, and what they are to add."""

    def __init__(self, filter: Filter, mails: int) -> None:
        self.voices = tuple(voice for voice in filter.voices if voice.likelihood.reinforces())
        self._filter = filter
        self._before = {voice.name: np.zeros(mails, np.int64) for voice in self.voices}
        self._entries = np.zeros(mails, np.int64)
        self._learnt = np.zeros(mails, np.bool_)

    def note(self, number: int, entry: Entry, here: bool) -> None:
        """The learning of a mail. here: whether it was learnt from the tokens that were read of this mail."""
        self._entries[number] = entry.id if here else 0
        self._note(number, entry.source == BULK, entry.added)

    def foresee(self, number: int, added: Mapping[str, int]) -> None:
        """What a mail has added in memory, from the tokens that were read of it: it has no learning yet."""
        self._note(number, True, added)

    def _note(self, number: int, learnt: bool, added: Mapping[str, int]) -> None:
        self._learnt[number] = learnt
        for name, amounts in self._before.items():
            amounts[number] = added.get(name, 0)

    def has(self, number: int) -> bool:
        """Whether bulk training has learnt a mail."""
        return bool(self._learnt[number])

    def is_of(self, entry: Entry, read: Read) -> bool:
        """Whether the tokens of this learning are those that were read here."""
        return read.kept and entry.id == self._entries[read.number]

    def decided(self, readings: Callable[[], Groups], progress: Callable[[list[list[Read]]], None]) -> Amounts:
        """What all rounds after the first add.

        readings: of mails that it has, for a round; one that is there twice is looked at twice.
        """
        if not self.voices:
            return {}
        counts = self._filter.copied(self.voices)
        after = {name: amounts.copy() for name, amounts in self._before.items()}
        for _ in range(1, ROUNDS):
            before = {name: amounts.copy() for name, amounts in after.items()}
            with closing(readings()) as groups:
                for group in groups:
                    self._look([*chain.from_iterable(group)], counts, after)
                    progress(group)
            if all(np.array_equal(amounts, before[name]) for name, amounts in after.items()):
                break
        return {name: _grown(self._before[name], amounts) for name, amounts in after.items()}

    def _look(self, mails: list[Read], counts: Mapping[str, Counts], amounts: Mapping[str, Integers]) -> None:
        """Another look at these mails. A voice knows nothing of the others, and has a thread of its own."""

        def of(voice: Voice) -> None:
            for some in _cut(voice, mails):
                some.look(counts[voice.name], amounts[voice.name])

        with ThreadPoolExecutor(len(self.voices)) as threads:
            list(threads.map(of, self.voices))  # or what went wrong in one of them

    def decided_at_hand(self, mails: Sequence[Read], meanwhile: Callable[[], None]) -> Amounts:
        """As `decided`, of mails that need not be read again: no voice has to wait for a round of the others.

        meanwhile: what else there is to do, and is done whatever goes wrong here; what it notes makes no difference.
        """
        stopped = Event()
        before = {name: amounts.copy() for name, amounts in self._before.items()}

        def of(voice: Voice, counts: Counts) -> dict[int, int]:
            amounts, looks = before[voice.name].copy(), _cut(voice, mails)
            for _ in range(1, ROUNDS):
                last = amounts.copy()
                for some in looks:
                    if stopped.is_set():
                        return {}
                    some.look(counts, amounts)
                if np.array_equal(amounts, last):
                    break
            return _grown(before[voice.name], amounts)

        with ThreadPoolExecutor(max(1, len(self.voices))) as threads:
            try:
                counts = self._filter.copied(self.voices)
                found = {voice.name: threads.submit(of, voice, counts[voice.name]) for voice in self.voices}
            except BaseException:
                stopped.set()
                meanwhile()
                raise
            try:
                meanwhile()
                return {name: grown.result() for name, grown in found.items()}
            finally:
                stopped.set()


class _Look(NamedTuple):
    """Some mails, as a voice looks at them."""

    voice: Voice
    tokens: list[Tokens]
    labels: list[Label]
    numbers: Integers

    def look(self, counts: Counts, amounts: Integers) -> None:
        self.voice.likelihood.reinforce(self.tokens, self.labels, counts, amounts, self.numbers)


def _cut(voice: Voice, mails: Sequence[Read]) -> list[_Look]:
    """These mails in parts, after each of which somebody may ask for the end."""
    return [
        _Look(
            voice,
            [read.reading.tokens[voice.name] for read in some],
            [read.label for read in some],
            np.array([read.number for read in some], np.int64),
        )
        for some in (mails[start : start + TOGETHER] for start in range(0, len(mails), TOGETHER))
    ]


def _grown(before: Integers, after: Integers) -> dict[int, int]:
    """Number of a mail -> its amount, where that is more than before."""
    more = np.flatnonzero(after > before).tolist()
    return dict(zip(more, after[more].tolist(), strict=True))
