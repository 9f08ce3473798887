"""Counts of one voice: what it has learnt, and the arithmetic that keeps it exact.

Invariant: `add` then `subtract` of the same deltas leaves equal Counts.
Guarantee: a count below zero or above MAX_COUNT raises CountError before anything is changed.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from spamfilter.errors import CountError
from spamfilter.features import Token

Label = Literal["ham", "spam"]
LABELS: tuple[Label, ...] = get_args(Label)

MAX_COUNT = 2**62
"""Below the signed 64 bits of every store, with room to add two of them."""


class Counts:
    """Counts per word and class, and totals per class, of one voice.

    words: class -> word -> count; a word that is missing counts 0. The unit is the likelihood's:
        whole messages, occurrences, or eighths of a message.
    messages: class -> messages learnt. occurrences: class -> the sum of its words' counts.
    vocabulary: words with any count. A Counts may hold only the words of one message (what a
        command reads from the store); its totals are those of the whole voice all the same.
    """

    __slots__ = ("messages", "occurrences", "vocabulary", "words")

    def __init__(self) -> None:
        self.words: dict[Label, dict[Token, int]] = {label: {} for label in LABELS}
        self.messages: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self.occurrences: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self.vocabulary = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable, as a dict is

    def __repr__(self) -> str:
        return f"Counts(messages={self.messages}, vocabulary={self.vocabulary})"

    def get(self, word: Token, label: Label) -> int:
        """How often the class has this word, 0 if never."""
        return self.words[label].get(word, 0)

    def add(self, label: Label, deltas: Mapping[Token, int], messages: int = 1) -> None:
        """Learn: add `deltas` (word -> count above zero) and `messages` to the class."""
        self._apply(label, deltas, messages, 1)

    def subtract(self, label: Label, deltas: Mapping[Token, int], messages: int = 1) -> None:
        """Unlearn: take away what `add` with the same arguments has added."""
        self._apply(label, deltas, messages, -1)

    def _apply(self, label: Label, deltas: Mapping[Token, int], messages: int, sign: int) -> None:
        mine = self.words[label]
        other = self.words["ham" if label == "spam" else "spam"]
        changed = {word: mine.get(word, 0) + sign * delta for word, delta in deltas.items()}
        total = self.messages[label] + sign * messages
        occurrences = self.occurrences[label] + sign * sum(deltas.values())
        if total < 0 or (changed and min(changed.values()) < 0):
            raise CountError("a count would fall below zero: this was not learnt, or the counts are damaged")
        if max(total, occurrences, *changed.values()) > MAX_COUNT:
            raise CountError("a count would grow past what the store can hold")
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
