"""The contract of the quarantine's history: what became of the mails that were kept, remembered when they are gone."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

QuarantineOutcome = Literal["announced", "delivered", "deleted", "expired"]


@dataclass(frozen=True, slots=True)
class QuarantineEvent:
    """What became of one mail. mail: its id in the journal. by: who did it; '': the relay itself.

    recipients: of "announced" those that a digest has told, of "delivered" those that have the mail, of "deleted" the
    one who deleted it, if others keep it; else empty.
    """

    mail: str
    at: datetime
    outcome: QuarantineOutcome
    recipients: Sequence[str]
    by: str


class QuarantineEvents(ABC):
    """The part of a store that remembers these events."""

    @abstractmethod
    def note_quarantine(self, events: Sequence[QuarantineEvent]) -> None:
        """Add events, all or none; they are on the disk when this returns."""

    @abstractmethod
    def quarantine_events(self, mails: Collection[str]) -> dict[str, list[QuarantineEvent]]:
        """The events of each of these mails, oldest first; mails without events are left out."""

    @abstractmethod
    def all_quarantine_events(self) -> list[QuarantineEvent]:
        """All events, oldest first."""

    @abstractmethod
    def expire_quarantine_events(self, before: datetime) -> int:
        """Delete events from before this time; returns how many."""
