"""What a store must do: keep counts, ledger and journal, and never half of a learning.

Guarantee: everything within one `learning()` is written, or nothing is; two at a time wait for
each other. A reader sees either all of it or nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from spamfilter.bayes.calibration import Calibration, Step
from spamfilter.bayes.counts import Growth, Label
from spamfilter.bayes.model import State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.verdict import Action, Class
from spamfilter.bayes.voices import VoiceTokens

NAMED = 5
"""Entries of one Message-ID that are looked at: a mail is judged again for each delivery attempt and list."""
ENTRIES = 1000
"""Ledger entries read at a time: some megabytes of tokens, and a pause no relay notices."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger: a learning, or with `undoes` the taking back of one.

    added: what each voice's update rule gave (its `amount`). tokens: what each voice saw; empty
    where only the facts were asked for. id 0: not written yet.
    """

    at: datetime
    digest: bytes
    label: Label
    added: Mapping[str, int]
    calibrated: Step
    tokens: VoiceTokens
    source: str
    by: str
    undoes: int | None = None
    id: int = 0

    def as_of(self, id: int) -> "Entry":
        """The same with its id in the ledger; as `replace`, in a fifth of the time."""
        return Entry(
            self.at, self.digest, self.label, self.added, self.calibrated,
            self.tokens, self.source, self.by, self.undoes, id,
        )  # fmt: skip

    def holds(self, words: Mapping[str, Collection[Token]]) -> bool:
        """Whether any of these words of each voice is in it, and the voice has learnt it."""
        return any(
            self.added.get(voice) and not self.tokens.get(voice, {}).keys().isdisjoint(some)
            for voice, some in words.items()
        )


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One message that passed the relay. Times in microseconds: of judging, and from dot to reply."""

    id: str
    at: datetime
    digest: bytes
    message_id: str
    sender: str
    recipients: Sequence[str]
    subject: str
    size: int
    client: str
    log_odds: float
    score: float
    class_: Class
    action: Action
    reply: str
    judge_us: int
    total_us: int
    evidence: Sequence[tuple[str, float]]
    tokens: VoiceTokens | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for in the journal: all of it must hold, and what is empty says nothing.

    sender: a part of it. subject: words or parts of words, each of which must be in it. Letters of ASCII are the same
    in either case. least, most: of the score. unsure_first: unsure entries come before all others.
    """

    class_: Class | None = None
    action: Action | None = None
    sender: str = ""
    subject: str = ""
    least: float = 0.0
    most: float = 1.0
    unsure_first: bool = False


@dataclass(frozen=True, slots=True)
class Labelled:
    """A message of the journal that somebody has labelled: when it was judged, what as, and what it is."""

    at: datetime
    class_: Class
    score: float
    label: Label


@dataclass(frozen=True, slots=True)
class Trainings:
    """How many active learnings of a source and an author gave a label."""

    source: str
    by: str
    label: Label
    number: int


@dataclass(frozen=True, slots=True)
class Relearnt:
    """What a ledger entry adds under other rules; tokens: None where they are those that the ledger has."""

    id: int
    added: Mapping[str, int]
    calibrated: Step
    tokens: VoiceTokens | None


@dataclass(frozen=True, slots=True)
class Holders:
    """Learnings that have added to some words; how many were looked at for them, down to which id (0: to the first)."""

    entries: Sequence[Entry]
    looked_at: int
    last: int


class Learning(ABC):
    """One transaction of learning; its reads show what it has written itself."""

    @abstractmethod
    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        """The state with the counts of these words of each voice only; totals and tallies are those of all words."""

    @abstractmethod
    def active(self, digest: bytes) -> Entry | None:
        """The learning of this message that has not been taken back, with its tokens."""

    @abstractmethod
    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        """The learnings of these messages, a few hundred at most, that have not been taken back; without tokens."""

    @abstractmethod
    def history(self, digest: bytes) -> list[Entry]:
        """All ledger entries of this message, oldest first; with their tokens, but for those that take one back."""

    @abstractmethod
    def entries_after(self, last: int) -> list[Entry]:
        """The next ENTRIES ledger entries with a greater id, oldest first; an undoing carries what it undoes."""

    @abstractmethod
    def append(self, entry: Entry, like: int | None = None) -> Entry:
        """Write an entry; returns it with its id. like: of the entry in the ledger that has all of its tokens."""

    @abstractmethod
    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, growth: Growth) -> None:
        """Add to the counts of a voice; negative numbers take away. growth: what that does to its totals."""

    @abstractmethod
    def calibrate(self, calibration: Calibration) -> None:
        """Keep this state of the calibration."""

    @abstractmethod
    def rebuild(self, state: State, lessons: Iterable[Relearnt]) -> None:
        """Replace all counts, totals and the calibration, and say in the ledger what each active learning added now.

        Entries that were taken back, and those that took them back, add nothing any more. `generation` grows, here
        and in every process that looks at the ledger next.
        """

    @abstractmethod
    def put_setting(self, name: str, value: object) -> None:
        """As `Store.put_setting`, within this transaction."""


class Store(ABC):
    """A place that keeps what was learnt and what was judged.

    generation: grows when another store has taken the place of this one, a restored backup for instance, and when
    its counts were rebuilt; whoever holds counts of it in memory loads them anew. Noticed by whoever opens a
    transaction of learning, or asks for the entries after one.
    """

    generation: int = 0

    @abstractmethod
    def learning(self) -> AbstractContextManager[Learning]:
        """A transaction of learning. Raises StoreBusy if others hold the store too long."""

    @abstractmethod
    def load(self, voices: Iterable[str]) -> State:
        """All counts of these voices."""

    @abstractmethod
    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        """The state with the counts of these words of each voice only; totals and tallies are those of all words."""

    @abstractmethod
    def entries_after(self, last: int) -> list[Entry]:
        """The next ENTRIES ledger entries with a greater id, oldest first; an undoing carries what it undoes."""

    @abstractmethod
    def active(self, digest: bytes) -> Entry | None:
        """The learning of this message that has not been taken back, with its tokens."""

    @abstractmethod
    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        """As `Learning.learnt`."""

    @abstractmethod
    def holders(self, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
        """Of the last `limit` active learnings with an id below `before`, those that have added to any of these words.

        words: of each voice. The latest first, with their tokens. There is no index of words: each learning is looked
        at.
        """

    @abstractmethod
    def learnings(self, since: datetime | None = None, by: str | None = None) -> list[Entry]:
        """Active learnings, oldest first, without tokens; by: of this author only."""

    @abstractmethod
    def latest_learnings(self, since: datetime, until: datetime, limit: int) -> list[Entry]:
        """The last few active learnings of a period, the latest first, with their tokens."""

    @abstractmethod
    def last_words(self, by: str, since: datetime | None = None) -> list[Entry]:
        """Ledger entries of this author after which their message has none, oldest first, without tokens."""

    @abstractmethod
    def histories(self, digests: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """All ledger entries of each of these messages, oldest first, without tokens."""

    @abstractmethod
    def marks_by(self, by: str, since: datetime) -> int:
        """How many marks an author has made since; what takes one back is not counted, what was taken back is."""

    @abstractmethod
    def last_of_sources(self) -> dict[str, datetime]:
        """Source -> its last ledger entry."""

    @abstractmethod
    def sweep(self, source: str, before: datetime) -> int:
        """Delete what a source has learnt and taken back before this moment, which counts nothing; how many entries."""

    @abstractmethod
    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Add entries; one whose id is there already is left as it is."""

    @abstractmethod
    def find_journal(self, id: str) -> JournalEntry | None:
        """The entry with this id, with its tokens while they are kept."""

    @abstractmethod
    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        """Entries of a period, oldest first, without tokens."""

    @abstractmethod
    def search(self, wanted: Wanted, limit: int, before: str = "") -> list[JournalEntry]:
        """The latest few entries of this kind, the latest first, without tokens; before: those after this id's."""

    @abstractmethod
    def journal_days(self, first: date, last: date) -> dict[date, int]:
        """Day, in UTC -> how many entries it has; of the days from the first to the last that have any."""

    @abstractmethod
    def labelled(self, since: datetime, until: datetime, without: Collection[str]) -> list[Labelled]:
        """Entries of a period whose message is learnt, by another source than these; each delivery of it."""

    @abstractmethod
    def unlabelled(self, since: datetime, until: datetime, limit: int) -> tuple[list[JournalEntry], int]:
        """Unsure messages of a period that are not learnt: the latest entry of the latest few, and how many there are.

        The latest first, without tokens.
        """

    @abstractmethod
    def trainings(self, since: datetime, until: datetime) -> list[Trainings]:
        """Active learnings of a period, counted by source, author and label, in this order."""

    @abstractmethod
    def summaries(self, first: date, last: date) -> dict[date, Mapping[str, Any]]:
        """What was kept of these days."""

    @abstractmethod
    def put_summary(self, day: date, body: Mapping[str, Any]) -> None:
        """Keep what JSON can hold of a day, in the place of what was kept before."""

    @abstractmethod
    def journal_of(self, digests: Sequence[bytes]) -> dict[bytes, JournalEntry]:
        """The latest entry of each of these messages that the journal knows, without tokens."""

    @abstractmethod
    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        """Those of these digests and Message-IDs, a few hundred at most, that the journal has."""

    @abstractmethod
    def journal_named(self, message_id: str) -> list[JournalEntry]:
        """The latest few entries of this Message-ID, the latest first, with their tokens while they are kept."""

    @abstractmethod
    def remove_journal(self, id: str) -> None:
        """Delete the entry with this id, if there is one."""

    @abstractmethod
    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        """Drop the tokens and the entries of the journal from before these moments; how many of each.

        tokens_bytes: what the tokens may take together, packed; the oldest go first.
        """

    @abstractmethod
    def get_setting(self, name: str) -> object:
        """A value of the settings table, None if there is none."""

    @abstractmethod
    def put_setting(self, name: str, value: object) -> None:
        """Write a value that JSON can hold."""

    @abstractmethod
    def verify(self) -> list[str]:
        """Damage found in the storage itself, a sentence each; empty if there is none."""

    def verify_quickly(self) -> list[str]:
        """As `verify`, as far as that goes without comparing each index with its table."""
        return self.verify()

    @abstractmethod
    def backup(self, target: Path) -> None:
        """A consistent copy in a new file, made while others read and write."""

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Which store this is, for people to read."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""
