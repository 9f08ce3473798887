"""The contract of the journal: what a relay judged, kept for marks, searches and reports."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from ipaddress import ip_address
from typing import Final, Literal

from spamfilter.bayes.labels import Label
from spamfilter.bayes.verdict import CLASSES, Action, Class
from spamfilter.bayes.voices import VoiceTokens

UNJUDGED: Final = "unjudged"
"""The class of an entry whose mail never came to its text: refused or deferred at MAIL, at RCPT or before its end."""
JournalClass = Class | Literal["unjudged"]
WantedClass = JournalClass | Literal["judged"]
WANTED_CLASSES: tuple[WantedClass, ...] = (*CLASSES, "judged", UNJUDGED)
"""What a search can ask for; judged: of any class of a verdict."""

NAMED = 30
"""Most journal entries found by one Message-ID: a mail is judged again at each delivery attempt, for each list, and by
LMTP for each group of recipients."""
MANY = 100_000
"""Most entries of a period that were deferred: an outage of hours on a busy relay."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One message that the relay judged, or did not come to judge.

    Of an unjudged one client, sender, recipients and reply are known: all recipients, or if others were accepted, those
    that were not. Its action is "defer" or "reject", by the reply, and its digest is empty.
    judge_us, total_us: microseconds of judging, and from the end of the mail to the reply. listed: the rule on its
    sender, '' if there was none. host: the relay's [relay] hostname, '' from before it was noted. tokens: None where a
    method says "without tokens", and once they have expired.
    """

    id: str
    at: datetime
    digest: bytes = b""
    message_id: str = ""
    sender: str = ""
    recipients: Sequence[str] = ()
    subject: str = ""
    size: int = 0
    client: str = ""
    log_odds: float = 0.0
    score: float = 0.0
    class_: JournalClass = UNJUDGED
    action: Action = "pass"
    reply: str = ""
    judge_us: int = 0
    total_us: int = 0
    listed: str = ""
    host: str = ""
    evidence: Sequence[tuple[str, float]] = ()
    tokens: VoiceTokens | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search of the journal: an entry must meet all conditions; an empty one is met by every entry.

    sender, recipient: a part of an address as in <anna@example.org>; so <anna@example.org> is exactly this address,
    @example.org> a domain, <> no sender. subject: words or parts of words, each of which must occur. client: an IP
    address, or a part of one. message_id: the whole, with or without <>. reply: its code or the begin of that, as 451
    or 4, or a part of its text. since, until: moments, the second not included. hour: of the day, in UTC. Case does not
    matter for letters of ASCII, except in message_id. least, most: bounds of the score. marked: what people, and not
    bulk training or a rule, have marked the message as. host: the whole name of the relay's host. unsure_first: unsure
    entries come before all others.
    """

    class_: WantedClass | None = None
    action: Action | None = None
    sender: str = ""
    recipient: str = ""
    subject: str = ""
    client: str = ""
    message_id: str = ""
    reply: str = ""
    since: datetime | None = None
    until: datetime | None = None
    hour: int | None = None
    least: float = 0.0
    most: float = 1.0
    marked: Label | None = None
    host: str = ""
    unsure_first: bool = False

    @property
    def client_address(self) -> str:
        """The client as the journal spells it, '' if it is only a part of an address."""
        try:
            return str(ip_address(self.client))
        except ValueError:
            return ""

    @property
    def message_ids(self) -> tuple[str, str]:
        """The Message-ID without and with <>."""
        bare = self.message_id.removeprefix("<").removesuffix(">")
        return bare, f"<{bare}>"

    @property
    def reply_code(self) -> str:
        """The reply if it is a code or the begin of one, else ''."""
        return self.reply if len(self.reply) <= 3 and self.reply.isdecimal() else ""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A journal entry whose message was labelled later: when and how it was judged, and its label."""

    at: datetime
    class_: JournalClass
    score: float
    label: Label


@dataclass(frozen=True, slots=True)
class Deferral:
    """A message that its client keeps, and will send again: when, and what the client heard."""

    at: datetime
    reply: str


class Journal(ABC):
    """The part of a store that keeps the journal; an entry's id is one of `system.ids` and so tells its order.

    host, of a method: only entries of this relay's host; '': of all.
    """

    @abstractmethod
    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Add entries. An entry whose id the journal has already changes nothing."""

    @abstractmethod
    def find_journal(self, id: str) -> JournalEntry | None:
        """The entry with this id, with its tokens."""

    @abstractmethod
    def journal(self, since: datetime, until: datetime, host: str = "") -> list[JournalEntry]:
        """Entries of a period, oldest first, without tokens."""

    @abstractmethod
    def unlearnt(self, since: datetime, until: datetime) -> list[JournalEntry]:
        """Entries of a period whose message was judged and is not learnt but as a counterpart, oldest first, without
        tokens."""

    @abstractmethod
    def search(self, wanted: Wanted, limit: int, before: str = "", after: str = "") -> list[JournalEntry]:
        """`limit` of the entries found, latest first, without tokens.

        before: the first that follow the entry with this id in the list; after: the last that precede it; neither: the
        first of all. The entry of the id need not be there any more.
        """

    @abstractmethod
    def number_found(self, wanted: Wanted) -> int:
        """How many entries a search finds in all."""

    @abstractmethod
    def journal_days(self, first: date, last: date, host: str = "") -> dict[date, int]:
        """Day, in UTC -> number of its entries; days without entries are left out."""

    @abstractmethod
    def deferrals(self, since: datetime, until: datetime, host: str = "") -> list[Deferral]:
        """Entries of a period whose client heard a 4xx that no verdict asked for, oldest first; the latest MANY."""

    @abstractmethod
    def labelled(self, since: datetime, until: datetime, without: Collection[str], host: str = "") -> list[Labelled]:
        """Entries of a period whose message is learnt, by a source that is not in `without`; one for each delivery."""

    @abstractmethod
    def unlabelled(
        self, since: datetime, until: datetime, limit: int, host: str = ""
    ) -> tuple[list[JournalEntry], int]:
        """Unsure messages of a period that are not learnt: the latest `limit` of them, and how many there are.

        Of each message its latest entry; latest first, without tokens.
        """

    @abstractmethod
    def journal_of(self, digests: Collection[bytes]) -> dict[bytes, JournalEntry]:
        """The latest entry of each of these messages that the journal has, without tokens."""

    @abstractmethod
    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        """Those of these digests and Message-IDs that the journal has."""

    @abstractmethod
    def journal_named(self, message_id: str) -> list[JournalEntry]:
        """The latest NAMED entries of this Message-ID, latest first, with their tokens; none for an empty one."""

    @abstractmethod
    def remove_journal(self, id: str) -> None:
        """Delete the entry with this id, if the journal has it."""

    @abstractmethod
    def date_journal_anew(self, after: datetime, now: datetime) -> int:
        """Give entries from after this moment the time `now`; returns how many."""

    @abstractmethod
    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        """Delete tokens and entries of the journal from before these times; returns how many of each.

        tokens_bytes: the most that all tokens may take, packed; the oldest go first.
        """
