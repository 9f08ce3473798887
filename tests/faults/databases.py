"""A database in trouble: locked by another process, on a small or broken disk; and what is in it all the same."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.reports.outages import last_note
from spamfilter.stores import open_store
from tests.faults.account import Account
from tests.faults.case import case
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon
from tests.integration.servers import wait_until
from tests.support.real import missing, require, require_root

LOCKER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
if len(sys.argv) > 3:
    sys.stdin.read()
"""


@contextlib.contextmanager
def locked(database: Path, seconds: float, throughout: bool = False) -> Iterator[None]:
    """Another process holds the database for so long; throughout: and no shorter than the block takes."""
    command = [sys.executable, "-c", LOCKER, str(database), str(seconds), *(["throughout"] if throughout else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()
        process.wait(90)
    case().fault_ends()


def journalled(database: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
        return {str(row[0]) for row in connection.execute("SELECT id FROM journal")}


def await_journal(relay: Daemon) -> None:
    """Return once all that passed is in the journal."""
    try:
        wait_until(lambda: set(relay.ids()) <= journalled(relay.database), "the journal of what passed")
    except TimeoutError as error:
        error.add_note(f"the relay said:\n{relay.log()[-5000:]}")
        raise


def await_rest(relay: Daemon) -> None:
    """Return once all that passed is in the journal, and the note that the relay runs, which it writes after its start:
    for most of a minute it writes nothing that nobody has asked for.
    """
    await_journal(relay)
    started = datetime.fromisoformat(relay.log().split()[0])

    def is_noted() -> bool:
        noted = last_note(store, "relay.test")
        return noted is not None and noted >= started

    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        wait_until(is_noted, "the note that the relay runs")


def teach(relay: Daemon, name: str = "taught") -> None:
    """Learn one spam in a database that is not open yet, or in a running relay's."""
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        filter = Filter(store, Settings().voices())
        filter.learn(filter.read(parse(mail_of(name, "cheap pills"))), "spam", "cli")


def learnt_of(mail: bytes) -> str:
    """What the header of a judged mail says about the counts it was judged by."""
    return mail.partition(b" learnt=")[2].split()[0].decode()


def judged_with(relay: Daemon, account: Account) -> str:
    """The counts that a mail is judged by now, which must pass."""
    assert account.send(relay.port).code == 250
    return learnt_of(account.hop.kept[-1].mail)


def ailing(relay: Daemon) -> dict[str, str]:
    """Check of `doctor` -> what it has found wrong now."""
    said = relay.command("doctor", "--json", "--no-canary")
    found: dict[str, str] = {}
    for line in json.loads(said.stdout)["lines"]:
        if line["status"] == "failed":
            found[line["check"]] = f"{found.get(line['check'], '')} {line['found']}"
    return found


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


class Disk:
    """A file system in a file, as on a disk of its own."""

    def __init__(self, folder: Path, image: Path, megabytes: int) -> None:
        self.folder = folder
        self._image = image
        with image.open("wb") as file:
            file.truncate(megabytes * 2**20)
        subprocess.run([require("mkfs.ext4", "e2fsprogs"), "-q", "-F", str(image)], check=True)
        folder.mkdir()

    def mount(self, *options: str) -> None:
        command = [require("mount", "mount"), "-o", ",".join(("loop", *options)), str(self._image), str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            missing(f"needs loop devices: {done.stderr.strip()}")

    def unmount(self) -> None:
        """Returns once nobody has it any more, not even another test's process in a mount namespace of its own."""
        subprocess.run([require("umount", "mount"), str(self.folder)], check=True)
        wait_until(lambda: str(self._image) not in _on_loops(), f"that {self._image} is let go of", 180)

    def breaks(self) -> None:
        """The kernel finds an error on it, and lets nobody write any more."""
        number = os.stat(self.folder).st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("a test")

    def repair(self) -> None:
        """What an administrator does next; unmounted. Exit code 1: errors were found and corrected."""
        command = [require("e2fsck", "e2fsprogs"), "-fy", str(self._image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 1}, done.stdout + done.stderr


def _on_loops() -> set[str]:
    """The files that are mounted as disks."""
    found = set()
    for name in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            found.add(name.read_text().strip())
    return found


@contextlib.contextmanager
def disk(folder: Path, megabytes: int = 16) -> Iterator[Disk]:
    """A disk that is mounted, and turns read-only at an error; in memory, where no other disk's trouble is its own."""
    with small_disk(folder.with_name(folder.name + ".memory"), megabytes + 1) as memory:
        made = Disk(folder, memory / "image", megabytes)
        made.mount("errors=remount-ro")
        try:
            yield made
        finally:
            made.unmount()
