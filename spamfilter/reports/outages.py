"""When mail was put off, and when the relay did not run.

A relay notes every minute that it runs; one that starts long after the last note was down in between.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from spamfilter.stores import PutOff, Store
from spamfilter.system.ids import without_ids

NOTE_EVERY = 60.0
"""Seconds between two notes that the relay runs."""
ABSENT = timedelta(minutes=3)
"""Time without a note after which the relay was down; a restart takes seconds."""
GAP = timedelta(minutes=15)
"""Time without mail that is put off, after which an outage is over: senders try again every few minutes."""
MOST = 100
"""Downtimes that are remembered."""
ALIVE, DOWN = "alive", "downtimes"
"""The names of the database's settings: the last note, and the downtimes as pairs of times."""
_ADDRESS = re.compile(r"<[^<>@]{1,64}@[^<>]{1,255}>")


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which messages were put off: how many, and the reply that most of them heard."""

    begin: datetime
    end: datetime
    messages: int
    reply: str


@dataclass(frozen=True, slots=True)
class Downtime:
    """A time in which no relay ran. end: None if none has run since."""

    begin: datetime
    end: datetime | None


def grouped(reply: str) -> str:
    """A reply without what differs from message to message: ids and addresses.

    >>> grouped("550 5.1.1 <ann@example.org>: no such user"), grouped("451 Try again (01JD0000000000000000000000)")
    ('550 5.1.1 <>: no such user', '451 Try again')
    """
    return _ADDRESS.sub("<>", without_ids(reply))


def outages(store: Store, since: datetime, until: datetime) -> list[Outage]:
    """The outages of a period, the earliest first."""
    return [
        Outage(some[0].at, some[-1].at, len(some), Counter(grouped(one.reply) for one in some).most_common(1)[0][0])
        for some in _together(store.put_off(since, until))
    ]


def _together(entries: list[PutOff]) -> Iterator[list[PutOff]]:
    some: list[PutOff] = []
    for entry in entries:
        if some and entry.at - some[-1].at > GAP:
            yield some
            some = []
        some.append(entry)
    if some:
        yield some


def note_alive(store: Store, started: datetime, now: datetime) -> None:
    """Note that the relay runs now, and that it was down if the last note is from long before its start."""
    last = _moment(store.get_setting(ALIVE))
    if last is not None and started - last > ABSENT:
        kept = store.get_setting(DOWN)
        before = kept if isinstance(kept, list) else []
        store.put_setting(DOWN, [*before, [last.isoformat(), started.isoformat()]][-MOST:])
    store.put_setting(ALIVE, now.isoformat())


def downtimes(store: Store, since: datetime, until: datetime) -> list[Downtime]:
    """When the relay was down in a period, the earliest first."""
    kept = store.get_setting(DOWN)
    pairs = [(_moment(begin), _moment(end)) for begin, end in (kept if isinstance(kept, list) else [])]
    found = [Downtime(begin, end) for begin, end in pairs if begin and end and begin < until and end > since]
    alive = _moment(store.get_setting(ALIVE))
    if alive is not None and until - alive > ABSENT:
        found.append(Downtime(alive, None))
    return found


def _moment(noted: object) -> datetime | None:
    return datetime.fromisoformat(noted) if isinstance(noted, str) else None
