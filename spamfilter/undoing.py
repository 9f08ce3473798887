"""What one author has taught, and the exact undoing of all of it.

Guarantee: a message is undone in one transaction with others of its batch, to "not learnt", as if the author had never
spoken of it. An undoing that was stopped has done whole batches, and the same call does the rest: what is undone is not
active any more. What somebody else has changed since it was looked at is left alone.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from spamfilter.filter import Filter, Reading
from spamfilter.stores import Entry, Store

BATCH = 20
"""Learnings of one transaction, for which others wait: each takes 20 to 50 ms."""
PAUSE = 0.12
"""Seconds between two: whoever waits for SQLite's lock looks every tenth of a second, and gave up without a gap."""
MANY = 50
"""Learnings from which on it takes less time to load all counts once than those of each message."""
ASKED = 500
"""Messages of one question about the journal: below SQLite's bound on variables."""


@dataclass(frozen=True, slots=True)
class Taught:
    """A learning that counts; id and subject are of the message, '' where the journal has it no more."""

    entry: Entry
    id: str
    subject: str


def taught_by(store: Store, by: str, since: datetime | None) -> list[Taught]:
    """The active learnings of an author since a moment, the oldest first."""
    entries = store.learnings(since, by)
    found = []
    for batch in _batches(entries, ASKED):
        seen = store.journal_of([entry.digest for entry in batch])
        for entry in batch:
            mail = seen.get(entry.digest)
            found.append(Taught(entry, mail.id, mail.subject) if mail else Taught(entry, "", ""))
    return found


def undo(filter: Filter, entries: Sequence[Entry], source: str, by: str, undone: Callable[[set[int]], object]) -> None:
    """Undo these learnings; `source` and `by` say who does. undone: called with the ledger ids of each batch.

    Raises StoreBusy, StoreError; then the batches that were told of are undone, and nothing else.
    """
    for number, batch in enumerate(_batches(entries, BATCH)):
        if number:
            time.sleep(PAUSE)
        done = set()
        with filter.training() as training:
            for entry in batch:
                active = training.active(entry.digest)
                if active is not None and active.id == entry.id:
                    training.forget(Reading(entry.digest, active.tokens), source, by)
                    done.add(entry.id)
        undone(done)


def _batches(entries: Sequence[Entry], size: int) -> Iterable[Sequence[Entry]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))
