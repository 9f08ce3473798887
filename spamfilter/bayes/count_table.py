"""Tables of the counts of words in memory: by the words themselves, or by their hashes.

`SpelledTable` can list its words, for a store that writes them. `HashedTable` is for judging: it looks up all words of
a message at once, in a time that grows little with the vocabulary, and takes a third of the memory
(benchmarks/growth.py).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spamfilter.bayes.compiled import token_helper
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.token_arrays import Floats, Integers, hashed
from spamfilter.bayes.tokens import Token

BUCKET = 4
"""Slots of a bucket: their keys and counts fill a cache line, so that one access to memory finds a word's counts."""
LINE = 64
"""Bytes of a cache line."""
FULL = 0.75
"""Share of used slots above which the table grows: above it too many words are in the bucket after their own."""
GROWTH = 1.5
"""Size of a new table, as a multiple of what it needs: doubling would cost a learning relay too much memory."""
FEWEST = 256
"""The least number of buckets."""
NARROW = 2**31 - 1
"""The largest count of 32 bits. A table has counts of 32 bits until it gets a larger one, then all have 64."""


class Words(ABC):
    """Word -> its count in each class, 0 for an unknown word. Counts are whole numbers below 2**63.

    table: the array in which compiled helpers look words up; None for a table that has none.
    """

    table: Integers | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, in the order of their columns."""
        return LABELS

    @abstractmethod
    def columns(self, tokens: Sequence[Token]) -> tuple[Integers, ...]:
        """The counts of these words in each class, for mail in ham and in spam, each of shape (tokens,)."""

    def column(self, tokens: Sequence[Token], label: str) -> Integers:
        """The counts of these words in a class, shape (tokens,)."""
        return self.columns(tokens)[self.labels.index(label)]

    def numbers(self, tokens: Sequence[Token]) -> Floats:
        """The counts of these words as the floating-point numbers that scores need, of shape (classes, tokens)."""
        return np.array(self.columns(tokens), np.float64)

    @abstractmethod
    def put(self, tokens: Sequence[Token], label: str, counts: Integers) -> None:
        """Set the counts of these words, each named once, in a class."""

    @abstractmethod
    def all_of(self, label: str) -> Integers:
        """The counts above zero of all words in a class, in any order."""

    @abstractmethod
    def hashes(self) -> tuple[Integers, Integers, Integers]:
        """The hashes of all words with any count, in any order, and their counts in ham and spam."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Words):
            return NotImplemented
        return all(map(np.array_equal, _in_order(*self.hashes()), _in_order(*other.hashes())))

    __hash__ = None  # type: ignore[assignment]  # mutable, as a dict is


class SpelledTable(Words):
    """A dict for each class: class -> word -> count above zero."""

    def __init__(self, labels: Iterable[str] = LABELS) -> None:
        self.spelled: dict[str, dict[Token, int]] = {label: {} for label in labels}

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.spelled)

    def admit(self, label: str) -> None:
        """A class more, without counts."""
        self.spelled[label] = {}

    def columns(self, tokens: Sequence[Token]) -> tuple[Integers, ...]:
        return tuple(
            np.fromiter(map(mine.get, tokens, repeat(0)), np.int64, len(tokens)) for mine in self.spelled.values()
        )

    def put(self, tokens: Sequence[Token], label: str, counts: Integers) -> None:
        mine = self.spelled[label]
        for token, count in zip(tokens, counts.tolist(), strict=True):
            if count:
                mine[token] = count
            else:
                mine.pop(token, None)

    def all_of(self, label: str) -> Integers:
        return np.fromiter(self.spelled[label].values(), np.int64, len(self.spelled[label]))

    def hashes(self) -> tuple[Integers, Integers, Integers]:
        tokens = [*{**self.spelled["ham"], **self.spelled["spam"]}]
        ham, spam = self.columns(tokens)
        return hashed(tokens), ham, spam


class HashedTable(Words):
    """A hash table of buckets, shape (buckets, BUCKET, 2 or 3). A word has the first free slot, from its bucket on.

    A slot is the hash of its word, or 0 if it is free, and the word's counts: two of 32 bits in one number, or two
    numbers. The hash is Python's own of 64 bits, with a new key in each process, so that nobody can choose words with
    equal hashes, which would be counted as one word. Among ten million words, two have equal hashes with a chance of 3
    in a million.
    Invariant: slots of a bucket are used from the left and never freed, so that a search ends at a free slot. A word
    whose counts have become zero keeps its slot until the table grows.
    Memory: 21 to 32 bytes a word. used: slots that have a word.
    """

    table: Integers

    def __init__(self, expected: int = 0, memory: "Memory | None" = None) -> None:
        """expected: words that will be added; the table has room for them and some more. memory: where it is put, and
        each larger one after it; by default memory of this process."""
        buckets = max(FEWEST, math.ceil(GROWTH * expected / (FULL * BUCKET)))
        self._memory = memory or empty
        self.table = self._memory(buckets, 2)
        self.used = 0

    @classmethod
    def of(cls, table: Integers, used: int, memory: "Memory | None" = None) -> "HashedTable":
        """A table that is in memory already. used: slots that have a word."""
        found = cls.__new__(cls)
        found._memory, found.table, found.used = memory or empty, table, used
        return found

    def copied(self, memory: "Memory") -> "HashedTable":
        """A copy in this memory."""
        table = memory(len(self.table), self.table.shape[2])
        table[:] = self.table
        return HashedTable.of(table, self.used, memory)

    def __deepcopy__(self, memo: object) -> "HashedTable":
        return self.copied(empty)

    def columns(self, tokens: Sequence[Token]) -> tuple[Integers, Integers]:
        slots = self._find(hashed(tokens))
        ham, spam = np.where(slots < 0, 0, self._counts[_at(slots)].T).astype(np.int64, order="C")
        return ham, spam

    def numbers(self, tokens: Sequence[Token]) -> Floats:
        if token_helper is None:
            return super().numbers(tokens)
        return np.frombuffer(token_helper.counts(self.table, hashed(tokens))).reshape(2, -1)

    def put(self, tokens: Sequence[Token], label: str, counts: Integers) -> None:
        keys = hashed(tokens)
        slots = self._find(keys)
        new = (slots < 0) & (counts > 0)
        if new.any():
            if not self._has_room(int(np.count_nonzero(new))):
                self._grow(len(keys))  # which drops those of these words whose counts are zero
                new = (self._find(keys) < 0) & (counts > 0)
            self._insert(keys[new])
            slots = self._find(keys)
        found = slots >= 0
        self._widen(counts)
        self._counts[*_at(slots[found]), LABELS.index(label)] = counts[found]

    @property
    def _keys(self) -> Integers:
        """The hash in each slot, shape (buckets, BUCKET)."""
        return self.table[:, :, 0]

    @property
    def _counts(self) -> NDArray[np.integer[Any]]:
        """The counts of each slot in ham and spam, shape (buckets, BUCKET, 2)."""
        return self.table[:, :, 1:] if self._is_wide else self.table.view(np.int32)[:, :, 2:]

    @property
    def _is_wide(self) -> bool:
        """Whether counts have 64 bits."""
        return bool(self.table.shape[2] > 2)

    def fill(self, lines: bytes, ham: Integers, spam: Integers) -> None:
        """Add new words, one in a line, each once, with their counts in ham and spam.

        Raises ValueError if the numbers of words and of counts differ.
        """
        if token_helper is not None:
            keys = np.frombuffer(token_helper.hashes(lines), np.int64)
        else:
            keys = hashed(lines.split(b"\n"))
        if not len(keys) == len(ham) == len(spam):
            raise ValueError(f"{len(keys)} words, and counts of {len(ham)} and {len(spam)}")
        if not self._has_room(len(keys)):
            self._grow(len(keys))
        self._insert(keys)
        self._set(keys, ham, spam)

    def all_of(self, label: str) -> Integers:
        counts = self._counts[:, :, LABELS.index(label)]
        return counts[counts > 0].astype(np.int64)

    def hashes(self) -> tuple[Integers, Integers, Integers]:
        live = (self._counts[:, :, 0] | self._counts[:, :, 1]) != 0
        ham, spam = self._counts[live].T.astype(np.int64, order="C")
        return self._keys[live], ham, spam

    def _set(self, keys: Integers, ham: Integers, spam: Integers) -> None:
        """Set the counts of words that have slots."""
        self._widen(ham)
        self._widen(spam)
        slots = self._find(keys)
        self._counts[*_at(slots), LABELS.index("ham")] = ham
        self._counts[*_at(slots), LABELS.index("spam")] = spam

    def _widen(self, counts: Integers) -> None:
        """Change to counts of 64 bits if these need them."""
        if not self._is_wide and counts.max(initial=0) > NARROW:
            wide = self._memory(len(self.table), 3)
            wide[:, :, 0], wide[:, :, 1:] = self._keys, self._counts
            self.table = wide

    def _find(self, keys: Integers) -> Integers:
        """The slot of each key, -1 where it has none."""
        if token_helper is not None:
            return np.frombuffer(token_helper.slots(self.table, keys), np.int64)
        slots = np.full(len(keys), -1)
        astray, bucket = np.arange(len(keys)), self._bucket(keys)
        while len(astray):
            there = self._keys[bucket]
            same = there == keys[astray, None]
            found = same.any(axis=1)
            slots[astray[found]] = (bucket * BUCKET + same.argmax(axis=1))[found]
            further = ~found & (there[:, -1] != 0)
            astray, bucket = astray[further], self._next(bucket[further])
        return slots

    def _insert(self, keys: Integers) -> None:
        """Give slots to keys that have none; the table has room for them."""
        self.used += len(keys)
        if token_helper is not None:
            token_helper.insert(self.table, keys)
            return
        bucket = self._bucket(keys)
        while len(keys):
            order = np.argsort(bucket, kind="stable")
            keys, bucket = keys[order], bucket[order]
            taken = np.count_nonzero(self._keys[bucket], axis=1)
            place = taken + np.arange(len(bucket)) - np.searchsorted(bucket, bucket)
            fits = place < BUCKET
            self._keys[bucket[fits], place[fits]] = keys[fits]
            keys, bucket = keys[~fits], self._next(bucket[~fits])

    def _has_room(self, more: int) -> bool:
        return self.used + more <= FULL * self._keys.size

    def _grow(self, more: int) -> None:
        """Change to a larger table, without words whose counts are zero, and with room for this many more words."""
        keys, ham, spam = self.hashes()
        larger = HashedTable(len(keys) + more, self._memory)
        larger._insert(keys)
        larger._set(keys, ham, spam)
        self.table, self.used = larger.table, larger.used

    def _bucket(self, keys: Integers) -> Integers:
        """The bucket of each key: the upper half of its hash as a fraction of the table."""
        return np.asarray(((keys >> 32) & 0xFFFFFFFF) * len(self.table) >> 32)

    def _next(self, bucket: Integers) -> Integers:
        return np.asarray((bucket + 1) % len(self.table))


Memory = Callable[[int, int], Integers]
"""Gives an empty table with so many buckets, and so many numbers of a slot."""


def empty(buckets: int, width: int) -> Integers:
    """An empty table, aligned to cache lines. width: numbers of a slot; with two of them a bucket is a cache line."""
    size = buckets * BUCKET * width
    room = np.zeros(size + LINE // 8, np.int64)
    start = -room.ctypes.data % LINE // 8
    return room[start : start + size].reshape(buckets, BUCKET, width)


def _at(slots: Integers) -> tuple[Integers, Integers]:
    """The buckets of slots, and the places in them."""
    return np.divmod(slots, BUCKET)


def _in_order(keys: Integers, ham: Integers, spam: Integers) -> tuple[Integers, Integers, Integers]:
    order = np.argsort(keys, kind="stable")
    return keys[order], ham[order], spam[order]
