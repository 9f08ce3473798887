"""The journal: ids in the order of time, rows written by a thread, and a store that takes no writes."""

import logging
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.errors import StoreBusy, StoreError
from spamfilter.relay.journal import BATCH, WRITE_EVERY, Journal
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import ID_LENGTH, id_of, new_id
from tests.support.made import NOON, journal_entry, some
from tests.support.memory_store import MemoryStore


class Moody(MemoryStore):
    """A store that refuses writes while `refusal` is set, and does `meanwhile` during each write."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: StoreError | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        self.batches: list[int] = []

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        self.meanwhile()
        if self.refusal:
            raise self.refusal
        self.batches.append(len(entries))
        super().write_journal(entries)


def eventually(condition: Callable[[], object]) -> None:
    """Waits for what another thread does; far longer than it needs."""
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)


def test_ids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [0, 1, 1_700_000_000_000, 1_700_000_000_001, 2**47, 2**48 - 1]
    ids = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment * 1_000_000)
        ids.append(new_id())
    assert ids == sorted(ids)
    assert all(id_of(id) == id for id in ids)
    assert ids[0].startswith("0" * 10)
    assert ids[-1].startswith("7ZZZZZZZZZ")


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    assert len({new_id() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        pytest.param("01KAH3V5E8M6Q2T0J9Z4R7X1CN", True, id="upper-case"),
        pytest.param("01kah3v5e8m6q2t0j9z4r7x1cn", True, id="lower-case"),
        pytest.param("01KAH3V5E8M6Q2T0J9Z4R7X1C", False, id="short"),
        pytest.param("01KAH3V5E8M6Q2T0J9Z4R7X1CNN", False, id="long"),
        pytest.param("01KAH3V5E8M6Q2T0J9Z4R7X1CU", False, id="letter-that-is-not-used"),
        pytest.param("01KAH3V5E8M6Q2T0J9Z4R7X1C-", False, id="sign"),
        pytest.param("", False, id="empty"),
    ],
)
def test_an_id_is_known_by_its_letters(text: str, valid: bool) -> None:
    assert bool(id_of(text)) is valid


@some(100)
@given(st.text(max_size=30))
def test_any_text_is_an_id_or_not(text: str) -> None:
    assert len(id_of(text)) in (0, ID_LENGTH)
    assert not id_of(text) or len(text) == ID_LENGTH


def test_entries_are_written_within_a_second() -> None:
    assert WRITE_EVERY < 1
    store = MemoryStore()
    journal = Journal(store)
    journal.start()
    entries = [journal_entry(at=datetime.now(UTC)) for _ in range(3)]
    for entry in entries:
        journal.add(entry)
    eventually(lambda: store.find_journal(entries[-1].id))
    late = journal_entry(at=datetime.now(UTC))
    journal.add(late)
    journal.stop()
    assert all(store.find_journal(entry.id) == entry for entry in (*entries, late))
    assert journal.dropped == 0


def test_many_entries_are_written_in_batches() -> None:
    store = Moody()
    journal = Journal(store)
    for _ in range(2 * BATCH + 1):
        journal.add(journal_entry())
    journal.write()
    assert store.batches == [BATCH, BATCH, 1]


def test_what_cannot_be_written_is_kept_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Moody()
    store.refusal = StoreBusy("store.db: locked")
    journal = Journal(store)
    entries = [journal_entry() for _ in range(3)]
    with caplog.at_level(logging.INFO):
        for entry in entries:
            journal.add(entry)
            journal.write()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "store.db: locked" in caplog.text
        store.refusal = None
        journal.write()
        journal.write()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert all(store.find_journal(entry.id) for entry in entries)
    assert journal.dropped == 0


def test_a_store_that_fails_again_and_again_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    store = Moody()
    journal = Journal(store)
    for number in range(115):
        store.refusal = StoreBusy("too many connections") if number % 2 == 0 or number > 70 else None
        journal.add(journal_entry())
        journal.write()
        assert journal.error == str(store.refusal or "")
        now += 0.3
    said = [record.levelname for record in caplog.records]
    assert said == [*["ERROR", "WARNING"] * 3, "ERROR"]  # the last one, which lasts, after ten seconds
    assert journal.waiting == 45


def test_beyond_the_bound_the_oldest_are_dropped_and_counted() -> None:
    store = Moody()
    store.refusal = StoreBusy("locked")
    journal = Journal(store, backlog=3)
    entries = [journal_entry(id=f"{number}") for number in range(5)]
    for entry in entries:
        journal.add(entry)
        journal.write()
    store.refusal = None
    journal.write()
    assert [entry.id for entry in entries if store.find_journal(entry.id)] == ["2", "3", "4"]
    assert journal.dropped == 2


def test_what_is_being_written_waits_still() -> None:
    store, seen = Moody(), list[int]()
    journal = Journal(store)
    store.meanwhile = lambda: seen.append(journal.waiting)
    for number in range(BATCH + 2):
        journal.add(journal_entry(id=f"{number}"))
    store.refusal = StoreBusy("locked")
    journal.write()
    assert (seen, journal.waiting) == ([BATCH + 2], BATCH + 2)
    store.refusal = None
    journal.write()
    assert (seen[1:], journal.waiting) == ([BATCH + 2, 2], 0)


def test_what_comes_while_a_full_backlog_is_written_is_not_lost_uncounted() -> None:
    store = Moody()
    journal = Journal(store, backlog=3)
    for number in range(3):
        journal.add(journal_entry(id=f"{number}"))
    late = [journal_entry(id="late")]

    def add_late() -> None:
        while late:
            journal.add(late.pop())

    store.meanwhile = add_late
    journal.write()
    journal.write()
    written = [id for id in ("0", "1", "2", "late") if store.find_journal(id)]
    assert len(written) + journal.dropped == 4
    assert "late" in written


def test_an_entry_that_no_store_could_take_holds_up_no_others(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(MemoryStore):
        def write_journal(self, entries: Sequence[JournalEntry]) -> None:
            for entry in entries:
                entry.subject.encode()
            super().write_journal(entries)

    store = Picky()
    journal = Journal(store)
    for id, subject in (("1", "a"), ("2", "\udc80"), ("3", "b")):
        journal.add(journal_entry(id=id, subject=subject))
    journal.write()
    assert [id for id in "123" if store.find_journal(id)] == ["1", "3"]
    assert journal.dropped == 1
    assert "2 cannot be written and is dropped" in caplog.text


def test_a_journal_that_is_stopped_while_the_store_is_away_ends_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Moody()
    store.refusal = StoreError("gone")
    journal = Journal(store)
    journal.start()
    journal.add(journal_entry())
    journal.stop()
    assert not journal._thread.is_alive()
    assert journal.dropped == 1
    assert "journal: 1 entries are lost, as the relay stops" in caplog.text


def test_a_store_that_is_back_when_the_relay_stops_gets_the_last_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a connection that failed it tries none for a moment."""
    store = Moody()
    store.refusal = StoreError("gone")
    journal = Journal(store)
    journal.add(journal_entry())
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(store, "refusal", None))
    journal.start()
    journal.stop()
    assert (journal.written, journal.dropped) == (1, 0)


def test_entries_that_wait_are_small(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand wait as they are: one batch, and one that is being written. The others are packed."""
    store = Moody()
    journal = Journal(store)
    store.refusal = StoreBusy("locked")

    def wait(number: int) -> list[JournalEntry]:
        entries = [
            journal_entry(tokens={"fields": {b"word %d" % word: 1 for word in range(500)}}) for _ in range(number)
        ]
        for entry in entries:
            journal.add(entry)
        return [replace(entry, tokens=None) for entry in entries]

    first = wait(BATCH)
    journal.write()
    tracemalloc.start()
    try:
        later = wait(BATCH)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < BATCH * 6_000, "500 tokens of 33 bytes and more are in each"
    store.refusal = None
    journal.write()
    written = store.journal(NOON, NOON + timedelta(days=1))
    assert sorted(one.id for one in written) == sorted(one.id for one in (*first, *later))
    assert {len((store.find_journal(one.id) or one).tokens or {}) for one in written} == {1}
    assert [len(((store.find_journal(one.id) or one).tokens or {})["fields"]) for one in written] == [500] * 2 * BATCH
