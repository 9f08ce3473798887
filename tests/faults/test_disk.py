"""The disk under the database or the Maildir full, broken, or read-only: mail goes on, or stays with its client."""

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.errors import StoreFull
from spamfilter.stores import open_store
from tests.faults.account import Account
from tests.faults.case import case
from tests.faults.client import mail_of
from tests.faults.daemon import NOBODY, Daemon, daemon
from tests.faults.databases import ailing, await_journal, disk, fill, judged_with, learnt_of, small_disk, teach
from tests.faults.hop import Hop, MaildirHop
from tests.integration.servers import wait_until, workshop
from tests.relay.limits.scraping import Scraper
from tests.support.real import missing, require, require_root


def await_complaint(relay: Daemon) -> None:
    wait_until(lambda: "entries are held in memory" in relay.log(), "the journal's complaint")


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
            await_complaint(relay)
            assert "journal" in ailing(relay)
            assert account.send(relay.port).code == 250
        finally:
            subprocess.run([chattr, "-i", *files], check=True)
        case().fault_ends()
        assert account.send(relay.port).code == 250
        await_journal(relay)
        assert "journal" not in ailing(relay)
        account.settle()
        assert relay.problems() == []


def test_a_database_that_may_not_be_written_is_refused_at_the_start_in_one_line(hop: Hop, account: Account) -> None:
    require_root("to run as somebody else")
    with workshop() as folder:
        relay = Daemon(folder / "relay", f"smtp://127.0.0.1:{hop.port}")
        teach(relay)
        for path, mode in ((relay.state, 0o555), (relay.database, 0o444)):
            os.chown(path, NOBODY, NOBODY)
            path.chmod(mode)
        assert relay.refused_to_nobody() == (
            f"spamfilter: {relay.database}: no permission to write: spamfilter.db belongs to nobody (0444);"
            " chmod u+rw it"
        )
        assert account.send(relay.port).code is None
        account.settle()


def test_a_disk_that_turns_read_only_under_the_database(hop: Hop, tmp_path: Path, account: Account) -> None:
    """As the kernel does with a file system in which it has found an error: nothing on it can be written any more."""
    with disk(tmp_path / "disk") as broken:
        relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", broken.folder / "state")
        teach(relay)
        relay.start()
        try:
            assert judged_with(relay, account) == "0/1"
            broken.breaks()
            assert [judged_with(relay, account) for _ in range(3)] == ["0/1"] * 3
            await_complaint(relay)
            assert "journal" in ailing(relay)
            marked = relay.command("mark-spam", input=mail_of("marked", "cheap pills").decode())
            assert (marked.returncode, "Traceback" in marked.stderr) == (75, False), marked.stderr
            assert judged_with(relay, account) == "0/1"
            readonly = "attempt to write a readonly database; see to its disk"  # as new connections hear it
            with closing(open_store(f"sqlite:///{relay.database}")) as store, pytest.raises(StoreFull, match=readonly):
                store.put_setting("a", 1)
        finally:
            relay.kill(signal.SIGTERM)
        assert "Traceback" not in relay.log()
        account.settle()
        broken.unmount()
        broken.repair()
        broken.mount("errors=remount-ro")
        with relay.run():
            assert judged_with(relay, account) == "0/1"
            await_journal(relay)
            account.finish(relay.port)
        assert relay.problems() == []


def test_a_file_system_that_is_read_only_at_the_start_is_refused_in_one_line(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    with disk(tmp_path / "disk") as readable:
        relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", readable.folder / "state")
        teach(relay)
        readable.unmount()
        readable.mount("ro")
        relay.launch()
        assert relay.ended() == 2
        lines = relay.log().splitlines()
        assert lines[-1].startswith("spamfilter: ")
        assert str(relay.state) in lines[-1]
        assert "Traceback" not in relay.log()
        assert "read-only" in ailing(relay)["database"]
        assert account.send(relay.port).code is None
        account.settle()


def test_a_disk_that_is_full_under_the_database(hop: Hop, tmp_path: Path, account: Account) -> None:
    seen = Scraper()
    with (
        small_disk(tmp_path / "disk", 4) as small,
        daemon(tmp_path / "relay", hop, small, metrics=seen.settings) as relay,
    ):
        teach(relay)
        assert account.send(relay.port).code == 250
        await_journal(relay)
        filler = fill(small)
        assert [account.send(relay.port).code for _ in range(30)] == [250] * 30
        await_complaint(relay)
        found = ailing(relay)
        assert "disk" in found
        assert f"the last try failed: {relay.database}: database or disk is full" in found["journal"]
        assert seen.value("faults_total", "journal") > 0
        assert seen.value("journal_waiting") == 30
        marked = relay.command("mark-spam", input=mail_of("marked", "cheap pills").decode())
        assert marked.returncode == 75
        assert "full" in marked.stderr
        assert marked.stderr.count("\n") == 1
        assert seen.value("faults_total", "feedback") == 1
        filler.unlink()
        case().fault_ends()
        assert account.send(relay.port).code == 250
        await_journal(relay)
        assert "journal" not in ailing(relay)
        marked = relay.command("mark-spam", input=mail_of("marked", "cheap pills").decode())
        assert marked.returncode == 0
        wait_until(lambda: relay.learnt() == 2, "what was marked again")
        account.settle()
        assert relay.problems() == []
        assert learnt_of(hop.kept[-1].mail) == "0/1"


def test_a_disk_that_is_full_under_the_maildir_leaves_the_mail_with_the_client(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2) as small:
        maildir = small / "mail"
        account = Account(MaildirHop(maildir))
        relay = Daemon(tmp_path / "relay", f"maildir:{maildir}")
        with relay.run():
            filler = fill(small)
            assert [account.send(relay.port).code for _ in range(3)] == [451] * 3
            assert not [*(maildir / "new").iterdir(), *(maildir / "tmp").iterdir()]
            account.settle()
            filler.unlink()
            case().fault_ends()
            account.finish(relay.port)
            assert len(list((maildir / "new").iterdir())) == 3
        tally = account.tally()
    assert (tally.sent, tally.lost) == (3, 0)
