"""A process of the relay that hangs is ended and replaced, and systemd hears from one that does not."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spamfilter.service.supervisor import HUNG_SECONDS
from spamfilter.system.packaged_files import shipped
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop
from tests.integration.processes import WORKERS, at_each_worker, hop, journalled, keeper, workers
from tests.integration.servers import relay as a_relay
from tests.integration.servers import wait_until
from tests.support.planted import planted

__all__ = ["hop"]

HASTY = """
from spamfilter.service import supervisor
supervisor.BEAT_EVERY, supervisor.HUNG_SECONDS = 0.1, 6.0
"""
"""Beats without end, and little patience."""
STUCK = """
import os, time
from spamfilter.relay.journal import Journal
write = Journal.write
def stuck(self):
    while os.path.exists({file!r}):
        time.sleep(0.1)
    write(self)
Journal.write = stuck
"""
"""Each thread that writes the journal hangs while this file exists."""


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """The file that makes the journal's threads hang."""
    return tmp_path / "stuck"


@pytest.fixture
def relay(tmp_path: Path, hop: Hop, stuck: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", relay={"workers": WORKERS})
    code = HASTY + STUCK.format(file=str(stuck))
    made.environment["PYTHONPATH"] = planted(tmp_path / "planted", code)
    made.start()
    try:
        yield made
    finally:
        if made.running:
            made.kill()


def passes(relay: Daemon, name: str) -> None:
    with Client(relay.port) as client:
        assert client.deliver(mail_of(name)).code == 250


@pytest.mark.parametrize(
    ("find", "who"),
    [
        pytest.param(lambda relay: workers(relay)[0], "worker [12]", id="worker"),
        pytest.param(keeper, "the keeper", id="keeper"),
    ],
)
def test_a_process_that_stands_still_is_ended_and_replaced(
    relay: Daemon, find: Callable[[Daemon], int], who: str
) -> None:
    os.kill(pid := find(relay), signal.SIGSTOP)
    hung = rf"{who}, pid {pid}, has not answered for 6 s and is ended\n.*pid {pid}, was ended by SIGKILL; another one"
    wait_until(lambda: bool(re.search(hung, relay.log())), "the end of the one that hangs")
    with at_each_worker(relay) as clients:
        for number, client in enumerate(clients):
            assert client.deliver(mail_of(f"after{number}")).code == 250
    wait_until(lambda: len(journalled(relay)) == WORKERS, "the journal")
    assert keeper(relay) != pid
    relay.stop()


def test_mail_goes_on_while_the_journal_hangs_and_nothing_is_missing_in_it(relay: Daemon, stuck: Path) -> None:
    stuck.touch()
    passes(relay, "before")
    hung = time.monotonic()
    wait_until(lambda: time.monotonic() > hung + 8, "more than the supervisor's patience")
    passes(relay, "meanwhile")
    assert journalled(relay) == []
    stuck.unlink()
    wait_until(lambda: len(journalled(relay)) == 2, "the journal")
    assert "is ended" not in relay.log()
    relay.stop()


def test_after_a_pause_of_the_machine_no_process_is_ended(relay: Daemon) -> None:
    """The supervisor stood still, too; when it runs again, the beats of the others are as old as the pause."""
    before = [keeper(relay), *workers(relay)]
    os.killpg(relay.process.pid, signal.SIGSTOP)
    paused = time.monotonic()
    wait_until(lambda: time.monotonic() > paused + 8, "the end of the pause")
    os.killpg(relay.process.pid, signal.SIGCONT)
    passes(relay, "after")
    wait_until(lambda: len(journalled(relay)) == 1, "the journal")
    assert "is ended" not in relay.log()
    assert [keeper(relay), *workers(relay)] == before
    relay.stop()


@pytest.mark.parametrize("number", [1, WORKERS], ids=["one", "several"])
def test_systemd_hears_again_and_again_that_the_relay_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    prefix = ("env", f"PYTHONPATH={planted(tmp_path / 'planted', HASTY)}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with a_relay(tmp_path / "relay", prefix, relay={"workers": number}):
            heard: list[bytes] = []
            # A slow start beats often before it is over.
            while heard.count(b"WATCHDOG=1") < 9 or b"READY=1" not in heard:
                heard.append(manager.recv(4096))
            manager.close()
            assert set(heard) == {b"WATCHDOG=1", b"READY=1"}
            assert heard.count(b"READY=1") == 1


def test_systemd_has_the_same_patience() -> None:
    (seconds,) = re.findall(r"^WatchdogSec=(\d+)s$", shipped("systemd/spamfilter.service").read_text(), re.MULTILINE)
    assert int(seconds) == HUNG_SECONDS
