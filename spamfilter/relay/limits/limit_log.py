"""Limits that are exceeded: counted in the metrics, and logged without flooding the log.

Guarantee: the first excess over a limit is logged with its circumstances; while it goes on, one line each PERIOD says
how often. Any thread may call.
"""

import logging
import threading

from spamfilter.relay.metrics import Metrics

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two lines about one limit: a flood that goes on is seen, and a day of it is 1 MB of log."""


class LimitLog:
    """Counts and logs each excess. The caller calls `sum_up` every PERIOD."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self._since: dict[str, int] = {}
        self._lock = threading.Lock()

    def noted(self, limit: str, text: str) -> None:
        """Count and log an excess over a limit. text: what exceeded it, and the consequence, without private data."""
        with self._lock:
            self.metrics.count("limits_hit", limit)
            if limit in self._since:
                self._since[limit] += 1
                return
            self._since[limit] = 0
        log.warning("limit %s: %s", limit, text)

    def sum_up(self) -> None:
        """Log how often each limit was exceeded since the last call; one that was not is logged at its next excess."""
        with self._lock:
            more = {limit: number for limit, number in self._since.items() if number}
            self._since = dict.fromkeys(more, 0)
        for limit, number in more.items():
            log.warning("limit %s: %d times more in the last %g s", limit, number, PERIOD)
