"""The line on top of every page: does the relay run, do next hop and database answer, was mail deferred."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from urllib.parse import urlencode

from spamfilter.config.settings import Settings
from spamfilter.doctor import Examination
from spamfilter.doctor.delivery import next_hop
from spamfilter.errors import Refused, SpamfilterError
from spamfilter.reports.outages import messages_text, outages
from spamfilter.service.control_socket.client import NoRelay
from spamfilter.stores import Store
from spamfilter.system.moments import moment_text, span_text

FRESH_SECONDS = 5.0
"""Time for which the line is shown again without another look."""
NEXT_HOP_SECONDS = 60.0
"""Time between two greetings of the next hop, while somebody reads pages."""
PATIENCE = 2.0
"""Seconds that a page waits for the relay, and for the next hop."""
DOCTOR = "/doctor"
LOOK_BACK = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class State:
    """A part of the line. link: the page that says more. detail: for administrators."""

    text: str
    good: bool
    link: str
    detail: str = ""


class StatusStrip:
    """The line, looked up anew when it is not fresh. settings: returns those in use."""

    def __init__(self, settings: Callable[[], Settings], store: Store) -> None:
        self._settings = settings
        self._store = store
        self._lock = Lock()
        self._states: list[State] = []
        self._next_hop = State("next hop not asked yet", False, DOCTOR)
        self._until = self._greet_at = 0.0

    def states(self) -> list[State]:
        """The parts of the line; while they are looked up for another page, those of the last look."""
        with self._lock:
            fresh = time.monotonic() < self._until
            if not fresh:
                self._until = time.monotonic() + FRESH_SECONDS
        if not fresh:
            self._states = [_within(self._relay, "relay"), self._greeted(), *self._database()]
        return self._states

    def _relay(self) -> State:
        try:
            Examination(self._settings(), None).ask_status()
        except NoRelay:
            return State("the relay does not run", False, DOCTOR)
        except Refused:
            pass  # it runs, and tells this user no more
        except SpamfilterError as error:
            return State("the relay does not answer", False, DOCTOR, str(error))
        return State("relay runs", True, DOCTOR)

    def _greeted(self) -> State:
        if time.monotonic() > self._greet_at:
            self._next_hop = _within(self._greeting, "next hop")
            self._greet_at = time.monotonic() + NEXT_HOP_SECONDS
        return self._next_hop

    def _greeting(self) -> State:
        finding = next(next_hop(Examination(self._settings(), None)))
        if finding.status == "ok":
            return State("next hop answers", True, DOCTOR)
        return State("the next hop does not answer", False, DOCTOR, finding.found)

    def _database(self) -> Iterator[State]:
        now = datetime.now(UTC)
        try:
            found = outages(self._store, now - LOOK_BACK, now)
        except SpamfilterError as error:
            yield State("the database does not answer", False, DOCTOR, str(error))
            return
        yield State("database answers", True, DOCTOR)
        for one in found[-1:]:
            when = span_text(one.begin, one.end) if len(found) == 1 else "in the last 24 hours"
            search = f"/messages?{urlencode({'reply': 4, 'since': moment_text(found[0].begin)})}"
            yield State(f"{messages_text(found)} deferred {when}", False, search)


def _within(look: Callable[[], State], name: str) -> State:
    """The state that a look finds, or that it takes too long. Its thread keeps nobody from stopping."""
    found: SimpleQueue[State] = SimpleQueue()
    Thread(target=lambda: found.put(look()), daemon=True).start()
    try:
        return found.get(timeout=PATIENCE)
    except Empty:
        return State(f"{name}: no answer within {PATIENCE:g} s", False, DOCTOR)
