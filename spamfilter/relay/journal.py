"""The journal of verdicts, written by a thread: the relay never waits for it.

Guarantee: an entry is in the store within a second, while the store takes writes. While it does not, entries wait in
memory up to a bound; beyond it the oldest are dropped and counted. Mail never waits for the store.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from spamfilter.bayes.labels import CANARY
from spamfilter.bayes.voices import Packed, pack_seen
from spamfilter.errors import CountError, StoreError
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.stores import JournalEntry

log = logging.getLogger(__name__)

WRITE_EVERY = 0.5
"""Seconds between two batches: half of the second of journal that a crash may lose."""
BATCH = 500
"""Rows of one transaction: some milliseconds of write lock.

Further entries wait packed: an entry takes 6 kB, packed 1.6 kB. Packing takes time, and usually fewer entries wait.
"""
MAX_DAYS = 36_500.0
"""The longest period: a hundred years, which can be subtracted from every date."""
CANARY_KEPT = timedelta(days=1)
"""Time for which ledger entries of probes are kept: longer than any process needs to read the ledger."""
EXPIRE_EVERY = 3600.0
"""Seconds between two expiries: often enough, because the periods are days."""


class JournalStore(Protocol):
    """The part of a store that a journal needs."""

    def write_journal(self, entries: Sequence[JournalEntry]) -> None: ...
    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int) -> object: ...
    def sweep(self, source: str, before: datetime) -> object: ...


def packed(entry: JournalEntry) -> JournalEntry:
    """The same entry with packed tokens."""
    return entry if entry.tokens is None else replace(entry, tokens=Packed(pack_seen(entry.tokens)))


class Journal:
    """Entries on their way to the store, and the thread that writes them.

    backlog: entries that are held while the store takes no writes. tokens_days, entries_days: how long tokens and
    entries are kept. tokens_bytes: bound for the tokens of all entries, packed. keep: called before entries expire,
    with the time and the moment before which they go. written, dropped: entries so far. faults: writes that failed.
    trouble: why entries cannot be written now, '' if they can.
    """

    def __init__(
        self,
        store: JournalStore,
        backlog: int = 10_000,
        tokens_days: float = 14,
        entries_days: float = 30,
        tokens_bytes: int = 10**9,
        limit_log: LimitLog | None = None,
        keep: Callable[[datetime, datetime], object] | None = None,
    ) -> None:
        self._store = store
        self._keep = keep
        self._waiting: deque[JournalEntry] = deque()
        self._lock = threading.Lock()
        self._backlog = backlog
        self._tokens_kept = timedelta(days=min(tokens_days, MAX_DAYS))
        self._entries_kept = timedelta(days=min(entries_days, MAX_DAYS))
        self._tokens_bytes = tokens_bytes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._failing = False
        self._expire_at = 0.0
        self._limit_log = limit_log or LimitLog()
        self.written = self.dropped = self.faults = 0
        self.trouble = ""

    @property
    def waiting(self) -> int:
        """Number of entries that are not in the store yet."""
        return len(self._waiting)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting entries, if the store takes them, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def add(self, entry: JournalEntry) -> None:
        """Add an entry. Returns at once and never raises."""
        held = entry if len(self._waiting) < BATCH else packed(entry)
        with self._lock:
            self._bound(self._backlog - 1)
            self._waiting.append(held)

    def _run(self) -> None:
        while not self._stopping.wait(WRITE_EVERY):
            self.write()
            self._expire()
        self.write()

    def write(self) -> None:
        """Write the waiting entries; those that cannot be written stay."""
        while self._waiting:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                self._write(batch)
            except StoreError as error:
                self.faults += 1
                if not self._failing:
                    log.error("journal: %s; entries are held in memory", error)  # noqa: TRY400 - the sentence says it
                self._failing, self.trouble = True, str(error)
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                    self._bound(self._backlog)
                return
            if self._failing:
                log.warning("journal: written again; %d entries were dropped", self.dropped)
                self._failing, self.trouble = False, ""

    def _bound(self, most: int) -> None:
        """Drop and count the oldest entries until at most `most` wait."""
        while len(self._waiting) > most:
            entry = self._waiting.popleft()
            self.dropped += 1
            self._limit_log.noted(
                "journal_backlog", f"{entry.id} is not journalled, {most} later ones wait to be written"
            )

    def _write(self, batch: list[JournalEntry]) -> None:
        """Write a batch. An entry that cannot be stored is dropped, so that it does not block the others."""
        try:
            self._store.write_journal(batch)
            self.written += len(batch)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, CountError):
                raise  # the fault is the store's, not an entry's
            if len(batch) == 1:
                log.exception("journal: %s cannot be written and is dropped", batch[0].id)
                self.faults += 1
                self.dropped += 1
                return
            for entry in batch:
                self._write([entry])

    def _expire(self) -> None:
        if time.monotonic() < self._expire_at:
            return
        self._expire_at = time.monotonic() + EXPIRE_EVERY
        now = datetime.now(UTC)
        # Whole days, so that the summary of a day is made from all of its entries.
        entries_before = datetime.combine((now - self._entries_kept).date(), datetime.min.time(), UTC)
        try:
            if self._keep is not None:
                self._keep(now, entries_before)
            self._store.expire(now - self._tokens_kept, entries_before, self._tokens_bytes)
            self._store.sweep(CANARY, now - CANARY_KEPT)
        except Exception as error:  # the thread must go on whatever happens
            log.warning("journal: cannot expire: %s", error)
