"""The counts of one voice, and the arithmetic that keeps them exact.

Invariant: `add` then `subtract` of the same deltas leaves equal Counts.
Guarantee: a count below zero or above MAX_COUNT raises CountError before anything is changed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import fsum

import numpy as np

from spamfilter.bayes.count_table import SpelledTable, Words
from spamfilter.bayes.token_arrays import Floats, Integers, TokenArrays
from spamfilter.bayes.tokens import Token
from spamfilter.errors import CountError

Tallies = dict[str, dict[int, int]]
"""Class -> count -> how many words have it in this class; counts above zero only."""

MAX_COUNT = 2**62 - 1
"""Below the signed 64 bits of every store, with room to add two of them."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How a change altered the totals over all words: the growth of the vocabulary and of the tallies of its class."""

    vocabulary: int
    tallies: Mapping[int, int] = field(default_factory=dict)


class Counts:
    """Counts of each word and class, and totals of each class, of one voice.

    kept: the table of counts. The unit is the likelihood's: messages, occurrences, or eighths of a message.
    messages: class -> messages that added anything. occurrences: class -> the sum of its words' counts.
    vocabulary: number of words with any count. tallies: for a likelihood that speaks of absent words, else None.
    Mail has two classes; a classifier of other things may have any number of them.
    A Counts may hold the words of a few messages only, as a command reads them from the store; its totals are those of
    the whole voice.
    """

    __slots__ = ("_sums", "kept", "messages", "occurrences", "tallies", "vocabulary")

    def __init__(self, kept: Words | None = None) -> None:
        """kept: the table to fill; by default one that can list its words."""
        self.kept = SpelledTable() if kept is None else kept
        self.messages: dict[str, int] = dict.fromkeys(self.kept.labels, 0)
        self.occurrences: dict[str, int] = dict.fromkeys(self.kept.labels, 0)
        self.vocabulary = 0
        self.tallies: Tallies | None = None
        self._sums: dict[Hashable, float] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        if None not in (self.tallies, other.tallies) and self.tallies != other.tallies:
            return False  # compared only if both have tallies, since they follow from the words
        compared = ("kept", "messages", "occurrences", "vocabulary")
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]  # mutable, as a dict is

    def __repr__(self) -> str:
        return f"Counts(messages={self.messages}, vocabulary={self.vocabulary})"

    @property
    def words(self) -> dict[str, dict[Token, int]]:
        """Class -> word -> count above zero. Raises TypeError if the table cannot list its words."""
        if not isinstance(self.kept, SpelledTable):
            raise TypeError("these counts know their words by hash only, and cannot list them")
        return self.kept.spelled

    def get(self, word: Token, label: str) -> int:
        """The count of this word in the class, 0 for an unknown word."""
        return int(self.kept.column([word], label)[0])

    def numbers(self, tokens: Sequence[Token]) -> Floats:
        """The counts of these words as the floating-point numbers that scores need, of shape (classes, tokens)."""
        return self.kept.numbers(tokens)

    def tally(self) -> None:
        """Keep tallies; the first ones are counted over all words, which must be in the table."""
        if self.tallies is None:
            self.tallies = {label: _tallied(self.kept.all_of(label)) for label in self.kept.labels}

    def over_vocabulary(self, key: Hashable, label: str, value: Callable[[Floats], Floats]) -> float:
        """The sum of value(count in this class) over all known words, cached under this key until the counts change.

        It is computed from the tallies, without a look at the words.
        """
        if key not in self._sums:
            assert self.tallies is not None, "a likelihood that speaks of absent words is given tallies"
            tally = self.tallies[label]
            size = len(tally) + 1
            having = np.fromiter(chain(tally.values(), (self.vocabulary - sum(tally.values()),)), np.float64, size)
            values = value(np.fromiter(chain(tally, (0,)), np.float64, size))
            self._sums[key] = fsum((having * values).tolist())
        return self._sums[key]

    def admit(self, label: str) -> None:
        """A class more, of which nothing is learnt. Raises TypeError if the table has room for ham and spam only."""
        if not isinstance(self.kept, SpelledTable):
            raise TypeError("these counts are of ham and spam")
        self.kept.admit(label)
        self.messages[label] = self.occurrences[label] = 0
        if self.tallies is not None:
            self.tallies[label] = {}
        self._sums.clear()

    def add(self, label: str, deltas: Mapping[Token, int], messages: int = 1) -> Growth:
        """Learn: add `deltas` (word -> count above zero) and `messages` to the class."""
        return self._apply(label, deltas, messages, 1)

    def subtract(self, label: str, deltas: Mapping[Token, int], messages: int = 1) -> Growth:
        """Unlearn: take away what `add` with the same arguments has added."""
        return self._apply(label, deltas, messages, -1)

    def _apply(self, label: str, deltas: Mapping[Token, int], messages: int, sign: int) -> Growth:
        total = self.messages[label] + sign * messages
        tokens, changes, added, largest = _listed(deltas)
        occurrences = self.occurrences[label] + sign * added
        if max(total, occurrences, largest) > MAX_COUNT:
            raise CountError("a count would grow past what the store can hold")
        columns = self.kept.columns(tokens)
        mine = self.kept.labels.index(label)
        before = columns[mine]
        after = before + sign * changes
        if total < 0 or (after < 0).any():
            raise CountError("a count would fall below zero: this was not learnt, or the counts are damaged")
        if (after > MAX_COUNT).any():
            raise CountError("a count would grow past what the store can hold")
        moved: dict[int, int] = {}
        if self.tallies is not None:
            moved = _moves(before, after)
            move(self.tallies[label], moved)
        self.kept.put(tokens, label, after)
        alone = np.logical_and.reduce([column == 0 for at, column in enumerate(columns) if at != mine])
        growth = int(np.count_nonzero(alone & (after > 0))) - int(np.count_nonzero(alone & (before > 0)))
        self.vocabulary += growth
        self.messages[label] = total
        self.occurrences[label] = occurrences
        self._sums.clear()
        return Growth(growth, moved)


def _listed(deltas: Mapping[Token, int]) -> tuple[Sequence[Token], Integers, int, int]:
    """The words, their deltas, the sum of the deltas, and the largest one."""
    if isinstance(deltas, TokenArrays):
        changes = deltas.times.astype(np.int64, copy=False)
        return deltas.spellings, changes, int(changes.sum()), int(changes.max(initial=0))
    largest = max(deltas.values(), default=0)
    changes = np.fromiter(deltas.values(), np.int64, len(deltas)) if largest <= MAX_COUNT else np.zeros(0, np.int64)
    return list(deltas), changes, sum(deltas.values()), largest


def _tallied(counts: Integers) -> dict[int, int]:
    """Count above zero -> how many of these counts are equal to it."""
    return dict(Counter(counts[counts > 0].tolist()))


def _moves(before: Integers, after: Integers) -> dict[int, int]:
    """Count above zero -> by how many words its tally grows when words change from one count to the other.

    >>> _moves(np.array([1, 0, 1]), np.array([2, 1, 1]))  # one word leaves the ones, another joins them
    {2: 1}
    """
    moved = _tallied(after)
    for count, having in _tallied(before).items():
        moved[count] = moved.get(count, 0) - having
    return {count: words for count, words in moved.items() if words}


def move(tally: dict[int, int], moved: Mapping[int, int]) -> None:
    """Apply the growth of tallies to one of them; counts that no word has are removed."""
    for count, words in moved.items():
        tally[count] = tally.get(count, 0) + words
        if not tally[count]:
            del tally[count]
