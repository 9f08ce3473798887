"""The periodic work of a process of the relay: following the ledger, expiry, sums, gauges.

Guarantee: work that fails is logged and done again at its next interval; nothing but the end of the process ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from spamfilter.relay.metrics import Metrics
from spamfilter.system.logs import SELDOM

log = logging.getLogger("spamfilter")

Work = Callable[[], Awaitable[object] | None]


class Background:
    """The tasks of one process. metrics: count the failures."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Work, every: float, after: float = 0.0) -> None:
        """Do this work for the first time `after` so many seconds, and then with a pause of `every` between.

        name: of the work in the log.
        """
        self._tasks.append(asyncio.create_task(self._repeated(name, work, every, after)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _repeated(self, name: str, work: Work, every: float, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            try:
                if (doing := work()) is not None:
                    await doing
            except Exception:
                self._metrics.count("faults", "background")
                log.exception("%s has failed; it is tried again in %g s", name, every, extra=SELDOM)
            await asyncio.sleep(every)
