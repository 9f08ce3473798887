"""The units, by systemd's own word, and the relay under what they promise it: filter, sockets, readiness."""

import ctypes
import re
import shutil
import smtplib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spamfilter.config import Settings
from spamfilter.shipped import shipped
from tests.integration.servers import end, free_port, relay, smtp_source, wait_until
from tests.real import missing, require

PROGRAM = "/opt/spamfilter/bin/spamfilter"
UNITS = ("spamfilter.service", "spamfilter.socket", "spamfilter-report.service", "spamfilter-report.timer")
EXPOSED_AT_MOST = 1.5
"""Of 10, as systemd-analyze counts. What remains is the network, which a relay is for."""


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [require("systemd-analyze", "systemd"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def values(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", shipped(f"systemd/{unit}").read_text(), re.MULTILINE)


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
    assert float(found[1]) <= EXPOSED_AT_MOST


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
    assert int(wait.removesuffix("s")) > Settings().limits.drain_seconds


def test_a_wrong_configuration_is_not_started_again(tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text("[relay]\nlissten = []\n")
    command = [sys.executable, "-m", "spamfilter", "--config", str(config), "serve"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert values("spamfilter.service", "RestartPreventExitStatus") == [str(done.returncode)]
    assert "relay.lissten" in done.stderr


def test_the_user_of_the_services_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    command = [require("systemd-sysusers", "systemd"), f"--root={tmp_path}", str(shipped("systemd/sysusers.conf"))]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    name, *_, home, shell = (tmp_path / "etc" / "passwd").read_text().splitlines()[0].split(":")
    assert [name] == values("spamfilter.service", "User") == values("spamfilter-report.service", "User")
    assert (home, shell) == ("/var/lib/spamfilter", "/usr/sbin/nologin")


FILTERED = """
import ctypes, errno, os, sys
seccomp, libc = ctypes.CDLL("libseccomp.so.2"), ctypes.CDLL(None)
seccomp.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(0x00050000 | errno.EPERM)))
for name in sys.argv[1].split(","):
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert seccomp.seccomp_rule_add(rules, ctypes.c_uint32(0x7fff0000), number, 0) == 0, name
assert seccomp.seccomp_load(rules) == 0
libc.prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE: no page both written and run; kernels before 6.3 know it only as seccomp
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What systemd does for SystemCallFilter= and MemoryDenyWriteExecute=, without one: the rules, then the program."""


def allowed_calls(unit: str) -> set[str]:
    """The system calls that a unit's SystemCallFilter= lines leave."""
    allowed: set[str] = set()
    for line in values(unit, "SystemCallFilter"):
        names = set().union(*(expanded(name) for name in line.removeprefix("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


def expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = re.findall(r"^    ([@a-z_0-9-]+)$", analyze("syscall-filter", name).stdout, re.MULTILINE)
    return set().union(*map(expanded, listed))


def test_the_relay_works_under_the_system_call_filter_of_its_unit(tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        missing("libseccomp is not installed: apt-get install libseccomp2")
    allowed = allowed_calls("spamfilter.service")
    assert {"read", "openat", "futex"} <= allowed
    assert not {"chown", "setuid", "sched_setaffinity"} & allowed
    prefix = (sys.executable, "-c", FILTERED, ",".join(sorted(allowed)))
    with relay(tmp_path, prefix) as server:
        smtp_source(server.port, 20, sessions=4)
        wait_until(lambda: len(list((server.state / "mail" / "new").iterdir())) == 20, "20 mails in the Maildir")
        report = [*prefix, sys.executable, "-m", "spamfilter", "stats", "--since", "7d"]
        done = subprocess.run(report, env=server.environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert "not permitted" not in server.log()


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
    command += ["-E", f"PYTHONPATH={Path(__file__).parents[1]}", sys.executable, "-m", "spamfilter", "serve"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or b"Listening on" in log.read_bytes(), "systemd-socket-activate")
        # The connection is what starts the relay, so it waits until there is one.
        with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
            client.sendmail("sender@example.org", ["alice@example.test"], "Subject: handed over\r\n\r\nGood day.\r\n")
        assert len(list((state / "mail" / "new").iterdir())) == 1
        assert re.findall(r"listening on (\S+)", log.read_text()) == [f"127.0.0.1:{port}"]
    finally:
        process.terminate()
        end(process)
    assert process.returncode == 0


def test_readiness_is_said_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with relay(tmp_path / "relay"):
            assert manager.recv(4096) == b"READY=1"
        assert manager.recv(4096) == b"STOPPING=1"
