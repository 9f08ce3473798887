"""When mail was deferred, and when the relay did not run.

Each relay notes every minute that it runs; one that starts long after the last note of its host was down in between,
and one that could write no note for long had no database. A clock that is set forward looks the same.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spamfilter.stores import Deferral, Store
from spamfilter.stores.journal import MANY
from spamfilter.system.ids import without_ids

NOTE_EVERY = 60.0
"""Seconds between two notes that the relay runs."""
ABSENT = timedelta(minutes=3)
"""Time without a note after which the relay was down; a restart takes seconds."""
GAP = timedelta(minutes=15)
"""Time without mail that is deferred, after which an outage is over: senders try again every few minutes."""
MOST = 100
"""Downtimes that are remembered."""
ALIVE, DOWN = "alive", "downtimes"
"""The kinds of the database's settings of a host: the last note, and the downtimes as pairs of times.

Settings without a host are from before hosts were noted."""
_ADDRESS = re.compile(r"<[^<>@]{1,64}@[^<>]{1,255}>")


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which messages were deferred: how many, and the reply that most of them heard."""

    begin: datetime
    end: datetime
    messages: int
    reply: str


def messages_text(outages: Sequence[Outage]) -> str:
    """How many messages were deferred; the store counts MANY at most."""
    number = sum(one.messages for one in outages)
    return f"{'at least ' * (number >= MANY)}{number:,} message{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True)
class Downtime:
    """A time in which the relay of a host did not run, or had no database. end: None if it has not run since."""

    begin: datetime
    end: datetime | None
    host: str


def grouped(reply: str) -> str:
    """A reply without what differs from message to message: ids and addresses.

    >>> grouped("550 5.1.1 <ann@example.org>: no such user"), grouped("451 Try again (01JD0000000000000000000000)")
    ('550 5.1.1 <>: no such user', '451 Try again')
    """
    return _ADDRESS.sub("<>", without_ids(reply))


def outages(store: Store, since: datetime, until: datetime, host: str = "") -> list[Outage]:
    """The outages of a period, the earliest first."""
    return [
        Outage(some[0].at, some[-1].at, len(some), Counter(grouped(one.reply) for one in some).most_common(1)[0][0])
        for some in _together(store.deferrals(since, until, host))
    ]


def _together(entries: list[Deferral]) -> Iterator[list[Deferral]]:
    some: list[Deferral] = []
    for entry in entries:
        if some and entry.at - some[-1].at > GAP:
            yield some
            some = []
        some.append(entry)
    if some:
        yield some


def last_note(store: Store, host: str) -> datetime | None:
    """When the relay of a host has last noted that it runs."""
    return _moment(store.get_setting(f"{ALIVE} {host}") or store.get_setting(ALIVE))


def note_alive(store: Store, host: str, last: datetime | None, begin: datetime, now: datetime) -> None:
    """Note that the relay of a host runs now, and that it was away if its `last` note is from long before `begin`."""
    if last is not None and not now - ABSENT <= last <= now:
        down = f"{DOWN} {host}"
        kept = store.get_setting(down)
        # No downtime goes on now: one that does was noted by a clock that was ahead.
        pairs = [pair for pair in kept if not pair[0] <= now.isoformat() < pair[1]] if isinstance(kept, list) else []
        if begin - last > ABSENT:
            pairs.append([last.isoformat(), begin.isoformat()])
        store.put_setting(down, pairs[-MOST:])
    store.put_setting(f"{ALIVE} {host}", now.isoformat())


def hosts(store: Store) -> list[str]:
    """The hosts whose relays have run on this database."""
    return [*store.settings_of(ALIVE)]


def downtimes(store: Store, since: datetime, until: datetime, host: str = "") -> list[Downtime]:
    """When the relay of this host, or of any, was down in a period, the earliest first.

    A host of a fleet that has not run in the period is no member any more. What was noted by a clock that was ahead is
    left out.
    """
    now = datetime.now(UTC)
    alive = {name: _moment(noted) for name, noted in store.settings_of(ALIVE).items()}
    kept = {"": store.get_setting(DOWN), **store.settings_of(DOWN)}
    found = []
    for name in [host] if host else sorted({"", *alive, *kept}):
        pairs = kept.get(name)
        for begin, end in (map(datetime.fromisoformat, pair) for pair in pairs) if isinstance(pairs, list) else ():
            if begin < until and since < end <= now:
                found.append(Downtime(begin, end, name))
        last = alive.get(name)
        if last is not None and until - last > ABSENT and (last >= since or len(alive) == 1):
            found.append(Downtime(last, None, name))
    return sorted(found, key=lambda down: (down.begin, down.host))


def _moment(noted: object) -> datetime | None:
    return datetime.fromisoformat(noted) if isinstance(noted, str) else None
