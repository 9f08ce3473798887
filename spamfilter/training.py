"""Bulk training: many labelled mails, in rounds and batches; each batch is one transaction.

A filter that learns from its errors ends up tuned to what it saw last. So the mails are gone
through ROUNDS times, and what is still judged badly is learnt again, up to a bound for each message.
One pass against rounds, the voice `fields` trained on half of the SpamAssassin corpus and judging the
other: 1-ROCA% .43 -> .047, ham lost 10.6 -> 0.7 %; with 5 % wrong labels .33 -> .079 (benchmarks/rounds.py).
The mails are evenly mixed first, whatever order they were named in.

Guarantee: a mail is one learning, however often it is met; a run that was stopped goes on where it stopped when it
is started again, and ends as if it had not been; one that was finished changes nothing the next time.
"""

import gc
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from spamfilter.counts import Label
from spamfilter.filter import Filter, Training
from spamfilter.mailboxes import Mail, mixed
from spamfilter.reader import Read, Reader
from spamfilter.rounds import ROUNDS, Amounts, Rounds
from spamfilter.sources import BULK
from spamfilter.stores import Entry, Store

STEPS = ROUNDS + 1
"""The rounds, and then what the later ones have decided is written."""
UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs which did not come to their end: a digest of their mails' names -> what the rounds
after the first have decided, or None."""
MOST_UNFINISHED = 20
"""Runs remembered; whoever gives up more of them will not go on with the oldest."""
BATCH = 128
"""Mails that are learnt all or none."""
TOGETHER = 16
"""Batches of one transaction, at most: one sync of the disk for all of them, and each word is written once."""
WORDS = 1_000_000
"""Words of the mails of one transaction, after which it takes in no further batch: some thirty megabytes."""
LOCKED = 0.5
"""Seconds after which a transaction takes in no further batch: others may wait for it."""

Mails = Sequence[tuple[int, Label, Mail]]
"""With their numbers in the run."""


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


def train(
    filter: Filter,
    mails: Sequence[tuple[Label, Mail]],
    by: str,
    progress: Callable[[int], None],
    outcome: Outcome,
    processes: int = 0,
) -> None:
    """Learn mails, evenly mixed, adding to `outcome`; `progress` is told how many a step has dealt with.

    It deals with STEPS times the mails. An interruption leaves the batches before it learnt, and
    `outcome` true. processes: that read ahead, besides this one; only where this one has no threads.
    """
    mails = mixed(mails, lambda item: item[0])
    name, unfinished = _name(mails), _unfinished(filter.store)
    begun, decided = name in unfinished, unfinished.get(name)
    with _no_look_for_cycles():
        if not begun:
            _remember(filter, name, None)
        run = _Run(filter, Reader(filter, processes), mails, by, progress, outcome)
        run.learn()
        if decided is None and (begun or outcome.changes):
            decided = run.decide()
            _remember(filter, name, decided)
        run.reinforce(decided or {})
        _forget(filter, name)


@contextmanager
def _no_look_for_cycles() -> Iterator[None]:
    """What was read is much, and not in cycles: to look through it again and again takes a twentieth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Run:
    def __init__(
        self,
        filter: Filter,
        reader: Reader,
        mails: Sequence[tuple[Label, Mail]],
        by: str,
        progress: Callable[[int], None],
        outcome: Outcome,
    ) -> None:
        self._filter, self._reader, self._by, self._outcome = filter, reader, by, outcome
        self._mails: Mails = [(number, label, mail) for number, (label, mail) in enumerate(mails)]
        self._rounds = Rounds(filter, len(mails))
        self._seen: dict[bytes, int] = {}  # digest -> the first mail that has it
        self._met: list[int] = []  # the mails that were read; for one that is there twice the first of them, twice
        self._progress, self._told = progress, 0

    def learn(self) -> None:
        """The first round."""
        batches, at = _batches(self._mails), 0
        with closing(_groups(self._reader, self._reader.first(batches, self._outcome.problems))) as groups:
            for found in groups:
                group = [self._consistent(batch) for batch in found]
                while group:
                    done = self._learn_some(group)
                    self._tell(batches[at : at + done])
                    at += done
                    del group[:done]

    def _learn_some(self, group: Sequence[list[Read]]) -> int:
        """One transaction of the first round: how many of these batches. The outcome grows only once it is written."""
        learnt: dict[Label, int] = {"ham": 0, "spam": 0}
        relabelled = met = done = 0
        with self._filter.training() as training:
            for batch in _while_others_can_wait(group):
                first = [read for read in batch if self._seen[read.reading.digest] == read.number]
                known = training.learnt([read.reading.digest for read in first])
                new: list[Read] = []
                for read in first:
                    entry = known.get(read.reading.digest)
                    if entry is None:
                        new.append(read)
                        learnt[read.label] += 1
                    else:
                        self._learn_new(training, new)  # in the order in which they were met
                        new = []
                        relabelled += self._learn_known(training, read, entry)
                self._learn_new(training, new)
                met += len(batch)
                done += 1
        for label, count in learnt.items():
            self._outcome.learnt[label] += count
        self._outcome.relabelled += relabelled
        self._outcome.known += met - sum(learnt.values()) - relabelled
        return done

    def _learn_new(self, training: Training, mails: Sequence[Read]) -> None:
        readings, labels = [read.reading for read in mails], [read.label for read in mails]
        for read, entry in zip(mails, training.learn_new(readings, labels, BULK, self._by), strict=True):
            self._rounds.note(read.number, entry, True)

    def _learn_known(self, training: Training, read: Read, known: Entry) -> bool:
        """Learn a mail that has a learning; whether that had the other label."""
        relabelled = known.label != read.label
        if relabelled:
            training.learn(read.reading, read.label, BULK, self._by)
            known = training.learnt([known.digest])[known.digest]
        self._rounds.note(read.number, known, False)
        return relabelled

    def decide(self) -> Amounts:
        """The rounds after the first."""
        mails = [self._mails[number] for number in self._met if self._rounds.has(number)]
        decided = self._rounds.decided(lambda: self._again(mails), self._tell)
        self._tell_up_to(ROUNDS)
        return decided

    def reinforce(self, decided: Amounts) -> None:
        """Write what these rounds have added."""
        self._tell_up_to(ROUNDS)
        numbers = sorted({number for amounts in decided.values() for number in amounts})
        for group in self._again([self._mails[number] for number in numbers]):
            while group:
                done = self._reinforce_some(group, decided)
                self._tell(group[:done])
                del group[:done]
        self._tell_up_to(STEPS)

    def _reinforce_some(self, group: Sequence[list[Read]], decided: Amounts) -> int:
        """One transaction of that."""
        reinforced = done = 0
        with self._filter.training() as training:
            for batch in _while_others_can_wait(group):
                known = training.learnt([read.reading.digest for read in batch])
                for read in batch:
                    entry = known.get(read.reading.digest)
                    if entry is not None and entry.label == read.label and entry.source == BULK:
                        reinforced += self._raise(training, read, entry, decided)
                done += 1
        self._outcome.reinforced += reinforced
        return done

    def _raise(self, training: Training, read: Read, known: Entry, decided: Amounts) -> bool:
        """Let a learning add as much as was decided; whether that is more than it does."""
        more = {
            name: amount
            for name, amounts in decided.items()
            if (amount := amounts.get(read.number, 0)) > known.added.get(name, 0)
        }
        if not more:
            return False
        here = self._rounds.is_of(known, read)
        active = replace(known, tokens=read.reading.tokens) if here else training.active(known.digest) or known
        return training.reinforce(active, {name: amount for name, amount in more.items() if name in active.tokens})

    def _again(self, mails: Mails) -> Generator[list[list[Read]], None, None]:
        return _groups(self._reader, self._reader.again(_batches(mails)))

    def _consistent(self, batch: list[Read]) -> list[Read]:
        """Without mails that this run has met under the other label: neither can be right for both."""
        kept = []
        for read in batch:
            number = self._seen.setdefault(read.reading.digest, read.number)
            first = self._mails[number][1]
            if first == read.label:
                self._met.append(number)
                kept.append(read)
            else:
                self._outcome.problems.append(
                    f"{read.name}: passed over as {read.label}, the same mail was given as {first} before"
                )
        return kept

    def _tell(self, batches: Sequence[Sequence[object]]) -> None:
        for batch in batches:
            self._told += len(batch)
            self._progress(len(batch))

    def _tell_up_to(self, step: int) -> None:
        """That all mails were dealt with so many times; some could not be read again, or need not be."""
        rest = step * len(self._mails) - self._told
        if rest > 0:
            self._tell([range(rest)])


def _batches(mails: Mails) -> list[Mails]:
    return [mails[start : start + BATCH] for start in range(0, len(mails), BATCH)]


def _groups(reader: Reader, found: Generator[list[Read], None, None]) -> Generator[list[list[Read]], None, None]:
    """Batches that were read, for one transaction; where reading breaks off, those before it come first."""
    group: list[list[Read]] = []
    began, words = time.monotonic(), reader.words
    with closing(found):
        while True:
            try:
                batch = next(found, None)
            except BaseException:
                if group:
                    yield group
                raise
            if batch is None:
                break
            group.append(batch)
            if len(group) == TOGETHER or time.monotonic() - began > LOCKED or reader.words - words > WORDS:
                yield group
                group = []
                began, words = time.monotonic(), reader.words
    if group:
        yield group


def _while_others_can_wait(group: Sequence[list[Read]]) -> Iterator[list[Read]]:
    """The first of these, in a transaction, and the others until LOCKED seconds have passed."""
    began = time.monotonic()
    for batch in group:
        yield batch
        if time.monotonic() - began > LOCKED:
            return


def _name(mails: Sequence[tuple[Label, Mail]]) -> str:
    """A digest of labels and file names, without the folder and the flags that a Maildir changes."""
    names = "".join(f"{label} {os.path.basename(mail.name).partition(':2,')[0]}\n" for label, mail in mails)
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _unfinished(store: Store) -> dict[str, Amounts | None]:
    kept = store.get_setting(UNFINISHED)
    if isinstance(kept, list):  # as it was written before anything but names was
        return dict.fromkeys(map(str, kept))
    return {run: _amounts(decided) for run, decided in kept.items()} if isinstance(kept, dict) else {}


def _amounts(kept: object) -> Amounts | None:
    """As JSON has them; None also for what was written when rounds were learnt one by one: a place in them."""
    if not isinstance(kept, dict):
        return None
    return {name: {int(number): amount for number, amount in of.items()} for name, of in kept.items()}


def _remember(filter: Filter, run: str, decided: Amounts | None) -> None:
    """Write down what a run is to do when it is started again."""
    with filter.training() as training:
        others = [*_others(filter.store, run).items()][-MOST_UNFINISHED:]
        training.put_setting(UNFINISHED, {**dict(others), run: decided})


def _forget(filter: Filter, run: str) -> None:
    """Write down that a run has come to its end."""
    with filter.training() as training:
        training.put_setting(UNFINISHED, _others(filter.store, run))


def _others(store: Store, run: str) -> dict[str, Amounts | None]:
    return {other: decided for other, decided in _unfinished(store).items() if other != run}
