"""A worker, the keeper, the supervisor: whoever ends is replaced, or missed, and nothing is lost."""

import contextlib
import os
import re
import resource
import signal
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

from spamfilter.errors import TryAgain
from spamfilter.service.control_socket.client import NoRelay
from tests.faults.account import Account
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.fault import Hold
from tests.faults.hop import Hop
from tests.integration.processes import (
    WORKERS,
    accepts,
    at_each_worker,
    hop,
    journalled,
    keeper,
    kill_one,
    relay,
    running,
    workers,
)
from tests.integration.servers import wait_until
from tests.load.process import family
from tests.support.certificates import client_context, write_certificate
from tests.support.planted import planted

__all__ = ["hop", "relay"]


class Crowd:
    """Clients that send one mail after the other, each until it has a 250, as mail servers do."""

    def __init__(self, relay: Daemon, account: Account, clients: int = 4) -> None:
        self.accepted: dict[str, float] = {}
        self._relay = relay
        self._account = account
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(clients)]

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, mails: int = 20) -> None:
        """Return once so many more are accepted."""
        wanted = len(self.accepted) + mails
        wait_until(lambda: len(self.accepted) >= wanted, "mail that passes")

    def _send(self) -> None:
        while not self._stopping.is_set():
            name = self._account.name(doubtful=True)  # whoever is killed may have passed it on already: RFC 1047
            while not self._stopping.is_set() and self._account.send(self._relay.port, name).code != 250:
                time.sleep(0.05)
            self.accepted[name] = time.monotonic()


def finish(account: Account, crowd: Crowd, relay: Daemon, at_most_missing: int = 0) -> None:
    """All that was accepted is at the next hop, and in the journal once for each time that a client heard 250."""
    account.settle()
    names = [name for name in crowd.accepted if account.answers[name][-1].code == 250]
    assert len(names) > 20
    relay.stop()
    rows = journalled(relay)
    missing = [name for name in names if f"<{name}@example.org>" not in rows]
    assert len(missing) <= at_most_missing
    ids = re.findall(r"^\S+Z INFO (\S{26}): client=", relay.log(), re.MULTILINE)
    assert len(set(ids)) == len(ids)
    assert len(rows) <= len(ids)


def test_a_worker_that_is_killed_is_replaced_and_no_mail_is_lost(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    before = workers(relay)
    with Crowd(relay, account) as crowd:
        crowd.goes_on()
        killed = kill_one(relay)
        crowd.goes_on()
        with at_each_worker(relay):
            crowd.goes_on()
    assert "was ended by SIGKILL; another one takes its place" in relay.log()
    assert [pid in workers(relay) for pid in before] == [pid != killed for pid in before]
    finish(account, crowd, relay, at_most_missing=len(crowd.accepted) // 2)  # what it had not written yet


FORKING = """
import os
fork, done = os.fork, []
def limited():
    done.append(fork)
    if len(done) == 4:  # after the keeper and two workers
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = limited
"""
"""A system whose limit of processes is reached for a moment, for the process of the relay."""


def test_a_worker_that_cannot_be_started_is_started_once_it_can(hop: Hop, tmp_path: Path) -> None:
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", relay={"workers": 2})
    relay.environment["PYTHONPATH"] = planted(tmp_path / "planted", FORKING)
    with relay.run():
        killed = workers(relay)[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: "cannot be started: Resource temporarily unavailable" in relay.log(), "the failure")
        wait_until(lambda: len(set(workers(relay)) - {killed}) == 2, "another process")
        assert Account(hop).send(relay.port).code == 250


def test_a_keeper_that_is_killed_is_replaced_and_the_journal_is_whole(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    with Crowd(relay, account) as crowd:
        for _ in range(3):
            crowd.goes_on()
            os.kill(killed := keeper(relay), signal.SIGKILL)
            crowd.goes_on()

            def answers(killed: int = killed) -> bool:
                with contextlib.suppress(NoRelay, TryAgain):  # it may have ended before it answered
                    return bool(relay.ask({"command": "status"})) and keeper(relay) != killed
                return False

            wait_until(answers, "the next keeper")
    assert relay.ask({"command": "status"})["pid"] == relay.process.pid
    finish(account, crowd, relay)


def test_who_replaces_another_has_the_certificate_of_the_others_whatever_the_files_hold(
    tmp_path: Path, hop: Hop
) -> None:
    """A renewal that was interrupted, with the new certificate beside the old key, must not take the relay away."""
    certificate, key = write_certificate(tmp_path)
    (folder := tmp_path / "new").mkdir()
    renewed, _ = write_certificate(folder)
    tls = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with running(tmp_path, hop, **tls) as relay:
        trust = client_context(tmp_path)
        certificate.write_bytes(renewed.read_bytes())
        kill_one(relay)
        os.kill(killed := keeper(relay), signal.SIGKILL)
        wait_until(lambda: keeper(relay) != killed, "the next keeper")
        with at_each_worker(relay) as clients:
            for client in clients:
                client.ask("EHLO c.test")
                assert client.ask("STARTTLS").code == 220
                trust.wrap_socket(client.socket, server_hostname="127.0.0.1").close()
        assert "exited with" not in relay.log()


def test_who_replaces_another_after_a_reload_takes_as_many_connections_as_the_others(tmp_path: Path, hop: Hop) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with running(tmp_path, hop) as relay:
            text = relay.config.read_text()
            relay.config.write_text(text.replace("[limits]\n", "[limits]\nconnections = 3000\n"))
            relay.process.send_signal(signal.SIGHUP)
            wait_until(lambda: " reloaded" in relay.log(), "the reload")
            kill_one(relay)
            with at_each_worker(relay):
                allowed = [resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in workers(relay)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert min(allowed) > 2 * 3000


def test_a_keeper_that_is_killed_at_the_end_is_replaced_for_the_last_words(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    with Crowd(relay, account) as crowd:
        crowd.goes_on()
        os.kill(keeper(relay), signal.SIGKILL)
        relay.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(relay.port), "the end of the listening")
    finish(account, crowd, relay)


def test_without_the_supervisor_workers_end_what_they_have_begun_and_all_is_journalled(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    children = family(relay.process.pid)[1:]
    with Client(relay.port) as client:
        name = account.name()

        def kill(stage: str) -> None:
            if stage == "MIDDLE":
                os.kill(relay.process.pid, signal.SIGKILL)
                relay.process.wait()
                wait_until(lambda: not accepts(relay.port), "the end of new connections")

        account.note(name, client.deliver(mail_of(name), before=kill))
    wait_until(lambda: not any(map(_is_alive, children)), "the end of all processes")
    assert account.answers[name][-1].code == 250
    account.settle()
    assert journalled(relay) == [f"<{name}@example.org>"]
    assert "Traceback" not in relay.log()


def _is_alive(pid: int) -> bool:
    """Whether it runs; who has ended waits for nobody but init."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_one_that_has_just_begun_is_replaced_a_second_later(relay: Daemon) -> None:
    others: set[int] = set()

    def replaced() -> list[int]:
        return [pid for pid in workers(relay) if pid not in others] if len(workers(relay)) == WORKERS else []

    began = []
    for _ in range(3):
        wait_until(lambda: bool(replaced()), "another worker")
        newest = max(replaced(), key=started)
        began.append(started(newest))
        others |= {*workers(relay)}
        os.kill(newest, signal.SIGKILL)
    wait_until(lambda: bool(replaced()), "another worker")
    assert all(later - sooner > 0.9 for sooner, later in pairwise([*began[1:], started(replaced()[0])]))


def started(pid: int) -> float:
    """Seconds from the start of the machine to that of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def test_what_ends_again_and_again_is_replaced_once_a_second(relay: Daemon) -> None:
    began = time.monotonic()
    killed: set[int] = set()
    while len(killed) < 4:
        for pid in workers(relay)[:1]:
            if pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    # The last one is there until the supervisor has seen its end.
    wait_until(lambda: len(now := workers(relay)) == WORKERS and killed.isdisjoint(now), "two workers again")
    # Two of the four may be the workers of the start, the others have each waited for their second.
    assert relay.log().count("was ended by SIGKILL; another one") == 4
    assert len(relay.log().splitlines()) < 20 + (time.monotonic() - began)


def test_a_worker_that_a_signal_without_a_name_ends_is_replaced(relay: Daemon) -> None:
    os.kill(workers(relay)[0], signal.SIGRTMIN + 6)
    wait_until(lambda: "another one takes its place" in relay.log(), "the end of the worker in the log")
    wait_until(lambda: len(workers(relay)) == WORKERS, "two workers again")
    assert f"was ended by signal {signal.SIGRTMIN + 6}; another one" in relay.log()


def test_a_child_of_a_start_script_or_of_a_container_ends_alone(relay: Daemon) -> None:
    relay.stop()
    relay.start("sh", "-c", 'sleep 600 & exec "$0" "$@"')
    (other,) = [pid for pid in family(relay.process.pid) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
    os.kill(other, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{other}").exists(), "its end")
    kill_one(relay)  # which the supervisor sees after it
    assert relay.log().count("another one takes its place") == 1


def test_who_has_started_it_may_have_ignored_the_end_of_children(relay: Daemon) -> None:
    relay.stop()
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    relay.start(sys.executable, "-c", ignoring)
    kill_one(relay)
    relay.stop()


def test_sigterm_lets_each_worker_finish_what_it_has_begun(relay: Daemon, hop: Hop) -> None:
    account = Account(hop)
    hold = hop.faults["DOT"] = Hold()
    earlier = hop.commands.count("DATA")
    with at_each_worker(relay) as clients:
        names = [account.name() for _ in clients]
        threads = [
            threading.Thread(target=lambda c=client, n=name: account.note(n, c.deliver(mail_of(n))))
            for client, name in zip(clients, names, strict=True)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: hop.commands.count("DATA") == earlier + WORKERS, "the mail of each on its way")
        kept = keeper(relay)
        relay.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in relay.log(), "the signal's effect")
        wait_until(lambda: not accepts(relay.port), "the end of the listening")
        time.sleep(0.5)  # in which a keeper that waits for nobody ends
        assert _is_alive(kept)
        hop.faults.clear()
        hold.release.set()
        for thread in threads:
            thread.join()
        assert relay.ended() == 0
    assert [account.answers[name][-1].code for name in names] == [250] * WORKERS
    account.settle()
    assert sorted(journalled(relay)) == sorted(f"<{name}@example.org>" for name in names)
    assert "Traceback" not in relay.log()
