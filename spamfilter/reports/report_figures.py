"""The figures of a period, computed from the sum of its daily summaries.

A verdict that nobody corrected counts as right. ham_rate: the share of ham that was judged spam; spam_rate: the share
of spam that was judged ham; each with a 95 % Wilson interval. Only marks of people are corrections; bulk training and
automatic rules are not.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.evaluation.confidence_intervals import wilson
from spamfilter.evaluation.error_rates import logistic_average
from spamfilter.reports.daily_summaries import BINS, REPLIES, Hours, Summary, duration

FEW = 20
"""Messages below which the rate of an interval says little."""


@dataclass(frozen=True, slots=True)
class Rate:
    """An error rate: errors and messages; low and high bound the 95 % interval of the rate."""

    errors: int
    messages: int
    low: float
    high: float

    @classmethod
    def of(cls, errors: int, messages: int) -> "Rate":
        return cls(errors, messages, *wilson(errors, messages))


@dataclass(frozen=True, slots=True)
class Delay:
    """Median and 99th percentile of a processing time in microseconds, at most 5 % too large."""

    median: int
    p99: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a period. A mail that was deferred and sent again counts each time.

    replies: what clients heard, by the reply's class: accepted (2xx), deferred (4xx), rejected (5xx).
    unjudged: messages that never came to their text, or not for all recipients: deferred and rejected.
    lam: the mean of both error rates on the logit scale, in per cent; None if a class has no messages.
    unsure_settled: unsure messages that were marked later, by label.
    """

    messages: int
    bytes: int
    classes: dict[str, int]
    actions: dict[str, int]
    replies: dict[str, int]
    unjudged: dict[str, int]
    ham_rate: Rate
    spam_rate: Rate
    lam: float | None
    unsure_settled: dict[str, int]
    judging: Delay
    relaying: Delay


@dataclass(frozen=True, slots=True)
class Slot:
    """Messages by class and by action of one day, of one hour, or of one hour of the day over all days.

    whole: whether all of that time lies in the period, and is over.
    """

    at: str
    classes: dict[str, int]
    actions: dict[str, int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Calibrated:
    """An interval of the probability: its lower bound, its middle, the messages in it, and how many of them were spam.

    Unsure messages that nobody has marked are left out, because their class is not known. Neighbouring intervals with
    few messages are one.
    """

    least: float
    said: float
    messages: int
    spam: int

    @property
    def most(self) -> float:
        """The upper bound."""
        return 2 * self.said - self.least


def figures_of(mail: Summary) -> Figures:
    """The figures of a period from its summary."""
    classes = _counted(mail.hours, 1, CLASSES)
    marked: Counter[tuple[str, str]] = Counter()
    for (class_, _, label), number in mail.marked.items():
        marked[class_, label] += number
    lost, missed = marked["spam", "ham"], marked["ham", "spam"]
    ham_rate = Rate.of(lost, classes["ham"] - missed + lost + marked["unsure", "ham"])
    spam_rate = Rate.of(missed, classes["spam"] - lost + missed + marked["unsure", "spam"])
    return Figures(
        messages=mail.messages,
        bytes=mail.bytes,
        classes=classes,
        actions=_counted(mail.hours, 2, ACTIONS),
        replies={name: mail.replies[name] for name in REPLIES.values()},
        unjudged={
            name: sum(number for (_, said), number in mail.unjudged.items() if said == name)
            for name in ("deferred", "rejected")
        },
        ham_rate=ham_rate,
        spam_rate=spam_rate,
        lam=_lam(ham_rate, spam_rate),
        unsure_settled={label: marked["unsure", label] for label in LABELS},
        judging=_delay(mail.judging),
        relaying=_delay(mail.relaying),
    )


def _counted(hours: Hours, part: int, names: Iterable[str], hour: int | None = None) -> dict[str, int]:
    """Messages by one part of the keys of `Summary.hours`, 1: class, 2: action; of one hour of the day, or of all."""
    found: Counter[int | str] = Counter()
    for key, number in hours.items():
        if hour in (None, key[0]):
            found[key[part]] += number
    return {name: found[name] for name in names}


def slot_of(at: str, mail: Hours, hour: int | None = None, whole: bool = True) -> Slot:
    return Slot(at, _counted(mail, 1, CLASSES, hour), _counted(mail, 2, ACTIONS, hour), whole)


def _lam(ham: Rate, spam: Rate) -> float | None:
    """LAM% as `evaluate` gives it; None if a class has no messages."""
    if not ham.messages or not spam.messages:
        return None
    lost, missed = ham.errors / ham.messages, spam.errors / spam.messages
    return logistic_average(lost, missed, ham.messages, spam.messages)


def _delay(buckets: Counter[int]) -> Delay:
    ordered = sorted(buckets.items())

    def quantile(share: float) -> int:
        left = share * (buckets.total() - 1)
        for bucket, number in ordered:
            left -= number
            if left < 0:
                return duration(bucket)
        return 0

    return Delay(quantile(0.5), quantile(0.99))


def calibration_of(mail: Summary) -> list[Calibrated]:
    found: list[Calibrated] = []
    for at in range(BINS):
        judged = {class_: mail.scores[class_, at] for class_ in CLASSES}
        as_spam = sum(mail.marked[class_, at, "spam"] for class_ in CLASSES)
        corrected = mail.marked["spam", at, "spam"] + mail.marked["spam", at, "ham"]
        settled = mail.marked["unsure", at, "ham"] + mail.marked["unsure", at, "spam"]
        messages = judged["ham"] + judged["spam"] + settled
        if messages:
            spam = as_spam + judged["spam"] - corrected
            least = at / BINS
            if found and max(messages, found[-1].messages) < FEW:
                few = found.pop()
                least, messages, spam = few.least, few.messages + messages, few.spam + spam
            found.append(Calibrated(least, (least + (at + 1) / BINS) / 2, messages, spam))
    return found
