"""The relay's part of `doctor`'s probe: issue an address, mark the mail that comes to it, and remove all traces.

Guarantee: only a mail to an address that was issued here is marked or removed. If `doctor` is killed, the address is
withdrawn after KEPT_SECONDS, or when the relay stops, and the mail is removed. If the relay is killed, or its database
is unavailable for that long, the next start removes the traces: everything that was learnt, and journal entries that
are not older than LEFT_WITHIN.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from spamfilter.bayes.labels import CANARY, LABELS
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.errors import InputError, Refused, StoreBusy, StoreError
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author
from spamfilter.learning.transaction import Reading
from spamfilter.relay.journal import WRITE_EVERY
from spamfilter.relay.limits.shared_counters import MOST_PROBES
from spamfilter.relay.relay import Relay
from spamfilter.stores import JournalEntry, Store

log = logging.getLogger(__name__)

AUTHOR = Author("doctor", CANARY, master=True)
KEPT_SECONDS = 300.0
"""Time for a probe, whose steps take some seconds each, and for a database to become available again."""
REMOVED_WITHIN = 5.0
"""Time that `doctor`, or a relay that stops, waits for the removal; after `doctor` the removal goes on."""
LEFT_WITHIN = timedelta(hours=1)
"""Part of the journal that is searched at the start: a relay that was killed is soon restarted."""

Answer = dict[str, Any]


class Canaries:
    """The issued addresses. To be used in the relay's event loop."""

    def __init__(self, relay: Relay, store: Store) -> None:
        self._relay = relay
        self._store = store
        self._issued: dict[str, asyncio.TimerHandle] = {}
        self._removing: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()
        self._closing = False

    def start(self) -> None:
        """Withdraw the addresses of a process that was killed, and begin to remove the traces of a relay that was."""
        self._relay.canaries.clear()
        self._begin(self._remove_left())

    async def close(self) -> None:
        """Withdraw all addresses; traces that cannot be removed in time are left to the next start."""
        self._closing = True
        for address in list(self._issued):
            self._withdraw(address)
        if self._removing:
            await asyncio.wait(self._removing, timeout=REMOVED_WITHIN)
        for task in self._removing:
            task.cancel()
        await asyncio.gather(*self._removing, return_exceptions=True)

    async def issue(self, request: Answer) -> Answer:
        """A new address; the Message-ID of the probe must be <address>. Raises Refused if there are too many."""
        if self._closing:
            raise StoreBusy("the relay is stopping; try again")
        if len(self._issued) >= MOST_PROBES:
            raise Refused(f"{MOST_PROBES} probes at a time are the limit; try again in {KEPT_SECONDS:.0f} s")
        address = f"spamfilter-canary-{secrets.token_hex(12)}@{self._relay.hostname}".lower()
        self._issued[address] = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._withdraw, address)
        self._relay.canaries.add(address)
        return {"address": address}

    async def mark(self, request: Answer) -> Answer:
        """Mark the mail to an address, or with the label null forget it; returns its score by the database afterwards.

        Raises InputError if there is no such mail.
        """
        label = request.get("label")
        if label is not None and label not in LABELS:
            raise InputError("label: neither 'ham' nor 'spam' nor null")
        async with self._turn:  # not while the mail is being removed
            entry = await self._mail_to(self._named(request))
            if entry is None:
                raise InputError("the probe is not in the journal")
            marked = await self._relay.mark_queue.mark_id(entry.id, label, AUTHOR)
        return {"id": entry.id, "log_odds": marked.change.after.log_odds}

    async def end(self, request: Answer) -> Answer:
        """Withdraw an address, and remove the traces of its mail from counts and journal.

        removed: whether that is done; if the database is unavailable, it is done later.
        """
        task = self._withdraw(self._named(request))
        if task is None:
            return {"removed": True}
        await asyncio.wait([task], timeout=REMOVED_WITHIN)
        return {"removed": task.done() and not task.cancelled() and task.result()}

    def _named(self, request: Answer) -> str:
        address = str(request.get("address", ""))
        if address not in self._issued:
            raise InputError("address: was not issued, or too long ago")
        return address

    async def _mail_to(self, address: str) -> JournalEntry | None:
        """The journal entry of the mail to this address only."""
        named = await asyncio.to_thread(self._store.journal_named, f"<{address}>")
        return next((entry for entry in named if [to.lower() for to in entry.recipients] == [address]), None)

    def _withdraw(self, address: str) -> asyncio.Task[Any] | None:
        """Withdraw an address; the task that removes its mail, or None if no mail has come."""
        self._issued.pop(address).cancel()
        if address in self._relay.canaries:
            self._relay.canaries.discard(address)
            return None
        return self._begin(self._remove(address))

    def _begin(self, removal: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(removal)
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)
        return task

    async def _remove(self, address: str) -> bool:
        """Remove the mail to an address, which may not be in the journal yet; whether it is removed."""
        give_up = time.monotonic() + KEPT_SECONDS
        while time.monotonic() < give_up:
            try:
                async with self._turn:
                    entry = await self._mail_to(address)
                    if entry is not None:
                        await self._forget(entry.id, entry.digest, entry.tokens)
                        await asyncio.to_thread(self._store.remove_journal, entry.id)
                        return True
            except StoreError as error:
                log.warning("a probe of doctor cannot be removed yet: %s", error)
            except Exception:
                log.exception("a probe of doctor cannot be removed")
                return False
            await asyncio.sleep(WRITE_EVERY)
        log.warning("a probe of doctor is not in the journal, and cannot be removed")
        return False

    async def _forget(self, name: str, digest: bytes, tokens: VoiceTokens | None) -> None:
        """Forget a mail, if it is learnt."""
        if tokens is None:  # expired; the ledger has them if the mail is learnt
            active = await asyncio.to_thread(self._store.active, digest)
            tokens = active.tokens if active else None
        if tokens is not None:
            await self._relay.mark_queue.mark_read(Subject(name, name, Reading(digest, tokens)), None, AUTHOR)

    async def _remove_left(self) -> None:
        """Remove the traces that an earlier process has left; but of another host no probe that may still run."""
        try:
            learnt = await asyncio.to_thread(self._store.learnings, None, CANARY)
            digests = {entry.digest for entry in learnt}
            found = await asyncio.to_thread(self._store.journal_of, digests)
            now = datetime.now(UTC)
            recent = await asyncio.to_thread(self._store.journal, now - LEFT_WITHIN, now)
            mails, kept_since = [*found.values(), *recent], now - timedelta(seconds=KEPT_SECONDS)
            elsewhere = {mail.digest for mail in mails if mail.host != self._relay.hostname and mail.at > kept_since}
            for digest in digests - elsewhere:
                await self._forget("a probe of doctor", digest, None)
            for mail in mails:
                # The relay's own reply to a probe, which no next hop gives.
                if mail.digest not in elsewhere and mail.reply == f"250 2.0.0 Ok: canary {mail.id}":
                    await asyncio.to_thread(self._store.remove_journal, mail.id)
        except StoreError as error:
            log.warning("probes of doctor that were left cannot be removed before the next start: %s", error)
        except Exception:
            log.exception("probes of doctor that were left cannot be removed before the next start")
