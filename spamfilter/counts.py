"""Counts of one voice: what it has learnt, and the arithmetic that keeps it exact.

Invariant: `add` then `subtract` of the same deltas leaves equal Counts.
Guarantee: a count below zero or above MAX_COUNT raises CountError before anything is changed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from spamfilter.errors import CountError
from spamfilter.features import Token

Label = Literal["ham", "spam"]
LABELS: tuple[Label, ...] = get_args(Label)
OTHER: dict[Label, Label] = {"ham": "spam", "spam": "ham"}
Tallies = dict[Label, dict[int, int]]
"""Class -> count -> how many words have it in this class; counts above zero only."""

MAX_COUNT = 2**62
"""Below the signed 64 bits of every store, with room to add two of them."""

Derived = TypeVar("Derived")


@dataclass(frozen=True, slots=True)
class Growth:
    """What a change did to the totals over all words: words more than before, and moves of the tallies of its class."""

    vocabulary: int
    tallies: Mapping[int, int] = field(default_factory=dict)


class Counts:
    """Counts per word and class, and totals per class, of one voice.

    words: class -> word -> count; a word that is missing counts 0. The unit is the likelihood's:
        whole messages, occurrences, or eighths of a message.
    messages: class -> messages that added anything. occurrences: class -> the sum of its words' counts.
    vocabulary: words with any count. A Counts may hold only the words of one message (what a
        command reads from the store); its totals are those of the whole voice all the same.
    tallies: kept for a likelihood that speaks of absent words, and None for the others.
    """

    __slots__ = ("_derived", "messages", "occurrences", "tallies", "vocabulary", "words")

    def __init__(self) -> None:
        self.words: dict[Label, dict[Token, int]] = {label: {} for label in LABELS}
        self.messages: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self.occurrences: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self.vocabulary = 0
        self.tallies: Tallies | None = None
        self._derived: dict[Hashable, object] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        if None not in (self.tallies, other.tallies) and self.tallies != other.tallies:
            return False  # they follow from the words, so that one may lack them
        compared = ("words", "messages", "occurrences", "vocabulary")
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]  # mutable, as a dict is

    def __repr__(self) -> str:
        return f"Counts(messages={self.messages}, vocabulary={self.vocabulary})"

    def get(self, word: Token, label: Label) -> int:
        """How often the class has this word, 0 if never."""
        return self.words[label].get(word, 0)

    def tally(self) -> None:
        """Keep tallies from now on; counts them once if all words are here."""
        if self.tallies is None:
            self.tallies = {label: dict(Counter(self.words[label].values())) for label in LABELS}

    def derived(self, key: Hashable, compute: Callable[[], Derived]) -> Derived:
        """What `compute` makes of these counts, kept under this key until they change."""
        if key not in self._derived:
            self._derived[key] = compute()
        return self._derived[key]  # type: ignore[return-value]  # what compute gave for this key

    def add(self, label: Label, deltas: Mapping[Token, int], messages: int = 1) -> Growth:
        """Learn: add `deltas` (word -> count above zero) and `messages` to the class."""
        return self._apply(label, deltas, messages, 1)

    def subtract(self, label: Label, deltas: Mapping[Token, int], messages: int = 1) -> Growth:
        """Unlearn: take away what `add` with the same arguments has added."""
        return self._apply(label, deltas, messages, -1)

    def _apply(self, label: Label, deltas: Mapping[Token, int], messages: int, sign: int) -> Growth:
        mine = self.words[label]
        other = self.words[OTHER[label]]
        changed = {word: mine.get(word, 0) + sign * delta for word, delta in deltas.items()}
        total = self.messages[label] + sign * messages
        occurrences = self.occurrences[label] + sign * sum(deltas.values())
        if total < 0 or (changed and min(changed.values()) < 0):
            raise CountError("a count would fall below zero: this was not learnt, or the counts are damaged")
        if max(total, occurrences, *changed.values()) > MAX_COUNT:
            raise CountError("a count would grow past what the store can hold")
        moved: dict[int, int] = {}
        if self.tallies is not None:
            moved = moves(mine, changed)
            move(self.tallies[label], moved)
        vocabulary = self.vocabulary
        for word, count in changed.items():
            if count:
                if word not in mine and word not in other:
                    self.vocabulary += 1
                mine[word] = count
            elif word in mine:
                del mine[word]
                if word not in other:
                    self.vocabulary -= 1
        self.messages[label] = total
        self.occurrences[label] = occurrences
        self._derived.clear()
        return Growth(self.vocabulary - vocabulary, moved)


def moves(before: Mapping[Token, int], after: Mapping[Token, int]) -> dict[int, int]:
    """Count above zero -> how many words more have it, when the words of `after` get these counts.

    >>> moves({b"a": 1, b"b": 1}, {b"a": 2, b"c": 1})  # a leaves the ones, c joins them
    {2: 1}
    """
    found = Counter(after.values())
    found.subtract(before.get(word, 0) for word in after)
    return {count: moved for count, moved in found.items() if count and moved}


def move(tally: dict[int, int], moved: Mapping[int, int]) -> None:
    """Apply `moves` to a tally; counts that no word has any more go."""
    for count, words in moved.items():
        tally[count] = tally.get(count, 0) + words
        if not tally[count]:
            del tally[count]
