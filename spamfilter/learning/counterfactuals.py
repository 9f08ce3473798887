"""Counterfactuals: what would have to change for a message to be of another class.

Guarantee: nothing is written; learning and forgetting happen in a copy of the counts of a few messages.
Guarantee: each outcome is the result of judging again. Shares of the log-odds only choose what is tried: their sum is
not the score if a likelihood counts the words of a message, limits the shares, or speaks of absent words.
"""

import copy
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from spamfilter.bayes import model
from spamfilter.bayes.doubt import TOWARDS_SPAM
from spamfilter.bayes.groups import OWN, word_in
from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.verdict import CLASSES, Class, Policy
from spamfilter.bayes.voices import VOICES, Evidence, VoiceTokens
from spamfilter.errors import CountError
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import undone_with
from spamfilter.stores import Entry


@dataclass(frozen=True, slots=True)
class Distance:
    """A class next to the verdict: the posterior where it begins, and the difference in log-odds."""

    class_: Class
    threshold: float
    log_odds: float


@dataclass(frozen=True, slots=True)
class SupposedVerdict:
    """The verdict that a message would get."""

    posterior: float
    class_: Class


@dataclass(frozen=True, slots=True)
class Without:
    """The loudest tokens for one class, the loudest first, without which the message would be of another class."""

    tokens: Sequence[str]
    outcome: SupposedVerdict


_Spoken = tuple[Token, str]
"""A token and its family."""


class Counterfactuals:
    """Judges a message under changed conditions. class_: its class without them."""

    def __init__(self, filter: Filter, policy: Policy, state: State, class_: Class) -> None:
        self._filter = filter
        self._policy = policy
        self._state = state
        self._class = class_

    def _outcome(self, tokens: VoiceTokens, state: State) -> SupposedVerdict:
        score = model.score(self._filter.voices, tokens, state)
        return SupposedVerdict(score.posterior, self._policy.classify(score, state.learnt))

    def distances(self, score: Score) -> list[Distance]:
        """To the classes below and above, without those that no score reaches: behind a threshold of 0 or 1.

        What is in doubt moves both thresholds away from the posterior; what does not count for spam is missing at both.
        """
        policy, calibration = self._policy, self._state.calibration
        doubt, few_ham = score.doubt / calibration.factor, score.few_ham
        spam: Class = "spam" if self._state.learnt["ham"] else "unsure"
        between = policy.unsure < policy.spam or doubt > 0
        bounds: list[tuple[float, float, Class]] = []
        if self._class == "spam":
            bounds.append((policy.spam, few_ham + doubt, "unsure" if between else "ham"))
        elif self._class == "unsure":
            bounds += [(policy.unsure, few_ham - TOWARDS_SPAM * doubt, "ham"), (policy.spam, few_ham + doubt, spam)]
        else:
            bounds.append((policy.unsure, few_ham - TOWARDS_SPAM * doubt, "unsure" if between else spam))
        return [
            Distance(class_, threshold, calibration.log_odds(threshold) + moved - score.log_odds)
            for threshold, moved, class_ in bounds
            if 0 < threshold < 1 and class_ != self._class
        ]

    def without(self, tokens: VoiceTokens, evidence: Sequence[Evidence]) -> list[Without]:
        """For the classes below and above: the fewest of the loudest tokens without which the message is of that class.

        Found by bisection: without one token less the message is still of its class.
        """
        found = (self._fewest(tokens, _loudest(evidence, -direction), direction) for direction in (-1, 1))
        return [few for few in found if few is not None]

    def _fewest(self, tokens: VoiceTokens, loud: Sequence[_Spoken], direction: int) -> Without | None:
        def outcome(number: int) -> SupposedVerdict:
            missing = set(loud[:number])
            left = {
                voice: {token: times for token, times in some.items() if _spoken(token.decode(), voice) not in missing}
                for voice, some in tokens.items()
            }
            return self._outcome(left, self._state)

        def crosses(number: int) -> bool:
            return (CLASSES.index(outcome(number).class_) - CLASSES.index(self._class)) * direction > 0

        number = bisect_left(range(len(loud) + 1), True, lo=1, key=crosses)
        if number > len(loud):
            return None
        return Without([token.decode() for token, _ in loud[:number]], outcome(number))

    def marked(self, tokens: VoiceTokens, undone: Sequence[Entry], label: Label) -> SupposedVerdict:
        """After a mark, as `Filter.learn` would make it, but for new counterparts.

        undone: the learning of this message, if there is one, and what is undone with it.
        """
        voices, state = self._filter.voices, copy.deepcopy(self._state)
        if undone:
            tokens = {**tokens, **undone[0].tokens}
            if undone[0].label == label:
                return self._outcome(tokens, state)
        for entry in undone:
            model.apply(voices, entry, state, -1)
        model.taught(voices, tokens, label, state, model.score(voices, tokens, state))
        return self._outcome(tokens, state)

    def forgotten(self, tokens: VoiceTokens, entry: Entry) -> SupposedVerdict | None:
        """Without a learning; None if it was taken back in the meantime."""
        undone = undone_with(self._filter.store, entry)
        state = self._filter.counts_of(tokens, *(each.tokens for each in undone))
        try:
            for each in undone:
                model.apply(self._filter.voices, each, state, -1)
        except CountError:
            return None
        return self._outcome(tokens, state)


def _spoken(token: str, voice: str) -> _Spoken:
    """Without the group, and with a family in which `fields`, `body` and OWN see words of the same text."""
    family = VOICES[voice][-1] if voice in VOICES else voice
    return word_in(token, voice).encode(), "text" if family in ("shown", OWN) else family


def _loudest(evidence: Sequence[Evidence], side: int) -> list[_Spoken]:
    """The tokens for spam (1) or ham (-1), summed over all voices, the loudest first."""
    said: dict[_Spoken, float] = {}
    for item in evidence:
        key = _spoken(item.token, item.voice)
        said[key] = said.get(key, 0.0) + item.weight
    loud = [key for key, weight in said.items() if weight * side > 0]
    return sorted(loud, key=lambda key: (-abs(said[key]), key))
