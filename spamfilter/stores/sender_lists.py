"""The contract of the lists: rules that allow or block senders, as commands have added them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Kind = Literal["allow", "block"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Ending = Literal["undone", "replaced", "expired"]

LINK = "digest link: "
"""Before the address of a user who acts by the link of a digest, in `by`."""
MOST_RULES = 10_000
"""Rules in a store: each relay looks at them several times a second and holds them in memory."""
MOST_FORMER = 10_000
"""Rules that have ended and are remembered, so that a user who changes rules all day does not fill the disk."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: allow or block a sender.

    what: the sender's address, its domain with all sub-domains, or the network of the client, as in 192.0.2.0/24.
    whom: the recipient's address or domain, '' for everybody. expires: None for never. by, at: who made it and when;
    at is None in the configuration file. id: its number in the store, 0 in the configuration file. All is lower case.
    """

    kind: Kind
    what: str
    whom: str = ""
    expires: datetime | None = None
    by: str = ""
    at: datetime | None = None
    note: str = ""
    id: int = 0

    @property
    def of_user(self) -> bool:
        """Whether a user made it for themselves, by the link of a digest."""
        return self.by.startswith(LINK)


@dataclass(frozen=True, slots=True)
class FormerRule:
    """A rule that has ended: when, by whom ('' if it expired), and how."""

    rule: Rule
    ended: datetime
    ended_by: str
    ending: Ending


class SenderLists(ABC):
    """The part of a store that keeps the rules. A rule never changes; another one takes its place."""

    @abstractmethod
    def rules_version(self) -> tuple[int, int]:
        """Numbers that change whenever a rule is added or removed."""

    @abstractmethod
    def rules(self) -> list[Rule]:
        """All rules in the order of their ids, those that have expired too."""

    @abstractmethod
    def add_rule(self, rule: Rule, now: datetime) -> Rule:
        """Add a rule; returns it with its id. It replaces a rule on the same sender for the same recipients.

        Raises InputError if there are MOST_RULES already.
        """

    @abstractmethod
    def end_expired_rules(self, now: datetime) -> None:
        """Make former rules of those that have expired by `now`, which hold no more anyway."""

    @abstractmethod
    def remove_rule(self, id: int, by: str, now: datetime) -> Rule | None:
        """Undo a rule; returns it, None if there is none with this id."""

    @abstractmethod
    def former_rules(self, most: int = MOST_FORMER) -> list[FormerRule]:
        """The rules that ended last, the latest first."""
