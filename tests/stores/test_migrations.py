"""Migrations: up, down, up; the tables that they make equal the metadata; a failing one changes nothing."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, event

from spamfilter.errors import StoreError, StoreFull
from spamfilter.learning.filter import Filter
from spamfilter.stores import migration, open_store
from spamfilter.stores.schema import HEAD, metadata
from spamfilter.stores.sql import SqlStore
from spamfilter.system.packaged_files import shipped
from tests.support.made import VOICE, journal_entry, reading

SCRIPTS = ScriptDirectory(str(shipped("migrations")))
REVISIONS = [script.revision for script in reversed(list(SCRIPTS.walk_revisions()))]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@contextmanager
def writing(url: str) -> Iterator[Connection]:
    store = SqlStore(url)
    try:
        with store.engine.connect() as connection:
            connection = connection.execution_options(writing=True)
            with connection.begin():
                yield connection
    finally:
        store.close()


def down(url: str, revision: str) -> None:
    with writing(url) as connection:
        config = Config()
        config.set_main_option("script_location", str(shipped("migrations")))
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def schema(url: str) -> list[tuple[str, str]]:
    """The tables and indexes of the database, without Alembic's own table."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [(name, sql) for name, sql in found if not name.startswith(("alembic", "sqlite_"))]


def test_the_head_that_the_program_knows_is_the_newest_script() -> None:
    assert SCRIPTS.get_heads() == [HEAD] == REVISIONS[-1:]


def test_the_scripts_are_numbered_without_a_gap() -> None:
    assert [f"{number:04}" for number in range(1, len(REVISIONS) + 1)] == REVISIONS
    names = sorted(path.name for path in (shipped("migrations") / "versions").glob("*.py"))
    assert [name[:5] for name in names] == [f"{revision}_" for revision in REVISIONS]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_migration_goes_up_down_and_up_to_the_same_tables(url: str, revision: str) -> None:
    migration.migrate(url, revision)
    first = schema(url)
    assert first
    before = SCRIPTS.get_revision(revision).down_revision
    down(url, str(before or "base"))
    below = schema(url)
    assert (below == []) is (before is None)
    assert migration.migrate(url, revision) == (before, revision)
    assert schema(url) == first


def test_a_disk_that_is_full_at_an_upgrade_is_tried_again(url: str) -> None:
    migration.migrate(url, "0010")

    def filled(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # which is as many as the file has

    before = schema(url)
    event.listen(Engine, "connect", filled)
    try:
        with pytest.raises(StoreFull, match=r"cannot migrate from 0010 to head: .* is full"):
            migration.migrate(url)
    finally:
        event.remove(Engine, "connect", filled)
    assert schema(url) == before
    assert migration.migrate(url) == ("0010", HEAD)


def indexed(url: str) -> dict[str, list[str]]:
    """Index of the journal -> its columns."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        names = [row[1] for row in connection.execute("PRAGMA index_list(journal)")]
        return {name: [row[2] for row in connection.execute(f"PRAGMA index_info({name})")] for name in names}


def test_the_index_of_message_ids_comes_and_goes_and_the_data_stay(url: str) -> None:
    def held() -> object:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("words", "ledger", "journal")]

    migration.migrate(url)
    store = SqlStore(url)
    store.write_journal([journal_entry(id=f"{number:02}", message_id="<a@x>") for number in range(9)])
    Filter(store, VOICE).learn(reading("a", "cheap", "pills"), "spam", "cli")
    store.close()
    migration.migrate(url, "0002")
    assert "journal_message_id" not in indexed(url)
    before = held()
    for _ in range(2):
        assert migration.migrate(url, "0003") == ("0002", "0003")
        assert indexed(url)["journal_message_id"] == ["message_id", "id"]
        assert held() == before
        assert migration.migrate(url, "0002") == ("0003", "0002")
        assert "journal_message_id" not in indexed(url)
        assert held() == before


def test_the_newest_tables_equal_the_metadata(url: str) -> None:
    migration.migrate(url)
    with writing(url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, of_sqlite()) == []


def of_sqlite() -> MetaData:
    """The metadata without the indexes of other databases, which Alembic cannot tell apart by their name."""
    made = MetaData()
    for table in metadata.sorted_tables:
        copied = table.to_metadata(made)
        others = [index for index in table.indexes if index._ddl_if and index._ddl_if.dialect != "sqlite"]
        spelled = {(index.name, *index.columns.keys()) for index in others}
        copied.indexes = {index for index in copied.indexes if (index.name, *index.columns.keys()) not in spelled}
    return made


def test_the_checks_of_the_tables_equal_those_of_the_metadata(url: str, tmp_path: Path) -> None:
    migration.migrate(url)
    other = f"sqlite:///{tmp_path}/other.db"
    with writing(other) as connection:
        metadata.create_all(connection)

    def plain(url: str) -> list[tuple[str, set[str]]]:
        words = [(name, " ".join(sql.split())) for name, sql in schema(url)]
        return [(name, {part.strip(" ,()") for part in sql.split(", ")}) for name, sql in words]

    assert plain(url) == plain(other)


def test_a_new_database_has_the_tables_that_the_migrations_make(url: str, tmp_path: Path) -> None:
    migration.migrate(url)
    made = tmp_path / "made.db"
    open_store(f"sqlite:///{made}").close()
    found = []
    for path in (made, tmp_path / "store.db"):
        with closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
            # SQLite writes a column that a migration adds into the line of the one before it.
            same = [(*row[:3], str(row[3]).split()) for row in tables]
            found.append((same, connection.execute("SELECT * FROM alembic_version").fetchall()))
    assert found[0] == found[1]
    assert found[0][1] == [(HEAD,)]


def test_a_database_that_was_taken_back_to_its_base_is_migrated(url: str) -> None:
    migration.migrate(url)
    migration.migrate(url, "base")
    with closing(open_store(url)) as store:
        assert store.verify() == []
    assert migration.migrate(url) == (HEAD, HEAD)


def test_migrating_again_changes_nothing(url: str) -> None:
    assert migration.migrate(url) == (None, HEAD)
    before = schema(url)
    assert migration.migrate(url) == (HEAD, HEAD)
    assert schema(url) == before


def test_back_to_the_base_leaves_no_tables(url: str) -> None:
    migration.migrate(url)
    assert migration.migrate(url, "base") == (HEAD, None)
    assert schema(url) == []


def test_a_database_of_another_program_is_refused(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bills (amount INTEGER)")
    before = path.read_bytes()
    for migrate in (False, True):
        with pytest.raises(StoreError, match=f"{path}: is not a database of spamfilter: it has bills"):
            open_store(url, migrate)
    assert path.read_bytes() == before


@pytest.mark.parametrize("revision", ["9999", "no-such"])
def test_a_revision_that_is_not_known_is_an_error_that_names_the_database(url: str, revision: str) -> None:
    migration.migrate(url)
    before = schema(url)
    with pytest.raises(StoreError, match=rf"store\.db: cannot migrate from {HEAD} to"):
        migration.migrate(url, revision)
    assert schema(url) == before


@pytest.mark.parametrize("revision", ["head", "0001", "base"])
def test_a_database_of_a_newer_version_is_not_migrated_and_called_so(url: str, revision: str) -> None:
    migration.migrate(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = schema(url)
    with pytest.raises(
        StoreError, match=rf"store\.db: made by a newer version \(schema 9999, this one knows {HEAD}\)$"
    ):
        migration.migrate(url, revision)
    assert schema(url) == before


FAILING = '''
"""A migration that fails half-way."""

from alembic import op

revision = "%s"
down_revision = "%s"


def upgrade() -> None:
    op.execute("ALTER TABLE words ADD COLUMN half INTEGER")
    op.execute("DELETE FROM words")
    op.execute("DROP TABLE journal")
    op.execute("this is no SQL")


def downgrade() -> None:
    pass
'''


def test_a_failing_migration_leaves_the_database_as_it_was(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    filter = Filter(store, VOICE)
    filter.learn(reading("a", "cheap", "pills"), "spam", "cli")
    store.write_journal([journal_entry(id="01A")])
    before = schema(url), store.load(["fields"]), store.find_journal("01A")
    store.close()
    scripts = tmp_path / "scripts"
    shutil.copytree(shipped("migrations"), scripts, ignore=shutil.ignore_patterns("__pycache__"))
    newer = f"{int(HEAD) + 1:04}"
    (scripts / "versions" / f"{newer}_failing.py").write_text(FAILING % (newer, HEAD))
    monkeypatch.setattr(migration, "shipped", lambda name: scripts)
    with pytest.raises(StoreError, match=rf"store\.db: cannot migrate from {HEAD} to head: .*syntax error"):
        migration.migrate(url)
    store = open_store(url)
    assert (schema(url), store.load(["fields"]), store.find_journal("01A")) == before
    assert Filter(store, VOICE).verify() == []
    store.close()
