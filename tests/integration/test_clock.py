"""A clock that is wrong while mail and journal wait for their time to expire."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.service.expiry import SEEN, STEP, latest_time
from spamfilter.stores import open_store
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop
from tests.integration.processes import hop
from tests.integration.servers import wait_until
from tests.support.month import START, Calendar
from tests.support.planted import HOURLY_AT_ONCE

__all__ = ["hop"]

KEPT = 20
DAYS = 300
"""Time for which mail and entries are kept: twelve hundred looks of a clock that is far ahead."""
AHEAD = timedelta(days=3650)


class Aging:
    """A relay with KEPT mails in its quarantine, a calendar, and looks of its expiry without end."""

    def __init__(self, folder: Path, hop: Hop, keeps: int = DAYS) -> None:
        self.calendar = Calendar(folder, HOURLY_AT_ONCE)
        actions = {f"on_{name}": "quarantine" for name in ("ham", "unsure", "spam")}
        self.relay = Daemon(
            folder / "relay",
            f"smtp://127.0.0.1:{hop.port}",
            verdict={**actions, "quarantine_days": keeps},
            report={"journal_days": keeps},
        )
        self.relay.environment |= self.calendar.environment

    def fill(self) -> None:
        with Client(self.relay.port) as client:
            for number in range(KEPT):
                assert client.deliver(mail_of(f"m{number}")).code == 250
        wait_until(lambda: self.journalled() == KEPT, "the journal")

    def kept(self) -> int:
        return len(list((self.relay.state / "quarantine" / "new").iterdir()))

    def journalled(self) -> int:
        with contextlib.closing(sqlite3.connect(self.relay.database)) as connection:
            return int(connection.execute("SELECT count(*) FROM journal").fetchone()[0])

    def seen(self) -> datetime:
        """The latest time that the relay has seen."""
        with contextlib.closing(open_store(f"sqlite:///{self.relay.database}")) as store:
            found = latest_time(store)
        assert found
        return found

    def doctor(self) -> str:
        return self.relay.command("doctor", "--no-canary").stdout

    def await_looks(self, until: datetime) -> None:
        wait_until(lambda: self.seen() >= until, "the looks of the expiry")


@pytest.fixture
def aging(request: pytest.FixtureRequest, tmp_path: Path, hop: Hop) -> Iterator[Aging]:
    """Its parameter: the days for which mail and entries are kept."""
    made = Aging(tmp_path, hop, getattr(request, "param", DAYS))
    yield made
    if made.relay.running:
        made.relay.kill()


def test_a_clock_that_is_ahead_at_the_start_deletes_nothing(aging: Aging) -> None:
    with aging.relay.run():
        aging.fill()
    aging.calendar.set(START + AHEAD)
    with aging.relay.run():
        aging.await_looks(START + 2 * STEP)
        assert "WARNING the clock is 3650 days ahead of the latest time" in aging.relay.log()
        assert re.search(r"warning +clock +the clock is \d+ days ahead of the latest time", aging.doctor())
        by_hand = aging.relay.command("quarantine", "expire")
        assert by_hand.stdout.startswith("0 older than 300 days deleted")
        assert "days ahead of the latest time" in by_hand.stderr
        assert (aging.kept(), aging.journalled()) == (KEPT, KEPT)
        aging.calendar.set(START + timedelta(hours=1))
        with Client(aging.relay.port) as client:
            assert client.deliver(mail_of("later")).code == 250
        wait_until(lambda: aging.journalled() == KEPT + 1, "another entry")
    assert (aging.kept(), aging.journalled()) == (KEPT + 1, KEPT + 1)


def test_a_clock_that_jumps_ahead_at_the_very_first_start_deletes_nothing(aging: Aging) -> None:
    """As after an upgrade: the database has not noted a time yet, but it has entries."""
    with aging.relay.run():
        aging.fill()
    with contextlib.closing(sqlite3.connect(aging.relay.database)) as connection, connection:
        connection.execute("DELETE FROM settings WHERE name = ?", (SEEN,))
    aging.calendar.set(START + AHEAD)
    with aging.relay.run():
        aging.await_looks(START + 2 * STEP)
    assert (aging.kept(), aging.journalled()) == (KEPT, KEPT)


def test_a_clock_that_jumps_while_the_relay_runs_deletes_nothing(aging: Aging) -> None:
    with aging.relay.run():
        aging.fill()
        aging.calendar.set(START + AHEAD)
        aging.await_looks(START + 2 * STEP)
        aging.calendar.set(START)
        assert (aging.kept(), aging.journalled()) == (KEPT, KEPT)


def test_a_clock_that_is_behind_deletes_nothing_and_is_said(aging: Aging) -> None:
    with aging.relay.run():
        aging.fill()
    aging.calendar.set(START - timedelta(days=3000))
    with aging.relay.run():
        wait_until(lambda: "WARNING the clock is 3000 days behind" in aging.relay.log(), "the warning")
        assert re.search(r"warning +clock +the clock is 3000 days behind the latest time", aging.doctor())
    assert aging.seen() >= START
    assert (aging.kept(), aging.journalled()) == (KEPT, KEPT)


@pytest.mark.parametrize("aging", [1], indirect=True, ids=["a-day"])
def test_what_is_old_by_a_clock_that_goes_on_is_deleted_little_by_little(aging: Aging) -> None:
    with aging.relay.run():
        aging.fill()
        for hours in range(5, 60, 5):
            aging.calendar.set(now := START + timedelta(hours=hours))
            aging.await_looks(now)
        wait_until(lambda: (aging.kept(), aging.journalled()) == (0, 0), "the expiry")
        log = aging.relay.log()
        assert log.count("quarantine: 10 expired mails deleted") == KEPT // 10
        assert "the clock is" not in log
    assert aging.seen() > START + timedelta(days=2) - STEP


@pytest.mark.parametrize("aging", [1], indirect=True, ids=["a-day"])
def test_a_relay_that_was_off_for_long_catches_up(aging: Aging) -> None:
    with aging.relay.run():
        aging.fill()
    aging.calendar.set(datetime(2026, 3, 10, tzinfo=UTC))
    with aging.relay.run():
        wait_until(lambda: (aging.kept(), aging.journalled()) == (0, 0), "the expiry")


def test_mail_that_comes_while_the_clock_is_behind_is_kept_as_long_as_any(aging: Aging) -> None:
    """As after a boot without a battery for the clock, until the time comes from the network."""
    with aging.relay.run():
        aging.calendar.set(START + timedelta(hours=5))
        aging.await_looks(START + timedelta(hours=5))
    aging.calendar.set(datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
    with aging.relay.run():
        aging.fill()
        aging.calendar.set(now := START + timedelta(hours=6))
        aging.await_looks(now)
        aging.calendar.set(now := START + timedelta(hours=11))
        aging.await_looks(now)
        assert aging.kept() == KEPT
        assert f"quarantine: {KEPT} mails came while the clock was behind; they count as new" in aging.relay.log()
        listed = aging.relay.command("quarantine", "list").stdout
        assert listed.count(f" {START.date()} ") == KEPT
