"""PROTOCOLS: in which order labelled messages are judged and learnt.

Invariant: no message is judged by a contender that has learnt it before.
Source of the names: G. Cormack, TREC Spam Track Overviews 2005 to 2007.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from spamfilter.bayes.counts import LABELS, OTHER, Label
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.evaluation.contenders import Contender, Examples
from spamfilter.learning.labelled_mail import mixed

Feedback = Literal["full", "delayed", "partial", "errors-and-unsure"]
Split = Literal["time", "random", "alternate"]
Enter = Callable[[], Sequence[Contender]]
"""Makes new contenders, which have learnt nothing."""
Progress = Callable[[int], None]

SIZES = tuple(tenth / 10 for tenth in range(1, 11))
"""The points of a learning curve, as shares of the messages to train on."""


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled message. name: for people. read: returns its tokens."""

    name: str
    label: Label
    read: Callable[[], VoiceTokens]


@dataclass(frozen=True, slots=True)
class Trial:
    """The parameters of a protocol.

    delay: messages between a verdict and its label. share: of messages that get a label, with partial feedback. noise:
    share of labels that are wrong in learning, never in measuring. unsure, spam: the thresholds by which a message is
    unsure. rounds: of bulk training. train: share of messages to train on.
    """

    feedback: Feedback = "full"
    delay: int = 500
    share: float = 0.1
    noise: float = 0.0
    unsure: float = 0.5
    spam: float = 0.9
    split: Split = "time"
    train: float = 0.5
    folds: int = 10
    rounds: int = 5
    seed: int = 1


@dataclass(slots=True)
class Run:
    """The scores of one contender, in the order of the messages.

    part: of the protocol, for example the size of the training. seconds: processor time to judge and learn, without
    reading. looks: number of times that a message was only learnt. taught: number of labels it was given.
    """

    contender: str
    part: str = ""
    examples: list[Example] = field(default_factory=list)
    log_odds: list[float] = field(default_factory=list)
    posteriors: list[float] = field(default_factory=list)
    seconds: float = 0.0
    looks: int = 0
    taught: int = 0

    @property
    def labels(self) -> list[Label]:
        return [example.label for example in self.examples]

    def reorder(self, places: Sequence[int]) -> None:
        """Sort the messages by these places, one for each."""
        order = sorted(range(len(places)), key=lambda number: places[number])
        self.examples = [self.examples[number] for number in order]
        self.log_odds = [self.log_odds[number] for number in order]
        self.posteriors = [self.posteriors[number] for number in order]

    def judge(self, contender: Contender, example: Example, tokens: VoiceTokens) -> float:
        began = time.process_time()
        score = contender.score(tokens)
        self.seconds += time.process_time() - began
        self.examples.append(example)
        self.log_odds.append(score.log_odds)
        self.posteriors.append(score.posterior)
        return score.posterior

    def teach(self, contender: Contender, tokens: VoiceTokens, label: Label) -> None:
        began = time.process_time()
        contender.learn(tokens, label)
        self.seconds += time.process_time() - began
        self.taught += 1


def prequential(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Judge each message, then learn it if the feedback says so: TREC's immediate, delayed and partial feedback."""
    contenders = enter()
    runs = [Run(contender.name) for contender in contenders]
    given, asked = _given(examples, trial), random.Random(trial.seed + 1)
    waiting: list[tuple[VoiceTokens, Label]] = []
    for example, label in zip(examples, given, strict=True):
        tokens = example.read()
        answered = asked.random() < trial.share
        for contender, run in zip(contenders, runs, strict=True):
            posterior = run.judge(contender, example, tokens)
            if (
                trial.feedback == "full"
                or (trial.feedback == "partial" and answered)
                or (trial.feedback == "errors-and-unsure" and _worth_asking(posterior, example.label, trial))
            ):
                run.teach(contender, tokens, label)
        if trial.feedback == "delayed":
            waiting.append((tokens, label))
            if len(waiting) > trial.delay:
                for contender, run in zip(contenders, runs, strict=True):
                    run.teach(contender, *waiting[0])
                del waiting[0]
        progress(1)
    return runs


def trained_once(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Train on a part of the messages, and judge the rest without learning it."""
    train, test = _parted(examples, trial)
    return _trained(train, test, enter, trial, progress)


def cross_validation(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Judge each message by a contender trained on the other folds; folds are random, with even classes."""
    fold_of = [0] * len(examples)
    chance = random.Random(trial.seed)
    for label in LABELS:
        places = [at for at, example in enumerate(examples) if example.label == label]
        chance.shuffle(places)
        for number, at in enumerate(places):
            fold_of[at] = number % trial.folds
    runs: list[Run] = []
    judged: list[int] = []
    for fold in range(trial.folds):
        places = [at for at, of in enumerate(fold_of) if of == fold]
        judged += places
        train = [example for example, of in zip(examples, fold_of, strict=True) if of != fold]
        runs = _trained(train, [examples[at] for at in places], enter, trial, progress, runs=runs)
    for run in runs:
        run.reorder(judged)
    return runs


def learning_curve(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Train on more and more of one part of the messages, and judge the other part each time."""
    train, test = _parted(examples, trial)
    runs = []
    for size in SIZES:
        some = train[: round(size * len(train))]
        runs += _trained(some, test, enter, trial, progress, str(len(some)))
    return runs


PROTOCOLS: dict[str, Callable[[Sequence[Example], Enter, Trial, Progress], list[Run]]] = {
    "prequential": prequential,
    "trained-once": trained_once,
    "cross-validation": cross_validation,
    "learning-curve": learning_curve,
}


def steps(protocol: str, messages: int, contenders: int, trial: Trial) -> int:
    """The sum of what `progress` will be called with: messages, each as often as it is read."""
    looks = trial.rounds * contenders
    train = (messages + 1) // 2 if trial.split == "alternate" else round(trial.train * messages)
    if protocol == "trained-once":
        return looks * train + messages - train
    if protocol == "cross-validation":
        return (looks * (trial.folds - 1) + 1) * messages
    if protocol == "learning-curve":
        return sum(looks * round(size * train) + messages - train for size in SIZES)
    return messages


def _given(examples: Sequence[Example], trial: Trial) -> list[Label]:
    """The labels to teach, some of them wrong by `noise`."""
    chance = random.Random(trial.seed)
    return [OTHER[example.label] if chance.random() < trial.noise else example.label for example in examples]


def _worth_asking(posterior: float, label: Label, trial: Trial) -> bool:
    """Whether a user who looks at the verdict would give a label: it is wrong, or unsure."""
    if trial.unsure <= posterior < trial.spam:
        return True
    return (posterior >= trial.spam) != (label == "spam")


def _parted(examples: Sequence[Example], trial: Trial) -> tuple[list[Example], list[Example]]:
    if trial.split == "alternate":
        return list(examples[::2]), list(examples[1::2])
    order = list(examples)
    if trial.split == "random":
        random.Random(trial.seed).shuffle(order)
    border = round(trial.train * len(order))
    return order[:border], order[border:]


def _trained(
    train: Sequence[Example],
    test: Sequence[Example],
    enter: Enter,
    trial: Trial,
    progress: Progress,
    part: str = "",
    runs: Sequence[Run] = (),
) -> list[Run]:
    """Train new contenders, let them judge, and add that to their runs, or to new ones."""
    contenders = enter()
    runs = list(runs) or [Run(contender.name, part) for contender in contenders]
    given = mixed(list(zip(_given(train, trial), train, strict=True)), lambda pair: pair[0])
    left, reading = 0, 0.0

    def labelled() -> Examples:
        nonlocal left, reading
        for label, example in given:
            began = time.process_time()
            tokens = example.read()
            reading += time.process_time() - began
            yield tokens, label
            left -= 1
            progress(1)

    for contender, run in zip(contenders, runs, strict=True):
        left, reading, began = trial.rounds * len(train), 0.0, time.process_time()
        contender.train(labelled, trial.rounds)
        run.taught += len(train)
        run.seconds += time.process_time() - began - reading
        run.looks += trial.rounds * len(train) - left
        progress(left)
    for example in test:
        tokens = example.read()
        for contender, run in zip(contenders, runs, strict=True):
            run.judge(contender, example, tokens)
        progress(1)
    return runs
