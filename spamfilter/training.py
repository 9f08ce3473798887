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
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field
from pathlib import Path

from spamfilter.counts import Label
from spamfilter.filter import Filter
from spamfilter.mailboxes import Mail, mixed
from spamfilter.reader import Batches, Read, Reader
from spamfilter.sources import BULK
from spamfilter.stores import Store

ROUNDS = 5
"""Three leave ham and spam out of balance, eight add little."""
UNFINISHED = "unfinished_trainings"
"""The setting that remembers runs which did not come to their end: a digest of their mails' names -> `Place`."""
MOST_UNFINISHED = 20
"""Runs remembered; whoever gives up more of them will not go on with the oldest."""
BATCH = 128
"""Mails that are learnt all or none; the places where a run goes on are between them."""
TOGETHER = 16
"""Batches of one transaction, at most: one sync of the disk for all of them, and each word is written once."""
WORDS = 1_000_000
"""Words of the mails of one transaction, after which it takes in no further batch: some thirty megabytes."""
LOCKED = 0.5
"""Seconds after which a transaction takes in no further batch: others may wait for it."""


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
    filter: Filter,
    mails: Sequence[tuple[Label, Mail]],
    by: str,
    progress: Callable[[int], None],
    outcome: Outcome,
    processes: int = 0,
) -> None:
    """Learn mails, evenly mixed, adding to `outcome`; `progress` is told how many a step has dealt with.

    It deals with ROUNDS times the mails. An interruption leaves the batches before it learnt, and
    `outcome` true. processes: that read ahead, besides this one; only where this one has no threads.
    """
    mails = mixed(mails, lambda item: item[0])
    batches = [mails[start : start + BATCH] for start in range(0, len(mails), BATCH)]
    run = _name(mails)
    begun = _unfinished(filter.store).get(run)
    with filter.training() as training:
        _remember(training.put_setting, filter.store, run, begun or Place())
    reader = Reader(filter, processes)
    _learn(filter, reader, batches, by, progress, outcome)
    if begun or outcome.changes:
        _reinforce(filter, reader, batches, run, begun or Place(), progress, outcome)
    else:
        progress((ROUNDS - 1) * len(mails))
    with filter.training() as training:
        _remember(training.put_setting, filter.store, run, None)


def _learn(
    filter: Filter, reader: Reader, batches: Batches, by: str, progress: Callable[[int], None], outcome: Outcome
) -> None:
    """The first round."""
    seen: dict[bytes, Label] = {}
    at = 0
    with closing(_groups(reader, reader.first(batches, outcome.problems))) as groups:
        for found in groups:
            group = [_consistent(readings, seen, outcome.problems) for readings in found]
            while group:
                done = _learn_some(filter, reader, group, by, outcome)
                _tell(progress, batches[at : at + done])
                del group[:done]
                at += done


def _learn_some(filter: Filter, reader: Reader, group: Sequence[list[Read]], by: str, outcome: Outcome) -> int:
    """One transaction of the first round: how many of these batches. `outcome` grows only once it is written."""
    learnt: dict[Label, int] = {"ham": 0, "spam": 0}
    relabelled = met = done = 0
    with filter.training() as training:
        for batch in _while_others_can_wait(group):
            known = training.learnt([reading.digest for _, _, reading in batch])
            for label, name, reading in batch:
                if reading.digest in known:
                    relabelled += training.learn(reading, label, source=BULK, by=by).changed
                else:
                    reader.learnt(name, training.learn_new(reading, label, BULK, by))
                    known.add(reading.digest)
                    learnt[label] += 1
            met += len(batch)
            done += 1
    for label, count in learnt.items():
        outcome.learnt[label] += count
    outcome.relabelled += relabelled
    outcome.known += met - sum(learnt.values()) - relabelled
    return done


def _reinforce(
    filter: Filter,
    reader: Reader,
    batches: Batches,
    run: str,
    place: Place,
    progress: Callable[[int], None],
    outcome: Outcome,
) -> None:
    """The rounds after the first, from `place` on; `outcome` is told how often a mail has learnt more."""
    mails = sum(map(len, batches))
    if place.round > 1:
        progress((place.round - 1) * mails)
    while place.round < ROUNDS:
        _tell(progress, batches[: place.batch])
        with closing(_groups(reader, reader.again(batches[place.batch :]))) as groups:
            for group in groups:
                while group:
                    before, place = place, _reinforce_some(filter, reader, group, run, place)
                    outcome.reinforced += place.grown - before.grown
                    _tell(progress, batches[before.batch : place.batch])
                    del group[: place.batch - before.batch]
        if not place.grown:
            progress((ROUNDS - 1 - place.round) * mails)
            break
        place = Place(place.round + 1)


def _reinforce_some(filter: Filter, reader: Reader, group: Sequence[list[Read]], run: str, place: Place) -> Place:
    """One transaction of a later round; how far it came."""
    with filter.training() as training:
        for batch in _while_others_can_wait(group):
            labels, readings = [label for label, _, _ in batch], [reading for _, _, reading in batch]
            at = grown = 0
            while (at := training.next_more(readings, labels, at)) < len(readings):
                known = reader.learning_of(readings[at].digest)
                more = training.reinforce(readings[at], labels[at], known)
                if more is not None:
                    grown += 1
                    if known is not None:
                        reader.reinforced(more)
                at += 1
            place = Place(place.round, place.batch + 1, place.grown + grown)
        _remember(training.put_setting, filter.store, run, place)
    return place


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


def _tell(progress: Callable[[int], None], batches: Batches) -> None:
    for batch in batches:
        progress(len(batch))


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


def _consistent(readings: list[Read], seen: dict[bytes, Label], problems: list[str]) -> list[Read]:
    """Without mails that this run has met under the other label: neither can be right for both."""
    kept = []
    for label, name, reading in readings:
        if seen.setdefault(reading.digest, label) != label:
            problems.append(f"{name}: passed over as {label}, the same mail was given as {seen[reading.digest]} before")
        else:
            kept.append((label, name, reading))
    return kept
