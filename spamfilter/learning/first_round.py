"""The first round of bulk training: all mails are learnt, each once.

A batch is learnt in memory as soon as it was read, and written later, with some others: so nobody waits for the
database while this one scores. If somebody else has learnt anything meanwhile, all that waits is taken back, and learnt
anew with that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from spamfilter.bayes.labels import BULK, Label
from spamfilter.learning.batches import Gathering, while_others_can_wait
from spamfilter.learning.filter import Ahead, Filter, Training
from spamfilter.learning.reader import Read, Reader
from spamfilter.learning.rounds import Rounds
from spamfilter.stores import Entry


@dataclass(slots=True)
class Outcome:
    """What a training did: mails newly learnt by label, known already, known under the other label.

    reinforced: mails to which later rounds have added. problems: sentences about mails that were passed over.
    """

    learnt: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})
    known: int = 0
    relabelled: int = 0
    reinforced: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Mails whose learning is new or other than it was."""
        return sum(self.learnt.values()) + self.relabelled


@dataclass(slots=True)
class _Batch:
    """size: consistent mails. mails: those of them that were not met before. ahead: what was learnt of these."""

    size: int
    mails: list[Read]
    ahead: list[Ahead] | None


class FirstRound:
    """met: numbers of the mails that were read, as they came; of one that came twice that of the first, twice.

    changed: whether anything new is written. taken_back: how often what waited had to be learnt anew.
    """

    def __init__(
        self,
        filter: Filter,
        reader: Reader,
        rounds: Rounds,
        by: str,
        outcome: Outcome,
        begin: Callable[[Training], None],
    ) -> None:
        """begin: called in the transaction that changes anything first."""
        self.met: list[int] = []
        self.changed = False
        self.taken_back = 0
        self._begin = begin
        self._filter, self._rounds, self._by, self._outcome = filter, rounds, by, outcome
        self._first: dict[bytes, tuple[int, Label]] = {}
        self._waiting: list[_Batch] = []
        self._gathering = Gathering(reader)

    @cached_property
    def _is_alone(self) -> bool:
        """Whether nobody but this run has learnt anything."""
        return self._filter.last == 0

    @property
    def is_waiting(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._waiting)

    @property
    def is_ahead(self) -> bool:
        """Whether anything was learnt that is not written."""
        return any(batch.ahead for batch in self._waiting)

    def learn(self, batch: Sequence[Read]) -> bool:
        """Learn a batch in memory; whether it is time to write."""
        consistent = [read for read in batch if self._is_consistent(read)]
        mails = [read for read in consistent if self._first[read.reading.digest][0] == read.number]
        is_known = not self._is_alone and bool(self._filter.store.learnt([read.reading.digest for read in mails]))
        self._waiting.append(_Batch(len(consistent), mails, None if is_known else self._learn_ahead(mails)))
        return self._gathering.is_enough() or is_known  # what comes next must know of what changes then

    def write(self) -> int:
        """One transaction of what waits: of how many mails. The outcome grows only once it is written."""
        learnt: dict[Label, int] = {"ham": 0, "spam": 0}
        relabelled = size = done = 0
        with self._filter.training() as training:
            if training.taken or training.reloaded:
                self._take_back(training)
                self._is_alone = False
            for batch in while_others_can_wait(self._waiting):
                if batch.ahead is None:
                    relabelled += self._learn_now(training, batch.mails, learnt)
                else:
                    self._written(batch.mails, training.write(batch.ahead, BULK, self._by), learnt)
                size += batch.size
                done += 1
            if not self.changed and (relabelled or any(learnt.values())):
                self._begin(training)
                self.changed = True
        for label, count in learnt.items():
            self._outcome.learnt[label] += count
        self._outcome.relabelled += relabelled
        self._outcome.known += size - sum(learnt.values()) - relabelled
        del self._waiting[:done]
        self._gathering.begin()
        return size

    def _take_back(self, training: Training) -> None:
        """What waits is to be learnt anew."""
        self.taken_back += 1
        for batch in self._waiting:
            if batch.ahead is not None and not training.reloaded:
                training.take_back(batch.ahead)
            batch.ahead = None

    def _learn_now(self, training: Training, mails: Sequence[Read], learnt: dict[Label, int]) -> int:
        """Learn mails that may have learnings already; how many of these had the other label."""
        known = training.learnt([read.reading.digest for read in mails])
        relabelled = 0
        for is_new, some in groupby(mails, lambda read: read.reading.digest not in known):
            if is_new:
                new = [*some]
                self._written(new, training.write(self._learn_ahead(new), BULK, self._by), learnt)
            else:
                relabelled += sum(self._learn_known(training, read, known[read.reading.digest]) for read in some)
        return relabelled

    def _learn_ahead(self, mails: Sequence[Read]) -> list[Ahead]:
        learnt = self._filter.learn_ahead([read.reading for read in mails], [read.label for read in mails])
        for read, ahead in zip(mails, learnt, strict=True):
            self._rounds.foresee(read.number, ahead.addition.added)
        return learnt

    def _learn_known(self, training: Training, read: Read, known: Entry) -> bool:
        """Learn a mail that has a learning; whether that had the other label."""
        relabelled = known.label != read.label
        if relabelled:
            training.learn(read.reading, read.label, BULK, self._by)
            known = training.learnt([known.digest])[known.digest]
        self._rounds.note(read.number, known, False)
        return relabelled

    def _written(self, mails: Sequence[Read], entries: Sequence[Entry], learnt: dict[Label, int]) -> None:
        for read, entry in zip(mails, entries, strict=True):
            self._rounds.note(read.number, entry, True)
            learnt[read.label] += 1

    def _is_consistent(self, read: Read) -> bool:
        """Whether this run has not met the same mail under the other label: neither can be right for both."""
        first, label = self._first.setdefault(read.reading.digest, (read.number, read.label))
        if label == read.label:
            self.met.append(first)
        else:
            self._outcome.problems.append(
                f"{read.name}: passed over as {read.label}, the same mail was given as {label} before"
            )
        return label == read.label
