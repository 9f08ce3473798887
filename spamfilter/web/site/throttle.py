"""A limit for attempts to sign in.

Guarantee: each address and each name has a limited number of attempts within SECONDS, and the memory for them is
bounded. An attempt counts when it begins, so attempts in parallel cannot exceed the limit.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from spamfilter.relay.limits.connections import origin_of

SECONDS = 900.0
"""Time for which an attempt counts."""
OF_ADDRESS, OF_NAME = 10, 30
"""Failed attempts in that time. A name has more, so that one address alone cannot lock it out."""
MOST_REMEMBERED = 10_000
"""Addresses and names that are remembered; the one with the oldest attempt is dropped first."""


class Throttle:
    """Attempts by address and by name. clock: returns seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attempts: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def attempt(self, address: str, name: str) -> float:
        """Count an attempt; the seconds to wait, 0 if it may be made now."""
        now = self._clock()
        with self._lock:
            wait = 0.0
            for key, most in _keys(address, name):
                kept = [at for at in self._attempts.get(key, ()) if at > now - SECONDS]
                if len(kept) >= most:
                    wait = max(wait, kept[-most] + SECONDS - now)
            if not wait:
                for key, _ in _keys(address, name):
                    kept = [at for at in self._attempts.pop(key, ()) if at > now - SECONDS]
                    self._attempts[key] = [*kept, now]
                while len(self._attempts) > MOST_REMEMBERED:
                    self._attempts.popitem(last=False)
            return wait

    def pardon(self, address: str, name: str) -> None:
        """Remove the last attempt: it was successful."""
        with self._lock:
            for key, _ in _keys(address, name):
                if self._attempts.get(key):
                    self._attempts[key].pop()


def _keys(address: str, name: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (f"address {origin_of(address)}", OF_ADDRESS), (f"name {name[:100]}", OF_NAME)
