"""Bulk training: many labelled mails are learnt in transactions, then in further rounds (see rounds).

The mails are evenly mixed first, whatever order they were named in, and with mails that earlier runs have learnt, above
all of a class that they lack: those that the filter would judge badly now add to the counts again. Trained on 824 hams
and then, in a second run, on 376 spams of SpamAssassin's mail, it called 91 % of further ham spam without this, none
with it (benchmarks/training_order.py). Later rounds work on a copy of the counts; what they decide is remembered in the
store, then written, so that each learning is replaced at most once more.

Guarantee: a mail is one learning, however often it comes. A run that was stopped goes on where it stopped when it is
started again, and ends as if it had not been stopped; a run that was finished changes nothing the next time.
Guarantee: each transaction knows what others have learnt before it, and keeps others waiting for about half a second.
"""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from spamfilter.bayes.labels import BULK, COUNTERPART, Label
from spamfilter.bayes.token_arrays import by_hash
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.errors import InputError
from spamfilter.learning.bulk import earlier_runs
from spamfilter.learning.bulk.earlier_runs import Unfinished
from spamfilter.learning.bulk.labelled_mail import label_of, mixed
from spamfilter.learning.bulk.reading_ahead import read_ahead, told_apart
from spamfilter.learning.bulk.rounds import ROUNDS, Amounts, Message, later_rounds, no_amounts, note
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading, Training
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import Entry
from spamfilter.system.batches import batches, in_time
from spamfilter.system.process import gc_paused, uninterrupted

TOGETHER = 1000
"""Mails of one transaction, at most: one sync of the disk for all of them, and each word is written once."""
WORDS = 1_200_000
"""Words of the mails read for one transaction, at most: about a hundred megabytes."""
READ = 1.0
"""Seconds of reading after which a transaction begins: what a run that is stopped may lose."""
LOCKED = 0.5
"""Seconds after which a transaction takes in no further mail: others may wait for it."""
KEPT = 12_000_000
"""Words kept in memory for later rounds, twelve bytes each: those of some 20,000 mails. In each later round the tokens
of all other mails are read from the ledger."""

STEPS = ROUNDS + 1
"""How often `progress` is told of each mail: once a round, and when what later rounds have decided is written."""


@dataclass(slots=True)
class Outcome:
    """What a training did: mails newly learnt by label, known already, known under the other label.

    reinforced: mails to which later rounds have added. went_over: mails of earlier runs, by class, that this run could
    go over again. problems: sentences about mails that were passed over.
    """

    learnt: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})
    known: int = 0
    relabelled: int = 0
    reinforced: int = 0
    went_over: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})
    problems: list[str] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Mails whose learning is new or has another label than before."""
        return sum(self.learnt.values()) + self.relabelled


def train(
    filter: Filter,
    mails: Sequence[tuple[Label, Mail]],
    by: str,
    progress: Callable[[int], None],
    outcome: Outcome,
    processes: int = 0,
    repeats: bool = False,
) -> None:
    """Learn mails, evenly mixed, and fill the new `outcome`; `progress` is told of STEPS times the mails.

    An interruption leaves what was written learnt, and `outcome` true. filter: one that holds all counts. processes:
    that read ahead, besides this one. repeats: equal mails count as often as they come. Raises StoreBusy, StoreError.
    """
    mails = mixed(mails, label_of)
    name = earlier_runs.name_of(mails)
    begun = earlier_runs.unfinished(filter.store).get(name)
    earlier = earlier_runs.to_rehearse(filter.store, mails) if begun is None else begun.earlier
    with gc_paused():
        run = _Run(filter, mails, earlier, by, progress, outcome, name)
        run.first_round(processes, repeats)
        decided = begun.decided if begun else None
        if decided is None and (outcome.changes or begun is not None):
            decided = run.decide()
            with filter.training() as training:
                earlier_runs.remember(filter.store, name, Unfinished(earlier, decided), training)
        run.tell_up_to(ROUNDS)
        if decided is not None:
            run.reinforce(decided)
            with filter.training() as training:
                earlier_runs.remember(filter.store, name, None, training)
        run.tell_up_to(STEPS)


class _Read(NamedTuple):
    number: int
    label: Label
    reading: Reading


@dataclass(slots=True)
class _Run:
    """The first fields are as in `train` and `to_rehearse`, name as `name_of` gives it. The number of a mail is its
    place in `_mails`; those of earlier runs have greater ones."""

    _filter: Filter
    _mails: Sequence[tuple[Label, Mail]]
    _earlier: Sequence[tuple[Label, bytes]]
    _by: str
    _progress: Callable[[int], None]
    _outcome: Outcome
    _name: str
    _told: int = 0
    _numbers: dict[bytes, int] = field(default_factory=dict)  # digest -> the number of the first mail that has it
    _met: list[int] = field(default_factory=list)  # numbers as the mails came; of a repeated mail, that of the first
    _waiting: list[int] = field(default_factory=list)  # earlier mails to go over again before the next new one
    _kept: dict[int, VoiceTokens] = field(default_factory=dict)
    _room: int = KEPT

    def first_round(self, processes: int, repeats: bool) -> None:
        """Learn each mail once."""
        with closing(self._read(processes, repeats)) as groups:
            for group in groups:
                while group:
                    with uninterrupted():
                        done = self._learn_some(group)
                    self._tell([read.number for read in group[:done]])
                    del group[:done]

    def _read(self, processes: int, repeats: bool) -> Generator[list[_Read], None, None]:
        """The mails that can be learnt, as many at a time as a transaction may have."""
        group: list[_Read] = []
        words, began = 0, time.monotonic()
        order = mixed(range(len(self._mails) + len(self._earlier)), self._is_named)
        mails = [self._mails[number][1] for number in order if self._is_named(number)]
        with closing(read_ahead(lambda mail: self._filter.read(parse(mail.read())), mails, processes)) as read:
            readings = told_apart(read) if repeats else read
            for number in order:
                if not self._is_named(number):
                    label, digest = self._earlier[number - len(self._mails)]
                    if self._numbers.setdefault(digest, number) == number:
                        self._met.append(number)
                        group.append(_Read(number, label, Reading(digest, {})))
                    continue
                reading, (label, mail) = next(readings), self._mails[number]
                if isinstance(reading, InputError):
                    self._outcome.problems.append(str(reading))
                elif self._is_consistent(number, label, mail, reading):
                    group.append(_Read(number, label, reading))
                    words += reading.size
                if len(group) >= TOGETHER or words > WORDS or time.monotonic() - began > READ:
                    yield group
                    group, words, began = [], 0, time.monotonic()
        yield group

    def _is_consistent(self, number: int, label: Label, mail: Mail, reading: Reading) -> bool:
        """Whether this run has not met the same mail under the other label: neither can be right for both."""
        first = self._numbers.setdefault(reading.digest, number)
        if not self._is_named(first):
            first = self._numbers[reading.digest] = number
        before = self._mails[first][0]
        if before == label:
            self._met.append(first)
        else:
            self._outcome.problems.append(
                f"{mail.name}: passed over as {label}, the same mail was given as {before} before"
            )
        return before == label

    def _learn_some(self, group: Sequence[_Read]) -> int:
        """One transaction with the first of these mails: of how many. The outcome grows only once it is written."""
        learnt: dict[Label, int] = {"ham": 0, "spam": 0}
        relabelled = named = done = 0
        with self._filter.training() as training:
            known = training.ledger.learnt([read.reading.digest for read in group])
            for read in in_time(group, LOCKED):
                done += 1
                entry = known.get(read.reading.digest)
                named += self._is_named(read.number)
                if self._numbers[read.reading.digest] != read.number:
                    pass  # a copy of a mail that this run has met
                elif not self._is_named(read.number):
                    self._waiting.append(read.number)
                elif entry is None:
                    self._rehearse(training)
                    training.add(read.reading, read.label, BULK, self._by)
                    learnt[read.label] += 1
                elif entry.label != read.label or entry.source == COUNTERPART:
                    self._rehearse(training)
                    training.learn(read.reading, read.label, BULK, self._by)
                    relabelled += entry.label != read.label
                else:
                    self._waiting.clear()
            if not self._outcome.changes and (relabelled or any(learnt.values())):
                earlier_runs.begin(self._filter.store, self._name, self._earlier, training)
        for read in group[:done]:
            if self._is_named(read.number) and read.reading.digest not in known:
                self._keep(self._numbers[read.reading.digest], read.reading.tokens)
        for label, count in learnt.items():
            self._outcome.learnt[label] += count
        self._outcome.relabelled += relabelled
        self._outcome.known += named - sum(learnt.values()) - relabelled
        return done

    def _rehearse(self, training: Training) -> None:
        """Go over the waiting mails of earlier runs again, in the transaction of the new mail that follows them."""
        for number in self._waiting:
            entry = training.ledger.active(self._earlier[number - len(self._mails)][1])
            if entry is not None and self._is_ours(entry, number):
                training.rehearse(entry)
        self._waiting.clear()

    def decide(self) -> Amounts:
        """What the rounds after the first add, on a copy of the counts: voice -> number of a mail -> its new amount."""
        before = no_amounts(self._filter.voices)
        learnt = set[int]()
        for some in batches([*self._numbers.items()], TOGETHER):
            known = self._filter.store.learnt([digest for digest, _ in some])
            for digest, number in some:
                entry = known.get(digest)
                if entry is not None and self._is_ours(entry, number):
                    learnt.add(number)
                    note(before, number, entry.added)
        self._outcome.went_over.update(Counter(map(self._label, learnt)) - Counter(self._outcome.learnt))
        after = {voice: dict(amounts) for voice, amounts in before.items()}
        voices = tuple(voice for voice in self._filter.voices if voice.name in before)
        met = [number for number in self._met if number in learnt]
        later_rounds(voices, self._filter.copied(voices), lambda: self._messages(met), after, ROUNDS)
        return {
            voice: {number: amount for number, amount in amounts.items() if amount > before[voice].get(number, 0)}
            for voice, amounts in after.items()
        }

    def _messages(self, numbers: Sequence[int]) -> Iterator[Message]:
        """These mails for a later round."""
        digests = {number: digest for digest, number in self._numbers.items()}
        for some in batches(numbers, TOGETHER):
            for number in some:
                tokens = self._kept.get(number)
                if tokens is None and (entry := self._filter.store.active(digests[number])):
                    tokens = self._keep(number, entry.tokens)
                if tokens is not None:  # or somebody has taken it back meanwhile
                    yield Message(number, self._label(number), tokens)
            self._tell(some)

    def _keep(self, number: int, tokens: VoiceTokens) -> VoiceTokens:
        """The tokens that later rounds look at, kept while there is room."""
        few = {
            voice.name: by_hash(tokens[voice.name])
            for voice in self._filter.voices
            if voice.name in tokens and voice.likelihood.reinforces()
        }
        size = sum(map(len, few.values()))
        if size <= self._room and number not in self._kept:
            self._room -= size
            self._kept[number] = few
        return few

    def _is_ours(self, entry: Entry, number: int) -> bool:
        """Whether a learning is that of bulk training for this mail, which later rounds may add to; of an earlier run's
        mail, a person may have confirmed it."""
        return entry.label == self._label(number) and (entry.source == BULK or not self._is_named(number))

    def _is_named(self, number: int) -> bool:
        return number < len(self._mails)

    def _label(self, number: int) -> Label:
        return (self._mails[number] if self._is_named(number) else self._earlier[number - len(self._mails)])[0]

    def reinforce(self, decided: Amounts) -> None:
        """Write what later rounds have decided."""
        digests = {number: digest for digest, number in self._numbers.items()}
        numbers = sorted({number for amounts in decided.values() for number in amounts} & digests.keys())
        while numbers:
            with uninterrupted():
                done = self._reinforce_some([(number, digests[number]) for number in numbers[:TOGETHER]], decided)
            self._tell(numbers[:done])
            del numbers[:done]

    def _reinforce_some(self, mails: Sequence[tuple[int, bytes]], decided: Amounts) -> int:
        """One transaction with the first of these mails: of how many."""
        reinforced = done = 0
        with self._filter.training() as training:
            known = training.ledger.learnt([digest for _, digest in mails])
            for number, digest in in_time(mails, LOCKED):
                done += 1
                entry = known.get(digest)
                if entry is not None and self._is_ours(entry, number):
                    more = {
                        voice: amounts[number]
                        for voice, amounts in decided.items()
                        if voice in entry.tokens and amounts.get(number, 0) > entry.added.get(voice, 0)
                    }
                    reinforced += training.reinforce(entry, more)
        self._outcome.reinforced += reinforced
        return done

    def _tell(self, numbers: Iterable[int]) -> None:
        """Tell that these mails were dealt with; mails of earlier runs are not announced."""
        self._tell_of(sum(map(self._is_named, numbers)))

    def _tell_of(self, mails: int) -> None:
        self._told += mails
        if mails:
            self._progress(mails)

    def tell_up_to(self, step: int) -> None:
        """Tell that all mails were dealt with so many times, those passed over and needless rounds too."""
        self._tell_of(max(0, step * len(self._mails) - self._told))
