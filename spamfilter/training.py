"""Bulk training: many labelled mails, in batches, each batch one transaction.

Guarantee: a mail is never counted twice; a run that was stopped goes on where it was when it is
started again, since what is learnt already is passed over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from spamfilter.counts import Label
from spamfilter.errors import InputError
from spamfilter.filter import Filter, Reading
from spamfilter.mailboxes import Mail
from spamfilter.message import parse

BATCH = 64
"""Mails of one transaction: 160 microseconds a mail instead of 1,400, and a lock of some 10 ms."""


@dataclass(slots=True)
class Outcome:
    """What a training did: newly learnt by label, known already, known under the other label."""

    learnt: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})
    known: int = 0
    relabelled: int = 0
    unreadable: list[str] = field(default_factory=list)


def train(
    filter: Filter, mails: Sequence[tuple[Label, Mail]], by: str, progress: Callable[[int], None], outcome: Outcome
) -> None:
    """Learn mails in this order, adding to `outcome`; `progress` is told how many a step has dealt with.

    An interruption leaves the batches before it learnt, and `outcome` true.
    """
    for batch in _batches(mails):
        readings: list[tuple[Label, Reading]] = []
        for label, mail in batch:
            try:
                readings.append((label, filter.read(parse(mail.read()))))
            except InputError as error:
                outcome.unreadable.append(str(error))
        step = Outcome()
        with filter.training() as training:
            for label, reading in readings:
                change = training.learn(reading, label, source="train", by=by)
                if not change.changed:
                    step.known += 1
                elif change.was is not None:
                    step.relabelled += 1
                else:
                    step.learnt[label] += 1
        for label in step.learnt:
            outcome.learnt[label] += step.learnt[label]
        outcome.known += step.known
        outcome.relabelled += step.relabelled
        progress(len(batch))


def _batches(mails: Sequence[tuple[Label, Mail]]) -> Iterator[Sequence[tuple[Label, Mail]]]:
    for start in range(0, len(mails), BATCH):
        yield mails[start : start + BATCH]
