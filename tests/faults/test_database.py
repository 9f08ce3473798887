"""The database deleted, overwritten, of another schema, or shared: mail goes on."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from spamfilter.stores.migration import migrate
from spamfilter.stores.schema import HEAD
from tests.faults.account import Account
from tests.faults.case import case
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.databases import ailing, await_journal, judged_with, teach
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.load.process import paused
from tests.relay.limits.scraping import Scraper


def test_a_database_that_is_deleted(hop: Hop, tmp_path: Path, account: Account) -> None:
    seen = Scraper()
    with daemon(tmp_path / "relay", hop, metrics=seen.settings) as relay:
        teach(relay)
        wait_until(lambda: judged_with(relay, account) == "0/1", "what was taught")
        for file in relay.state.glob("spamfilter.db*"):
            file.unlink()
        assert [judged_with(relay, account) for _ in range(3)] == ["0/1"] * 3
        wait_until(lambda: "the database is gone" in relay.log(), "the complaint")
        assert "no such file" in ailing(relay)["database"]
        (tmp_path / "one.eml").write_bytes(mail_of("one", "cheap pills"))
        others = (("web",), ("migrate",), ("stats",), ("retrain",), ("backup", str(tmp_path / "copy.db")))
        for words in (("train", "--spam", str(tmp_path / "one.eml")), *others):
            refused = relay.command(*words)
            assert (refused.returncode, "is gone; put a backup in its place" in refused.stderr) == (2, True)
        assert not list(relay.state.glob("spamfilter.db*"))
        assert seen.value("faults_total", "ledger") > 0
        account.settle()
        relay.restart()  # with a new one
        assert judged_with(relay, account) == "0/0"
        account.finish(relay.port)


def test_a_database_that_was_away_is_followed_again(hop: Hop, tmp_path: Path, account: Account) -> None:
    with daemon(tmp_path / "relay", hop) as relay:
        teach(relay)
        wait_until(lambda: judged_with(relay, account) == "0/1", "what was taught")
        (away := tmp_path / "away").mkdir()
        for file in relay.state.glob("spamfilter.db*"):
            file.rename(away / file.name)
        wait_until(lambda: "judging with what was learnt before" in relay.log(), "the complaint")
        assert judged_with(relay, account) == "0/1"
        assert "no such file" in ailing(relay)["database"]
        for file in away.iterdir():
            file.rename(relay.state / file.name)
        case().fault_ends()
        wait_until(lambda: "can be read again" in relay.log(), "the database")
        relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("later", "cheap pills"))
        wait_until(lambda: judged_with(relay, account) == "0/2", "what was taught later")
        await_journal(relay)
        account.settle()
        assert relay.problems() == []


@pytest.mark.parametrize("page", [0, 1], ids=["the first page", "pages of data"])
def test_pages_that_are_overwritten(hop: Hop, tmp_path: Path, account: Account, page: int) -> None:
    with daemon(tmp_path / "relay", hop) as relay:
        teach(relay)
        wait_until(lambda: judged_with(relay, account) == "0/1", "what was taught")
        await_journal(relay)
        with contextlib.closing(sqlite3.connect(relay.database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with relay.database.open("r+b") as file:
            file.seek(4096 * page)
            file.write(os.urandom(4096 * (1 if page == 0 else 20)))
        assert {"database", "integrity"} & set(ailing(relay))  # before mail lets the journal write a page anew
        for _ in range(3):
            assert judged_with(relay, account) == "0/1"
            time.sleep(0.2)
        with contextlib.suppress(Exception):  # whatever is said to a mark, mail goes on
            relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("more", "cheap pills"))
        assert judged_with(relay, account) in ("0/1", "0/2")
        account.settle()
        relay.stop()
        relay.launch()
        wait_until(lambda: relay.process.poll() is not None or "ready:" in relay.log(), "an end, or a start")
        if "ready:" in relay.log():  # the first page was written anew, by the journal or the mark, before the stop
            assert judged_with(relay, account) in ("0/1", "0/2")
            account.settle()
            return
        assert relay.ended() == 2  # without counts there is nothing to judge by
        assert relay.log().startswith(f"spamfilter: {relay.database}: ")
        assert relay.log().count("\n") == 1
        assert account.send(relay.port).code is None
        account.settle()


@pytest.mark.parametrize("schema", ["0001", "0002"])
def test_a_schema_that_is_behind_is_migrated_at_the_start(
    hop: Hop, relay: Daemon, account: Account, schema: str
) -> None:
    relay.stop()
    migrate(f"sqlite:///{relay.database}", schema)
    relay.start()
    assert account.send(relay.port).code == 250
    account.settle()
    assert relay.problems() == []


def test_a_schema_that_is_ahead_is_refused_at_the_start_and_left_alone(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
    teach(relay)
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = relay.database.read_bytes()
    relay.launch()
    assert relay.ended() == 2
    assert f"made by a newer version (schema 9999, this one knows {HEAD})" in relay.log()
    assert "Traceback" not in relay.log()
    assert account.send(relay.port).code is None
    assert relay.database.read_bytes() == before


def test_tables_that_another_version_changes_under_a_running_relay(hop: Hop, tmp_path: Path, account: Account) -> None:
    """A newer version has migrated the database while this one still runs: it goes on from memory, and says so."""
    with daemon(tmp_path / "relay", hop) as relay:
        teach(relay)
        wait_until(lambda: judged_with(relay, account) == "0/1", "what was taught")
        await_journal(relay)

        def change(*statements: str) -> None:
            with contextlib.closing(sqlite3.connect(relay.database, timeout=30)) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()

        change("ALTER TABLE journal RENAME TO verdicts", "UPDATE alembic_version SET version_num = '9999'")
        assert [judged_with(relay, account) for _ in range(3)] == ["0/1"] * 3
        wait_until(lambda: "entries are held in memory" in relay.log(), "the journal's complaint")
        found = ailing(relay)
        assert "newer version" in found["schema"]
        assert "journal" in found
        change("ALTER TABLE verdicts RENAME TO journal", f"UPDATE alembic_version SET version_num = '{HEAD}'")
        case().fault_ends()
        assert judged_with(relay, account) == "0/1"
        await_journal(relay)
        account.settle()
        assert relay.problems() == []


def test_two_daemons_on_one_database(hop: Hop, relay: Daemon, tmp_path: Path, account: Account) -> None:
    with daemon(tmp_path / "second", hop, relay.state) as second:
        before = relay.learnt()
        for number in range(5):
            assert account.send(relay.port).code == account.send(second.port).code == 250
            relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of(f"two{number}", f"word{number}"))
        wait_until(lambda: judged_with(second, account).endswith(f"/{before + 5}"), "what the other has learnt")
        account.settle()
        for one in (relay, second):
            await_journal(one)
        assert relay.problems() == []
        second.kill(signal.SIGKILL)
        assert account.send(relay.port).code == 250
        account.settle()
        assert relay.problems() == []


def test_a_copy_of_a_database_in_use_is_whole(hop: Hop, relay: Daemon, tmp_path: Path, account: Account) -> None:
    """The power fails: what is on the disk at any moment, the database and its write-ahead log, is a whole one."""
    for number in range(5):
        relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of(f"copy{number}", f"text{number}"))
        assert account.send(relay.port).code == 250
    copy = Daemon(tmp_path / "copy", f"smtp://127.0.0.1:{hop.port}")
    with paused(relay.process.pid):
        for file in relay.state.glob("spamfilter.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy.state)
    assert copy.problems() == []
    account.settle()
