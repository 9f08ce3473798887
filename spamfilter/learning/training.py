"""Bulk training: many labelled mails, in rounds and batches; some batches are one transaction.

A filter that learns from its errors ends up tuned to what it saw last. So the mails are gone
through ROUNDS times, and what is still judged badly is learnt again, up to a bound for each message.
One pass against rounds, the voice `fields` trained on half of the SpamAssassin corpus and judging the
other: 1-ROCA% .26 -> .041, ham lost 8.5 -> 0.7 %; with 5 % wrong labels .21 -> .075 (benchmarks/rounds.py).
The mails are evenly mixed first, whatever order they were named in.

Guarantee: a mail is one learning, however often it is met; a run that was stopped goes on where it stopped when it
is started again, and ends as if it had not been; one that was finished changes nothing the next time.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from spamfilter.bayes.labels import BULK, Label
from spamfilter.learning.batches import batches, before_an_error, gathered, while_others_can_wait
from spamfilter.learning.filter import Filter, Training
from spamfilter.learning.first_round import FirstRound
from spamfilter.learning.first_round import Outcome as Outcome
from spamfilter.learning.labelled_mail import mixed
from spamfilter.learning.reader import Numbered, Read, Reader
from spamfilter.learning.rounds import ROUNDS, Amounts, Rounds
from spamfilter.mail.mailboxes import Mail
from spamfilter.stores import Entry, Store
from spamfilter.system.garbage_collection import unsearched

STEPS = ROUNDS + 1
"""The rounds, and then what the later ones have decided is written."""
UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs which did not come to their end: a digest of their mails' names -> what the rounds
after the first have decided, or None."""
MOST_UNFINISHED = 20
"""Runs remembered; whoever gives up more of them will not go on with the oldest."""


def train(
    filter: Filter,
    mails: Sequence[tuple[Label, Mail]],
    by: str,
    progress: Callable[[int], None],
    outcome: Outcome,
    processes: int = 0,
) -> None:
    """Learn mails, evenly mixed, adding to `outcome`; `progress` is told how many a step has dealt with.

    It deals with STEPS times the mails. An interruption leaves what was written learnt, all but a second's work, and
    `outcome` true. filter: one that holds all counts. processes: that read ahead, besides this one; only where this
    one has no threads.
    """
    mails = mixed(mails, lambda item: item[0])
    name, unfinished = _name(mails), _unfinished(filter.store)
    with unsearched(), _nothing_ahead(filter):
        begin = partial(_begin, filter.store, name)
        run = _Run(filter, Reader(filter, processes), mails, by, progress, outcome, begin, name in unfinished)
        run.learn()
        decided = unfinished.get(name)
        if decided is None:
            decided = run.decide()
            if decided is not None:
                with filter.training() as training:
                    _remember(filter.store, name, decided, training)
        run.reinforce(decided or {})
        if decided is not None:
            with filter.training() as training:
                training.put_setting(UNFINISHED, _others(filter.store, name))


@contextmanager
def _nothing_ahead(filter: Filter) -> Iterator[None]:
    """Whatever breaks off, the filter knows in the end what is written, and no more."""
    try:
        yield
    except BaseException:
        filter.reload()
        raise


class _Run:
    def __init__(
        self,
        filter: Filter,
        reader: Reader,
        mails: Sequence[tuple[Label, Mail]],
        by: str,
        progress: Callable[[int], None],
        outcome: Outcome,
        begin: Callable[[Training], None],
        begun: bool,
    ) -> None:
        """begin: see `FirstRound`. begun: whether it has begun already, and was stopped."""
        self._filter, self._reader, self._outcome = filter, reader, outcome
        self._mails: Sequence[Numbered] = [(number, label, mail) for number, (label, mail) in enumerate(mails)]
        self._rounds = Rounds(filter, len(mails))
        self._first = FirstRound(filter, reader, self._rounds, by, outcome, begin)
        self._begun = begun
        self._progress, self._told = progress, 0

    def learn(self) -> None:
        """The first round, but for what may be written beside the others."""
        with closing(self._reader.first(batches(self._mails), self._outcome.problems)) as found:
            for batch in before_an_error(found, self._write):
                if self._first.learn(batch):
                    self._write()
        if not self._first.is_ahead:
            self._write()

    def _write(self) -> None:
        while self._first.is_waiting:
            self._tell([range(self._first.write())])

    def decide(self) -> Amounts | None:
        """The rounds after the first, and the rest of that; None if this run changes nothing."""
        if not (self._begun or self._first.changed or self._first.is_ahead):
            return None
        mails = self._later()
        at_hand, taken_back = self._reader.at_hand(mails), self._first.taken_back
        if at_hand is None:
            self._write()
            decided = self._rounds.decided(lambda: gathered(self._reader, self._later()), self._tell)
        else:
            decided = self._rounds.decided_at_hand(at_hand, self._write)
            if self._first.taken_back != taken_back:
                return self.decide()  # with what others have learnt meanwhile
        self._tell_up_to(ROUNDS)
        return decided

    def _later(self) -> list[Numbered]:
        """The mails that later rounds look at."""
        return [self._mails[number] for number in self._first.met if self._rounds.has(number)]

    def reinforce(self, decided: Amounts) -> None:
        """Write what these rounds have added, after all that comes before it."""
        self._write()
        self._tell_up_to(ROUNDS)
        numbers = sorted({number for amounts in decided.values() for number in amounts})
        with closing(gathered(self._reader, [self._mails[number] for number in numbers])) as groups:
            for group in groups:
                while group:
                    done = self._reinforce_some(group, decided)
                    self._tell(group[:done])
                    del group[:done]
        self._tell_up_to(STEPS)

    def _reinforce_some(self, group: Sequence[list[Read]], decided: Amounts) -> int:
        """One transaction of that."""
        reinforced = done = 0
        with self._filter.training() as training:
            for batch in while_others_can_wait(group):
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

    def _tell(self, done: Sequence[Sequence[object]]) -> None:
        for batch in done:
            self._told += len(batch)
            self._progress(len(batch))

    def _tell_up_to(self, step: int) -> None:
        """That all mails were dealt with so many times; some could not be read again, or need not be."""
        rest = step * len(self._mails) - self._told
        if rest > 0:
            self._tell([range(rest)])


def _name(mails: Sequence[tuple[Label, Mail]]) -> str:
    """A digest of labels and file names, without the folder and the flags that a Maildir changes."""
    names = "".join(f"{label} {os.path.basename(mail.name).partition(':2,')[0]}\n" for label, mail in mails)
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _unfinished(store: Store) -> dict[str, Amounts | None]:
    kept = store.get_setting(UNFINISHED)
    if isinstance(kept, list):  # as it was written before anything but names was
        return dict.fromkeys(map(str, kept))
    return {run: _amounts(decided) for run, decided in kept.items()} if isinstance(kept, dict) else {}


def undecided(store: Store) -> dict[str, None]:
    """What `UNFINISHED` says once all counts were rebuilt: the same runs, whose decisions were about other counts."""
    return dict.fromkeys(_unfinished(store))


def _amounts(kept: object) -> Amounts | None:
    """As JSON has them; None also for what was written when rounds were learnt one by one: a place in them."""
    if not isinstance(kept, dict):
        return None
    return {name: {int(number): amount for number, amount in of.items()} for name, of in kept.items()}


def _begin(store: Store, run: str, training: Training) -> None:
    """Write down that a run has begun; one that was known has, and may have decided already."""
    if run not in _unfinished(store):
        _remember(store, run, None, training)


def _remember(store: Store, run: str, decided: Amounts | None, training: Training) -> None:
    """Write down what a run is to do when it is started again."""
    others = [*_others(store, run).items()][-MOST_UNFINISHED:]
    training.put_setting(UNFINISHED, {**dict(others), run: decided})


def _others(store: Store, run: str) -> dict[str, Amounts | None]:
    return {other: decided for other, decided in _unfinished(store).items() if other != run}
