"""The relay's half of `doctor`'s probe: an address for one mail, which is taught and taken back under its name.

Guarantee: no mail but the one that came to an address issued here is taught or removed. An address that nobody
withdraws is withdrawn after a while, so that a `doctor` that was killed leaves nothing open.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from spamfilter.desk import Desk
from spamfilter.errors import InputError, Refused, StoreError
from spamfilter.feedback import Author
from spamfilter.front_ends import Relay
from spamfilter.journal import CANARY, WRITE_EVERY
from spamfilter.labels import LABELS
from spamfilter.stores import JournalEntry, Store

log = logging.getLogger(__name__)

AUTHOR = Author("doctor", CANARY, master=True)
KEPT_SECONDS = 300.0
"""For one probe, of which each step has some seconds; and for a database that is away to take back what it left."""
REMOVED_WITHIN = 5.0
"""Seconds that `doctor` waits for its traces to go; beyond it the relay goes on alone."""
MOST = 20
"""Addresses at a time: as many administrators and monitors as may look at once."""

Answer = dict[str, Any]


class Canaries:
    """Addresses that take one mail which goes nowhere. To be used in the relay's event loop."""

    def __init__(self, relay: Relay, desk: Desk, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._relay = relay
        self._desk = desk
        self._store = store
        self._clock = clock
        self._issued: dict[str, float] = {}
        self._removing: set[asyncio.Task[None]] = set()

    async def issue(self, request: Answer) -> Answer:
        """A new address; the probe's Message-ID must be it, between angle brackets. Raises Refused for too many."""
        for address in [name for name, at in self._issued.items() if self._clock() - at > KEPT_SECONDS]:
            self._withdraw(address)
        if len(self._issued) >= MOST:
            raise Refused(f"{MOST} probes at a time are the limit; try again in {KEPT_SECONDS:.0f} s")
        address = f"spamfilter-canary-{secrets.token_hex(12)}@{self._relay.hostname}".lower()
        self._issued[address] = self._clock()
        self._relay.canaries.add(address)
        return {"address": address}

    async def mark(self, request: Answer) -> Answer:
        """Teach the mail to an address, or with the label null take that back; its score by the database after that.

        Raises InputError where there is no such mail.
        """
        label = request.get("label")
        if label is not None and label not in LABELS:
            raise InputError("label: neither 'ham' nor 'spam' nor null")
        entry = await self._mail_to(self._named(request))
        if entry is None:
            raise InputError("the probe is not in the journal")
        marked = await self._desk.mark_id(entry.id, label, AUTHOR)
        return {"id": entry.id, "log_odds": marked.change.after.log_odds}

    async def end(self, request: Answer) -> Answer:
        """Withdraw an address; what its mail has taught is taken back, and it leaves the journal.

        sent: whether there is such a mail, which may be on its way to the journal. removed: whether all that is done;
        where the database is away, it is done when that is back.
        """
        address = self._named(request)
        self._withdraw(address)
        if not request.get("sent"):
            return {"removed": True}
        task = asyncio.create_task(self._remove(address))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)
        done, _ = await asyncio.wait([task], timeout=REMOVED_WITHIN)
        return {"removed": bool(done)}

    def _named(self, request: Answer) -> str:
        address = str(request.get("address", ""))
        if address not in self._issued:
            raise InputError("address: was not issued, or too long ago")
        return address

    async def _mail_to(self, address: str) -> JournalEntry | None:
        """The journal's entry of the mail to this address and nobody else."""
        named = await asyncio.to_thread(self._store.journal_named, f"<{address}>")
        return next((entry for entry in named if [to.lower() for to in entry.recipients] == [address]), None)

    async def _remove(self, address: str) -> None:
        give_up = self._clock() + KEPT_SECONDS
        while self._clock() < give_up:
            try:
                entry = await self._mail_to(address)
                if entry is not None:
                    await self._desk.mark_id(entry.id, None, AUTHOR)
                    await asyncio.to_thread(self._store.remove_journal, entry.id)
                    return
            except StoreError as error:
                log.warning("a probe of doctor cannot be removed yet: %s", error)
            await asyncio.sleep(WRITE_EVERY)

    def _withdraw(self, address: str) -> None:
        self._issued.pop(address, None)
        self._relay.canaries.discard(address)
