"""What is over a limit: counted at once, and said without flooding the log.

Guarantee: the first excess over a limit is in the log with its circumstances; after that, as long as it goes on, one
line a period says how often. May be called by any thread.
"""

import logging
import threading

from spamfilter.relay.metrics import Metrics

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two lines about one limit: a flood is seen to go on, and a day of it is no more than 1 MB of log."""


class Excess:
    """The limits that were hit. `sum_up` is to be called every PERIOD."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self._since: dict[str, int] = {}
        self._lock = threading.Lock()

    def noted(self, limit: str, text: str) -> None:
        """Something went over this limit; text: what, and what was done, without what must not be in a log."""
        with self._lock:
            self.metrics.count("limits_hit", limit)
            if limit in self._since:
                self._since[limit] += 1
                return
            self._since[limit] = 0
        log.warning("limit %s: %s", limit, text)

    def sum_up(self) -> None:
        """Say what has come since; a limit that was not hit since is forgotten, and its next excess said at once."""
        with self._lock:
            more = {limit: number for limit, number in self._since.items() if number}
            self._since = dict.fromkeys(more, 0)
        for limit, number in more.items():
            log.warning("limit %s: %d times more in the last %g s", limit, number, PERIOD)
