"""What a relay notes while it runs: at its start whether the next hop answers, and every minute that it runs."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime

from spamfilter.errors import NextHopError, StoreError
from spamfilter.relay.relay import Relay
from spamfilter.reports.outages import last_note, note_alive
from spamfilter.stores import Store
from spamfilter.system.escaping import printable

log = logging.getLogger("spamfilter")


class Uptime:
    """The notes of one relay. without_next_hop: what happens while that does not answer."""

    def __init__(self, store: Store, relay: Relay, without_next_hop: str) -> None:
        self._store = store
        self._relay = relay
        self._without_next_hop = without_next_hop
        self._started = datetime.now(UTC)
        self._greeted = False
        self._noted: datetime | None = None

    async def note(self) -> None:
        """Note that the relay runs; the first time, greet the next hop."""
        if not self._greeted:
            self._greeted = True
            await self._greet()
        with suppress(StoreError):  # what follows the ledger says that the database is away
            await asyncio.to_thread(self._note)

    def _note(self) -> None:
        now, host = datetime.now(UTC), self._relay.hostname
        last, begin = (self._noted, now) if self._noted else (last_note(self._store, host), self._started)
        note_alive(self._store, host, last, begin, now)
        self._noted = now

    async def _greet(self) -> None:
        try:
            conversation = await self._relay.next_hop.open()
        except NextHopError as error:
            log.warning(
                "the next hop does not answer: %s; until it does, %s",
                printable(str(error), 300), self._without_next_hop,
            )  # fmt: skip
        else:
            conversation.release()
