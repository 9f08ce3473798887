"""Who is evaluated: filters of any voices, and the one-rule baseline. Each is judged and taught in memory.

A contender sees the same tokens as every other, and no labels but those it is taught.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from spamfilter import model
from spamfilter.calibration import Calibration
from spamfilter.counts import LABELS, Label
from spamfilter.features import Token
from spamfilter.model import Score, Taught
from spamfilter.voices import Voices, VoiceTokens

ONE_RULE = "one_rule"

Examples = Iterable[tuple[VoiceTokens, Label]]


class Contender(Protocol):
    """Something that judges and learns."""

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
        """Learn a pile of mail as `train` does: again what is still judged badly, in so many rounds."""
        lessons: list[Taught] = []
        for tokens, label in examples():
            lesson = model.taught(self._voices, tokens, label, self.state, self.score(tokens))
            lessons.append(_bare(lesson))
        for _ in range(1, rounds):
            grown = 0
            for at, (tokens, _label) in enumerate(examples()):
                before = Taught(lessons[at].label, lessons[at].added, lessons[at].calibrated, tokens)
                after = model.reinforced(self._voices, before, self.state)
                grown += after is not before
                lessons[at] = _bare(after)
            if not grown:
                return


def _bare(lesson: Taught) -> Taught:
    """Without its tokens, which are many; they are read again."""
    return Taught(lesson.label, lesson.added, lesson.calibrated, {})


class OneRule:
    """The single word that makes the fewest errors, alone (R. Holte, Machine Learning 11, 1993).

    A word that is present says one class and absent the other; among all words and both directions the one with the
    fewest errors so far judges, by Laplace's rule of succession. Words are kept in a heap by how much they differ
    between the classes, so no look goes over all of them.
    """

    name = ONE_RULE

    def __init__(self, voices: Voices) -> None:
        self._voices = voices
        self._learnt: Counter[Label] = Counter()
        self._present: dict[Label, Counter[Token]] = {label: Counter() for label in LABELS}
        self._heap: list[tuple[int, Token]] = []
        self._calibration = Calibration()

    def _difference(self, word: Token) -> int:
        """Messages that the word divides rightly, beyond those it divides wrongly, in its better direction."""
        return abs(self._present["spam"][word] - self._present["ham"][word])

    def _best(self) -> Token | None:
        while self._heap and -self._heap[0][0] != self._difference(self._heap[0][1]):
            heapq.heappop(self._heap)  # it has changed since, and stands elsewhere with what it is now
        return self._heap[0][1] if self._heap else None

    def score(self, tokens: VoiceTokens) -> Score:
        word = self._best()
        present = any(word in words for words in tokens.values()) if word is not None else False
        odds = math.log(self._agreeing("spam", word, present) / self._agreeing("ham", word, present))
        return Score(odds, 1 / (1 + math.exp(-odds)))

    def _agreeing(self, label: Label, word: Token | None, present: bool) -> int:
        with_it = self._present[label][word] if word is not None else 0
        return 1 + (with_it if present else self._learnt[label] - with_it)

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        self._learnt[label] += 1
        for word in set().union(*tokens.values()):
            self._present[label][word] += 1
            heapq.heappush(self._heap, (-self._difference(word), word))

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        """Learn a pile of mail; a second look would count it twice."""
        for tokens, label in examples():
            self.learn(tokens, label)
