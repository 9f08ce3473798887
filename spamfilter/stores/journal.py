"""The contract of the journal: what a relay judged, kept for marks, searches and reports."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from spamfilter.bayes.counts import Label
from spamfilter.bayes.verdict import Action, Class
from spamfilter.bayes.voices import VoiceTokens

NAMED = 5
"""Most journal entries found by one Message-ID: a mail is judged again at each delivery attempt and for each list."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One message that the relay judged.

    judge_us, total_us: microseconds of judging, and from the end of the mail to the reply. tokens: None where a method
    says "without tokens", and once they have expired.
    """

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
    """A search of the journal: an entry must meet all conditions; an empty one is met by every entry.

    sender: a part of the address. subject: words or parts of words, each of which must occur. Case does not matter for
    letters of ASCII. least, most: bounds of the score. unsure_first: unsure entries come before all others.
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
    """A journal entry whose message was labelled later: when and how it was judged, and its label."""

    at: datetime
    class_: Class
    score: float
    label: Label


class Journal(ABC):
    """The part of a store that keeps the journal; an entry's id is one of `system.ids` and so tells its order."""

    @abstractmethod
    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Add entries. An entry whose id the journal has already changes nothing."""

    @abstractmethod
    def find_journal(self, id: str) -> JournalEntry | None:
        """The entry with this id, with its tokens."""

    @abstractmethod
    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        """Entries of a period, oldest first, without tokens."""

    @abstractmethod
    def unlearnt(self, since: datetime, until: datetime) -> list[JournalEntry]:
        """Entries of a period whose message is not learnt, oldest first, without tokens."""

    @abstractmethod
    def search(self, wanted: Wanted, limit: int, before: str = "") -> list[JournalEntry]:
        """The first `limit` entries found, latest first, without tokens; before: go on after the entry with this id."""

    @abstractmethod
    def journal_days(self, first: date, last: date) -> dict[date, int]:
        """Day, in UTC -> number of its entries; days without entries are left out."""

    @abstractmethod
    def labelled(self, since: datetime, until: datetime, without: Collection[str]) -> list[Labelled]:
        """Entries of a period whose message is learnt, by a source that is not in `without`; one for each delivery."""

    @abstractmethod
    def unlabelled(self, since: datetime, until: datetime, limit: int) -> tuple[list[JournalEntry], int]:
        """Unsure messages of a period that are not learnt: the latest `limit` of them, and how many there are.

        Of each message its latest entry; latest first, without tokens.
        """

    @abstractmethod
    def journal_of(self, digests: Sequence[bytes]) -> dict[bytes, JournalEntry]:
        """The latest entry of each of these messages that the journal has, without tokens."""

    @abstractmethod
    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        """Those of these digests and Message-IDs, a few hundred at most, that the journal has."""

    @abstractmethod
    def journal_named(self, message_id: str) -> list[JournalEntry]:
        """The latest NAMED entries of this Message-ID, latest first, with their tokens; none for an empty one."""

    @abstractmethod
    def remove_journal(self, id: str) -> None:
        """Delete the entry with this id, if the journal has it."""

    @abstractmethod
    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        """Delete tokens and entries of the journal from before these times; returns how many of each.

        tokens_bytes: the most that all tokens may take, packed; the oldest go first.
        """
