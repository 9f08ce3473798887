"""The database locked, read-only, full, deleted, overwritten, of another schema, or shared: mail goes on."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.config import Settings
from spamfilter.filter import Filter
from spamfilter.message import parse
from spamfilter.stores import open_store
from spamfilter.stores.migrating import migrate
from spamfilter.stores.schema import HEAD
from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import Hop
from tests.integration.servers import wait_until, workshop
from tests.real import missing, require, require_root

LOCKER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def locked(database: Path, seconds: float) -> Iterator[None]:
    """Another process holds the database for so long."""
    command = [sys.executable, "-c", LOCKER, str(database), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.wait(60)


def journalled(database: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
        return {str(row[0]) for row in connection.execute("SELECT id FROM journal")}


def await_journal(relay: Daemon) -> None:
    """Return once all that passed is in the journal."""
    wait_until(lambda: set(relay.ids()) <= journalled(relay.database), "the journal of what passed")


def teach(relay: Daemon, name: str = "taught") -> None:
    """Learn one spam in a database that is not open yet, or in a running relay's."""
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        filter = Filter(store, Settings().voices())
        filter.learn(filter.read(parse(mail_of(name, "cheap pills"))), "spam", "cli")


def learnt_of(mail: bytes) -> str:
    """What the header of a judged mail says about the counts it was judged by."""
    return mail.partition(b" learnt=")[2].split()[0].decode()


def test_a_database_that_is_locked_for_seconds(hop: Hop, relay: Daemon, account: Account) -> None:
    with locked(relay.database, 2.5):
        assert [account.send(relay.port).code for _ in range(5)] == [250] * 5
        # A mark waits for it.
        answer = relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("locked", "cheap pills"))
        assert answer["changed"]
    account.settle()
    await_journal(relay)
    assert relay.problems() == []


def test_a_database_that_is_locked_at_the_start(hop: Hop, relay: Daemon, account: Account) -> None:
    relay.stop()
    with locked(relay.database, 1.5):
        relay.start()
        assert account.send(relay.port).code == 250
    account.settle()


def test_a_database_that_becomes_read_only(hop: Hop, tmp_path: Path, account: Account) -> None:
    chattr = require("chattr", "e2fsprogs")
    with daemon(tmp_path / "relay", hop) as relay:
        teach(relay)
        files = [str(file) for file in relay.state.glob("spamfilter.db*") if not file.name.endswith("-shm")]
        assert account.send(relay.port).code == 250
        if subprocess.run([chattr, "+i", *files], capture_output=True, check=False).returncode:
            missing("needs root and a file system with immutable files, as ext4, for chattr +i")
        try:
            assert [account.send(relay.port).code for _ in range(3)] == [250] * 3
            wait_until(lambda: "entries are held in memory" in relay.log(), "the journal's complaint")
            assert account.send(relay.port).code == 250
        finally:
            subprocess.run([chattr, "-i", *files], check=True)
        await_journal(relay)
        account.settle()
        assert relay.problems() == []


def test_a_database_that_may_not_be_written_is_refused_at_the_start_in_one_line(hop: Hop, account: Account) -> None:
    """As an ordinary user, since root may write everywhere."""
    setpriv = require("setpriv", "util-linux")
    require_root("to run as somebody else")
    nobody = 65534
    with workshop() as folder:
        relay = Daemon(folder / "relay", f"smtp://127.0.0.1:{hop.port}")
        teach(relay)
        for path, mode in ((relay.state, 0o555), (relay.database, 0o444)):
            os.chown(path, nobody, nobody)
            path.chmod(mode)
        relay.launch(setpriv, f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
        assert relay.ended() == 2
        assert relay.log().splitlines()[-1] == (
            f"spamfilter: {relay.database}: no permission to write; run this as the owner of the database"
        )
        assert account.send(relay.port).code is None
        account.settle()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, of this size."""
    mount = require("mount", "mount")
    require_root("to mount a file system")
    folder.mkdir()
    subprocess.run([mount, "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "spamfilter", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run([require("umount", "mount"), str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; returns the file that takes them."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return filler


def test_a_disk_that_is_full_under_the_database(hop: Hop, tmp_path: Path, account: Account) -> None:
    with small_disk(tmp_path / "disk", 4) as disk, daemon(tmp_path / "relay", hop, disk) as relay:
        teach(relay)
        assert account.send(relay.port).code == 250
        await_journal(relay)
        filler = fill(disk)
        assert [account.send(relay.port).code for _ in range(30)] == [250] * 30
        wait_until(lambda: "entries are held in memory" in relay.log(), "the journal's complaint")
        filler.unlink()
        await_journal(relay)
        account.settle()
        assert relay.problems() == []
        assert learnt_of(hop.kept[-1].mail) == "0/1"


def test_a_disk_that_is_full_under_the_maildir_leaves_the_mail_with_the_client(
    tmp_path: Path, account: Account
) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        relay = Daemon(tmp_path / "relay", f"maildir:{disk}/mail")
        with relay.run():
            filler = fill(disk)
            assert [account.send(relay.port).code for _ in range(3)] == [451] * 3
            assert not [*(disk / "mail" / "new").iterdir(), *(disk / "mail" / "tmp").iterdir()]
            filler.unlink()
            for name in list(account.answers):
                assert account.send(relay.port, name).code == 250
            assert len(list((disk / "mail" / "new").iterdir())) == 3


def test_a_database_that_is_deleted(hop: Hop, tmp_path: Path, account: Account) -> None:
    with daemon(tmp_path / "relay", hop) as relay:
        teach(relay)
        wait_until(lambda: judged_with(relay, account) == "0/1", "what was taught")
        for file in relay.state.glob("spamfilter.db*"):
            file.unlink()
        assert [judged_with(relay, account) for _ in range(3)] == ["0/1"] * 3
        wait_until(lambda: "the database is gone" in relay.log(), "the complaint")
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
        for file in away.iterdir():
            file.rename(relay.state / file.name)
        wait_until(lambda: "can be read again" in relay.log(), "the database")
        relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("later", "cheap pills"))
        wait_until(lambda: judged_with(relay, account) == "0/2", "what was taught later")
        await_journal(relay)
        account.settle()
        assert relay.problems() == []


def judged_with(relay: Daemon, account: Account) -> str:
    assert account.send(relay.port).code == 250
    return learnt_of(account.hop.kept[-1].mail)


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
    os.kill(relay.process.pid, signal.SIGSTOP)
    try:
        for file in relay.state.glob("spamfilter.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy.state)
    finally:
        os.kill(relay.process.pid, signal.SIGCONT)
    assert copy.problems() == []
    account.settle()
