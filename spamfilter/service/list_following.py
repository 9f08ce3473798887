"""The lists of senders of a running relay: those of the configuration, and those that commands add and remove.

Guarantee: a change counts within a second while the database can be read; while it cannot, the lists stay as they are.
Those of the configuration hold from the start.
"""

import asyncio
from collections.abc import Sequence

from spamfilter.config.settings import Settings
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.stores import Rule, Store

FOLLOW_LISTS_EVERY = 0.4
"""Seconds between two looks at the database, of one process for all; the others look at its number when they publish
their metrics, so that a rule counts within a second. A look takes 0.1 ms."""


class ListFollowing:
    """Keeps `relay.lists` up to date.

    One process of a relay watches the database for all, so that idle workers ask it nothing.
    """

    def __init__(self, relay: Relay, store: Store, configured: Settings) -> None:
        self._relay = relay
        self._store = store
        self._watched: object = None
        self._known: object = None
        self._rules: Sequence[Rule] = ()
        self.configure(configured)

    def configure(self, configured: Settings) -> None:
        """Use the lists of these settings, with the rules of the database that are known."""
        self._configured = configured
        self._relay.lists = _lists(configured, self._rules)

    async def watch(self) -> None:
        """Tell all processes if there are other rules than at the last look. Raises StoreError."""
        version = await asyncio.to_thread(self._store.rules_version)
        if (watched := (version, self._store.generation)) != self._watched:
            self._relay.shared.rules[0] += 1
            self._watched = watched

    async def look(self) -> None:
        """Read the rules if there are others than at the last look. Raises StoreError."""
        if (known := self._relay.shared.rules[0]) != self._known:
            configured = self._configured
            self._rules, lists = await asyncio.to_thread(self._read, configured)
            self._known = known
            if configured is self._configured:
                self._relay.lists = lists
            else:  # a reload came between
                self.configure(self._configured)

    def _read(self, configured: Settings) -> tuple[Sequence[Rule], Lists]:
        """In a thread: ten thousand rules take a tenth of a second."""
        rules = self._store.rules()
        return rules, _lists(configured, rules)


def _lists(configured: Settings, others: Sequence[Rule]) -> Lists:
    return Lists([*configured.rules(), *others], configured.lists.results_from)
