"""New files and folders are private, whatever the umask and whoever runs the command."""

import errno
import fcntl
import os
import signal
import smtplib
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.config.sections import Store
from spamfilter.config.settings import Settings
from spamfilter.doctor.database import database
from spamfilter.doctor.examination import Examination
from spamfilter.errors import StoreError
from spamfilter.relay.next_hops import Maildir
from spamfilter.stores import open_store
from spamfilter.system.file_access import ANYBODY, by_mode, locked, make_file, make_folder, may, whole_file
from tests.integration.servers import relay, workshop
from tests.support.made import mail
from tests.support.program import run
from tests.support.real import require_root

USER = 61_234
"""The user of the relay, when root runs a command."""
SOCKET = "feedback.sock"


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """A umask that removes no rights."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the relay's user, in one that every user may enter."""
    require_root("to be several users")
    with workshop() as made:
        (made / "state").mkdir(mode=0o700)
        os.chown(made / "state", USER, USER)
        yield made


@pytest.fixture
def closed_to_the_owner(tmp_path: Path) -> Iterator[None]:
    """A umask that removes rights of the owner, too, as UMask=0177 of a unit does, after pytest has made the folder."""
    before = os.umask(0o277)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def command(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of spamfilter with the current umask."""
    environment = {**os.environ, "STATE_DIRECTORY": str(state), "PYTHONPATH": str(Path(__file__).parents[2])}
    return run(*arguments, environment=environment)


@pytest.mark.usefixtures("closed_to_the_owner")
def test_no_umask_takes_rights_of_the_owner(tmp_path: Path) -> None:
    (tmp_path / "x.eml").write_text("Subject: x\n\nwords of a mail\n")
    assert command(tmp_path / "state", "train", "--ham", str(tmp_path / "x.eml")).returncode == 0
    found = modes(tmp_path)
    assert (found["state"], found["state/spamfilter.db"]) == (0o700, 0o600)


@pytest.mark.usefixtures("open_to_all")
def test_all_that_commands_and_relay_make_is_private(tmp_path: Path) -> None:
    """Database, -wal, -shm, journal in it, Maildir, quarantine and backup, each below folders that did not exist."""
    (tmp_path / "x.eml").write_text("Subject: x\n\nwords of a mail\n")
    above = tmp_path / "above"
    assert command(above / "state", "train", "--ham", str(tmp_path / "x.eml")).returncode == 0
    found = modes(tmp_path)
    assert {found[name] for name in ("above", "above/state")} == {0o700}
    assert found["above/state/spamfilter.db"] == 0o600
    (tmp_path / "kept").mkdir(mode=0o755)
    verdict = {"on_unsure": "quarantine", "quarantine": str(tmp_path / "kept" / "deep" / "quarantine")}
    with relay(tmp_path / "relay", verdict=verdict) as server:
        for number in range(3):
            with smtplib.SMTP("127.0.0.1", server.port, "client.test", timeout=60) as client:
                client.sendmail("a@example.org", ["b@example.test"], f"Subject: {number}\r\n\r\n{number}\r\n")
        assert server.command("quarantine", "list").returncode == 0
        state = modes(server.state)
        assert state.pop(SOCKET) == 0o666  # everybody may ask; the kernel says who it is
        assert {"spamfilter.db", "spamfilter.db-wal", "spamfilter.db-shm", "mail/new"} <= set(state)
        assert server.command("backup", str(tmp_path / "kept" / "copy.db")).returncode == 0
        kept = modes(tmp_path / "kept")
        assert len([name for name in kept if name.startswith("deep/quarantine/new/")]) == 3
    for places, root in ((state, server.state), (kept, tmp_path / "kept")):
        wrong = {name: mode for name, mode in places.items() if mode != (0o700 if (root / name).is_dir() else 0o600)}
        assert {name: mode for name, mode in wrong.items() if (root / name).exists()} == {}


@pytest.mark.usefixtures("open_to_all")
def test_folders_that_were_missing_are_private_and_those_that_were_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    make_folder(tmp_path / "there" / "a" / "b")
    make_folder(tmp_path / "there")
    assert modes(tmp_path) == {"there": 0o755, "there/a": 0o700, "there/a/b": 0o700}


def test_what_root_trains_belongs_to_the_user_of_the_relay(folder: Path) -> None:
    (folder / "x.eml").write_text("Subject: x\n\nwords of a mail\n")
    done = command(folder / "state", "train", "--ham", str(folder / "x.eml"))
    assert done.returncode == 0, done.stderr
    copies = {"backup": "copy.db", "export": "copy.jsonl"}
    for name, copy in copies.items():
        assert command(folder / "state", name, str(folder / "state" / copy)).returncode == 0
    with closing(open_store(f"sqlite:///{folder}/state/spamfilter.db")) as store:
        store.put_setting("of", "root")  # makes -wal and -shm
        owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in (folder / "state").iterdir()}
    assert set(owners) == {"spamfilter.db", "spamfilter.db-wal", "spamfilter.db-shm", *copies.values()}
    assert set(owners.values()) == {(USER, USER)}


def test_what_root_puts_into_a_maildir_belongs_to_the_owner_of_its_folder(folder: Path) -> None:
    maildir = Maildir(folder / "state" / "mail" / "judged")
    maildir.write([b"Subject: x\r\n\r\nx\r\n"], b"a@x", [b"b@x"])
    assert {path.lstat().st_uid for path in (folder / "state").rglob("*")} == {USER}


def test_root_follows_no_link_of_another_user_to_a_database(folder: Path) -> None:
    link = folder / "state" / "spamfilter.db"
    link.symlink_to(folder / "made-by-root")
    with pytest.raises(StoreError, match=r"spamfilter\.db: a link of uid 61234, which root does not follow"):
        open_store(f"sqlite:///{link}")
    assert not (folder / "made-by-root").exists()


def test_a_backup_writes_through_no_link_that_waits_for_it(folder: Path) -> None:
    os.umask(0o022)
    (folder / "mail.eml").write_bytes(mail("hello"))
    done = command(folder / "state", "train", "--ham", str(folder / "mail.eml"))
    assert done.returncode == 0, done.stderr
    public, victim = folder / "public", folder / "victim"
    public.mkdir()
    public.chmod(0o777)
    victim.write_text("precious")
    for name in ("copy.db.partial", "copy.db-journal", "copy.db.partial-journal"):
        (public / name).symlink_to(victim)
    done = command(folder / "state", "backup", str(public / "copy.db"))
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious"
    copy = public / "copy.db"
    assert (stat.S_ISREG(copy.lstat().st_mode), stat.S_IMODE(copy.lstat().st_mode)) == (True, 0o600)
    assert sorted(path.name for path in public.iterdir() if not path.is_symlink()) == ["copy.db"]


def test_doctor_names_a_folder_in_which_everybody_may_replace_the_database(folder: Path) -> None:
    path = folder / "state" / "spamfilter.db"
    open_store(f"sqlite:///{path}").close()

    def found() -> list[str]:
        with closing(Examination(Settings(store=Store(url=f"sqlite:///{path}")), None)) as examined:
            return [finding.found for finding in database(examined) if finding.status == "warning"]

    assert found() == []
    path.parent.chmod(0o777)
    assert found() == [f"{path.parent}: every user of this host may replace files in it"]


def test_a_link_into_a_closed_folder_opens_no_file(folder: Path) -> None:
    (folder / "state" / "key.pem").write_text("open by its own mode")
    (folder / "state" / "key.pem").chmod(0o644)
    (folder / "link").symlink_to(folder / "state" / "key.pem")
    (folder / "linked").symlink_to(folder / "state")
    for path in (folder / "link", folder / "linked" / "key.pem"):
        assert by_mode(ANYBODY, path, os.R_OK) is may(ANYBODY, path, os.R_OK) is False
    (folder / "state").chmod(0o711)
    for path in (folder / "link", folder / "linked" / "key.pem"):
        assert by_mode(ANYBODY, path, os.R_OK) is may(ANYBODY, path, os.R_OK) is True


def test_a_link_to_itself_is_a_file_that_nobody_may_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not by_mode(ANYBODY, tmp_path / "loop", os.R_OK)


def test_a_file_is_made_by_nobody_elses_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        make_file(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_what_a_process_has_begun_that_is_ended_is_removed(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, whole_file(tmp_path / "export"):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_folder_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
    try:
        assert [locked(folder, tmp_path) for folder in folders] == [True, False]

        def no_locks(opened: int, how: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", no_locks)
        with pytest.raises(OSError, match=rf"No locks available: '{tmp_path}'"):
            locked(folders[0], tmp_path)
    finally:
        for folder in folders:
            os.close(folder)
