"""The journal of verdicts, written by a thread: the relay never waits for it.

Guarantee: an entry is in the store within a second, while the store takes writes. While it does not, entries wait in
memory up to a bound; beyond it the oldest are dropped and counted. Mail never waits for the store.
"""

import logging
import threading
import time
from collections import deque
from dataclasses import replace

from spamfilter.bayes.token_codec import Packed, pack_seen
from spamfilter.errors import CountError, StoreError
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.stores import JournalEntry, Store
from spamfilter.system.logs import SELDOM, Outages
from spamfilter.system.threads import start

log = logging.getLogger(__name__)

WRITE_EVERY = 0.5
"""Seconds between two batches: half of the second of journal that a crash may lose."""
LAST_TRY = 2.5
"""Seconds from a last write that fails to one more: after a connection that failed a store tries none for two."""
BATCH = 500
"""Rows of one transaction: some milliseconds of write lock.

Further entries wait packed: an entry takes 6 kB, packed 1.6 kB. Packing takes time, and usually fewer entries wait.
"""


class Journal:
    """Entries on their way to the store, and the thread that writes them.

    backlog: entries that are held while the store takes no writes. written, dropped: entries so far. faults: writes
    that failed. error: why the last one did; '' if it did not.
    """

    def __init__(self, store: Store, backlog: int = 10_000, limit_log: LimitLog | None = None) -> None:
        self._store = store
        self._waiting: deque[JournalEntry] = deque()
        self._in_writing = 0
        self._lock = threading.Lock()
        self._backlog = backlog
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._limit_log = limit_log or LimitLog()
        self.written = self.dropped = self.faults = 0
        self.error = ""
        self._outages = Outages()

    @property
    def waiting(self) -> int:
        """Number of entries that are not in the store yet."""
        with self._lock:
            return len(self._waiting) + self._in_writing

    def start(self) -> None:
        start(self._thread)

    def stop(self) -> None:
        """Write the waiting entries, if the store takes them, and end the thread."""
        self._stopping.set()
        self._thread.join()
        if lost := len(self._waiting):
            self.dropped += lost
            log.error("journal: %d entries are lost, as the relay stops while they cannot be written", lost)

    def add(self, entry: JournalEntry) -> None:
        """Add an entry. Returns at once and never raises."""
        if entry.tokens is not None and len(self._waiting) >= BATCH:
            entry = replace(entry, tokens=Packed(pack_seen(entry.tokens)))
        with self._lock:
            self._bound(self._backlog - 1)
            self._waiting.append(entry)

    def _run(self) -> None:
        while not self._stopping.wait(WRITE_EVERY):
            try:
                self.write()
            except Exception:  # the thread must go on whatever happens
                log.exception("journal: cannot be written", extra=SELDOM)
        self.write()
        if self._waiting:
            time.sleep(LAST_TRY)
            self.write()

    def write(self) -> None:
        """Write the waiting entries; those that cannot be written stay."""
        while self._waiting:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._in_writing = len(batch)
            try:
                self._write(batch)
            except StoreError as error:
                self.faults += 1
                if self._outages.fails():
                    log.error("journal: %s; entries are held in memory", error)  # noqa: TRY400 - the sentence says it
                self.error = str(error)
                with self._lock:
                    self._in_writing = 0
                    self._waiting.extendleft(reversed(batch))
                    self._bound(self._backlog)
                return
            self._in_writing = 0
            self.error = ""
            if self._outages.ends():
                log.warning("journal: written again; %d entries were dropped", self.dropped)

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
