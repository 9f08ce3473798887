"""The units, checked by systemd itself, and the relay under their restrictions: system calls, sockets, readiness."""

import errno
import os
import re
import shutil
import signal
import smtplib
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.config.settings import Settings
from spamfilter.errors import ConfigError
from spamfilter.service.listening import inherited
from spamfilter.service.systemd_override import TO_STOP
from spamfilter.system.packaged_files import shipped
from tests.integration.servers import end, free_port, relay, wait_until, workshop
from tests.support.certificates import write_certificate
from tests.support.real import require, require_root
from tests.support.sandbox import allowed_calls, sandbox, values
from tests.support.users import NOBODY, command_as

PROGRAM = "/opt/spamfilter/bin/spamfilter"
SERVICES = ("spamfilter.service", "spamfilter-report.service", "spamfilter-digest.service", "spamfilter-web.service")
UNITS = (*SERVICES, "spamfilter.socket", "spamfilter-report.timer", "spamfilter-digest.timer")
EXPOSED_AT_MOST = {
    "spamfilter.service": 1.2,
    "spamfilter-report.service": 0.9,
    "spamfilter-digest.service": 0.9,
    "spamfilter-web.service": 0.9,
}
"""Of 10, as systemd-analyze counts. What remains of the relay's is the network, and that it knows other users."""


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [require("systemd-analyze", "systemd"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units in a folder, with a program that exists everywhere."""
    there = shutil.which("true")
    assert there
    for unit in UNITS:
        text = shipped(f"systemd/{unit}").read_text()
        (tmp_path / unit).write_text(text.replace(PROGRAM, there))
    return tmp_path


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_with_a_unit(units: Path, unit: str) -> None:
    done = analyze("verify", str(units / unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".service")])
def test_a_service_is_hardly_exposed(units: Path, unit: str) -> None:
    done = analyze("security", "--offline=true", str(units / unit))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= EXPOSED_AT_MOST[unit]


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".service")])
def test_a_service_starts_a_command_that_exists(unit: str) -> None:
    (line,) = values(unit, "ExecStart")
    program, *arguments = line.split()
    assert program == PROGRAM
    command = [sys.executable, "-m", "spamfilter", *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_waits_longer_than_the_relay_drains() -> None:
    (wait,) = values("spamfilter.service", "TimeoutStopSec")
    assert int(wait.removesuffix("s")) == Settings().limits.drain_seconds + TO_STOP


def test_a_wrong_configuration_is_not_started_again(tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text("[relay]\nlissten = []\n")
    command = [sys.executable, "-m", "spamfilter", "--config", str(config), "serve"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert values("spamfilter.service", "RestartPreventExitStatus") == [str(done.returncode)]
    assert "relay.lissten" in done.stderr


def test_a_relay_warns_of_an_address_that_systemd_has_not_opened(tmp_path: Path) -> None:
    handed, listed = free_port(), free_port()
    config = tmp_path / "spamfilter.toml"
    config.write_text(f'[relay]\nlisten = ["127.0.0.1:{handed}", "[::1]:{listed}"]\nworkers = 1\n')
    given = {"SPAMFILTER_CONFIG": config, "STATE_DIRECTORY": tmp_path, "PYTHONPATH": Path(__file__).parents[2]}
    activate = [require("systemd-socket-activate", "systemd"), f"--listen=127.0.0.1:{handed}"]
    command = [*activate, *(f"--setenv={name}={value}" for name, value in given.items())]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, sys.executable, "-m", "spamfilter", "serve"], stdout=log, stderr=log)
    try:
        wait_until(lambda: (tmp_path / "log").stat().st_size > 0, "systemd's listening")
        with socket.create_connection(("127.0.0.1", handed), timeout=60) as client:
            assert client.recv(512).startswith(b"220 ")
        said = (tmp_path / "log").read_text()
        assert f"systemd hands over 127.0.0.1:{handed}; [relay] listen names [::1]:{listed}, which is not open" in said
    finally:
        process.terminate()
        end(process)


def test_the_user_of_the_services_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    command = [require("systemd-sysusers", "systemd"), f"--root={tmp_path}", str(shipped("systemd/sysusers.conf"))]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    name, *_, home, shell = (tmp_path / "etc" / "passwd").read_text().splitlines()[0].split(":")
    assert [name] == values("spamfilter.service", "User") == values("spamfilter-report.service", "User")
    assert (home, shell) == ("/var/lib/spamfilter", "/usr/sbin/nologin")


SERVICE, REPORT, DIGEST, WEB = SERVICES
USER = 61_234
"""As whom the relay runs here."""
TRIED = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
state, outside = sys.argv[1:]
def calls(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
tries = {
    "write outside": lambda: open(outside, "w"),
    "write to the state": lambda: open(os.path.join(state, "tried"), "w").close(),
    "be root": lambda: os.setuid(0),
    "take a port below 1024": lambda: socket.create_server(("127.0.0.1", 24)),
    "lay a link": lambda: os.symlink("/etc/shadow", os.path.join(state, "link")),
    "leave the namespaces": lambda: calls(272, 0x10000000),  # unshare
    "trace a process": lambda: calls(101, 0),  # ptrace
    "lock a key away": lambda: calls(248, 0),  # add_key
    "change priority": lambda: os.nice(-1),
    "run what it wrote": lambda: __import__("mmap").mmap(-1, 4096, prot=7),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "done", sep=": ")
    except OSError as error:
        print(name, error.errno, sep=": ")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    require_root("folders are given to another user")
    with workshop() as made:
        for name, mode in (("state", 0o700), ("run", 0o755)):
            (made / name).mkdir(mode=mode)
            os.chown(made / name, USER, USER)
        yield made


@pytest.mark.parametrize("unit", [SERVICE, REPORT, DIGEST, WEB])
def test_what_a_unit_allows_is_enough_for_the_state_and_for_nothing_else(folder: Path, unit: str) -> None:
    command = [*sandbox(folder, folder / "state", user=USER, unit=unit), sys.executable, "-c", TRIED]
    command += [str(folder / "state"), str(folder / "outside")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.stderr == ""
    tried = dict(line.split(": ") for line in done.stdout.splitlines())
    assert tried.pop("write to the state") == "done"
    assert tried.pop("write outside") == str(errno.EROFS)
    assert tried.pop("take a port below 1024") == str(errno.EACCES)
    assert set(tried.pop("run what it wrote")) <= set(f"{errno.EACCES}{errno.EPERM}")
    assert set(tried.values()) == {str(errno.EPERM)}, tried


@pytest.mark.parametrize("unit", [SERVICE, REPORT, DIGEST, WEB])
def test_no_call_is_allowed_that_leaves_the_sandbox_or_needs_root(unit: str) -> None:
    allowed = allowed_calls(unit)
    assert {"read", "openat", "futex", "fdatasync", "pipe2"} <= allowed
    assert len(allowed) < 300  # all architectures together; @system-service has 376
    assert not allowed & {
        "add_key", "bpf", "chown", "chroot", "fchown", "io_uring_setup", "kexec_load", "linkat", "memfd_create",
        "mknod", "mount", "pivot_root", "process_vm_readv", "ptrace", "sched_setaffinity", "setns", "setuid", "shmget",
        "symlink", "unshare", "userfaultfd",
    }  # fmt: skip


def capabilities(process: int) -> set[int]:
    """The sets of capabilities that a process has, and could get."""
    status = Path(f"/proc/{process}/status").read_text()
    return {int(number, 16) for number in re.findall(r"^Cap\w+:\t(\w+)$", status, re.MULTILINE)}


def said(certificate: Path, port: int, number: int) -> None:
    """Send a mail over TLS."""
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
        client.starttls(context=ssl.create_default_context(cafile=certificate))
        mail = f"Subject: mail {number}\r\nMessage-ID: <{number}@example.org>\r\n\r\nGood day, number {number}.\r\n"
        client.sendmail("sender@example.org", ["alice@example.test"], mail)


def test_the_relay_does_all_it_does_as_its_unit_lets_it(folder: Path) -> None:
    """As another user, without a capability, on a read-only system, under the filter of system calls.

    Mail over TLS to a Maildir and into quarantine, marks by another user and by root, training beside it, doctor's
    probe, SIGHUP, the report, SIGTERM.
    """
    certificate, key = write_certificate(folder)
    os.chown(key, USER, USER)
    key.chmod(0o600)
    state = folder / "state"
    socket_path = folder / "run" / "feedback.sock"
    prefix = sandbox(folder, state, socket_path.parent, user=USER)
    settings = {"tls_certificate": str(certificate), "tls_key": str(key), "hostname": "relay.test"}
    verdict = {"on_unsure": "quarantine"}
    with relay(folder, prefix, relay=settings, verdict=verdict, feedback={"socket": str(socket_path)}) as server:
        for number in range(4):
            said(certificate, server.port, number)
        kept = sorted((state / "quarantine" / "new").iterdir())
        assert len(kept) == 4
        assert capabilities(server.process.pid) == {0}
        ids = [re.findall(r"_([0-9A-Z]{26})\.", file.name)[0] for file in kept]
        marked = command_as(NOBODY, server.environment, "mark-spam", ids[0])
        assert (marked.returncode, marked.stderr) == (0, b"")
        done = server.command("train", "--ham", str(kept[1]))
        assert done.returncode == 0, done.stderr
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in server.log(), "the reload")
        examined = server.command("doctor", "--verify")
        assert "canary  " in examined.stdout
        assert not [line for line in examined.stdout.splitlines() if line.startswith("failed")], examined.stdout
        done = server.command("quarantine", "release", ids[2])
        assert done.returncode == 0, done.stderr
        assert len(list((state / "mail" / "new").iterdir())) == 1
        # Files that root has made must belong to the relay's user, or the relay could not use them.
        assert {path.lstat().st_uid for path in state.rglob("*")} == {USER}
        said(certificate, server.port, 9)
        report = [
            *sandbox(folder, state, user=USER, unit=REPORT),
            sys.executable,
            "-m",
            "spamfilter",
            "stats",
            "--since",
            "7d",
        ]
        done = subprocess.run(report, env=server.environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"Mail +[45] messages", done.stdout), done.stdout  # the journal is written behind
    log = server.log()
    assert not re.search("not permitted|Read-only|denied|Traceback|ERROR", log), log
    assert {stat.S_IMODE(path.lstat().st_mode) for path in state.rglob("*") if path.is_file()} == {0o600}


def test_the_relay_takes_the_socket_that_systemd_opened(tmp_path: Path) -> None:
    """systemd-socket-activate does what spamfilter.socket asks of systemd."""
    port = free_port()
    state, log = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    command = [
        require("systemd-socket-activate", "systemd"),
        "-l",
        f"127.0.0.1:{port}",
        "-E",
        f"STATE_DIRECTORY={state}",
    ]
    command += ["-E", f"SPAMFILTER_RELAY__LISTEN=['127.0.0.1:{free_port()}']"]
    command += ["-E", f"PYTHONPATH={Path(__file__).parents[2]}", sys.executable, "-m", "spamfilter", "serve"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or b"Listening on" in log.read_bytes(), "systemd-socket-activate")
        # The connection is what starts the relay, so it waits until there is one.
        with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
            client.sendmail("sender@example.org", ["alice@example.test"], "Subject: handed over\r\n\r\nGood day.\r\n")
        assert len(list((state / "mail" / "new").iterdir())) == 1
        listening = re.compile(r"listening on (\S+)")
        wait_until(lambda: listening.findall(log.read_text()) == [f"127.0.0.1:{port}"], "the line about the socket")
    finally:
        process.terminate()
        end(process)
    assert process.returncode == 0


@pytest.mark.parametrize("handed", ["file", "datagrams", "connection"])
def test_what_systemd_hands_over_and_does_not_listen_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handed: str
) -> None:
    """As by ListenFIFO=, ListenDatagram= and Accept=yes in a socket unit."""
    ours, theirs = socket.socketpair(type=socket.SOCK_DGRAM if handed == "datagrams" else socket.SOCK_STREAM)
    with ours, theirs, (tmp_path / "file").open("wb") as file:
        descriptor = os.dup(file.fileno() if handed == "file" else ours.fileno())
        monkeypatch.setattr("spamfilter.service.listening.FIRST_FD", descriptor)
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "1")
        with pytest.raises(ConfigError, match=f"descriptor {descriptor}.*ListenStream="):
            inherited()


def test_readiness_is_said_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with relay(tmp_path / "relay"):
            assert state(manager) == b"READY=1"
        assert state(manager) == b"STOPPING=1"


def state(manager: socket.socket) -> bytes:
    """The next state that systemd is told, other than that the relay does not hang."""
    while (told := manager.recv(4096)) == b"WATCHDOG=1":
        pass
    return told
