"""The journal of verdicts, written behind: the relay never waits for it.

Guarantee: an entry is in the store at most a second after it was added, while the store takes
writes. While it does not, entries are held up to a bound; beyond it the oldest are dropped and
counted. Mail is not held up, whatever the store does.
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
"""Seconds between batches: half of the second that a crash may cost."""
BATCH = 500
"""Rows of one transaction: some milliseconds of write lock.

Entries that wait behind as many others are held packed: what is kept of a mail takes 6 kB as it is, and 1.6 kB packed.
That takes its time, which a relay only spends that is behind.
"""
MAX_DAYS = 36_500.0
"""For ever: a hundred years, which every calendar can count back."""
CANARY_KEPT = timedelta(days=1)
"""Longer than any process needs to follow the ledger."""
EXPIRE_EVERY = 3600.0
"""Seconds between expiries: the windows are counted in days."""


class JournalStore(Protocol):
    """The part of a store that a journal needs."""

    def write_journal(self, entries: Sequence[JournalEntry]) -> None: ...
    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int) -> object: ...
    def sweep(self, source: str, before: datetime) -> object: ...


def packed(entry: JournalEntry) -> JournalEntry:
    """The same entry, small."""
    return entry if entry.tokens is None else replace(entry, tokens=Packed(pack_seen(entry.tokens)))


class Journal:
    """Entries on their way to the store, and the thread that carries them.

    backlog: entries held while the store is away. tokens_days, entries_days: how long each is kept. tokens_bytes: what
    the tokens may take together, packed. written, dropped: entries so far; faults: failures to write any. trouble: why
    entries cannot be written now; '' while they can.
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
        """Entries that are not in the store yet."""
        return len(self._waiting)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is waiting, if the store lets us, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def add(self, entry: JournalEntry) -> None:
        """Take an entry; returns at once and never raises."""
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
        """Write what is waiting; what cannot be written now stays."""
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
        """Drop the oldest entries, and count them, until at most this many wait."""
        while len(self._waiting) > most:
            entry = self._waiting.popleft()
            self.dropped += 1
            self._limit_log.noted(
                "journal_backlog", f"{entry.id} is not journalled, {most} later ones wait to be written"
            )

    def _write(self, batch: list[JournalEntry]) -> None:
        """Write a batch. One entry that no store could take must not hold up those behind it."""
        try:
            self._store.write_journal(batch)
            self.written += len(batch)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, CountError):
                raise  # the store is away, which is no fault of an entry
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
        # Whole days, so that what is kept of a day is that of all of its entries.
        entries_before = datetime.combine((now - self._entries_kept).date(), datetime.min.time(), UTC)
        try:
            if self._keep is not None:
                self._keep(now, entries_before)
            self._store.expire(now - self._tokens_kept, entries_before, self._tokens_bytes)
            self._store.sweep(CANARY, now - CANARY_KEPT)
        except Exception as error:  # the thread must live, whatever the store says to this
            log.warning("journal: cannot expire: %s", error)
