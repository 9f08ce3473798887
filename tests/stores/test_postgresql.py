"""The SQL store on PostgreSQL: what the contract, which it is held to as well, cannot say of every store."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.schema import Index

from spamfilter.config.sections import Feedback
from spamfilter.errors import CountError, StoreBusy, StoreError
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author, mark
from spamfilter.stores import Wanted, migration, open_store
from spamfilter.stores.schema import HEAD, metadata
from spamfilter.stores.sql import SqlStore, postgresql
from spamfilter.stores.sql import connection as sql_connection
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.postgresql import LOCK
from tests.integration.servers import free_port, wait_until
from tests.load.process import paused
from tests.stores.made import entry, learn, open_at_once
from tests.stores.test_migrations import REVISIONS, SCRIPTS
from tests.support.certificates import write_certificate
from tests.support.made import NOON, VOICE, journal_entry, reading
from tests.support.postgresql import KIND, TEMPLATE, Server, name_in, server
from tests.support.real import require, require_root

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'spamfilter'"


@pytest.fixture
def url() -> Iterator[str]:
    with server().database() as url:
        yield url


@pytest.fixture
def empty() -> Iterator[str]:
    with server().database(empty=True) as url:
        yield url


@contextmanager
def opened(url: str) -> Iterator[SqlStore]:
    with closing(open_store(url)) as store:
        assert isinstance(store, SqlStore)
        yield store


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Another process holds the writers' lock."""
    with closing(Database(url)) as other, other.writing():
        yield


def columns(url: str) -> list[tuple[object, ...]]:
    """The tables, columns, checks and indexes of a database, without Alembic's own."""
    there = "schemaname = 'public' AND tablename <> 'alembic_version'"
    return [
        *server().execute(
            "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
            " FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
            " ORDER BY 1, 2",
            name_in(url),
        ),
        *server().execute(f"SELECT indexname, indexdef FROM pg_indexes WHERE {there} ORDER BY 1", name_in(url)),
        *server().execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
            " AND conrelid <> coalesce(to_regclass('alembic_version'), 0) ORDER BY 1",
            name_in(url),
        ),
    ]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_migration_goes_up_down_and_up_to_the_same_tables(empty: str, revision: str) -> None:
    migration.migrate(empty, revision)
    first = columns(empty)
    assert first
    before = SCRIPTS.get_revision(revision).down_revision
    assert migration.migrate(empty, str(before or "base")) == (revision, before)
    assert (columns(empty) == []) is (before is None)
    assert migration.migrate(empty, revision) == (before, revision)
    assert columns(empty) == first


def test_the_migrations_make_the_tables_of_a_new_database_and_those_of_the_metadata(url: str, empty: str) -> None:
    migration.migrate(empty)
    assert columns(empty) == columns(url)

    def ours(thing: object, *_: object) -> bool:
        """Alembic does not know which indexes are for one kind of database."""
        return not isinstance(thing, Index) or thing.name in names

    with opened(empty) as store, store.reading() as connection:
        names = {index["name"] for table in metadata.tables for index in inspect(connection).get_indexes(table)}
        assert names >= {"journal_at", "journal_message_id", "ledger_undoes"}
        names -= {"journal_message_id", "journal_put_off"}
        options = {"compare_type": True, "compare_server_default": True, "include_object": ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_what_was_learnt_survives_the_way_back_and_forth(url: str) -> None:
    with opened(url) as store:
        Filter(store, VOICE).learn(reading("a", "cheap", "pills"), "spam", "cli")
        before = store.load(["fields"]), store.entries_after(0)
    migration.migrate(url, "0001")
    with pytest.raises(StoreError, match="schema 0001 is old; run `spamfilter migrate`"):
        open_store(url)
    assert migration.migrate(url) == ("0001", HEAD)
    with opened(url) as store:
        assert (store.load(["fields"]), store.entries_after(0)) == before


def test_tables_of_another_program_are_refused_and_left_alone(empty: str) -> None:
    server().execute("CREATE TABLE bills (amount int)", name_in(empty))
    with pytest.raises(StoreError, match="is not a database of spamfilter: it has bills"):
        open_store(empty)
    assert {row[0] for row in columns(empty)} == {"bills"}


def test_stores_opened_at_the_same_time_make_the_tables_once(empty: str) -> None:
    open_at_once(empty)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        pytest.param("//u:hush@127.0.0.1:1/d", r"postgresql://127.0.0.1:1/d: cannot be reached: .*refused", id="down"),
        pytest.param(
            "//spamfilter:hush@/none?host={folder}", r'database "none" does not exist; see \[store\] url', id="missing"
        ),
        pytest.param("//nobody:hush@/made?host={folder}", r'role "nobody" does not exist; see', id="role"),
        pytest.param("//u:hush@host:port/d", "not a URL", id="no-number"),
        pytest.param("//u:hush@127.0.0.1:1/d?colour=red", "colour", id="option"),
    ],
)
def test_a_url_that_leads_nowhere_is_one_sentence_without_the_password(wrong: str, sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence) as raised:
        open_store(f"{KIND}:{wrong.format(folder=server().folder)}")
    assert "hush" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_command_that_only_reads_makes_no_tables(empty: str) -> None:
    with pytest.raises(StoreError, match="no database yet; `serve`, `train` and marks make one"):
        open_store(empty, create=False)
    with closing(Database(empty)) as database:
        assert database.revision() is None


def _open_often(url: str) -> None:
    """The server reads its rules a moment after it was told to."""
    for _ in range(100):
        open_store(url).close()


def test_a_wrong_password_is_one_sentence(url: str) -> None:
    rules = server().data / "pg_hba.conf"
    before = rules.read_text()
    server().execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    try:
        rules.write_text("local all guarded scram-sha-256\n" + before)
        server().execute("SELECT pg_reload_conf()")
        guarded = url.replace("spamfilter@", "guarded:hush@")
        with pytest.raises(StoreError, match='password authentication failed for user "guarded"; see') as raised:
            _open_often(guarded)
        assert raised.value.exit_code == 75
        assert "hush" not in str(raised.value)
    finally:
        rules.write_text(before)
        server().execute("SELECT pg_reload_conf()")
        server().execute("DROP ROLE guarded")


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spamfilter.stores.sql.postgresql", None)
    monkeypatch.delattr("spamfilter.stores.sql.postgresql", raising=False)
    with pytest.raises(StoreError, match=r"postgresql\+psycopg needs psycopg: in the checkout, .venv/bin/pip install"):
        open_store(f"{KIND}://u@127.0.0.1:1/d")


def test_another_encoding_than_utf_8_is_refused() -> None:
    server().execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0 OWNER spamfilter")
    try:
        with pytest.raises(StoreError, match="has the encoding LATIN1; create it with ENCODING 'UTF8'"):
            open_store(server().url("latin"))
    finally:
        server().execute("DROP DATABASE latin WITH (FORCE)")


def test_a_user_who_may_not_write_is_told_so(url: str) -> None:
    server().execute("CREATE ROLE looker LOGIN")
    try:
        server().execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker", name_in(url))
        with opened(url.replace("spamfilter@", "looker@")) as store:
            assert store.load(["fields"]).last == 0
            with pytest.raises(StoreError, match="permission denied for table settings; the user of"):
                store.put_setting("a", 1)
        for user, may in (("looker", False), ("spamfilter", True)):
            with closing(Database(url.replace("spamfilter@", f"{user}@"))) as database:
                assert database.may_write() is may
        with pytest.raises(StoreError, match="its user may not write; name the user who owns the tables"):
            open_store(url.replace("spamfilter@", "looker@"), migrate=True)
        server().execute("DROP OWNED BY looker", name_in(url))
    finally:
        server().execute("DROP ROLE looker")


def test_a_writer_that_waits_too_long_hears_that_the_store_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with opened(url) as store:
        filter = Filter(store, VOICE)
        filter.learn(reading("a", "cheap"), "spam", "cli")
        before = store.load(["fields"])
        with locked(url):
            for write in (
                lambda: filter.learn(reading("new", "x"), "spam", "cli"),
                lambda: store.write_journal([journal_entry()]),
                lambda: store.put_setting("a", 1),
                lambda: migration.migrate(url, "0007"),
            ):
                with pytest.raises(StoreBusy, match="another process holds the database; try again"):
                    write()
            assert store.load(["fields"]) == before
        filter.learn(reading("new", "x"), "spam", "cli")
        assert filter.verify() == []


def test_many_writers_lose_nothing_and_a_follower_sees_each_entry_once_in_order(url: str) -> None:
    writers, each = 6, 12
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            with opened(url) as store:
                filter = Filter(store, VOICE, whole=False)
                for number in range(each):
                    message = reading(f"{name}{number}", "shared", *(f"w{(number * 7 + n) % 40}" for n in range(20)))
                    filter.learn(message, "spam", "cli")
                    if number % 3 == 0:
                        filter.forget(message, "cli")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcdef"[:writers]]
    with opened(url) as store:
        seen: list[int] = []
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen += [one.id for one in store.entries_after(seen[-1] if seen else 0)]
        seen += [one.id for one in store.entries_after(seen[-1])]
        assert failures == []
        assert seen == [*range(1, writers * each * 4 // 3 + 1)]
        assert store.load([]).learnt == {"ham": 0, "spam": writers * each * 2 // 3}
        assert Filter(store, VOICE).verify() == []


def test_a_table_that_somebody_else_has_locked_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    with (
        opened(url) as store,
        psycopg.connect(host=str(server().folder), user="admin", dbname=name_in(url)) as other,
    ):
        other.execute("LOCK TABLE words IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreBusy, match="another process holds the database; try again"):
            store.load(["fields"])


def test_a_mark_that_the_server_ends_for_another_transaction_is_learnt_all_the_same(url: str) -> None:
    """A program of somebody else locks rows of ours, and then waits for us, who wait for those rows."""
    with (
        opened(url) as store,
        psycopg.connect(host=str(server().folder), user="admin", dbname=name_in(url)) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        filter = Filter(store, VOICE, whole=False)
        filter.learn(reading("a", "cheap"), "spam", "cli")
        other.execute("SET deadlock_timeout = '60s'")  # so that the server ends the transaction of ours
        other.execute("UPDATE words SET ham = ham")
        author, subject = Author("ann", "cli", master=True), Subject("b", "", reading("b", "cheap"))
        marked = thread.submit(mark, filter, subject, "spam", author, Feedback(marks_a_day=1))
        wait_until(lambda: server().execute(WAITING) == [(1,)], "the mark to wait for the rows")
        other.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        other.commit()
        assert marked.result(30).changed
        assert filter.learnt["spam"] == 2
        assert Filter(store, VOICE).verify() == []
    [(ended,)] = server().execute(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{name_in(url)}'")
    assert ended == 1


def test_an_isolation_that_the_server_prefers_changes_nothing(url: str) -> None:
    server().execute(f"ALTER DATABASE {name_in(url)} SET default_transaction_isolation = 'serializable'")
    test_many_writers_lose_nothing_and_a_follower_sees_each_entry_once_in_order(url)


def test_readers_see_one_moment(url: str) -> None:
    with opened(url) as store, opened(url) as other:
        with store.reading() as connection:
            count = "SELECT count(*) FROM ledger"
            assert connection.exec_driver_sql(count).scalar() == 0
            learn(other, entry(1))
            assert connection.exec_driver_sql(count).scalar() == 0
        assert len(store.entries_after(0)) == 1


def test_a_connection_that_was_lost_is_made_anew(url: str) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        server().execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name_in(url)}'")
        assert len(store.entries_after(0)) == 1
        assert store.generation == 0


def _break_off(store: SqlStore, url: str) -> None:
    with store.learning() as learning:
        learning.append(entry(2))
        assert learning.active(entry(2).digest) is not None
        server().execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name_in(url)}'")
        learning.state({"fields": {b"a": 1}})


def test_a_connection_lost_in_a_learning_leaves_nothing_of_it(url: str) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        with pytest.raises(StoreBusy, match=r"cannot be reached|the connection broke"):
            _break_off(store, url)
        assert len(store.entries_after(0)) == 1
        learn(store, entry(3))
        assert [one.digest for one in store.entries_after(0)] == [entry(1).digest, entry(3).digest]


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda store: store.entries_after(0) == [], id="reading"),
        pytest.param(lambda store: store.news(1) == ([], 0), id="row"),
    ],
)
def test_a_database_that_takes_the_place_of_another_is_noticed(url: str, look: Callable[[SqlStore], bool]) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        store.engine.dispose()
        server().execute(f"DROP DATABASE {name_in(url)} WITH (FORCE)")
        server().execute(f"CREATE DATABASE {name_in(url)} OWNER spamfilter TEMPLATE made")
        assert look(store)
        assert store.generation == 1


def test_an_id_of_the_ledger_is_never_used_again(url: str) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        (two,) = learn(store, entry(2))
        (undoing,) = learn(store, entry(2, undoes=two.id))
        assert store.sweep("cli", NOON + timedelta(days=1)) == 2
        (three,) = learn(store, entry(3))
        assert three.id == undoing.id + 1


def test_a_count_below_zero_is_refused_by_the_tables(url: str) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        with pytest.raises(CountError), store.writing() as connection:
            connection.exec_driver_sql("UPDATE words SET spam = -1")


def test_counts_may_be_larger_than_32_bits(url: str) -> None:
    with opened(url) as store:
        learn(store, entry(1))
        server().execute("UPDATE words SET spam = 1099511627776", name_in(url))
        assert store.state({"fields": [b"a"]}).counts["fields"].words["spam"][b"a"] == 2**40


@pytest.mark.parametrize("text", ["a\0b", "\x1a", "\x1a0", "\x1a1\0", "<" + "long" * 20_000 + "@x>"], ids=range(5))
def test_the_journal_keeps_any_text(url: str, text: str) -> None:
    written = journal_entry(id="01", message_id=text, sender=text, subject=text, reply=f"451 {text}")
    with opened(url) as store:
        store.write_journal([written])
        assert store.find_journal("01") == written
        assert [one.id for one in store.journal_named(text)] == ["01"]


def test_case_does_not_matter_whatever_the_locale_is(url: str) -> None:
    with opened(url) as store:
        store.write_journal([journal_entry(id="01", subject="GRÜN Wald")])
        found = {word: store.number_found(Wanted(subject=word)) for word in ("grÜn", "wALD", "grün", "GRÜN", "blau")}
    assert found == {"grÜn": 1, "wALD": 1, "grün": 1, "GRÜN": 1, "blau": 0}


def test_a_backup_says_which_command_makes_it(url: str, tmp_path: Path) -> None:
    with opened(url) as store, pytest.raises(StoreError, match=r"by pg_dump; see docs/postgresql\.md"):
        store.backup(tmp_path / "copy")


def test_it_works_without_a_superuser(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)


PAGE = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text(encoding="utf-8")
OWN = """
listen_port = 6432
listen_addr =
unix_socket_dir = {own}
auth_type = any
"""
"""What the page leaves to those who set pgbouncer up: where it listens, and who may come."""


def pooler_settings(url: str, own: Path) -> str:
    """The lines of the page, for this database."""
    block = PAGE[PAGE.index("    [databases]\n") : PAGE.index("\n\nEach transaction looks whether")]
    lines = textwrap.dedent(block).replace("spamfilter = host=/var/run/postgresql", "{database}")
    assert lines.count("{database}") == 1
    database = f"{name_in(url)} = host={server().folder} user=spamfilter"
    return lines.replace("{database}", database) + OWN.format(own=own)


@contextmanager
def own_server() -> Iterator[Server]:
    made = Server()
    try:
        yield made
    finally:
        made.remove()


def test_the_url_of_the_page_demands_tls_and_the_servers_name(tmp_path: Path) -> None:
    """And takes the password from its file, and from no file that others may read."""
    with own_server() as own:
        certificate, key = write_certificate(own.folder)
        for file in (certificate, key):
            os.chown(file, own.data.stat().st_uid, -1)
        key.chmod(0o600)
        (own.data / "pg_hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8"
        )
        own.execute("ALTER ROLE spamfilter PASSWORD 'secret-of-the-role'")
        own.stop(signal.SIGINT)
        own.port = free_port()
        tls = {"listen_addresses": "127.0.0.1", "ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key}
        own.options += [part for name, value in tls.items() for part in ("-c", f"{name}={value}")]
        own.start()
        passfile = tmp_path / "pgpass"
        passfile.write_text(f"127.0.0.1:{own.port}:{TEMPLATE}:spamfilter:secret-of-the-role\n", encoding="utf-8")
        passfile.chmod(0o600)
        (line,) = re.findall(r"url = \"(.*@db\.example\.org/.*)\"", PAGE)
        url = line.replace("db.example.org/spamfilter", f"127.0.0.1:{own.port}/{TEMPLATE}")
        url = url.replace("/etc/ssl/certs/db.pem", str(certificate)).replace("/etc/spamfilter/pgpass", str(passfile))
        with opened(url) as store:
            store.put_setting("name", "new")
            encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            with store.reading() as connection:
                assert connection.exec_driver_sql(encrypted).scalar() is True
        (stranger := tmp_path / "other").mkdir()
        other, _ = write_certificate(stranger)
        refused = {
            "certificate verify failed": url.replace(str(certificate), str(other)),
            "does not match host name": url.replace("127.0.0.1", "localhost"),
        }
        for said, wrong in refused.items():
            with pytest.raises(StoreError, match=said) as raised:
                open_store(wrong)
            assert "secret" not in str(raised.value)
        passfile.chmod(0o644)
        with pytest.raises(StoreError, match="no password supplied"):
            open_store(url)


def test_by_the_socket_root_is_let_in_as_the_page_says() -> None:
    """And is told what to do before."""
    require_root("the server's lines are about root")
    block = PAGE[PAGE.index("4. By its socket") :]
    access, people = (textwrap.dedent(lines) for lines in re.findall(r"\n\n((?:     +\S.*\n)+)", block)[:2])
    with own_server() as own:
        usual = "local all admin trust\nlocal all all peer\n"
        (own.data / "pg_hba.conf").write_text(usual, encoding="utf-8")
        own.execute("SELECT pg_reload_conf()")
        with pytest.raises(StoreError, match=r"Peer authentication failed .*; run this as that user, or") as raised:
            open_store(own.url(TEMPLATE))
        assert raised.value.exit_code == 2
        access = access.replace("   spamfilter   spamfilter   ", f"   {TEMPLATE}   spamfilter   ")
        (own.data / "pg_hba.conf").write_text(access + usual, encoding="utf-8")
        (own.data / "pg_ident.conf").write_text(people, encoding="utf-8")
        own.execute("SELECT pg_reload_conf()")
        with opened(own.url(TEMPLATE)) as store:
            store.put_setting("name", "of root")


def _listens(path: Path) -> bool:
    """A socket has its name a moment before it listens."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The URL of this database behind a pgbouncer as on the page."""
    program, setpriv = require("pgbouncer", "pgbouncer"), require("setpriv", "util-linux")
    own = server().folder / f"pgbouncer-{name_in(url)}"
    own.mkdir()
    own.chmod(0o777)
    (own / "pgbouncer.ini").write_text(pooler_settings(url, own), encoding="utf-8")
    become = ["--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    pooler = subprocess.Popen(
        [setpriv, *become, "--pdeathsig", "KILL", program, "-q", str(own / "pgbouncer.ini")], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _listens(own / ".s.PGSQL.6432"), "pgbouncer")
        yield f"{url.partition('?')[0]}?host={own}&port=6432"
    finally:
        pooler.kill()
        pooler.wait()


def test_it_works_behind_pgbouncer_in_transaction_mode(url: str) -> None:
    with pooled(url) as behind:
        failures: list[BaseException] = []

        def write(name: str) -> None:
            try:
                with opened(behind) as store:
                    for number in range(10):
                        words = (f"w{(number * 7 + n) % 40}" for n in range(200))
                        Filter(store, VOICE, whole=False).learn(reading(f"{name}{number}", *words), "spam", "cli")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        with opened(behind) as store:
            assert [one.id for one in store.entries_after(0)] == [*range(1, 41)]
            assert Filter(store, VOICE).verify() == []
            assert store.generation == 0


def test_learnings_whose_connections_are_cut_behind_pgbouncer_are_whole_or_fail_for_the_moment(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that is cut may look to the driver like that to another statement."""
    over = threading.Event()
    failures: list[BaseException] = []
    learnt: list[str] = []

    def write(store: SqlStore, name: str) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            try:
                words = (f"w{n}" for n in range(200))
                Filter(store, VOICE, whole=False).learn(reading(f"{name}{number}", *words), "spam", "cli")
                learnt.append(name)
            except BaseException as error:
                failures.append(error)

    with pooled(url) as behind, opened(behind) as store, ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, store, name) for name in "abcd"]
        try:
            with psycopg.connect(host=str(server().folder), user="admin", dbname="postgres", autocommit=True) as admin:
                cut = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                end = time.monotonic() + 4
                while time.monotonic() < end + (0 if failures else 30):
                    admin.execute(cut, [name_in(url)])
                    time.sleep(0.05)
        finally:
            over.set()
        for writer in writers:
            writer.result()
    assert {type(error) for error in failures} == {StoreBusy}
    assert caplog.records == []
    with opened(url) as store:
        assert store.load([]).learnt["spam"] >= len(learnt)  # a commit whose answer was cut is learnt, too
        assert Filter(store, VOICE).verify() == []


@pytest.mark.parametrize("behind", [nullcontext, pooled])
def test_a_connection_lost_at_a_look_is_not_used_again(
    url: str, behind: Callable[[str], AbstractContextManager[str]]
) -> None:
    looking = "query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid()"
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {looking}"
    with behind(url) as place, opened(place) as store, ThreadPoolExecutor() as threads:
        learn(store, entry(1))
        look = threads.submit(store.row, "pg_sleep(30)")
        wait_until(lambda: server().execute(cut) != [], "the look to begin")
        with pytest.raises(StoreBusy, match="try again"):
            look.result()
        assert store.news(0) == (store.entries_after(0), 1)
        assert store.generation == 0


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(psycopg.InternalError("received 2 results from command 'COMMIT'"), id="of-another-statement"),
        pytest.param(psycopg.OperationalError("sending query failed: cannot exit pipeline mode"), id="in-a-batch"),
        pytest.param(psycopg.InterfaceError("unexpected result PIPELINE_SYNC"), id="unexpected"),
        pytest.param(psycopg.errors.ProtocolViolation("server conn crashed?"), id="of-pgbouncer"),
    ],
)
def test_a_connection_that_broke_unnoticed_by_the_driver_is_not_used_again(
    url: str, error: psycopg.Error, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(_: psycopg.Connection[object]) -> None:
        raise error

    process = "SELECT pg_backend_pid()"
    with opened(url) as store:
        with store.reading() as connection:
            before = connection.exec_driver_sql(process).scalar()
        with monkeypatch.context() as patch:
            patch.setattr(postgresql._Patient, "commit", breaks)
            patch.setattr(postgresql._Patient, "rollback", breaks)
            with pytest.raises(StoreBusy, match=r"(the connection broke|server conn crashed\?); try again") as raised:
                learn(store, entry(1))
        assert raised.value.exit_code == 75
        with store.reading() as connection:
            assert connection.exec_driver_sql(process).scalar() != before
        assert store.entries_after(0) == []
    assert caplog.records == []


def test_no_word_of_a_mail_is_in_an_error(url: str, tmp_path: Path) -> None:
    """The relay logs the errors that led to another one, too."""
    word = "".join(["sec", "ret"])  # the lines of this test are in the traceback
    for place in (url, f"sqlite:///{tmp_path / 'words.db'}"):
        with opened(place) as store, pytest.raises(StoreError) as raised, store.writing() as connection:
            connection.execute(text("SELECT 1 FROM missing WHERE word = :word"), {"word": word})
        assert word not in "".join(traceback.format_exception(raised.value))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[Database]:
    """A database whose server is given up after a second, and itself ends what writes for half of one."""
    monkeypatch.setattr(postgresql, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(postgresql, "STATEMENT_SECONDS", 0.5)
    with closing(Database(url)) as database:
        yield database


def test_a_server_that_goes_on_answering_is_not_given_up(hasty: Database) -> None:
    with hasty.reading() as connection:
        rows = connection.exec_driver_sql("SELECT pg_sleep(0.2), repeat('x', 100000) FROM generate_series(1, 8)").all()
    assert len(rows) == 8


@pytest.mark.parametrize(
    "ask", [pytest.param(Database.revision, id="reading"), pytest.param(lambda database: database.row("1"), id="row")]
)
def test_a_silent_server_behind_pgbouncer_is_waited_for_once(
    url: str, ask: Callable[[Database], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pooler lets new connections in, but no statement of theirs is answered."""
    monkeypatch.setattr(postgresql, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(postgresql._Patient, "patience", 1.0)
    with pooled(url) as behind, closing(Database(behind)) as database:
        assert database.revision() == HEAD
        with paused(server().process.pid):
            waited = []
            for _ in range(3):
                begin = time.monotonic()
                with pytest.raises(StoreBusy, match="cannot be reached: the server does not answer; try again"):
                    ask(database)
                waited.append(time.monotonic() - begin)
        assert [seconds >= 1 for seconds in waited] == [True, False, False]
        assert sum(waited) < 2
        time.sleep(postgresql.RETRY_SECONDS)
        assert database.revision() == HEAD


def test_a_statement_that_is_given_up_holds_no_lock(hasty: Database) -> None:
    with pytest.raises(StoreBusy, match="statement timeout; try again"), hasty.writing() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(30)")
    assert server().execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


def test_a_migration_takes_as_long_as_it_needs(hasty: Database) -> None:
    with hasty.writing(migrating=True) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(2)")
    with pytest.raises(StoreBusy, match="statement timeout"), hasty.writing() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(2)")


def test_a_server_that_takes_no_writes_is_said_by_us_alone(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def read_only(value: str) -> None:
        server().execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        server().execute("SELECT pg_reload_conf()")
        shown = "SHOW default_transaction_read_only"
        wait_until(lambda: server().execute(shown) == [(value,)], "the server to read its configuration")

    with opened(url) as store:
        store.write_journal([journal_entry(id="first")])
        read_only("on")
        try:
            with pytest.raises(StoreError, match="the server is read-only"):
                store.write_journal([journal_entry(id=f"{number:026d}") for number in range(200)])
        finally:
            read_only("off")
    assert caplog.records == []
