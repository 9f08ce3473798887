"""A whole installation moves from SQLite to PostgreSQL and back, equal to the last row; or nothing moves."""

import gc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.voices import Voice
from spamfilter.errors import StoreBusy, StoreDamaged, StoreError
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import QuarantineEvent, Rule, Store, Wanted, migration, open_store
from spamfilter.stores.schema import metadata
from spamfilter.stores.sql import moving
from spamfilter.stores.sql.database import Database
from tests.support.made import NOON, journal_entry, mail
from tests.support.postgresql import Server, name_in, server

VOICES = (Voice("fields", Bernoulli()), Voice("body", Bernoulli()))
"""With tallies, too."""


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A database with something in each table, in which the latest ids are gone."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with closing(open_store(url)) as store:
        fill(store)
    return url


@pytest.fixture
def new() -> Iterator[str]:
    with server().database(empty=True) as url:
        yield url


def fill(store: Store) -> None:
    filter = Filter(store, VOICES)
    for number in range(6):
        learnt = filter.read(parse(mail(f"Cheap pills {number}", name=str(number))))
        filter.learn(learnt, "spam" if number % 2 else "ham", "cli")
        if number > 3:
            filter.forget(learnt, "cli")
    store.sweep("cli", datetime.now(UTC) + timedelta(days=1))
    store.write_journal([journal_entry(subject=f"Grün \0\x1a\n {n}") for n in range(3)])
    store.put_setting("some", {"value": [1.5, None, "x"]})
    store.put_summary(NOON.date(), {"messages": 3})
    store.note_quarantine([QuarantineEvent("mail", NOON, "delivered", ("b@example.org",), "b@example.org")])
    store.add_rule(Rule("block", "bad.example", by="root", at=NOON), NOON)
    gone = store.add_rule(Rule("allow", "good.example", "b@example.org", NOON + timedelta(1), "root", NOON, "x"), NOON)
    store.remove_rule(gone.id, "root", NOON)


def test_a_file_of_sqlite_keeps_its_size_when_mail_expires_and_a_move_makes_it_smaller(tmp_path: Path) -> None:
    """docs/operation.md says both."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    later = NOON + timedelta(days=1)
    with closing(open_store(f"sqlite:///{old}")) as store:
        store.write_journal([journal_entry(subject="x" * 1000) for _ in range(2000)])
    full = old.stat().st_size
    with closing(open_store(f"sqlite:///{old}")) as store:
        store.expire(later, later, 0)
        assert next(iter(store.search(Wanted(), 1)), None) is None
    assert old.stat().st_size >= full
    moving.move(f"sqlite:///{old}", f"sqlite:///{new}", lambda rows: None)
    assert new.stat().st_size < full / 4


def rows(url: str) -> dict[str, list[str]]:
    """All that a database keeps, in no order."""
    with closing(Database(url)) as database, database.reading() as connection:
        return {
            table.name: sorted(repr(tuple(row)) for row in connection.execute(select(moving._plain(table))))
            for table in metadata.sorted_tables
        }


def test_all_rows_arrive_and_come_back(old: str, new: str, tmp_path: Path) -> None:
    before = rows(old)
    assert [name for name, some in before.items() if not some] == []
    told: list[int] = []
    moved = moving.move(old, new, told.append)
    assert moved == {name: len(some) for name, some in before.items()}
    assert sum(told) == sum(moved.values())
    assert rows(new) == before
    back = f"sqlite:///{tmp_path / 'back.db'}"
    assert moving.move(new, back, told.append) == moved
    assert rows(back) == before == rows(old)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_id_is_given_again(old: str, new: str, tmp_path: Path, kind: str) -> None:
    target = new if kind == "postgresql" else f"sqlite:///{tmp_path / 'new.db'}"
    moving.move(old, target, print)
    ids = []
    for url in (old, target):
        with closing(open_store(url)) as store:
            filter = Filter(store, VOICES)
            filter.learn(filter.read(parse(mail("Another", name="another"))), "ham", "cli")
            assert filter.verify() == []
            ids.append(store.state({}).last)
            assert store.add_rule(Rule("block", "worse.example", by="root", at=NOON), NOON).id == 3
    assert ids[0] == ids[1] > len(rows(old)["ledger"])


def test_tables_that_are_empty_are_taken(old: str, new: str) -> None:
    open_store(new).close()
    assert moving.move(old, new, print)["ledger"] == len(rows(old)["ledger"])


def test_nothing_is_moved_into_a_database_that_has_something(old: str, new: str) -> None:
    with closing(open_store(new)) as store:
        store.put_setting("other", 1)
    before = rows(new)
    with pytest.raises(StoreError, match="is not empty, there are rows in settings; name an empty database"):
        moving.move(old, new, print)
    assert rows(new) == before


def test_a_database_is_not_moved_into_itself(old: str, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(old.removeprefix("sqlite:///"))
    for same in (old, f"sqlite:///{tmp_path}/link.db"):
        with pytest.raises(StoreError, match=r"old\.db: is the old database and the new one"):
            moving.move(old, same, print)


def test_an_old_schema_is_migrated_first(old: str, new: str) -> None:
    migration.migrate(old, "0005")
    with pytest.raises(StoreError, match=r"has schema 0005, not .*; run `spamfilter migrate` first"):
        moving.move(old, new, print)


def test_nobody_learns_at_the_old_one_meanwhile(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.stores.sql.connection.BUSY_SECONDS", 0.1)
    refused: list[bool] = []

    def learn(number: int) -> None:
        with closing(open_store(old)) as store, pytest.raises(StoreBusy):
            store.put_setting("late", 1)
        refused.append(True)

    moving.move(old, new, learn)
    assert refused
    assert rows(new) == rows(old)


def test_what_did_not_arrive_as_it_was_is_noticed_and_taken_back(old: str, new: str) -> None:
    open_store(new).close()
    server().execute(
        """CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN NEW.spam = NEW.spam + 1; RETURN NEW; END$$;
        CREATE TRIGGER other BEFORE INSERT ON words FOR EACH ROW EXECUTE FUNCTION other()""",
        name_in(new),
    )
    with pytest.raises(StoreError, match="words has not the rows that were written; nothing was moved"):
        moving.move(old, new, print)
    assert not any(rows(new).values())


# The driver says that a cursor of a lost connection was not closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_crashes_meanwhile_has_nothing_of_it(old: str) -> None:
    crashing = Server(durable=True)
    try:
        with crashing.database(empty=True) as url:

            def crash(number: int) -> None:
                if crashing.process.poll() is None:
                    crashing.stop()

            with pytest.raises(StoreBusy, match=r"cannot be reached|the connection broke"):
                moving.move(old, url, crash)
            gc.collect()  # or another test would hear of the cursor
            crashing.start()
            with closing(Database(url)) as database:
                assert database.revision() is None
            moving.move(old, url, print)
            assert rows(url) == rows(old)
    finally:
        crashing.remove()


def test_a_damaged_old_database_is_named_and_not_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        filter = Filter(store, VOICES)
        for number in range(300):
            filter.learn(filter.read(parse(mail(f"Cheap pills {number}", name=str(number)))), "spam", "cli")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8 * 4096)
    with pytest.raises(StoreDamaged, match=r"^\S*/old\.db: "):
        moving.move(f"sqlite:///{path}", f"sqlite:///{tmp_path}/new.db", lambda _: None)
