"""Undoing: all that one author has taught since a moment, and how it is taken back exactly.

Guarantee: messages are undone in batches, one transaction each, as if the author had never marked them: what bulk
training or a rule had taught of a message before is learnt again, with the same amounts, and so is what it had taught
as a counterpart of a mark that stays; else it is not learnt.
If an undoing is stopped, whole batches are done, and the same call does the rest. A message that another author has
changed in the meantime is left alone.
What others have taught since then had amounts that depended on what is undone. It stays as it is; `retraining` computes
it again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from spamfilter.bayes.labels import AUTOMATIC, BULK, COUNTERPART, IMPORT
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import author_name
from spamfilter.learning.transaction import Reading, mark_of
from spamfilter.stores import Entry, Store
from spamfilter.system.batches import batches, paused

BATCH = 20
"""Learnings of one transaction, for which others wait: each takes 20 to 50 ms."""
MANY = 50
"""From this many learnings on, loading all counts once is faster than loading those of each message."""


@dataclass(frozen=True, slots=True)
class Taught:
    """The last entry of an author for a message: a learning that counts, or the undoing of one.

    before: the learning that replaces it, None for none. id, subject: of the message, '' if it has left the journal.
    """

    entry: Entry
    before: Entry | None
    id: str
    subject: str


def taught_by(store: Store, by: str, since: datetime | None, source: str | None = None) -> list[Taught]:
    """What an author has taught since a moment, by one source or any, and would be undone, the oldest first."""
    names = {by, author_name(by)}  # older marks have the address as it was written

    def meant(entry: Entry) -> bool:
        return entry.by in names and (since is None or entry.at >= since) and source in (None, entry.source)

    own = [entry for name in names for entry in store.last_entries_by(name, since) if meant(entry)]
    found, last = [], [*{entry.digest: entry for entry in sorted(own, key=lambda entry: entry.id)}.values()]
    digests = [entry.digest for entry in last]
    seen, said = store.journal_of(digests), store.histories(digests)
    for entry in last:
        before = _before([other for other in said[entry.digest] if not meant(other)], names)
        if before is not None and before.source == COUNTERPART:
            mark = mark_of(store, before)
            before = None if mark is None or meant(mark) else before
        if entry.undoes and before is None:
            continue  # without this author it would not be learnt, either
        mail = seen.get(entry.digest)
        found.append(Taught(entry, before, mail.id if mail else "", mail.subject if mail else ""))
    return found


def _before(others: Sequence[Entry], names: Collection[str]) -> Entry | None:
    """The learning that would count if of a message's entries there were only these: without what is undone.

    It is of bulk training, of a rule, a counterpart, or an earlier one of the author. If it is another person's, the
    administrator has replaced it, and that decision stands: None.
    """
    last = others[-1] if others else None
    if last is None or last.undoes or not (last.source in (BULK, AUTOMATIC, COUNTERPART) or last.by in names):
        return None
    if last.label == IMPORT and not last.added:  # a rebuilding of the counts leaves nothing of an import to learn again
        return None
    return last


def learnt_with(store: Store, taught: Sequence[Taught], since: datetime | None) -> Counter[datetime]:
    """How many counterparts count, and go, with the marks of spam among these: by the moment of the mark."""
    spam = {each.entry.at for each in taught if each.entry.label == "spam" and not each.entry.undoes}
    learnt = store.learnings(since, COUNTERPART) if spam else []
    return Counter(entry.at for entry in learnt if entry.at in spam)


def needs_all(taught: Sequence[Taught]) -> bool:
    """Whether these are to be undone by a filter that holds all counts."""
    entries = [entry for each in taught for entry in (each.entry, each.before) if entry is not None]
    return len(taught) >= MANY or any(entry.label == IMPORT for entry in entries)


def undo(filter: Filter, taught: Sequence[Taught], source: str, by: str, undone: Callable[[set[int]], object]) -> None:
    """Undo these, in the name of `source` and `by`. filter: see `needs_all`. undone: called with the ledger ids of each
    batch.

    Raises StoreBusy, StoreError; then the batches that `undone` was called for are undone, and nothing else.
    """
    for batch in paused(batches(taught, BATCH)):
        done = set()
        with filter.training() as training:
            for each in batch:
                history = training.ledger.history(each.entry.digest)
                if history[-1].id != each.entry.id:
                    continue
                # A counterpart in nobody's name: nobody has said anything of it.
                whose = (COUNTERPART, COUNTERPART) if each.entry.source == COUNTERPART else (source, by)
                if each.entry.label == IMPORT and not each.entry.undoes:
                    training.take_back(history[-1], *whose)
                elif not each.entry.undoes:
                    training.forget(Reading(each.entry.digest, history[-1].tokens), *whose)
                if each.before is not None:
                    training.restore(next(entry for entry in history if entry.id == each.before.id))
                done.add(each.entry.id)
        undone(done)
