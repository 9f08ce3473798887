"""The model in memory: judge a message, find what a label adds to the counts, add it, take it away.

Guarantee: a lesson that is applied and taken away leaves the state as it was, whatever was learnt in between.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from spamfilter.bayes.calibration import NO_STEP, Calibration, Step
from spamfilter.bayes.count_table import HashedTable, Words
from spamfilter.bayes.counts import LABELS, Counts, Growth, Label
from spamfilter.bayes.groups import OWN, teaches_group
from spamfilter.bayes.passages import most_telling
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.bayes.voices import Evidence, Opinions, Voices, VoiceTokens, loudest, told


@dataclass(frozen=True, slots=True)
class Score:
    """Log-odds of spam, natural logarithm, and the calibrated probability.

    voices: log-odds of each, unweighted. known: share of the message's tokens, over all voices, that have counts.
    doubt: how far what is unknown could move the log-odds of the posterior, to either side. passage: the part of the
    text that this is about, if it is not about the whole.
    """

    log_odds: float
    posterior: float
    voices: Opinions = field(default_factory=dict)
    known: float = 1.0
    doubt: float = 0.0
    passage: str = ""

    @property
    def least(self) -> float:
        """The posterior if all that is in doubt spoke for ham."""
        return _moved(self.posterior, -self.doubt)

    @property
    def most(self) -> float:
        """The posterior if all that is in doubt spoke for spam."""
        return _moved(self.posterior, self.doubt)


def _moved(posterior: float, log_odds: float) -> float:
    """A probability after evidence of so much log-odds."""
    spam = posterior * math.exp(log_odds)
    return spam / (spam + 1 - posterior)


@dataclass(slots=True)
class State:
    """Everything that judging needs, up to and with the ledger entry `last` (0: nothing is learnt).

    learnt: messages that everybody's voices have learnt, of each class.
    """

    counts: dict[str, Counts]
    learnt: dict[Label, int]
    calibration: Calibration
    last: int


class Lesson(Protocol):
    """What was learnt of one message.

    added: what the update rule of each voice gave (its `amount`); calibrated: the step of the calibration.
    """

    @property
    def label(self) -> Label: ...
    @property
    def added(self) -> Mapping[str, int]: ...
    @property
    def calibrated(self) -> Step: ...
    @property
    def tokens(self) -> VoiceTokens: ...


@dataclass(frozen=True, slots=True)
class AppliedLesson:
    """A lesson that was applied to a state in memory, without an entry in a ledger."""

    label: Label
    added: Mapping[str, int]
    calibrated: Step
    tokens: VoiceTokens


def empty(voices: Voices, kept: Callable[[], Words] = HashedTable) -> State:
    """The state before anything is learnt; `kept` makes the table of each voice's counts."""
    counts = {voice.name: Counts(kept()) for voice in voices}
    return prepared(voices, State(counts, dict.fromkeys(LABELS, 0), Calibration(), 0))


def prepared(voices: Voices, state: State) -> State:
    """The state with tallies for the voices that need them, and only these; it has all words, or the tallies."""
    for voice in voices:
        counts = state.counts.get(voice.name)
        if counts is not None:
            if voice.likelihood.needs_tallies:
                counts.tally()
            else:
                counts.tallies = None
    return state


def score(voices: Voices, tokens: VoiceTokens, state: State) -> Score:
    """Judge a message."""
    return explained(voices, tokens, state, 0)[0]


def explained(voices: Voices, tokens: VoiceTokens, state: State, most: int | None) -> tuple[Score, list[Evidence]]:
    """Judge a message, and name the `most` loudest tokens (None: all that have any weight)."""
    heard = most_telling(told(voices, tokens, state.counts), state.calibration.usual)
    opinions = {voice.name: opinion for voice, opinion, _ in heard.said}
    posterior = state.calibration.posterior(heard.log_odds)
    score = Score(heard.log_odds, posterior, opinions, heard.known, heard.doubt, heard.name)
    return score, loudest(heard.said, most)


def lesson(
    voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score
) -> tuple[dict[str, int], Step]:
    """What learning a message would add: voice -> its amount, and the step of the calibration.

    score: of the message in this state. A message of a group teaches the group's voice alone, see `groups`.
    """
    own = next((voice for voice in voices if voice.name == OWN and OWN in tokens), None)
    if own is None:
        return _amounts(voices, tokens, label, state, score), state.calibration.step(score.log_odds, label, score.known)
    together = state.calibration.calibrated(score.log_odds)
    return {OWN: own.likelihood.amount(tokens[OWN], label, state.counts[OWN], together)}, NO_STEP


def _amounts(voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score) -> dict[str, int]:
    return {
        voice.name: voice.likelihood.amount(
            tokens[voice.name], label, state.counts[voice.name], score.voices[voice.name].own
        )
        for voice in voices
        if voice.name in tokens
    }


def apply(voices: Voices, lesson: Lesson, state: State, sign: int = 1) -> list[tuple[str, Mapping[bytes, int], Growth]]:
    """Add a lesson to a state, or with sign -1 take it away; returns the changes by voice.

    Raises CountError where it cannot be taken away; the state is then undefined.
    """
    changes: list[tuple[str, Mapping[bytes, int], Growth]] = []
    for voice in voices:
        amount = lesson.added.get(voice.name, 0)
        if not amount:
            continue
        counts = state.counts[voice.name]
        deltas = voice.likelihood.deltas(lesson.tokens[voice.name], amount)
        growth = (counts.add if sign > 0 else counts.subtract)(lesson.label, deltas)
        changes.append((voice.name, deltas if sign > 0 else _negative(deltas), growth))
    if not teaches_group(lesson.added):
        state.learnt[lesson.label] += sign
    state.calibration = state.calibration.plus(lesson.calibrated, sign)
    return changes


def _negative(deltas: Mapping[bytes, int]) -> Mapping[bytes, int]:
    if isinstance(deltas, TokenArrays):
        return deltas.with_times(-deltas.times.astype(np.int64))
    return {word: -delta for word, delta in deltas.items()}


def taught(voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score) -> AppliedLesson:
    """Learn a message whose score in this state is known; returns the lesson, which `apply` can take away."""
    learnt = AppliedLesson(label, *lesson(voices, tokens, label, state, score), tokens)
    apply(voices, learnt, state)
    return learnt
