"""What one author has said of messages, and the exact undoing of all of it.

Guarantee: a message is undone in one transaction with others of its batch, as if the author had never spoken of it:
what sorted mail or a rule had taught of it before is learnt again, with the amounts of then; else it is not learnt.
An undoing that was stopped has done whole batches, and the same call does the rest: the author does not have the last
word of what is undone any more. What somebody else has changed since it was looked at is left alone.
What others have taught meanwhile was measured against what is undone, and stays as it is: `retraining` measures anew.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from spamfilter.bayes.labels import AUTOMATIC, BULK
from spamfilter.learning.filter import Filter, Reading
from spamfilter.stores import Entry, Store

Item = TypeVar("Item")

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
    """The last word of an author on a message: a learning that counts, or the taking back of one.

    before: what is learnt again without it, None for nothing. id and subject are of the message, '' where the journal
    has it no more.
    """

    entry: Entry
    before: Entry | None
    id: str
    subject: str


def taught_by(store: Store, by: str, since: datetime | None) -> list[Taught]:
    """What an author has said since a moment that makes a difference, the oldest first."""
    found = []
    for batch in _batches(store.last_words(by, since), ASKED):
        digests = [entry.digest for entry in batch]
        seen, said = store.journal_of(digests), store.histories(digests)
        for entry in batch:
            before = _before(said[entry.digest], by, since)
            if entry.undoes and before is None:
                continue  # not learnt, as it would be without this author
            mail = seen.get(entry.digest)
            found.append(Taught(entry, before, mail.id if mail else "", mail.subject if mail else ""))
    return found


def _before(history: Sequence[Entry], by: str, since: datetime | None) -> Entry | None:
    """The learning that would count if the author had said nothing since then.

    Nobody's, or the author's own of before: another person's can only be changed by the administrator, whose decision
    that was.
    """
    others = [entry for entry in history if entry.by != by or (since is not None and entry.at < since)]
    last = others[-1] if others else None
    if last is None or last.undoes or not (last.source in (BULK, AUTOMATIC) or last.by == by):
        return None
    return last


def undo(filter: Filter, taught: Sequence[Taught], source: str, by: str, undone: Callable[[set[int]], object]) -> None:
    """Undo these; `source` and `by` say who does. undone: called with the ledger ids of each batch.

    Raises StoreBusy, StoreError; then the batches that were told of are undone, and nothing else.
    """
    for number, batch in enumerate(_batches(taught, BATCH)):
        if number:
            time.sleep(PAUSE)
        done = set()
        with filter.training() as training:
            for each in batch:
                history = training.history(each.entry.digest)
                if history[-1].id != each.entry.id:
                    continue
                if not each.entry.undoes:
                    training.forget(Reading(each.entry.digest, history[-1].tokens), source, by)
                if each.before is not None:
                    training.restore(next(entry for entry in history if entry.id == each.before.id))
                done.add(each.entry.id)
        undone(done)


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
