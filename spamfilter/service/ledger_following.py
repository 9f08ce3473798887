"""Following the ledger: a relay applies what other processes have learnt to its counts in memory.

Guarantee: a learning counts within a second while the database can be read. While it cannot be read, the counts stay as
they are; the first read that succeeds catches up.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from spamfilter.bayes.labels import LABELS
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.settings import Settings
from spamfilter.errors import CountError, SpamfilterError, StoreError
from spamfilter.learning.filter import Filter, rules
from spamfilter.relay.metrics import SOURCES, Metrics
from spamfilter.stores import Entry
from spamfilter.system.batches import batches
from spamfilter.system.logs import Outages

log = logging.getLogger("spamfilter")

FOLLOW_EVERY = 0.25
"""Seconds between two reads of the ledger: a learning is seen within a second, an idle read costs 0.1 ms."""
FOLLOW_CHUNK = 32
"""Ledger entries applied at a time: during these milliseconds no mail moves."""


class Following:
    """A filter kept up to date. learn: the [learn] section that the counts were made by; reread: reads it anew.

    well: whether the last read succeeded. catching_up: whether it has left entries for the next. at: time.monotonic
    of the last one that succeeded.
    """

    def __init__(self, filter: Filter, learn: Learn, reread: Callable[[], Learn], metrics: Metrics) -> None:
        self.learn = learn
        self.well = True
        self.catching_up = False
        self.at = time.monotonic()
        self._filter = filter
        self._reread = reread
        self._metrics = metrics
        self._outages = Outages()
        self._wake = asyncio.Event()
        self._generation: int | None = filter.store.generation

    def wake(self) -> None:
        """Read the ledger at once. Called in the event loop."""
        self._wake.set()

    def at_work(self, settings: Settings) -> Settings:
        """These settings with the [learn] section in use: after a rebuild it may be another one."""
        return settings.model_copy(update={"learn": self.learn})

    async def load(self) -> None:
        """Load the counts; if the store cannot be read, `run` does it later, before it applies anything.

        For a process that replaces another, which may have followed a rebuilding by another [learn] than it began with.
        """
        try:
            if rules(self.learn.chosen()) != (counted := rules(self._filter.voices)):
                again = self._reread()
                self.learn = again if rules(again.chosen()) == counted else self.learn
            await self._load()
        except Exception as error:
            self._generation = None
            expected = isinstance(error, SpamfilterError)
            log.warning("%s; judging with what was learnt before", error, exc_info=not expected)

    async def run(self) -> None:
        """Read the ledger every FOLLOW_EVERY seconds, and after each `wake`."""
        where = self._filter.store.where
        while True:
            if not self.catching_up:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), FOLLOW_EVERY)
            self._wake.clear()
            try:
                self.catching_up = await self._look()
            except Exception as error:
                self._metrics.count("faults", "ledger")
                # Whatever the error is, this task must go on, or nothing more would be learnt.
                if self._outages.fails():  # with a traceback only if the error was not expected
                    expected = isinstance(error, SpamfilterError)
                    log.log(logging.ERROR, "%s; judging with what was learnt before", error, exc_info=not expected)
                self.well = self.catching_up = False
            else:
                if self._outages.ends():
                    log.warning("%s: can be read again", where)
                self.well = True
                self.at = time.monotonic()

    async def _look(self) -> bool:
        """Read the ledger once and apply its new entries; whether there are more."""
        filter, store = self._filter, self._filter.store
        entries, last = await asyncio.to_thread(store.news, filter.last)
        try:
            if store.generation != self._generation:
                raise CountError(f"{store.where}: was replaced or rebuilt")  # noqa: TRY301 - handled like the other CountErrors
            if last < filter.last:  # in the same file, as by `.restore` of sqlite3, or a standby that was behind
                ends = f"its ledger ends at entry {last}, and entry {filter.last} was counted"
                raise CountError(f"{store.where}: {ends}: an older backup was restored")  # noqa: TRY301 - likewise
            for chunk in batches(entries, FOLLOW_CHUNK):
                filter.take_in(chunk)
                self._count(chunk)
                await asyncio.sleep(0)
        except Exception as error:
            self._generation = None  # half of an entry may be counted, as where memory ends: all are loaded anew
            if not isinstance(error, CountError):
                raise
            if self.well:
                log.warning("%s; loading all counts anew", error)
            self.catching_up = True
            await self._load()
            return False  # if the counts do not fit again, they are not loaded without a pause
        return bool(entries) and filter.last < last

    async def _load(self) -> None:
        filter = self._filter
        generation = filter.store.generation
        learn, voices = self.learn, filter.voices
        if not await asyncio.to_thread(filter.fits):
            learn = self._reread()  # the counts were rebuilt after a change of [learn]
            voices = learn.chosen()
        loaded = await asyncio.to_thread(filter.loaded, voices)
        if not loaded.last and any(filter.learnt.values()):
            raise StoreError(
                f"{filter.store.where}: is another database, which has learnt nothing; put the former one back, or"
                " restart the relay to begin anew"
            )
        before, now = filter.learnt, loaded.learnt
        if any(now[label] < before[label] for label in LABELS):
            log.warning(
                "%s: has learnt %d ham and %d spam, fewer than the %d and %d that judged until now",
                filter.store.where, now["ham"], now["spam"], before["ham"], before["spam"],
            )  # fmt: skip
        filter.adopt(loaded, voices)
        self.learn = learn
        self._generation = generation

    def _count(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            label = "forget" if entry.undoes else entry.label
            self._metrics.count("marks", label, entry.source if entry.source in SOURCES else "other")
