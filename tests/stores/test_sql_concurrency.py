"""Several processes and threads on one SQLite file: they wait for each other, or hear that it is busy."""

import errno
import fcntl
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from spamfilter.errors import StoreBusy, StoreFull
from spamfilter.learning.filter import Filter
from spamfilter.stores.sql import connection as sql_connection
from spamfilter.stores.sql import journal as sql_journal
from tests.stores.made import open_at_once
from tests.stores.test_sql import locked, mode, opened, path, trained
from tests.support.made import NOON, VOICE, follow, journal_entry, reading

__all__ = ["path"]  # a fixture


def test_a_writer_that_waits_too_long_hears_that_the_store_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with opened(path) as store:
        filter = trained(store)
        before = store.load(["fields"])
        with locked(path):
            for write in (
                lambda: filter.learn(reading("new", "x"), "spam", "cli"),
                lambda: store.write_journal([journal_entry()]),
                lambda: store.put_setting("a", 1),
            ):
                with pytest.raises(StoreBusy, match=r"store\.db: another process holds the database; try again"):
                    write()
            assert store.load(["fields"]) == before
            assert filter.score(reading("s0", "cheap")).log_odds > 0
        filter.learn(reading("new", "x"), "spam", "cli")
        assert filter.verify() == []


def test_a_file_system_without_locks_is_named_and_no_other_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with opened(path) as store, locked(path):  # SQLite says the same of ENOLCK
        monkeypatch.setattr(fcntl, "lockf", no_locks)
        with pytest.raises(StoreFull, match=r"store\.db: its file system has no locks"):
            store.put_setting("a", 1)


def test_migrating_a_locked_database_is_busy_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spamfilter.stores.migration import migrate

    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with opened(path):
        pass
    with locked(path), pytest.raises(StoreBusy):
        migrate(f"sqlite:///{path}")


def test_two_writers_wait_for_each_other(path: Path) -> None:
    with opened(path) as one, opened(path) as two:
        filters = [Filter(store, VOICE, whole) for store, whole in ((one, True), (two, False))]
        failures: list[BaseException] = []

        def write(filter: Filter, name: str) -> None:
            try:
                for number in range(10):
                    filter.learn(reading(f"{name}{number}", "shared", f"{name}{number}"), "spam", "cli")
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=write, args=(filter, name)) for filter, name in zip(filters, "ab", strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert one.load([]).learnt == {"ham": 0, "spam": 20}
        assert filters[0].verify() == []


def test_a_learning_that_overtakes_another_process_begins_with_what_that_one_wrote(path: Path) -> None:
    with opened(path) as one, opened(path) as two:
        first, second = Filter(one, VOICE), Filter(two, VOICE)
        assert (first.last, second.last) == (0, 0)
        first.learn(reading("a", "x", "y"), "spam", "cli")
        second.learn(reading("b", "x", "z"), "ham", "cli")
        assert follow(first) == 1
        assert first.verify() == second.verify() == []
        assert first.score(reading("c", "x", "y", "z")) == second.score(reading("c", "x", "y", "z"))


def test_a_backup_while_others_write_is_whole_and_private(path: Path, tmp_path: Path) -> None:
    with opened(path) as store, opened(path) as other:
        trained(store)
        writer, stop = Filter(other, VOICE), threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                writer.learn(reading(f"w{number}", "busy", f"busy{number}"), "spam", "cli")
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            targets = [tmp_path / f"copy{number}.db" for number in range(4)]
            for target in targets:
                store.backup(target)
        finally:
            stop.set()
            thread.join()
    learnt = []
    for target in targets:
        assert mode(target) == 0o600
        with opened(target) as copy:
            assert Filter(copy, VOICE).verify() == []
            learnt.append(sum(copy.load([]).learnt.values()))
    assert learnt == sorted(learnt)
    assert learnt[0] >= 6
    assert not list(tmp_path.glob("*.partial"))


def test_an_expiry_that_finds_nothing_takes_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with opened(path) as store:
        store.write_journal([journal_entry(at=NOON)])
        with locked(path):
            assert store.expire(NOON, NOON) == (0, 0)
            with pytest.raises(StoreBusy):
                store.expire(NOON + timedelta(days=1), NOON)


def test_others_write_between_two_batches_of_an_expiry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_journal, "EXPIRE", 3)
    with opened(path) as store, opened(path) as other:
        store.write_journal([journal_entry(id=f"{number:02}", at=NOON) for number in range(10)])
        filter = Filter(other, VOICE, whole=False)
        batches: list[str] = []

        def write(connection: object, cursor: object, statement: str, *rest: object) -> None:
            if statement.startswith("BEGIN IMMEDIATE"):
                batches.append(statement)
                filter.learn(reading(f"{len(batches)}", "cheap"), "spam", "cli")

        event.listen(store.engine, "before_cursor_execute", write)
        assert store.expire(NOON, NOON + timedelta(days=1)) == (0, 10)
        event.remove(store.engine, "before_cursor_execute", write)
        assert len(batches) == 4
        assert filter.learnt["spam"] == 4


def test_a_second_store_opened_at_the_same_time_makes_the_same_tables(path: Path) -> None:
    open_at_once(f"sqlite:///{path}")
