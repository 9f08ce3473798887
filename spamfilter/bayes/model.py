"""The model in memory: judge a message, find what a label adds to the counts, add it, take it away.

Guarantee: a lesson that is applied and taken away leaves the state as it was, whatever was learnt in between.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spamfilter.bayes.calibration import NO_STEP, Calibration, Step
from spamfilter.bayes.count_table import HashedTable, Words
from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.doubt import TOWARDS_SPAM, uncompared
from spamfilter.bayes.groups import OWN, teaches_group
from spamfilter.bayes.imported.voices import at_work
from spamfilter.bayes.labels import IMPORT, LABELS, EntryLabel, Label
from spamfilter.bayes.passages import most_telling
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.bayes.voices import Evidence, LogOddsByVoice, Voices, VoiceTokens, believed_of, loudest, voice_scores


@dataclass(frozen=True, slots=True)
class Score:
    """Log-odds of spam, natural logarithm, and the calibrated probability.

    voices: log-odds of each, unweighted. known: share of the message's tokens, over all voices, that have counts.
    doubt: how far what is unknown could move the log-odds of the posterior towards ham; towards spam half as far.
    few_ham: the log-odds for spam that the posterior leaves out, because little ham is learnt.
    passage: the part of the text that this is about, if it is not about the whole.
    """

    log_odds: float
    posterior: float
    voices: LogOddsByVoice = field(default_factory=dict)
    known: float = 1.0
    doubt: float = 0.0
    few_ham: float = 0.0
    passage: str = ""

    @property
    def least(self) -> float:
        """The posterior if all that is in doubt spoke for ham."""
        return _moved(self.posterior, -self.doubt)

    @property
    def most(self) -> float:
        """The posterior if what is in doubt spoke for spam."""
        return _moved(self.posterior, TOWARDS_SPAM * self.doubt)


def _moved(posterior: float, log_odds: float) -> float:
    """A probability after evidence of so much log-odds."""
    spam = posterior * math.exp(log_odds)
    return spam / (spam + (1 - posterior))


@dataclass(slots=True)
class State:
    """Everything that judging needs, up to and with the ledger entry `last` (0: nothing is learnt).

    learnt: messages that everybody's voices have learnt, of each class.
    """

    counts: dict[str, Counts]
    learnt: dict[Label, int]
    calibration: Calibration
    last: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was learnt of one message, or with the label `import` of another filter's messages.

    added: what the update rule of each voice gave (its `amount`); calibrated: the step of the calibration. Of an
    import: how many messages of each class it has (by the name of the class), and how many of them added to the counts
    of a voice (by `part_of`). tokens are then its counts, by the same name.
    """

    label: EntryLabel
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
        if voice.likelihood.needs_tallies:
            state.counts[voice.name].tally()
        else:
            state.counts[voice.name].tallies = None
    return state


def score(voices: Voices, tokens: VoiceTokens, state: State) -> Score:
    """Judge a message."""
    return explained(voices, tokens, state, 0)[0]


def explained(voices: Voices, tokens: VoiceTokens, state: State, most: int | None) -> tuple[Score, list[Evidence]]:
    """Judge a message, and name the `most` loudest tokens (None: all that have any weight)."""
    learnt = learnt_here(voices, state)
    believed = believed_of(learnt)
    scores = voice_scores(at_work(voices, state.counts), tokens, state.counts)
    heard = most_telling(scores, state.calibration.usual, believed)
    by_voice = {voice.name: log_odds for voice, log_odds, _ in heard.scores}
    few_ham = uncompared(heard.scores, state.counts, learnt)
    posterior = state.calibration.posterior(heard.log_odds - few_ham)
    score = Score(heard.log_odds, posterior, by_voice, heard.known, heard.doubt, few_ham, heard.name)
    return score, loudest(heard.scores, most, believed)


def learnt_here(voices: Voices, state: State) -> dict[Label, int]:
    """Messages learnt of each class, without those that other filters have learnt."""
    others = [state.counts[voice.name].messages for voice in voices if voice.imported]
    return {label: number - sum(of[label] for of in others) for label, number in state.learnt.items()}


def lesson(
    voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score
) -> tuple[dict[str, int], Step]:
    """What learning a message would add: voice -> its amount, and the step of the calibration.

    score: of the message in this state. A message of a group teaches the group's voice alone, see `groups`.
    """
    own = next((voice for voice in voices if voice.name == OWN and OWN in tokens), None)
    if own is not None:
        together = state.calibration.calibrated(score.log_odds)
        return {OWN: own.likelihood.amount(tokens[OWN], label, state.counts[OWN], together)}, NO_STEP
    added = {}
    for voice in voices:
        if voice.name in tokens and not voice.imported:
            counts, said = state.counts[voice.name], score.voices[voice.name].own
            added[voice.name] = voice.likelihood.amount(tokens[voice.name], label, counts, said)
    return added, state.calibration.step(score.log_odds, label, score.known)


class Change(NamedTuple):
    """What a lesson changes in the counts of a voice; negative numbers take away."""

    voice: str
    label: Label
    deltas: Mapping[bytes, int]
    messages: int
    growth: Growth


def part_of(label: Label, voice: str, likelihood: str) -> str:
    """The name of one table of counts of an import: the class, the voice, and the likelihood that they are for."""
    return f"{label} {voice} {likelihood}"


def messages(lesson: Lesson) -> dict[Label, int]:
    """How many messages of each class a lesson is of for everybody: none if a group alone has learnt it."""
    if lesson.label == IMPORT:
        return {label: lesson.added.get(label, 0) for label in LABELS}
    if teaches_group(lesson.added):
        return {}
    return {lesson.label: 1}


def _parts(voices: Voices, lesson: Lesson) -> Iterator[tuple[str, Label, Mapping[bytes, int], int]]:
    """Voice, class, what its words' counts grow by, and how many messages that is of."""
    for voice in voices:
        if lesson.label != IMPORT:
            if amount := lesson.added.get(voice.name, 0):
                yield voice.name, lesson.label, voice.likelihood.deltas(lesson.tokens[voice.name], amount), 1
            continue
        for label in LABELS:
            part = part_of(label, voice.name, voice.likelihood.name)
            if part in lesson.added:
                yield voice.name, label, lesson.tokens[part], lesson.added[part]


def apply(voices: Voices, lesson: Lesson, state: State, sign: int = 1) -> list[Change]:
    """Add a lesson to a state, or with sign -1 take it away; returns the changes by voice.

    Raises CountError where it cannot be taken away; the state is then undefined.
    """
    changes = []
    for voice, label, deltas, number in _parts(voices, lesson):
        counts = state.counts[voice]
        growth = (counts.add if sign > 0 else counts.subtract)(label, deltas, number)
        changes.append(Change(voice, label, deltas if sign > 0 else _negative(deltas), sign * number, growth))
    for label, number in messages(lesson).items():
        state.learnt[label] += sign * number
    state.calibration = state.calibration.plus(lesson.calibrated, sign)
    return changes


def _negative(deltas: Mapping[bytes, int]) -> Mapping[bytes, int]:
    if isinstance(deltas, TokenArrays):
        return TokenArrays(deltas.spellings, -deltas.times.astype(np.int64))
    return {word: -delta for word, delta in deltas.items()}


def taught(voices: Voices, tokens: VoiceTokens, label: Label, state: State, score: Score) -> Lesson:
    """Learn a message whose score in this state is known; returns the lesson, which `apply` can take away."""
    learnt = Lesson(label, *lesson(voices, tokens, label, state, score), tokens)
    apply(voices, learnt, state)
    return learnt
