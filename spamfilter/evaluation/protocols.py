"""PROTOCOLS: in which order labelled messages are judged and learnt.

Invariant: no message is judged by a contender that has learnt it before.
Source of the names: G. Cormack, TREC Spam Track Overviews 2005 to 2007.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Class, Policy
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.evaluation.contenders import Contender, Examples
from spamfilter.learning.bulk.labelled_mail import label_of, mixed
from spamfilter.system.batches import batches

Feedback = Literal["full", "delayed", "partial", "errors-and-unsure", "small-user"]
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

    delay: messages between a verdict and its label. share: of messages that get a label, with partial feedback.
    train_first, day, a_day: with a small user, messages of each class to train on, messages that come in a day, and the
    most that get a mark. noise: share of labels that are wrong in learning, never in measuring. unsure, spam: the
    thresholds of the classes. split: how the messages to train on, which are half of all, are chosen. rounds: of bulk
    training.
    """

    feedback: Feedback = "full"
    delay: int = 500
    share: float = 0.1
    train_first: int = 50
    day: int = 100
    a_day: int = 10
    noise: float = 0.0
    unsure: float = 0.5
    spam: float = 0.9
    split: Split = "time"
    folds: int = 10
    rounds: int = 5
    seed: int = 1

    def classify(self, score: Score) -> Class:
        """The class that the relay gives."""
        return Policy(spam=self.spam, unsure=self.unsure).classify(score, {"ham": 1, "spam": 1})


@dataclass(slots=True)
class Run:
    """The scores of one contender, in the order of the messages.

    part: of the protocol, for example the size of the training. known: share of each message's tokens that have counts.
    days: with a small user, messages and marks of each day. seconds: processor time to judge and learn, without
    reading. looks: number of times that a message was only learnt. taught: number of labels it was given.
    """

    contender: str
    part: str = ""
    examples: list[Example] = field(default_factory=list)
    log_odds: list[float] = field(default_factory=list)
    posteriors: list[float] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    days: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0
    looks: int = 0
    taught: int = 0

    @property
    def labels(self) -> list[Label]:
        return [example.label for example in self.examples]

    def reorder(self, places: Sequence[int]) -> None:
        """Sort the messages by these places, one for each."""
        order = sorted(range(len(places)), key=places.__getitem__)
        columns: tuple[list[Any], ...] = (self.examples, self.log_odds, self.posteriors, self.classes, self.known)
        for column in columns:
            column[:] = [column[number] for number in order]

    def judge(self, contender: Contender, example: Example, tokens: VoiceTokens, trial: Trial) -> Class:
        began = time.process_time()
        score = contender.score(tokens)
        self.seconds += time.process_time() - began
        self.examples.append(example)
        self.log_odds.append(score.log_odds)
        self.posteriors.append(score.posterior)
        self.classes.append(trial.classify(score))
        self.known.append(score.known)
        return self.classes[-1]

    def teach(self, contender: Contender, tokens: VoiceTokens, label: Label) -> None:
        began = time.process_time()
        contender.learn(tokens, label)
        self.seconds += time.process_time() - began
        self.taught += 1


def prequential(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Judge each message, then learn it if the feedback says so: TREC's immediate, delayed and partial feedback."""
    if trial.feedback == "small-user":
        return _small_user(examples, enter, trial, progress)
    contenders = enter()
    runs = [Run(contender.name) for contender in contenders]
    given, asked = _given(examples, trial), random.Random(trial.seed + 1)
    waiting: list[tuple[VoiceTokens, Label]] = []
    for example, label in zip(examples, given, strict=True):
        tokens = example.read()
        answered = asked.random() < trial.share
        for contender, run in zip(contenders, runs, strict=True):
            class_ = run.judge(contender, example, tokens, trial)
            if (
                trial.feedback == "full"
                or (trial.feedback == "partial" and answered)
                or (trial.feedback == "errors-and-unsure" and _urgency(class_, example.label) < RIGHT)
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


def _small_user(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Train on the first messages of each class, then judge day by day; in the evening some mail gets a mark.

    Wrong verdicts are marked first, ham among the spam before missed spam, then unsure ones. Mail that comes between
    the first messages of each class is passed over.
    """
    given = dict(zip(map(id, examples), _given(examples, trial), strict=True))
    train, rest = first_of_each(examples, trial.train_first)
    contenders = enter()
    runs = [Run(contender.name) for contender in contenders]
    looks = trial.rounds * len(contenders) * len(train) + len(rest)
    progress(steps("prequential", len(examples), len(contenders), trial) - looks)  # what is passed over
    _train(contenders, runs, [(given[id(example)], example) for example in train], trial, progress)
    for day in batches(rest, trial.day):
        mail = [(example.read(), example) for example in day]
        for contender, run in zip(contenders, runs, strict=True):
            urgency = [_urgency(run.judge(contender, each, tokens, trial), each.label) for tokens, each in mail]
            wanted = sorted((urgent, at) for at, urgent in enumerate(urgency) if urgent < RIGHT)[: trial.a_day]
            for at in sorted(at for _, at in wanted):
                tokens, example = mail[at]
                run.teach(contender, tokens, given[id(example)])
            run.days.append((len(day), len(wanted)))
        progress(len(day))
    return runs


def trained_once(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Train on half of the messages, and judge the rest without learning it."""
    train, test = _parted(examples, trial)
    return _trained(train, test, enter, trial, progress)


def cross_validation(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Judge each message by a contender trained on the other folds; folds are random, with even classes."""
    folds: list[list[int]] = [[] for _ in range(trial.folds)]
    chance = random.Random(trial.seed)
    for label in LABELS:
        places = [at for at, example in enumerate(examples) if example.label == label]
        chance.shuffle(places)
        for number, at in enumerate(places):
            folds[number % trial.folds].append(at)
    runs: list[Run] = []
    for fold in map(sorted, folds):
        mine = set(fold)
        train = [example for at, example in enumerate(examples) if at not in mine]
        runs = _trained(train, [examples[at] for at in fold], enter, trial, progress, runs=runs)
    for run in runs:
        run.reorder([at for fold in folds for at in sorted(fold)])
    return runs


def learning_curve(examples: Sequence[Example], enter: Enter, trial: Trial, progress: Progress) -> list[Run]:
    """Train on more and more of one half of the messages, and judge the other half each time."""
    train, test = _parted(examples, trial)
    runs = []
    for size in _sizes(len(train)):
        runs += _trained(train[:size], test, enter, trial, progress, str(size))
    return runs


def _sizes(train: int) -> list[int]:
    """How many of so many messages each point of a learning curve is trained on; of few messages there are fewer."""
    return [*dict.fromkeys(round(size * train) for size in SIZES)]


PROTOCOLS: dict[str, Callable[[Sequence[Example], Enter, Trial, Progress], list[Run]]] = {
    "prequential": prequential,
    "trained-once": trained_once,
    "cross-validation": cross_validation,
    "learning-curve": learning_curve,
}


def steps(protocol: str, messages: int, contenders: int, trial: Trial) -> int:
    """The sum of what `progress` will be called with: messages, each as often as it is read."""
    looks = trial.rounds * contenders
    if protocol == "prequential" and trial.feedback == "small-user":
        train = min(2 * trial.train_first, messages)
        return looks * train + messages - train
    train = (messages + 1) // 2 if trial.split == "alternate" else round(messages / 2)
    if protocol == "trained-once":
        return looks * train + messages - train
    if protocol == "cross-validation":
        return (looks * (trial.folds - 1) + 1) * messages
    if protocol == "learning-curve":
        return sum(looks * size + messages - train for size in _sizes(train))
    return messages


def _given(examples: Sequence[Example], trial: Trial) -> list[Label]:
    """The labels to teach, some of them wrong by `noise`."""
    chance = random.Random(trial.seed)
    return [OTHER[example.label] if chance.random() < trial.noise else example.label for example in examples]


RIGHT = 3
"""The urgency of a mark for a right verdict. Lower numbers are more urgent, and only they get a mark."""


def _urgency(class_: Class, label: Label) -> int:
    """How soon a user who looks at the verdict would mark it: 0 for lost ham, 1 for missed spam, 2 for unsure mail."""
    if class_ == "unsure":
        return 2
    if (class_ == "spam") == (label == "spam"):
        return RIGHT
    return 0 if label == "ham" else 1


def first_of_each(
    examples: Sequence[Example], number: int | Mapping[Label, int]
) -> tuple[list[Example], list[Example]]:
    """The first messages of each class, so many at most, and what comes behind the last of them."""
    wanted = dict.fromkeys(LABELS, number) if isinstance(number, int) else dict(number)
    train, last = list[Example](), -1
    for at, example in enumerate(examples):
        if wanted[example.label]:
            wanted[example.label] -= 1
            train.append(example)
            last = at
    return train, list(examples[last + 1 :])


def _parted(examples: Sequence[Example], trial: Trial) -> tuple[list[Example], list[Example]]:
    if trial.split == "alternate":
        return list(examples[::2]), list(examples[1::2])
    order = list(examples)
    if trial.split == "random":
        random.Random(trial.seed).shuffle(order)
    half = round(len(order) / 2)
    return order[:half], order[half:]


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
    _train(contenders, runs, list(zip(_given(train, trial), train, strict=True)), trial, progress)
    for example in test:
        tokens = example.read()
        for contender, run in zip(contenders, runs, strict=True):
            run.judge(contender, example, tokens, trial)
        progress(1)
    return runs


def _train(
    contenders: Sequence[Contender],
    runs: Sequence[Run],
    given: Sequence[tuple[Label, Example]],
    trial: Trial,
    progress: Progress,
) -> None:
    """Train contenders in bulk, and note in their runs what that took."""
    mail = mixed(given, label_of)
    left, reading = 0, 0.0

    def labelled() -> Examples:
        nonlocal left, reading
        for label, example in mail:
            began = time.process_time()
            tokens = example.read()
            reading += time.process_time() - began
            yield tokens, label
            left -= 1
            progress(1)

    for contender, run in zip(contenders, runs, strict=True):
        left, reading, began = trial.rounds * len(mail), 0.0, time.process_time()
        contender.train(labelled, trial.rounds)
        run.taught += len(mail)
        run.seconds += time.process_time() - began - reading
        run.looks += trial.rounds * len(mail) - left
        progress(left)
