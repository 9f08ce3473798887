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
their metrics, so that a rule counts within a second. A look takes 0.2 ms."""


class ListFollowing:
    """Keeps `relay.lists` up to date. configured: the settings; set them, and call `look`, when they change.

    One process of a relay watches the database for all, so that idle workers ask it nothing.
    """

    def __init__(self, relay: Relay, store: Store, configured: Settings) -> None:
        self.configured = configured
        self._relay = relay
        self._store = store
        self._watched: object = None
        self._known: object = None
        relay.lists = _lists(configured, [])

    async def watch(self) -> None:
        """Tell all processes if there are other rules than at the last look. Raises StoreError."""
        version = await asyncio.to_thread(self._store.rules_version)
        if (watched := (version, self._store.generation)) != self._watched:
            self._relay.shared.rules[0] += 1
            self._watched = watched

    async def look(self) -> None:
        """Read the rules if there are others than at the last look. Raises StoreError."""
        configured = self.configured
        known = self._relay.shared.rules[0], configured.lists, configured.recipients
        if known != self._known:
            self._relay.lists = await asyncio.to_thread(self._read, configured)
            self._known = known

    def _read(self, configured: Settings) -> Lists:
        return _lists(configured, self._store.rules())


def _lists(configured: Settings, others: Sequence[Rule]) -> Lists:
    return Lists([*configured.rules(), *others], configured.lists.results_from)
