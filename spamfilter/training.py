"""Bulk training: many labelled mails, in rounds and batches; each batch is one transaction.

A filter that learns from its errors ends up tuned to what it saw last. So the mails are gone
through ROUNDS times, and what is still judged badly is learnt again, up to a bound for each message.
One pass against rounds, the voice `fields` trained on half of the SpamAssassin corpus and judging the
other: 1-ROCA% .43 -> .047, ham lost 10.6 -> 0.7 %; with 5 % wrong labels .33 -> .079 (benchmarks/rounds.py).
The mails are evenly mixed first, whatever order they were named in.

Guarantee: a mail is one learning, however often it is met; a run that was stopped goes on where it stopped when it
is started again, and ends as if it had not been; one that was finished changes nothing the next time.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

from spamfilter.counts import Label
from spamfilter.errors import InputError
from spamfilter.filter import Filter, Reading
from spamfilter.mailboxes import Mail, mixed
from spamfilter.message import parse
from spamfilter.seen import Seen
from spamfilter.sources import BULK
from spamfilter.stores import Store

ROUNDS = 5
"""Three leave ham and spam out of balance, eight add little."""
UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs which did not come to their end: a digest of their mails' names -> `Place`."""
MOST_UNFINISHED = 20
"""Runs remembered; whoever gives up more of them will not go on with the oldest."""
BATCH = 128
"""Mails of one transaction: one sync of the disk for all of them, and a lock of a few tenths of a second."""
KEPT = 3_000_000
"""Words of mails, each once for each mail, that later rounds have at hand: a hundred megabytes, some 5,000 mails. The
others are read anew in each round."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far the rounds after the first have come: batches of this round that are done, and what they added."""

    round: int = 1
    batch: int = 0
    grown: int = 0


@dataclass(slots=True)
class Outcome:
    """What a training did: mails newly learnt by label, known already, known under the other label.

    reinforced: how often a later round added to a mail of this run. problems: sentences about mails
    that were passed over.
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
    filter: Filter, mails: Sequence[tuple[Label, Mail]], by: str, progress: Callable[[int], None], outcome: Outcome
) -> None:
    """Learn mails, evenly mixed, adding to `outcome`; `progress` is told how many a step has dealt with.

    It deals with ROUNDS times the mails. An interruption leaves the batches before it learnt, and
    `outcome` true.
    """
    mails = mixed(mails, lambda item: item[0])
    run = _name(mails)
    begun = _unfinished(filter.store).get(run)
    place = begun or Place()
    with filter.training() as training:
        _remember(training.put_setting, filter.store, run, place)
    seen: dict[bytes, Label] = {}
    reader = _Reader(filter)
    for batch in _batches(mails):
        readings = reader.first(batch, outcome.problems)
        _learn(filter, _consistent(readings, seen, outcome.problems), by, outcome)
        progress(len(batch))
    if begun or outcome.changes:
        outcome.reinforced += _reinforce(filter, reader, mails, run, place, progress)
    else:
        progress((ROUNDS - 1) * len(mails))
    with filter.training() as training:
        _remember(training.put_setting, filter.store, run, None)


def _reinforce(
    filter: Filter,
    reader: "_Reader",
    mails: Sequence[tuple[Label, Mail]],
    run: str,
    place: Place,
    progress: Callable[[int], None],
) -> int:
    """The rounds after the first, from `place` on; returns how often a mail has learnt more."""
    reinforced = 0
    if place.round > 1:
        progress((place.round - 1) * len(mails))
    while place.round < ROUNDS:
        for number, batch in enumerate(_batches(mails)):
            if number >= place.batch:
                readings = reader.again(batch)
                with filter.training() as training:
                    more = sum(training.reinforce(reading, label) for label, _, reading in readings)
                    reached = Place(place.round, number + 1, place.grown + more)
                    _remember(training.put_setting, filter.store, run, reached)
                reinforced += more
                place = reached
            progress(len(batch))
        if not place.grown:
            progress((ROUNDS - 1 - place.round) * len(mails))
            break
        place = Place(place.round + 1)
    return reinforced


def _unfinished(store: Store) -> dict[str, Place]:
    kept = store.get_setting(UNFINISHED)
    if isinstance(kept, list):  # as it was written before places were
        return {str(run): Place() for run in kept}
    return {run: Place(*place) for run, place in kept.items()} if isinstance(kept, dict) else {}


def _remember(put: Callable[[str, object], None], store: Store, run: str, place: Place | None) -> None:
    """Write down, within a transaction of `store`, how far a run has come; None: to its end."""
    others = {other: reached for other, reached in _unfinished(store).items() if other != run}
    kept = [*others.items()][-MOST_UNFINISHED:] + ([(run, place)] if place else [])
    put(UNFINISHED, {run: astuple(place) for run, place in kept})


def _name(mails: Sequence[tuple[Label, Mail]]) -> str:
    """A digest of labels and file names, without the folder and the flags that a Maildir changes."""
    names = "".join(f"{label} {Path(mail.name).name.partition(':2,')[0]}\n" for label, mail in mails)
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _consistent(
    readings: list[tuple[Label, str, Reading]], seen: dict[bytes, Label], problems: list[str]
) -> list[tuple[Label, Reading]]:
    """Without mails that this run has met under the other label: neither can be right for both."""
    kept = []
    for label, name, reading in readings:
        if seen.setdefault(reading.digest, label) != label:
            problems.append(f"{name}: passed over as {label}, the same mail was given as {seen[reading.digest]} before")
        else:
            kept.append((label, reading))
    return kept


class _Reader:
    """Reads mails, and keeps of the first ones what later rounds look at."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter
        self._reinforced = [voice.name for voice in filter.voices if voice.likelihood.reinforces()]
        self._kept: dict[str, Reading] = {}
        self._room = KEPT

    def first(self, batch: Sequence[tuple[Label, Mail]], problems: list[str]) -> list[tuple[Label, str, Reading]]:
        """The mails of a batch, as far as they can be read."""
        readings = []
        for label, mail in batch:
            try:
                reading = self._filter.read(parse(mail.read()))
            except InputError as error:
                problems.append(str(error))
            else:
                readings.append((label, mail.name, reading))
                self._keep(mail.name, reading)
        return readings

    def again(self, batch: Sequence[tuple[Label, Mail]]) -> list[tuple[Label, str, Reading]]:
        """The same for a later round."""
        if all(mail.name in self._kept for _, mail in batch):
            return [(label, mail.name, self._kept[mail.name]) for label, mail in batch]
        return self.first(batch, [])

    def _keep(self, name: str, reading: Reading) -> None:
        seen = {voice: tokens for voice in self._reinforced if isinstance(tokens := reading.tokens[voice], Seen)}
        size = sum(map(len, seen.values()))
        if len(seen) == len(self._reinforced) and size <= self._room and name not in self._kept:
            self._room -= size
            self._kept[name] = Reading(reading.digest, {voice: tokens.bare() for voice, tokens in seen.items()})


def _learn(filter: Filter, readings: Sequence[tuple[Label, Reading]], by: str, outcome: Outcome) -> None:
    """One batch of the first round; `outcome` grows only once it is written."""
    learnt: dict[Label, int] = {"ham": 0, "spam": 0}
    relabelled = 0
    with filter.training() as training:
        known = training.learnt([reading.digest for _, reading in readings])
        for label, reading in readings:
            if reading.digest not in known:
                training.learn_new(reading, label, BULK, by)
                known.add(reading.digest)
                learnt[label] += 1
                continue
            change = training.learn(reading, label, source=BULK, by=by)
            relabelled += change.changed
    for label, count in learnt.items():
        outcome.learnt[label] += count
    outcome.relabelled += relabelled
    outcome.known += len(readings) - sum(learnt.values()) - relabelled


def _batches(mails: Sequence[tuple[Label, Mail]]) -> Iterator[Sequence[tuple[Label, Mail]]]:
    for start in range(0, len(mails), BATCH):
        yield mails[start : start + BATCH]
