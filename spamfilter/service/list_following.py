"""The lists of senders of a running relay: those of the configuration, and those that commands add and remove.

Guarantee: a change counts within a second while the database can be read; while it cannot, the lists stay as they are.
"""

import asyncio

from spamfilter.config.settings import Settings
from spamfilter.relay.relay import Relay
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.stores import Store

FOLLOW_LISTS_EVERY = 0.5
"""Seconds between two looks at the rules: a look takes 0.2 ms, and a rule counts within a second."""


class ListFollowing:
    """Keeps `relay.lists` up to date. configured: the settings; set them, and call `look`, when they change."""

    def __init__(self, relay: Relay, store: Store, configured: Settings) -> None:
        self.configured = configured
        self._relay = relay
        self._store = store
        self._known: object = None

    async def look(self) -> None:
        """Read the rules if there are others than at the last look. Raises StoreError."""
        configured = self.configured
        version = await asyncio.to_thread(self._store.rules_version)
        known = version, self._store.generation, configured.lists, configured.recipients
        if known != self._known:
            self._relay.lists = await asyncio.to_thread(self._read, configured)
            self._known = known

    def _read(self, configured: Settings) -> Lists:
        return Lists([*configured.rules(), *self._store.rules()], configured.lists.results_from)
