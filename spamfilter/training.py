"""Bulk training: many labelled mails, in rounds and batches; each batch is one transaction.

A filter that learns from its errors ends up tuned to what it saw last. So the mails are gone
through ROUNDS times, and what is still judged badly is learnt again, up to a bound for each message.
One pass against rounds, trained on half of the SpamAssassin corpus and judging the other half:
1-ROCA% .33 -> .049, ham lost 9.5 -> 0.7 %; with 5 % wrong labels .27 -> .083.

Guarantee: a mail is one learning, however often it is met; a run that was stopped goes on when it
is started again; one that was finished changes nothing the next time.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from spamfilter.counts import Label
from spamfilter.errors import InputError
from spamfilter.filter import BULK, Filter, Reading
from spamfilter.mailboxes import Mail
from spamfilter.message import parse

ROUNDS = 5
"""Three leave ham and spam out of balance, eight add nothing."""
UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs which did not come to their end, by a digest of their mails' names."""
BATCH = 64
"""Mails of one transaction: 160 microseconds a mail instead of 1,400, and a lock of some 10 ms."""


@dataclass(slots=True)
class Outcome:
    """What a training did: mails newly learnt by label, known already, known under the other label.

    reinforced: how often a later round added to a mail of this run.
    """

    learnt: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})
    known: int = 0
    relabelled: int = 0
    reinforced: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Mails whose learning is new or other than it was."""
        return sum(self.learnt.values()) + self.relabelled


def train(
    filter: Filter, mails: Sequence[tuple[Label, Mail]], by: str, progress: Callable[[int], None], outcome: Outcome
) -> None:
    """Learn mails in this order, adding to `outcome`; `progress` is told how many a step has dealt with.

    It deals with ROUNDS times the mails. An interruption leaves the batches before it learnt, and
    `outcome` true.
    """
    names = "".join(f"{label} {mail.name}\n" for label, mail in mails)
    run = hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    kept = filter.store.get_setting(UNFINISHED)
    others = [other for other in kept if other != run] if isinstance(kept, list) else []
    unfinished = bool(kept) and kept != others
    filter.store.put_setting(UNFINISHED, [*others, run])
    for batch in _batches(mails):
        _learn(filter, _readings(filter, batch, outcome.unreadable), by, outcome)
        progress(len(batch))
    if unfinished or outcome.changes:
        for _ in range(ROUNDS - 1):
            for batch in _batches(mails):
                readings = _readings(filter, batch, [])
                with filter.training() as training:
                    for label, reading in readings:
                        outcome.reinforced += training.reinforce(reading, label)
                progress(len(batch))
    else:
        progress((ROUNDS - 1) * len(mails))
    filter.store.put_setting(UNFINISHED, others)


def _readings(
    filter: Filter, batch: Sequence[tuple[Label, Mail]], unreadable: list[str]
) -> list[tuple[Label, Reading]]:
    readings = []
    for label, mail in batch:
        try:
            readings.append((label, filter.read(parse(mail.read()))))
        except InputError as error:
            unreadable.append(str(error))
    return readings


def _learn(filter: Filter, readings: Sequence[tuple[Label, Reading]], by: str, outcome: Outcome) -> None:
    """One batch of the first round; `outcome` grows only once it is written."""
    learnt: dict[Label, int] = {"ham": 0, "spam": 0}
    relabelled = 0
    with filter.training() as training:
        for label, reading in readings:
            change = training.learn(reading, label, source=BULK, by=by)
            if change.changed and change.was is None:
                learnt[label] += 1
            relabelled += change.changed and change.was is not None
    for label, count in learnt.items():
        outcome.learnt[label] += count
    outcome.relabelled += relabelled
    outcome.known += len(readings) - sum(learnt.values()) - relabelled


def _batches(mails: Sequence[tuple[Label, Mail]]) -> Iterator[Sequence[tuple[Label, Mail]]]:
    for start in range(0, len(mails), BATCH):
        yield mails[start : start + BATCH]
