"""The contract of a store: it keeps the counts, the ledger of what was learnt and the journal of what was judged.

Guarantee: everything within one `learning()` is written, or nothing is; a second one waits for the first. A reader sees
either all of it or nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from spamfilter.bayes.calibration import Calibration, Step
from spamfilter.bayes.counts import Growth
from spamfilter.bayes.labels import IMPORT, EntryLabel, Label
from spamfilter.bayes.model import Lesson, State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.stores.journal import Journal
from spamfilter.stores.quarantine_events import QuarantineEvents
from spamfilter.stores.sender_lists import SenderLists

ENTRIES = 1000
"""Most ledger entries read at a time: some megabytes of tokens, and milliseconds of a relay's time."""


@dataclass(frozen=True, slots=True)
class Entry(Lesson):
    """One row of the ledger: a learning or, with `undoes`, the undoing of the learning that has this id.

    tokens are empty where a method says "without tokens". id 0: not written yet.
    """

    at: datetime
    digest: bytes
    source: str
    by: str
    undoes: int | None = None
    id: int = 0

    @property
    def message_label(self) -> Label:
        """The label, for entries that are of a message. Raises ValueError for an import."""
        if self.label == IMPORT:
            raise ValueError(f"ledger entry {self.id} is an import, and of no message")
        return self.label

    def holds(self, words: Mapping[str, Collection[Token]]) -> bool:
        """Whether a voice has learnt any of its words here from this message. words: of each voice."""
        return any(
            self.added.get(voice) and not self.tokens.get(voice, {}).keys().isdisjoint(some)
            for voice, some in words.items()
        )


@dataclass(frozen=True, slots=True)
class Trainings:
    """How many active learnings there are of one source, author and label."""

    source: str
    by: str
    label: EntryLabel
    number: int


@dataclass(frozen=True, slots=True)
class Relearnt:
    """What a ledger entry adds after retraining. tokens: None if they are those in the ledger."""

    id: int
    added: Mapping[str, int]
    calibrated: Step
    tokens: VoiceTokens | None


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a rebuilding writes of its counts, and of what learnings add.

    words: voice -> its words to write, with the counts of the state; those that count nothing go. lessons: what these
    entries add. gone: ids of entries that were written before, and add nothing any more.
    """

    words: Mapping[str, Iterable[Token]]
    lessons: Iterable[Relearnt]
    gone: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Holders:
    """Learnings that have added to the counts of some words.

    looked_at: how many learnings were searched. last: the id of the oldest of them; 0 if none is left to search.
    """

    entries: Sequence[Entry]
    looked_at: int
    last: int


class Ledger(ABC):
    """The reads that are the same in a transaction of learning and outside."""

    @abstractmethod
    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        """The state with the counts of these words of each voice only; totals and tallies are those of all words."""

    @abstractmethod
    def entries_after(self, last: int) -> list[Entry]:
        """The next ENTRIES ledger entries after this id, oldest first; an undoing with the tokens of its learning."""

    @abstractmethod
    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        """The active learnings of these messages, which are those that are not undone; with their tokens."""

    def active(self, digest: bytes) -> Entry | None:
        """The active learning of one message, None if it is not learnt."""
        return self.learnt([digest]).get(digest)

    @abstractmethod
    def learnt_at(self, at: datetime) -> list[Entry]:
        """The active learnings of this moment, with their tokens. A mark of spam and its counterparts share one."""


class Learning(Ledger):
    """One transaction of learning; its reads show what it has written itself."""

    @abstractmethod
    def look_up(self, state: State, words: Mapping[str, Iterable[Token]]) -> None:
        """Read the counts of more words of its voices into a state of this transaction, which has not changed them."""

    @abstractmethod
    def history(self, digest: bytes) -> list[Entry]:
        """All ledger entries of this message, oldest first; learnings with their tokens, undoings without."""

    @abstractmethod
    def append(self, entry: Entry, like: int | None = None) -> Entry:
        """Write an entry; returns it with its id. like: id of a ledger entry to copy the tokens from."""

    @abstractmethod
    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, growth: Growth) -> None:
        """Add to the counts of a voice; negative numbers subtract. growth: the change of its vocabulary and tallies."""

    @abstractmethod
    def calibrate(self, calibration: Calibration) -> None:
        """Write this state of the calibration."""

    @abstractmethod
    def rebuild(self, edition: int, state: State, rest: Rewriting) -> None:
        """Let an edition judge: with the words and lessons that `write_beside` has written, with those of `rest`, and
        with totals and calibration of the state. Entries without a lesson add nothing from then on.

        `generation` grows, here and in every process at its next look at the ledger. Raises StoreBusy if another
        rebuilding has begun since.
        """

    @abstractmethod
    def load_anew(self) -> None:
        """Let every process load all counts again: `generation` grows, as after `rebuild`."""

    @abstractmethod
    def put_setting(self, name: str, value: object) -> None:
        """As `Store.put_setting`, within this transaction."""


class Store(Ledger, Journal, QuarantineEvents, SenderLists):
    """All that is kept: counts, ledger, journal, events of the quarantine, lists, daily summaries and settings.

    generation: grows when this store was replaced by another (a restored backup, for instance) and when
    the counts were rebuilt; counts in memory must then be loaded again. Both `learning` and `entries_after` look.
    """

    generation: int = 0

    @abstractmethod
    def learning(self) -> AbstractContextManager[Learning]:
        """A transaction of learning. Raises StoreBusy if another process holds the store too long."""

    @abstractmethod
    def load(self, voices: Iterable[str]) -> State:
        """All counts of these voices."""

    @abstractmethod
    def news(self, last: int) -> tuple[list[Entry], int]:
        """As `entries_after`; and the id of the last entry that was ever written, 0 if there was none."""

    @abstractmethod
    def holders(self, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
        """Of the last `limit` active learnings with an id below `before`, those that have added to any of these words.

        words: of each voice. Latest first, with their tokens. No index finds them: each learning is looked at.
        """

    @abstractmethod
    def new_edition(self) -> int:
        """Begin a rebuilding; returns the number of a new edition of the counts, which is empty and does not judge.

        An earlier rebuilding that is not finished cannot be finished any more.
        """

    @abstractmethod
    def write_beside(self, edition: int, state: State, some: Rewriting) -> None:
        """Write these words and lessons of a new edition, in many short transactions, between which others learn.

        Tokens of lessons are written for every edition. Raises StoreBusy if another rebuilding has begun since, and
        StoreFull before the disk is full.
        """

    @abstractmethod
    def sweep_editions(self) -> None:
        """Delete, in many short transactions, the rows of editions that neither judge nor are being written."""

    @abstractmethod
    def learnings(self, since: datetime | None = None, source: str | None = None) -> list[Entry]:
        """Active learnings, oldest first, without tokens; source: only of this one."""

    @abstractmethod
    def latest_learnings(self, since: datetime, until: datetime, limit: int) -> list[Entry]:
        """The last active learnings of a period, latest first, with their tokens."""

    @abstractmethod
    def last_entries_by(self, by: str, since: datetime | None = None) -> list[Entry]:
        """This author's ledger entries that are the last of their message, oldest first, without tokens."""

    @abstractmethod
    def histories(self, digests: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """All ledger entries of each of these messages, oldest first, without tokens."""

    @abstractmethod
    def marks_by(self, by: str, since: datetime) -> int:
        """The number of learnings of this author in the 24 hours from this moment, undone ones too, without undoings.

        Later learnings, dated by a clock that was ahead, do not count: they would use up the author's marks for days.
        """

    @abstractmethod
    def surprises_by(self, by: str, since: datetime, most: int) -> list[Entry]:
        """The first active learnings of this author as spam that contradicted the verdict, at most `most`.

        In the day since then, with their tokens; see `calibration.is_surprise`.
        """

    @abstractmethod
    def marks_on_mail(self, by: str, since: datetime, recipient: str, domain: str) -> tuple[int, int]:
        """How many messages this author has learnt in the day since then, undone ones too, that the journal knows: of
        those with this recipient, and of those whose sender has this domain. Case does not matter for letters of ASCII.
        """

    @abstractmethod
    def times_of_sources(self) -> dict[str, tuple[datetime, datetime]]:
        """Source -> the times of its first and of its last ledger entry."""

    @abstractmethod
    def sweep(self, source: str, before: datetime) -> int:
        """Delete the undone learnings of a source and their undoings, from before this time; returns how many."""

    @abstractmethod
    def trainings(self, since: datetime, until: datetime) -> list[Trainings]:
        """Active learnings of a period, counted by source, author and label, and sorted by these."""

    @abstractmethod
    def summaries(self, first: date, last: date) -> dict[date, Mapping[str, Any]]:
        """Day -> its summary; days without one are left out."""

    @abstractmethod
    def put_summary(self, day: date, body: Mapping[str, Any]) -> None:
        """Write the summary of a day, any JSON object; replaces an earlier one."""

    @abstractmethod
    def get_setting(self, name: str) -> object:
        """A value of the settings table, None if there is none."""

    @abstractmethod
    def settings_of(self, kind: str) -> dict[str, object]:
        """The settings whose names are this kind, a space, and a name of one of them: that name -> value."""

    @abstractmethod
    def put_setting(self, name: str, value: object) -> None:
        """Write a value that JSON can hold."""

    @abstractmethod
    def verify(self, quickly: bool = False) -> list[str]:
        """A sentence for each damage of the storage itself; quickly: without comparing each index with its table."""

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Write a consistent copy to a new file; others may read and write meanwhile.

        Raises StoreDamaged, and makes no file, where a quick check finds damage.
        """

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The name of this store in messages to people."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""
