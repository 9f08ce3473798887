"""The SQL store on a file: modes, backups, damage, versions and query plans."""

import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from spamfilter.errors import CountError, StoreDamaged, StoreError, StoreFull
from spamfilter.learning.filter import Filter
from spamfilter.stores import Wanted, migration, open_store
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql import SqlStore
from spamfilter.stores.sql.connection import store_errors
from tests.stores import made
from tests.support.made import NOON, VOICE, journal_entry, reading

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def opened(path: Path, migrate: bool = False) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{path}", migrate)
    assert isinstance(store, SqlStore)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the write lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            holder.stdin.close()


def execute(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def trained(store: SqlStore, messages: int = 3) -> Filter:
    filter = Filter(store, VOICE)
    for number in range(messages):
        filter.learn(reading(f"s{number}", "cheap", f"pill{number}"), "spam", "cli")
        filter.learn(reading(f"h{number}", "lunch", f"friend{number}"), "ham", "cli")
    return filter


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_can_be_read_by_nobody_else(path: Path) -> None:
    mask = os.umask(0)
    try:
        with opened(path) as store:
            trained(store)
            modes = {file.name: oct(mode(file)) for file in path.parent.iterdir()}
    finally:
        os.umask(mask)
    assert set(modes) >= {"store.db", "store.db-wal"}
    assert set(modes.values()) == {"0o600"}


def test_a_name_with_a_percent_sign_is_the_name_of_the_file(tmp_path: Path) -> None:
    with opened(tmp_path / "a%20b#c.db") as store:
        trained(store)
        modes = {file.name.partition("-")[0]: oct(mode(file)) for file in tmp_path.iterdir()}
    assert modes == {"a%20b#c.db": "0o600"}


def test_the_database_is_in_wal_mode_and_syncs_every_commit(path: Path) -> None:
    with opened(path) as store, store.engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_backup_is_one_file(path: Path, tmp_path: Path) -> None:
    with opened(path) as store:
        trained(store)
        store.backup(tmp_path / "copy.db")
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy.db"]


def test_a_backup_takes_the_place_of_a_database_as_the_page_says(path: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operation.md").read_text(encoding="utf-8")
    steps = re.findall(r"^    ((?:mkdir|cp) .*)$", page, re.MULTILINE)
    assert len(steps) == 2
    place, copy = tmp_path / "place", tmp_path / "spamfilter-backup.db"
    with opened(path) as store:
        trained(store, 2)
        store.backup(copy)
        trained(store, 200)
        shutil.copytree(path.parent, place, ignore=lambda folder, names: {"place", copy.name} & {*names})
    for file in place.glob(f"{path.name}*"):  # as a kill leaves them
        file.rename(place / file.name.replace(path.name, "spamfilter.db"))
    assert (place / "spamfilter.db-wal").stat().st_size > 0
    commands = "; ".join(steps).replace("/root/spamfilter-backup.db", shlex.quote(str(copy)))
    subprocess.run(["sh", "-ec", commands], cwd=place, check=True)
    with opened(place / "spamfilter.db") as store:
        assert Filter(store, VOICE).verify() == []
        assert Filter(store, VOICE).learnt == {"ham": 2, "spam": 2}


def test_a_backup_overwrites_nothing(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    with opened(path) as store, pytest.raises(StoreError, match="precious: exists already"):
        store.backup(target)
    assert target.read_text() == "precious"


def test_a_damaged_database_is_not_taken_for_a_backup(path: Path, tmp_path: Path) -> None:
    """Pages in its middle, at which no command that runs every day may look."""
    with opened(path) as store:
        trained(store, 200)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 4 * 4096)
    with opened(path) as store, pytest.raises(StoreDamaged, match=r"store\.db: .*; move it away .* a backup in its"):
        store.backup(tmp_path / "copy.db")
    assert not [*tmp_path.glob("*copy.db*")]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE ledger SET tokens = CAST(substr(tokens, 1, 20) || x'ff' AS BLOB)", "words of a mail are damaged"),
        (
            "UPDATE amounts SET added = replace(added, ':', char(1))",
            r"store\.db: a value is no JSON \(.*; move it away",
        ),
        ("UPDATE ledger SET source = CAST(x'c3' AS TEXT)", r"store\.db: Could not decode .* 'source'; move it away"),
        ("UPDATE words SET word = CAST(x'c3' AS TEXT) WHERE word = 'cheap'", r"store\.db: Could not decode [^\n]*;"),
    ],
    ids=["tokens", "amounts", "names", "words"],
)
def test_values_that_a_disk_has_changed_are_damage(path: Path, damage: str, said: str) -> None:
    """SQLite has no checksums: it notices only what is wrong with the frame of a page."""
    with opened(path) as store:
        trained(store, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(damage).rowcount > 0
    with opened(path) as store, pytest.raises(StoreDamaged, match=f"^[^\n]*{said}"):
        Filter(store, VOICE).verify()


def test_tables_that_another_version_has_changed_meanwhile_are_called_another_schema(path: Path) -> None:
    with opened(path) as store:
        trained(store, 1)
        migration.migrate(f"sqlite:///{path}", "0005")
        for deed, why in (
            (lambda: store.entries_after(0), "has"),
            (lambda: store.search(Wanted(), 1), ".*;"),
            (lambda: store.write_journal([journal_entry()]), ".*;"),
        ):
            with pytest.raises(StoreError, match=rf"store\.db: {why} another schema: run `spamfilter migrate`, or"):
                deed()


def test_nothing_is_learnt_into_tables_of_another_version_that_look_alike(path: Path) -> None:
    with opened(path) as store:
        filter = trained(store, 1)
        execute(path, "UPDATE alembic_version SET version_num = '9999'")
        for deed in (lambda: filter.learn(reading("more", "words"), "ham", "cli"), lambda: store.news(0)):
            with pytest.raises(StoreError, match=r"store\.db: has another schema: run `spamfilter migrate`, or"):
                deed()
        execute(path, f"UPDATE alembic_version SET version_num = '{HEAD}'")
        assert (store.news(0)[1], filter.verify()) == (2, [])


def test_a_backup_into_a_missing_folder_names_the_target(path: Path, tmp_path: Path) -> None:
    with opened(path) as store, pytest.raises(StoreError, match=r"nowhere/copy\.db"):
        store.backup(tmp_path / "nowhere" / "copy.db")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"this is no database, but it is long enough to look at" * 100, id="text"),
        pytest.param(b"SQLite format 3\0" + b"\xff" * 5000, id="broken-first-page"),
    ],
)
def test_a_file_that_is_no_database_is_an_error_that_names_it(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.db"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        pytest.param("sqlite:///{}/missing/store.db", "missing: no such folder", id="missing-folder"),
        pytest.param("sqlite:///{}", "unable to open database file", id="a-folder"),
        pytest.param("sqlite:", "sqlite:", id="scheme-alone"),
        pytest.param("sqlite://", "name a file", id="in-memory"),
        pytest.param("sqlite:///:memory:", "name a file", id="named-in-memory"),
        pytest.param("sqlite", "sqlite", id="no-colon"),
        pytest.param("sqlite:store.db", "sqlite:store.db", id="no-slashes"),
        pytest.param("sqlite://host/store.db", "store.db", id="a-slash-missing"),
    ],
)
def test_a_url_that_names_no_database_is_an_error_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=sentence):
        open_store(url.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_newer_schema_is_refused(path: Path) -> None:
    with opened(path):
        pass
    execute(path, "UPDATE alembic_version SET version_num = '9999'")
    for migrate in (False, True):
        with pytest.raises(
            StoreError, match=rf"store\.db: made by a newer version \(schema 9999, this one knows {HEAD}\)"
        ):
            open_store(f"sqlite:///{path}", migrate)


def test_an_old_schema_is_migrated_only_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path):
        pass
    monkeypatch.setattr("spamfilter.stores.HEAD", "9999")
    with pytest.raises(StoreError, match=rf"store\.db: schema {HEAD} is old; run `spamfilter migrate`"):
        open_store(f"sqlite:///{path}")
    with opened(path, migrate=True) as store:
        assert store.revision() == HEAD


def test_overwritten_pages_are_found(path: Path) -> None:
    with opened(path) as store:
        filter = Filter(store, VOICE)
        with filter.training() as training:
            for number in range(300):
                training.learn(reading(f"{number}", *(f"word{number}x{n}" for n in range(20))), "spam", "cli")
    size = path.stat().st_size
    with path.open("r+b") as file:
        for place in range(size // 2 // 4096 * 4096, size - 8192, 4096):
            file.seek(place)
            file.write(b"\xa5" * 2048)
    with opened(path) as store:
        assert store.verify() != []
        assert all("store.db" in sentence for sentence in store.verify())


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        pytest.param("UPDATE words SET spam = spam + 1 WHERE word = 'cheap'", "words of voice", id="count"),
        pytest.param("DELETE FROM words WHERE word = 'pill1'", "words of voice", id="word-gone"),
        pytest.param("INSERT INTO words VALUES (0, 'fields', 'new', 1, 0)", "words of voice", id="word-more"),
        pytest.param("UPDATE classes SET messages = messages + 1", "words of voice", id="messages"),
        pytest.param("UPDATE classes SET words = words + 1", "words of voice", id="occurrences"),
        pytest.param("UPDATE vocabularies SET words = words + 1", "words of voice", id="vocabulary"),
        pytest.param(
            "UPDATE settings SET value = '[1, 2, 3, 4]' WHERE name = 'calibration'", "calibration", id="calibration"
        ),
        pytest.param("UPDATE ledger SET label = 'ham' WHERE id = 1", "words of voice", id="ledger"),
    ],
)
def test_what_was_altered_by_hand_is_found(path: Path, statement: str, what: str) -> None:
    with opened(path) as store:
        assert trained(store).verify() == []
    execute(path, statement)
    with opened(path) as store:
        found = Filter(store, VOICE).verify()
    assert any(what in sentence and "store.db" in sentence for sentence in found)


def test_a_count_below_zero_cannot_be_written_even_by_hand(path: Path) -> None:
    with opened(path) as store:
        trained(store)
    with pytest.raises(sqlite3.IntegrityError):
        execute(path, "UPDATE words SET ham = -1")


def test_damage_that_an_undoing_runs_into_is_an_error_that_changes_nothing(path: Path) -> None:
    with opened(path) as store:
        trained(store)
    execute(path, "UPDATE words SET spam = 1 WHERE word = 'cheap'")
    with opened(path) as store:
        before = store.load(["fields"])
        for whole in (True, False):
            with pytest.raises(CountError):
                Filter(store, VOICE, whole).forget(reading("s1"), "cli")
        assert store.load(["fields"]) == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE words SET ham = -1", "words_not_negative: the counts do not hold what was to be taken away"),
        ("UPDATE classes SET words = -1", "classes_not_negative: the counts do not hold"),
        ("UPDATE tallies SET words = -1", "tallies_not_negative: the counts do not hold"),
    ],
)
def test_a_count_below_zero_is_an_error_of_counting(path: Path, statement: str, said: str) -> None:
    with opened(path) as store:
        trained(store)
        execute(path, "INSERT INTO tallies VALUES (0, 'fields', 'ham', 1, 1)")
        with pytest.raises(CountError, match=said), store.writing() as connection:
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("INSERT INTO settings VALUES ('rules', '1')", "UNIQUE constraint failed: settings.name"),
        ("UPDATE ledger SET label = NULL", "NOT NULL constraint failed: ledger.label"),
        ("UPDATE ledger SET undoes = 1000000 WHERE id = 1", "FOREIGN KEY constraint failed"),
    ],
)
def test_another_constraint_says_nothing_of_counts(path: Path, statement: str, said: str) -> None:
    with opened(path) as store:
        trained(store)
        with pytest.raises(StoreError, match=f"{path}: {said}$") as raised, store.writing() as connection:
            connection.exec_driver_sql(statement)
        assert type(raised.value) is StoreError


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no such mail"), BrokenPipeError(32, "gone"), KeyError("x")])
def test_what_a_caller_raises_in_a_transaction_stays_what_it_is(path: Path, error: Exception) -> None:
    with opened(path) as store:
        for context in (store.reading, store.writing, store.learning):
            with pytest.raises(type(error)) as raised, context():
                raise error
            assert raised.value is error


def test_words_that_count_nothing_any_more_are_gone(path: Path) -> None:
    with opened(path) as store:
        filter = trained(store, 1)
        filter.forget(reading("s0"), "cli")
    assert execute(path, "SELECT word FROM words ORDER BY word") == [("friend0",), ("lunch",)]


def test_a_learning_can_be_taken_back_once(path: Path) -> None:
    with opened(path) as store:
        trained(store, 1).forget(reading("s0"), "cli")
    with pytest.raises(sqlite3.IntegrityError):
        execute(
            path,
            "INSERT INTO ledger (at, digest, label, source, by, undoes)"
            " SELECT at, digest, label, source, by, undoes FROM ledger WHERE undoes IS NOT NULL",
        )


def test_a_long_transaction_keeps_the_words_of_its_last_entries_only(path: Path) -> None:
    class Words(dict[bytes, int]):
        """A dict that can be referred to weakly."""

    kept = []
    with opened(path, migrate=True) as store, store.learning() as learning:
        for number in range(1000):
            words = Words({b"word": number})
            kept.append(weakref.ref(words))
            learning.append(replace(made.entry(number), tokens={"fields": words}))
            del words
        assert sum(word() is not None for word in kept) <= 200
        last = learning.entries_after(999)
        assert [(entry.id, entry.tokens["fields"][b"word"]) for entry in last] == [(1000, 999)]


def test_a_moment_without_a_time_zone_is_refused(path: Path) -> None:
    naive = journal_entry().at.replace(tzinfo=None)
    with opened(path) as store, pytest.raises(ValueError, match="time zone"):
        store.write_journal([journal_entry(at=naive)])


def test_the_size_is_that_of_all_its_files(path: Path) -> None:
    with opened(path) as store:
        trained(store)
        assert store.size() == sum(file.stat().st_size for file in path.parent.iterdir())


def plans(store: SqlStore, ask: Callable[[], object]) -> list[str]:
    """The steps of SQLite's query plans, a sentence each."""
    asked: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, values: Any, *rest: object) -> None:
        asked.append((statement, values))

    event.listen(store.engine, "before_cursor_execute", note)
    ask()
    event.remove(store.engine, "before_cursor_execute", note)
    with closing(sqlite3.connect(store.where)) as connection:
        return [
            row[3]
            for statement, values in asked
            if statement.startswith("SELECT")
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            if row[3] not in ("SCAN CONSTANT ROW", "SCAN alembic_version")  # of one row
        ]


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        pytest.param(lambda store: store.journal_named("<a@x>"), "INDEX journal_message_id (message_id=?)", id="named"),
        pytest.param(lambda store: store.active(b"0" * 16), "INDEX ledger_digest (digest=?)", id="active"),
        pytest.param(lambda store: store.holders({"a": {b"b"}}, 9, 9), "INTEGER PRIMARY KEY (rowid<?)", id="holders"),
        pytest.param(lambda store: store.marks_by("a", NOON), "INDEX ledger_at (at>? AND at<?)", id="entries-by"),
        pytest.param(
            lambda store: store.surprises_by("a", NOON, 5), "INDEX ledger_at (at>? AND at<?)", id="surprises-by"
        ),
        pytest.param(lambda store: store.learnings(NOON, "a"), "INDEX ledger_at (at>?)", id="learnings-since"),
    ],
)
def test_what_is_asked_often_goes_through_an_index_and_sorts_nothing(
    path: Path, ask: Callable[[SqlStore], object], index: str
) -> None:
    with opened(path) as store:
        found = plans(store, lambda: ask(store))
    assert any(index in step for step in found)
    assert [step for step in found if "TEMP B-TREE" in step or step.startswith("SCAN")] == []


@pytest.mark.parametrize(
    ("ask", "indexes"),
    [
        pytest.param(
            lambda store: store.unlearnt(NOON, NOON),
            ["INDEX journal_at (at>? AND at<?)", "INDEX ledger_digest (digest=?)"],
            id="what-is-not-learnt-of-a-day",
        ),
        pytest.param(
            lambda store: store.marks_on_mail("a", NOON, "b@x", "x"),
            ["INDEX ledger_at (at>? AND at<?)", "INDEX journal_digest (digest=?)"],
            id="marks-on-mail",
        ),
    ],
)
def test_what_is_asked_of_a_period_reads_no_more_than_the_period(
    path: Path, ask: Callable[[SqlStore], object], indexes: list[str]
) -> None:
    with opened(path) as store:
        found = plans(store, lambda: ask(store))
    assert [index for index in indexes if not any(index in step for step in found)] == []
    assert [step for step in found if step.startswith("SCAN")] == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (sqlite3.SQLITE_FULL, "make room"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, "make room"),
        (sqlite3.SQLITE_IOERR_SHMLOCK, "has no locks"),
        (sqlite3.SQLITE_IOERR_FSYNC, "see to its disk"),
    ],
)
def test_an_error_of_the_disk_says_what_to_do(code: int, advice: str) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with pytest.raises(StoreFull, match=f"disk I/O error; .*{advice}"), store_errors("store.db"):
        raise error
