"""What would have to be otherwise for a message to be of another class.

Guarantee: nothing is written; what is learnt or forgotten here is so in a copy of the counts of a few messages.
Guarantee: an outcome comes of judging again. Shares of the log-odds only choose what is tried: their sum is not the
score where a likelihood counts the words of a message, bounds what it hears, or speaks of absent words.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from spamfilter.bayes import model
from spamfilter.bayes.counts import Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.verdict import CLASSES, Class, Policy
from spamfilter.bayes.voices import VOICES, Evidence, VoiceTokens, words
from spamfilter.errors import CountError
from spamfilter.learning.filter import Filter
from spamfilter.stores import Entry


@dataclass(frozen=True, slots=True)
class Distance:
    """A class next to the verdict: the posterior where it begins, and the log-odds that lie between."""

    class_: Class
    threshold: float
    log_odds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a message would be judged."""

    posterior: float
    class_: Class


@dataclass(frozen=True, slots=True)
class Without:
    """The loudest tokens for one side, the loudest first, without which the message would be of another class."""

    tokens: Sequence[str]
    outcome: Outcome


_Spoken = tuple[Token, str]
"""A token, and the family it is of."""


def counts_of(filter: Filter, *messages: VoiceTokens) -> State:
    """The counts of the words of these messages, and the totals, as they are in the store."""
    wanted: dict[str, set[Token]] = {voice.name: set() for voice in filter.voices}
    for tokens in messages:
        for name, some in words(filter.voices, tokens).items():
            wanted[name] |= some
    return model.prepared(filter.voices, filter.store.state(wanted))


class Trial:
    """What a message would be judged if things were otherwise. class_: what it is judged now."""

    def __init__(self, filter: Filter, policy: Policy, state: State, class_: Class) -> None:
        self._filter = filter
        self._policy = policy
        self._state = state
        self._class = class_

    def _outcome(self, tokens: VoiceTokens, state: State) -> Outcome:
        posterior = model.score(self._filter.voices, tokens, state).posterior
        return Outcome(posterior, self._policy.classify(posterior, state.learnt))

    def distances(self, score: Score) -> list[Distance]:
        """To the classes below and above; none where a threshold is 0 or 1, or asks for messages of both classes."""
        policy, learnt = self._policy, self._state.learnt
        bounds: list[tuple[float, Class]] = []
        if self._class == "spam":
            bounds.append((policy.spam, "unsure" if policy.unsure < policy.spam else "ham"))
        if self._class == "unsure":
            bounds.append((policy.unsure, "ham"))
        if self._class != "spam":
            above = policy.unsure if self._class == "ham" else policy.spam
            bounds.append((above, policy.classify(above, learnt)))
        return [
            Distance(class_, threshold, self._state.calibration.log_odds(threshold) - score.log_odds)
            for threshold, class_ in bounds
            if 0 < threshold < 1 and class_ != self._class
        ]

    def without(self, tokens: VoiceTokens, evidence: Sequence[Evidence]) -> list[Without]:
        """For the classes below and above the fewest of the loudest tokens without which the message is of it.

        Found by halving: without one token less it is still of its class.
        """
        found = []
        for direction in (-1, 1):
            loud = _loudest(evidence, -direction)
            few = self._fewest(tokens, loud, direction)
            if few is not None:
                names = [token.decode() for token, _ in loud[: few[0]]]
                found.append(Without(names, few[1]))
        return found

    def _fewest(self, tokens: VoiceTokens, loud: Sequence[_Spoken], direction: int) -> tuple[int, Outcome] | None:
        least, most, flipped = 0, min(1, len(loud)), None
        while most > least and flipped is None:
            flipped = self._flipped(tokens, loud[:most], direction)
            if flipped is None:
                least, most = most, min(2 * most, len(loud))
        if flipped is None:
            return None
        while most - least > 1:
            middle = (least + most) // 2
            outcome = self._flipped(tokens, loud[:middle], direction)
            if outcome is None:
                least = middle
            else:
                most, flipped = middle, outcome
        return most, flipped

    def _flipped(self, tokens: VoiceTokens, gone: Sequence[_Spoken], direction: int) -> Outcome | None:
        """The outcome without these tokens, if that is of a class farther down (-1) or up (1)."""
        missing = set(gone)
        left = {
            voice: {token: times for token, times in some.items() if (token, _family(voice)) not in missing}
            for voice, some in tokens.items()
        }
        outcome = self._outcome(left, self._state)
        way = CLASSES.index(outcome.class_) - CLASSES.index(self._class)
        return outcome if way * direction > 0 else None

    def marked(self, tokens: VoiceTokens, active: Entry | None, label: Label) -> Outcome:
        """After a mark, as `Filter.learn` would make it; active: the learning of this message that there is."""
        voices, state = self._filter.voices, copy.deepcopy(self._state)
        if active is not None:
            tokens = {**tokens, **active.tokens}
            if active.label == label:
                return self._outcome(tokens, state)
            model.apply(voices, active, state, -1)
        model.taught(voices, tokens, label, state, model.score(voices, tokens, state))
        return self._outcome(tokens, state)

    def forgotten(self, tokens: VoiceTokens, entry: Entry) -> Outcome | None:
        """If a learning were taken back; None if it has been meanwhile."""
        state = counts_of(self._filter, tokens, entry.tokens)
        try:
            model.apply(self._filter.voices, entry, state, -1)
        except CountError:
            return None
        return self._outcome(tokens, state)


def _family(voice: str) -> str:
    """What tells a token of one voice from one of another that is spelled alike: two voices may see the same words."""
    return VOICES[voice][-1] if voice in VOICES else voice


def _loudest(evidence: Sequence[Evidence], side: int) -> list[_Spoken]:
    """Tokens that speak for spam (1) or ham (-1), all voices together, the loudest first."""
    said: dict[_Spoken, float] = {}
    for item in evidence:
        key = item.token.encode(), _family(item.voice)
        said[key] = said.get(key, 0.0) + item.weight
    loud = [key for key, weight in said.items() if weight * side > 0]
    return sorted(loud, key=lambda key: (-abs(said[key]), key))
