"""Contenders: the filters that are evaluated, of any voices, and the one-rule baseline.

All contenders see the same tokens, and only the labels that they are taught. They learn in memory.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from spamfilter.bayes import model
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import Voices, VoiceTokens
from spamfilter.learning.bulk.rounds import Message, later_rounds, no_amounts, note

ONE_RULE = "one_rule"
VOICE = "fields"
"""The voice whose words the one rule judges by, as a likelihood that is named alone does."""

Examples = Iterable[tuple[VoiceTokens, Label]]


class Contender(Protocol):
    """What judges and learns in an evaluation."""

    @property
    def name(self) -> str: ...
    def score(self, tokens: VoiceTokens) -> Score: ...
    def learn(self, tokens: VoiceTokens, label: Label) -> None: ...
    def train(self, examples: Callable[[], Examples], rounds: int) -> None: ...


class Learner:
    """A filter of these voices, as the relay runs it."""

    def __init__(self, name: str, voices: Voices) -> None:
        self.name = name
        self._voices = voices
        self.state = model.empty(voices)
        self._last: tuple[VoiceTokens, Score] | None = None

    def score(self, tokens: VoiceTokens) -> Score:
        score = model.score(self._voices, tokens, self.state)
        self._last = tokens, score
        return score

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        score = self._last[1] if self._last is not None and self._last[0] is tokens else self.score(tokens)
        self._last = None
        model.taught(self._voices, tokens, label, self.state, score)

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        """Learn mail as the command `train` does, in this many rounds."""

        def messages() -> Iterable[Message]:
            return (Message(number, label, tokens) for number, (tokens, label) in enumerate(examples()))

        amounts = no_amounts(self._voices)
        for number, label, tokens in messages():
            lesson = model.taught(self._voices, tokens, label, self.state, self.score(tokens))
            note(amounts, number, lesson.added)
        self._last = None
        later_rounds(self._voices, self.state.counts, messages, amounts, rounds)


class OneRule:
    """Judges by a single word, the one with the fewest errors (R. Holte, Machine Learning 11, 1993).

    The presence of a word means one class and its absence the other; among all words and both directions the one with
    the fewest errors so far judges, by Laplace's rule of succession. If presence means spam the errors are S - (s - h),
    with S spam learnt and s, h messages with the word; so each direction needs the word with the largest difference,
    and keeps words in a heap by it.
    """

    name = ONE_RULE

    def __init__(self) -> None:
        self._learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self._present: dict[Label, Counter[Token]] = {label: Counter() for label in LABELS}
        self._heaps: dict[Label, list[tuple[int, Token]]] = {label: [] for label in LABELS}

    def _against(self, word: Token, label: Label) -> int:
        """How many more messages of the other class have the word; the lowest number makes the fewest errors."""
        return self._present[OTHER[label]][word] - self._present[label][word]

    def best(self) -> Token | None:
        """The word that judges now; None before anything is learnt."""
        found: list[tuple[int, Token]] = []
        for label, heap in self._heaps.items():
            while heap and heap[0][0] != self._against(heap[0][1], label):
                heapq.heappop(heap)  # outdated: the word is in the heap again with its present number
            if heap:
                against, word = heap[0]
                found.append((self._learnt[label] + against, word))
        return min(found)[1] if found else None

    def score(self, tokens: VoiceTokens) -> Score:
        word, words = self.best(), tokens.get(VOICE, {})
        present = word in words
        odds = math.log(self._agreeing("spam", word, present) / self._agreeing("ham", word, present))
        known = sum(any(has[each] for has in self._present.values()) for each in words) / max(1, len(words))
        return Score(odds, 1 / (1 + math.exp(-odds)), known=known)

    def _agreeing(self, label: Label, word: Token | None, present: bool) -> int:
        with_it = self._present[label][word] if word is not None else 0
        return 1 + (with_it if present else self._learnt[label] - with_it)

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        self._learnt[label] += 1
        for word in tokens.get(VOICE, {}):
            self._present[label][word] += 1
            for direction, heap in self._heaps.items():
                heapq.heappush(heap, (self._against(word, direction), word))

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        """Learn mail once; further rounds would count it twice."""
        for tokens, label in examples():
            self.learn(tokens, label)
