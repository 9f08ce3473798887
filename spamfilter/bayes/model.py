"""Voices, their counts and the calibration: judge a message, decide what a label teaches, apply it, take it away.

Guarantee: nothing here touches a store or a clock. A lesson is complete: applied and taken away, it leaves the
state as it was, whatever was learnt in between.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from spamfilter.bayes.calibration import Calibration, Step
from spamfilter.bayes.count_table import Hashed, Words
from spamfilter.bayes.counts import LABELS, Counts, Growth, Label
from spamfilter.bayes.token_arrays import Seen
from spamfilter.bayes.voices import Evidence, Opinions, Voices, VoiceTokens, judged, together


@dataclass(frozen=True, slots=True)
class Score:
    """Log-odds of spam, natural logarithm, and the calibrated probability; voices: what each says, unweighted."""

    log_odds: float
    posterior: float
    voices: Opinions = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """Everything that judging needs, as of the ledger entry `last` (0: nothing learnt yet)."""

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
class Taught:
    """A lesson that stands in no ledger."""

    label: Label
    added: Mapping[str, int]
    calibrated: Step
    tokens: VoiceTokens


def empty(voices: Voices, kept: Callable[[], Words] = Hashed) -> State:
    """The state before anything is learnt; `kept` makes the table of each voice's words."""
    counts = {voice.name: Counts(kept()) for voice in voices}
    return prepared(voices, State(counts, dict.fromkeys(LABELS, 0), Calibration(), 0))


def prepared(voices: Voices, state: State) -> State:
    """A state with the tallies that its voices need and no others; it must hold all words, or the tallies already."""
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
    """Judge a message, with the `most` loudest tokens (None: all that say anything)."""
    opinions, evidence = judged(voices, tokens, state.counts, most)
    log_odds = together(voices, opinions)
    return Score(log_odds, state.calibration.posterior(log_odds), opinions), evidence


def amounts(voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score) -> dict[str, int]:
    """What learning a message now would add, by voice; score: of the message in this state."""
    return {
        voice.name: voice.likelihood.amount(
            tokens[voice.name], label, state.counts[voice.name], score.voices[voice.name].own
        )
        for voice in voices
        if voice.name in tokens
    }


class Addition(NamedTuple):
    """What learning a message has added: by voice its amount and the words that changed, and a step of the calibration.

    calibration: after that step.
    """

    added: Mapping[str, int]
    calibrated: Step
    changes: list[tuple[str, Mapping[bytes, int], Growth]]
    calibration: Calibration


def learn(voices: Voices, messages: Sequence[VoiceTokens], labels: Sequence[Label], state: State) -> list[Addition]:
    """Learn messages, all of which have tokens for every voice, one after the other."""
    learnt = [
        voice.likelihood.learn([tokens[voice.name] for tokens in messages], labels, state.counts[voice.name])
        for voice in voices
    ]
    found = []
    for label, tokens, *lessons in zip(labels, messages, *learnt, strict=True):
        of = dict(zip([voice.name for voice in voices], lessons, strict=True))
        step = state.calibration.step(together(voices, {name: lesson.opinion for name, lesson in of.items()}), label)
        state.learnt[label] += 1
        state.calibration = state.calibration.plus(step)
        changes = [
            (voice.name, voice.likelihood.deltas(tokens[voice.name], of[voice.name].amount), of[voice.name].growth)
            for voice in voices
            if of[voice.name].amount
        ]
        added = {name: lesson.amount for name, lesson in of.items()}
        found.append(Addition(added, step, changes, state.calibration))
    return found


def take_back(addition: Addition, label: Label, state: State) -> None:
    """Take back what `learn` has added to a state, whatever was learnt in between."""
    for voice, deltas, _ in addition.changes:
        state.counts[voice].subtract(label, deltas)
    state.learnt[label] -= 1
    state.calibration = state.calibration.plus(addition.calibrated, -1)


def more(voices: Voices, tokens: VoiceTokens, label: Label, state: State, added: Mapping[str, int]) -> dict[str, int]:
    """What another look in bulk training would add to a message that has added so much before."""
    return {
        voice.name: voice.likelihood.more(tokens[voice.name], label, state.counts[voice.name], added.get(voice.name, 0))
        for voice in voices
        if voice.likelihood.reinforces() and voice.name in tokens
    }


def apply(voices: Voices, lesson: Lesson, state: State, sign: int = 1) -> list[tuple[str, Mapping[bytes, int], Growth]]:
    """Add a lesson to a state, or with sign -1 take it away; returns what that changed of each voice's words.

    Raises CountError where it cannot be taken away; then nothing is promised about the state.
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
    state.learnt[lesson.label] += sign
    state.calibration = state.calibration.plus(lesson.calibrated, sign)
    return changes


def _negative(deltas: Mapping[bytes, int]) -> Mapping[bytes, int]:
    if isinstance(deltas, Seen):
        return deltas.with_times(-deltas.times.astype(np.int64))
    return {word: -delta for word, delta in deltas.items()}


def taught(voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score) -> Taught:
    """Learn a message whose score in this state is known; returns the lesson, for `apply` to take away."""
    step = state.calibration.step(score.log_odds, label)
    lesson = Taught(label, amounts(voices, tokens, label, state, score), step, tokens)
    apply(voices, lesson, state)
    return lesson


def reinforced(voices: Voices, lesson: Taught, state: State) -> Taught:
    """Look again at a message in a later round of bulk training; the same lesson if there is nothing more to learn."""
    extra = more(voices, lesson.tokens, lesson.label, state, lesson.added)
    if not any(extra.values()):
        return lesson
    apply(voices, lesson, state, -1)
    added = {name: amount + extra.get(name, 0) for name, amount in lesson.added.items()}
    again = Taught(lesson.label, added, lesson.calibrated, lesson.tokens)
    apply(voices, again, state)
    return again
