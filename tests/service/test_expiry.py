"""What expires, and by which time: the looks of the relay, without a relay."""

import logging
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.bayes.labels import CANARY
from spamfilter.config.settings import Settings
from spamfilter.errors import StoreBusy, StoreFull
from spamfilter.learning.filter import Filter
from spamfilter.relay.next_hops import Maildir
from spamfilter.relay.quarantine.quarantine import MOST_EXPIRED, Quarantine
from spamfilter.service import expiry
from spamfilter.service.expiry import STEP, Expiry, begin, known_time, latest_time
from spamfilter.stores import JournalEntry, Rule, Store, Wanted, open_store
from tests.support.made import NOON, VOICE, journal_entry, reading
from tests.support.memory_store import MemoryStore

DAY = timedelta(days=1)


class Clock(datetime):
    """The clock of the calendar, as a test sets it."""

    at = NOON

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # always UTC here
        return cls.at


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(expiry, "datetime", Clock)
    monkeypatch.setattr(Clock, "at", NOON)
    return Clock


def looks(folder: Path, store: Store, **days: float) -> Expiry:
    begin(store)
    settings = Settings.model_validate(
        {
            "verdict": {"quarantine_days": days.get("mails", 30)},
            "feedback": {"window_days": days.get("tokens", 14)},
            "report": {"journal_days": days.get("entries", 30)},
        }
    )
    return Expiry(store, Maildir(folder).path, lambda: settings)


def kept(folder: Path, number: int, age: timedelta) -> None:
    """Mails in quarantine that came so long before NOON."""
    for one in range(number):
        file = Maildir(folder).write([b"Subject: x\r\n\r\nx\r\n"], b"a@example.org", [b"b@example.test"], f"id{one}")
        file.rename(file.with_name(f"{int((NOON - age).timestamp())}.{one}.{file.name.partition('.')[2]}"))


def left(folder: Path) -> int:
    return len(list((folder / "new").iterdir()))


def entry(id: str, age: timedelta) -> JournalEntry:
    return journal_entry(id=id, at=NOON - age)


def test_entries_and_their_tokens_expire(tmp_path: Path) -> None:
    store = MemoryStore()
    store.write_journal([entry("new", DAY), entry("tokens", 3 * DAY), entry("gone", 6 * DAY)])
    store.put_setting(expiry.SEEN, NOON.isoformat())
    looks(tmp_path, store, tokens=2, entries=5).look()
    found = {id: row.tokens is not None for id in ("new", "tokens", "gone") if (row := store.find_journal(id))}
    assert found == {"new": True, "tokens": False}


@pytest.mark.parametrize(("age", "left"), [(timedelta(hours=23), 2), (timedelta(hours=25), 0)], ids=["young", "old"])
def test_traces_of_probes_are_kept_for_a_day(tmp_path: Path, clock: type[Clock], age: timedelta, left: int) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/db")) as store:
        filter = Filter(store, VOICE)
        filter.learn(probe := reading("probe", "canary"), "spam", CANARY)
        filter.forget(probe, CANARY)
        clock.at = datetime.now(UTC) + age
        store.write_journal([journal_entry(at=clock.at)])  # a time that was seen
        looks(tmp_path, store).look()
        assert len(store.entries_after(0)) == left


@pytest.mark.parametrize(
    ("tokens", "entries"),
    [
        pytest.param(14.0, 36_500.0, id="entries-for-ever"),
        pytest.param(36_500.0, 30.0, id="tokens-for-ever"),
    ],
)
def test_to_keep_everything_for_ever_is_no_fault(
    tmp_path: Path, tokens: float, entries: float, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    looks(tmp_path, store, tokens=tokens, entries=entries).look()
    assert "cannot expire" not in caplog.text


def test_to_expire_fails_quietly_while_the_store_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    look = looks(tmp_path, store).look

    def locked(*arguments: object) -> None:
        raise StoreBusy("locked")

    monkeypatch.setattr(store, "expire", locked)
    look()
    assert "journal: cannot expire: locked" in caplog.text
    monkeypatch.setattr(store, "put_setting", locked)
    look()
    assert "nothing expires: locked" in caplog.text


def test_a_rule_on_a_sender_ends_by_the_noted_time(tmp_path: Path, clock: type[Clock]) -> None:
    store = MemoryStore()
    rule = store.add_rule(Rule("block", "bad.example", expires=NOON + DAY), NOON)
    look = looks(tmp_path, store).look
    clock.at = NOON + 365 * DAY
    look()
    assert store.rules() == [rule]
    for _ in range(5):
        look()
    assert (store.rules(), store.former_rules()[0].ending) == ([], "expired")


def test_a_mail_is_deleted_at_the_second_look_that_finds_it_old(tmp_path: Path, clock: type[Clock]) -> None:
    kept(tmp_path, 3, 31 * DAY)
    kept(tmp_path, 1, 30 * DAY - timedelta(minutes=90))
    look = looks(tmp_path, MemoryStore()).look
    numbers = []
    for hour in range(5):
        clock.at = NOON + timedelta(hours=hour)
        look()
        numbers.append(left(tmp_path))
    assert numbers == [4, 1, 1, 0, 0]


def test_what_cannot_be_deleted_keeps_no_later_mail(
    tmp_path: Path, clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, 1, 50 * DAY)
    (stuck,) = (tmp_path / "new").iterdir()
    kept(tmp_path, 2, 30 * DAY - timedelta(minutes=90))
    unlink = Path.unlink

    def immutable(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", immutable)
    look = looks(tmp_path, MemoryStore()).look
    for hour in range(4):
        clock.at = NOON + timedelta(hours=hour)
        look()
    assert left(tmp_path) == 1


@pytest.mark.parametrize(("number", "most"), [(25, MOST_EXPIRED), (200, 20)], ids=["small", "large"])
def test_one_look_deletes_no_more_than_a_tenth_and_the_oldest(tmp_path: Path, number: int, most: int) -> None:
    kept(tmp_path, number - 1, 40 * DAY)
    kept(tmp_path, 1, 50 * DAY)
    look = looks(tmp_path, MemoryStore()).look
    look()
    assert left(tmp_path) == number
    look()
    assert left(tmp_path) == number - most
    assert min(int(name.partition(".")[0]) for name in os.listdir(tmp_path / "new")) > (NOON - 50 * DAY).timestamp()


def test_the_latest_time_follows_the_clock_in_steps_and_never_goes_back(tmp_path: Path, clock: type[Clock]) -> None:
    store = MemoryStore()
    look = looks(tmp_path, store).look
    seen = []
    for hours in (0, 1, 1000, 1001, -500, 20):
        clock.at = NOON + timedelta(hours=hours)
        look()
        seen.append((latest_time(store) or NOON) - NOON)
    hour = timedelta(hours=1)
    assert seen == [0 * hour, hour, hour + STEP, hour + 2 * STEP, hour + 2 * STEP, hour + 3 * STEP]


def test_hosts_that_are_all_ahead_step_no_faster_than_one(tmp_path: Path, clock: type[Clock]) -> None:
    store = MemoryStore()
    hosts = [looks(tmp_path, store) for _ in range(3)]
    clock.at = NOON + 365 * DAY
    seen = []
    for _ in range(3):
        for host in hosts:
            host.look()
        seen.append(((latest_time(store) or NOON) - NOON) / STEP)
    assert seen == [3, 4, 5], "one step of each host at its start, and then one for all"


@pytest.mark.parametrize("ahead", [0 * DAY, 365 * DAY], ids=["right-clock", "a-year-ahead"])
@pytest.mark.parametrize("full", [range(0), range(8), range(2, 5)], ids=["never-full", "full", "full-for-a-while"])
def test_mail_expires_by_the_same_steps_while_the_disk_is_full(
    tmp_path: Path, clock: type[Clock], monkeypatch: pytest.MonkeyPatch, ahead: timedelta, full: range
) -> None:
    """full: the looks that find the disk full."""
    kept(tmp_path, 3, 29 * DAY)
    store = MemoryStore()
    look = looks(tmp_path, store).look
    take, numbers = store.put_setting, []

    def put_setting(name: str, value: object) -> None:
        if number in full:
            raise StoreFull("disk full")
        take(name, value)

    monkeypatch.setattr(store, "put_setting", put_setting)
    for number in range(8):
        clock.at = NOON + ahead + (number + 1) * STEP
        look()
        numbers.append(left(tmp_path))
    assert numbers == [3, 3, 3, 3, 3, 0, 0, 0], "30 days old at the fourth look, found by the fifth"
    assert latest_time(store) == NOON + (0 if full == range(8) else 8) * STEP


@pytest.mark.parametrize(
    ("noted", "entries", "expected"),
    [
        pytest.param(None, [], NOON, id="nothing-is-known"),
        pytest.param(None, [3], NOON - 3 * DAY, id="the-last-entry"),
        pytest.param(None, [-5], NOON, id="an-entry-in-the-future"),
        pytest.param(2, [3], NOON - 2 * DAY, id="what-was-noted"),
        pytest.param(-2, [3], NOON, id="the-clock-is-behind"),
    ],
)
def test_the_time_by_which_things_expire(noted: int | None, entries: list[int], expected: datetime) -> None:
    """noted, entries: days before now."""
    store = MemoryStore()
    store.write_journal([entry(f"{-days:+}", days * DAY) for days in entries])
    if noted is not None:
        store.put_setting(expiry.SEEN, (NOON - noted * DAY).isoformat())
    assert known_time(store, NOON.astimezone(UTC)) == expected


def test_a_clock_that_is_wrong_is_said_once(
    tmp_path: Path, clock: type[Clock], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    look = looks(tmp_path, MemoryStore()).look
    for days in (0, 300, 300, 300, -300, -300, 0, 0):
        clock.at = NOON + days * DAY
        look()
    said = [record.getMessage().partition(" the latest")[0] for record in caplog.records]
    assert said == ["the clock is 300 days ahead of", "the clock is 301 days behind"]


def test_only_mail_that_is_new_is_dated_anew_once_the_clock_is_right(tmp_path: Path, clock: type[Clock]) -> None:
    kept(tmp_path, 1, timedelta(days=20))
    looking = looks(tmp_path, MemoryStore())
    clock.at = NOON - 400 * DAY
    looking.look()
    kept(tmp_path, 2, timedelta(days=400))
    looking.look()
    clock.at = NOON + timedelta(hours=1)
    for _ in range(3):
        looking.look()
    assert {mail.at.date() for mail in Quarantine(tmp_path).mails()} == {(NOON - 20 * DAY).date(), NOON.date()}
    assert left(tmp_path) == 3


def test_what_came_while_the_clock_was_ahead_counts_as_new_once_the_clock_is_right(
    tmp_path: Path, clock: type[Clock], caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    store.put_setting(expiry.SEEN, NOON.isoformat())
    kept(tmp_path, 1, timedelta(hours=2))
    kept(tmp_path, 2, -400 * DAY)
    store.write_journal([entry("before", timedelta(hours=2)), entry("ahead", -400 * DAY)])
    looking = looks(tmp_path, store)
    clock.at = NOON + 400 * DAY
    looking.look()
    assert sum(mail.at > NOON + 300 * DAY for mail in Quarantine(tmp_path).mails()) == 2
    clock.at = right = NOON + timedelta(hours=1)
    looking.look()
    assert sorted(mail.at for mail in Quarantine(tmp_path).mails()) == [NOON - timedelta(hours=2), right, right]
    assert {found.id: found.at for found in store.search(Wanted(), 9)} == {
        "before": NOON - timedelta(hours=2),
        "ahead": right,
    }
    said = [record.getMessage() for record in caplog.records][-2:]
    assert said == [
        "quarantine: 2 mails came while the clock was ahead; they count as new",
        "journal: 1 entries were made while the clock was ahead; they count as new",
    ]


def test_what_is_later_than_a_clock_that_is_behind_keeps_its_date(tmp_path: Path, clock: type[Clock]) -> None:
    store = MemoryStore()
    store.put_setting(expiry.SEEN, NOON.isoformat())
    kept(tmp_path, 1, timedelta(0))
    store.write_journal([entry("now", timedelta(0))])
    clock.at = NOON - 3 * DAY
    looks(tmp_path, store).look()
    assert [mail.at for mail in Quarantine(tmp_path).mails()] == [NOON]
    assert [found.at for found in store.search(Wanted(), 9)] == [NOON]


def test_the_old_expires_also_where_what_is_ahead_cannot_be_dated(tmp_path: Path, clock: type[Clock]) -> None:
    class Full(MemoryStore):
        def date_journal_anew(self, after: datetime, now: datetime) -> int:
            raise StoreFull("disk full")

    store = Full()
    store.put_setting(expiry.SEEN, NOON.isoformat())
    store.write_journal([entry("old", 90 * DAY), entry("new", timedelta(0))])
    clock.at = NOON + timedelta(hours=1)
    looks(tmp_path, store).look()
    assert [found.id for found in store.search(Wanted(), 9)] == ["new"]


def test_mail_of_a_quarantine_that_was_away_keeps_its_date(tmp_path: Path, clock: type[Clock]) -> None:
    """As where its file system was not mounted for hours, or its folder was moved away and back."""
    kept(folder := tmp_path / "quarantine", 2, 5 * DAY)
    names = {path.name for path in (folder / "new").iterdir()}
    store = MemoryStore()
    store.put_setting(expiry.SEEN, NOON.isoformat())
    looking = looks(folder, store)
    looking.look()
    folder.rename(tmp_path / "away")
    for hours in (1, 2):
        clock.at = NOON + timedelta(hours=hours)
        looking.look()
    (tmp_path / "away").rename(folder)
    looking.look()
    assert {path.name for path in (folder / "new").iterdir()} == names


def test_a_clock_that_was_not_set_at_the_very_first_start_holds_up_no_expiry(
    tmp_path: Path, clock: type[Clock]
) -> None:
    store = MemoryStore()
    clock.at = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    looking = looks(tmp_path, store)
    store.write_journal([journal_entry(id="unset", at=clock.at)])
    kept(tmp_path, 1, NOON - clock.at)
    looking.look()
    clock.at = NOON
    for _ in range(3):
        looking.look()
    assert latest_time(store) == NOON
    assert left(tmp_path) == 1
