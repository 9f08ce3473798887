"""Imports: what another filter or another database has learnt, as one entry of the ledger.

Guarantee: an import is one entry, written in one transaction; `forget` takes it away exactly and whole. A file that is
imported already changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from spamfilter.bayes.calibration import NO_STEP, Step
from spamfilter.bayes.imported.voices import IMPORTED
from spamfilter.bayes.labels import CANARY, IMPORT, LABELS, Label
from spamfilter.bayes.model import part_of
from spamfilter.bayes.tokens import Token
from spamfilter.errors import InputError
from spamfilter.learning.filter import IMPORTED_VOICES, Filter, ledger
from spamfilter.learning.transfer.dumps import Dump
from spamfilter.stores import Entry, Ledger, Store

ID = "import-"
"""What the id of an import begins with; the number of its ledger entry follows."""


@dataclass(slots=True)
class Import:
    """Counts to take over. messages: learnt of each class. added, tokens: by `part_of`, how many messages added to the
    counts, and the counts of each word."""

    messages: Mapping[Label, int]
    added: Mapping[str, int]
    tokens: Mapping[str, Mapping[Token, int]]
    step: Step = NO_STEP
    voices: frozenset[str] = frozenset()

    @property
    def words(self) -> int:
        """The number of words, over all voices."""
        return words_of(self.tokens)

    @classmethod
    def of_dump(cls, dump: Dump) -> "Import":
        likelihood = IMPORTED[dump.filter].likelihood.name
        parts = {label: part_of(label, dump.filter, likelihood) for label in LABELS}
        added = {part: dump.messages[label] for label, part in parts.items()}
        tokens = {part: dump.counts[label] for label, part in parts.items()}
        return cls(dump.messages, added, tokens, voices=frozenset((dump.filter,)))


def words_of(parts: Mapping[str, Mapping[Token, int]]) -> int:
    """The number of words of an import, over all voices, by the counts of its parts or the tokens of its entry."""
    return len({(name.split()[1], word) for name, counts in parts.items() for word in counts})


def filter_of(entry: Entry) -> str:
    """The filter that has learnt what an import has brought."""
    voices = {name.split()[1] for name in entry.added if " " in name}
    return ", ".join(sorted(voices & IMPORTED.keys())) or "spamfilter"


@dataclass(frozen=True, slots=True)
class Taken:
    """An import in the ledger. new: whether it is written now, or was known."""

    id: str
    new: bool


def announce(store: Store, names: frozenset[str]) -> None:
    """Let every process have these imported voices; without counts they say nothing."""
    if names - set(announced(store)):
        with store.learning() as learning:
            known = announced(store)  # again, now that nobody else writes
            learning.put_setting(IMPORTED_VOICES, [*known, *sorted(names - set(known))])
            learning.load_anew()


def announced(store: Store) -> list[str]:
    """The names of the imported voices."""
    kept = store.get_setting(IMPORTED_VOICES)
    return kept if isinstance(kept, list) else []


def is_new(source: Ledger) -> bool:
    """Whether nothing was ever learnt there but probes of `doctor`, which are taken back."""
    return all(entry.source == CANARY for entry in ledger(source))


def take_in(filter: Filter, imported: Import, digest: bytes, by: str) -> Taken:
    """Learn an import; its calibration, which is of its counts alone, only where nothing was learnt before.

    filter: holds all counts in memory. digest: of its file, 16 bytes.
    """
    announce(filter.store, imported.voices)
    with filter.training() as training:
        active = training.ledger.active(digest)
        if active is not None:
            return Taken(f"{ID}{active.id}", False)
        step = imported.step if is_new(training.ledger) else NO_STEP
        messages = {str(label): number for label, number in imported.messages.items()}
        added = {**messages, **imported.added}
        entry = Entry(IMPORT, added, step, imported.tokens, datetime.now(UTC), digest, IMPORT, by)
        return Taken(f"{ID}{training.write(entry)}", True)


def forget(filter: Filter, id: str, source: str, by: str) -> Entry:
    """Take an import away. filter: holds all counts in memory. Raises InputError where there is none of this id."""
    number = id.removeprefix(ID)
    with filter.training() as training:
        for entry in filter.store.learnings():
            if entry.label == IMPORT and str(entry.id) == number:
                active = training.ledger.active(entry.digest)
                assert active is not None
                training.take_back(active, source, by)
                return active
    raise InputError(
        f"{id}: no import of this number, or it is forgotten already; `spamfilter import --list` lists them"
    )
