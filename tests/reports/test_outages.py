"""When mail was deferred, and when the relay did not run, from journal and database."""

from datetime import UTC, datetime, timedelta

import pytest

from spamfilter.reports.outages import (
    ALIVE,
    DOWN,
    MOST,
    Downtime,
    Outage,
    downtimes,
    hosts,
    last_note,
    note_alive,
    outages,
)
from spamfilter.reports.report import build
from spamfilter.reports.text import outage_texts, report_text
from spamfilter.stores import UNJUDGED, Store
from spamfilter.system.moments import span_text
from tests.stores.conftest import store
from tests.support.made import NOON, journal_entry

__all__ = ["store"]

AWAY = "451 4.4.1 The next hop cannot be reached; try again later"
MINUTE = timedelta(minutes=1)
HOST = "mx1.test"


def put_off(store: Store, *minutes: float, reply: str = AWAY, **changes: object) -> None:
    shared = {"class_": UNJUDGED, "action": "defer", "digest": b"", "score": 0.0, "evidence": [], "tokens": None}
    store.write_journal(
        [journal_entry(at=NOON + minute * MINUTE, reply=reply, **{**shared, **changes}) for minute in minutes]
    )


def test_an_outage_ends_when_nothing_is_put_off_for_a_while(store: Store) -> None:
    put_off(store, 0, 10, 24, 60)
    put_off(store, 25, reply="450 4.2.0 <ann@example.org>: greylisted")
    put_off(store, 26, reply="550 5.1.1 nobody", action="reject")
    put_off(store, 27, class_="spam", reply="451 4.7.1 Deferred; try again later")  # as a verdict asked for
    put_off(store, 28, class_="ham", action="pass", reply="451 4.4.2 The next hop does not answer")
    assert outages(store, NOON, NOON + 120 * MINUTE) == [
        Outage(NOON, NOON + 28 * MINUTE, 5, AWAY),
        Outage(NOON + 60 * MINUTE, NOON + 60 * MINUTE, 1, AWAY),
    ]
    assert outages(store, NOON + 61 * MINUTE, NOON + 120 * MINUTE) == []


def test_what_was_put_off_is_counted_beside_what_was_judged(store: Store) -> None:
    put_off(store, 0, 1)
    put_off(store, 2, 3, 4, reply="550 5.1.1 <ann@example.org>: nobody", action="reject")
    put_off(store, 5, reply="550 5.1.1 <bob@example.org>: nobody", action="reject")
    store.write_journal([journal_entry(at=NOON)])
    report = build(store, ["fields"], NOON - 60 * MINUTE, NOON + 60 * MINUTE)
    assert (report.figures.messages, report.figures.unjudged) == (1, {"deferred": 2, "rejected": 4})
    assert [(one.reply, one.messages) for one in report.troubles] == [("550 5.1.1 <>: nobody", 4), (AWAY, 2)]
    assert outage_texts(report) == [f"{span_text(NOON, NOON + MINUTE)}: 2 messages deferred: {AWAY}"]
    assert any("2 messages were deferred" in sentence for sentence in report.advice)
    assert "unjudged  2 deferred, 4 rejected" in report_text(report)


def test_the_review_does_not_ask_about_what_was_not_judged(store: Store) -> None:
    put_off(store, 0)
    assert store.unlearnt(NOON, NOON + MINUTE) == []


def noted(store: Store, host: str, started: datetime, now: datetime) -> None:
    """The first note of a relay that has started then."""
    note_alive(store, host, last_note(store, host), started, now)


@pytest.mark.parametrize(("away", "down"), [(2, False), (10, True)])
def test_a_relay_that_starts_long_after_its_last_note_was_down(store: Store, away: int, down: bool) -> None:
    noted(store, HOST, NOON, NOON)
    again = NOON + away * MINUTE
    noted(store, HOST, again, again + MINUTE)
    noted(store, HOST, again, again + 2 * MINUTE)
    found = [Downtime(NOON, again, HOST)] if down else []
    assert downtimes(store, NOON - MINUTE, again + 3 * MINUTE) == found
    assert downtimes(store, again + MINUTE, again + 3 * MINUTE) == []


def test_a_database_that_took_no_notes_for_a_while_was_away(store: Store) -> None:
    noted(store, HOST, NOON, NOON)
    again = NOON + 30 * MINUTE
    note_alive(store, HOST, NOON, again, again)
    note_alive(store, HOST, again, again + MINUTE, again + MINUTE)
    assert downtimes(store, NOON, again + 2 * MINUTE) == [Downtime(NOON, again, HOST)]


def test_a_clock_that_was_ahead_at_the_start_is_no_downtime_once_it_is_right(store: Store) -> None:
    noted(store, HOST, NOON, NOON)
    ahead, last = NOON + 120 * MINUTE, NOON + 120 * MINUTE
    noted(store, HOST, ahead, ahead)
    for minute in range(1, 10):
        note_alive(store, HOST, last, NOON + minute * MINUTE, NOON + minute * MINUTE)
        last = NOON + minute * MINUTE
    assert downtimes(store, NOON, NOON + 10 * MINUTE) == []


def test_a_relay_that_does_not_run_is_down_since_its_last_note(store: Store) -> None:
    assert downtimes(store, NOON, NOON + 60 * MINUTE) == []  # none ever ran
    noted(store, HOST, NOON, NOON)
    assert downtimes(store, NOON, NOON + 60 * MINUTE) == [Downtime(NOON, None, HOST)]


def test_only_so_many_downtimes_are_remembered(store: Store) -> None:
    at: datetime = NOON
    for _ in range(MOST + 5):
        noted(store, HOST, at, at)
        at += 10 * MINUTE
    kept = store.get_setting(f"{DOWN} {HOST}")
    assert isinstance(kept, list)
    assert len(kept) == MOST


def test_a_host_of_a_fleet_that_is_down_is_named_until_it_has_long_left(store: Store) -> None:
    for number in range(20):
        noted(store, "mx1.test", NOON, NOON + number * MINUTE)
    noted(store, "mx2.test", NOON, NOON)
    now = NOON + 20 * MINUTE
    assert hosts(store) == ["mx1.test", "mx2.test"]
    assert downtimes(store, NOON, now) == [Downtime(NOON, None, "mx2.test")]
    assert downtimes(store, NOON, now, "mx1.test") == []
    assert downtimes(store, NOON + MINUTE, now) == []
    assert "the relay of mx2.test did not run" in report_text(build(store, [], NOON, now))


def test_a_clock_that_is_behind_at_the_start_forgets_no_downtime(store: Store) -> None:
    noted(store, HOST, NOON, NOON)
    later = NOON + 300 * MINUTE
    noted(store, HOST, later, later)
    behind = NOON - timedelta(days=40)
    noted(store, HOST, behind, behind)
    note_alive(store, HOST, behind, behind + MINUTE, behind + MINUTE)
    assert Downtime(NOON, later, HOST) in downtimes(store, NOON, later + MINUTE)


def test_a_downtime_until_a_moment_that_is_to_come_was_a_wrong_clock(store: Store) -> None:
    now = datetime.now(UTC)
    store.put_setting(f"{ALIVE} {HOST}", now.isoformat())
    store.put_setting(f"{DOWN} {HOST}", [[now.isoformat(), (now + timedelta(days=200)).isoformat()]])
    assert downtimes(store, now - timedelta(days=1), now + MINUTE) == []


def test_what_was_noted_before_hosts_were_is_kept(store: Store) -> None:
    store.put_setting(ALIVE, NOON.isoformat())
    store.put_setting(DOWN, [[(NOON - 9 * MINUTE).isoformat(), NOON.isoformat()]])
    again = NOON + 10 * MINUTE
    noted(store, HOST, again, again)
    before, after = downtimes(store, NOON - 10 * MINUTE, again)
    assert (before, after) == (Downtime(NOON - 9 * MINUTE, NOON, ""), Downtime(NOON, again, HOST))
