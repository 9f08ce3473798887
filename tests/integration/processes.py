"""A relay of several workers, and which of its processes is which."""

import contextlib
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.client import Client
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.load.process import family
from tests.load.serving import server_of

WORKERS = 2


@contextlib.contextmanager
def running(folder: Path, hop: Hop, **settings: object) -> Iterator[Daemon]:
    """A relay of two workers. However a test has ended it, all its processes are gone at the end."""
    relay = Daemon(folder, f"smtp://127.0.0.1:{hop.port}", relay={"workers": WORKERS, **settings})
    relay.start()
    try:
        yield relay
        if relay.running:
            relay.stop()
    finally:
        if relay.running:
            relay.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(relay.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def hop() -> Iterator[Hop]:
    with next_hop() as made:
        yield made


@pytest.fixture
def relay(tmp_path: Path, hop: Hop) -> Iterator[Daemon]:
    with running(tmp_path, hop) as made:
        yield made


def keeper(relay: Daemon) -> int:
    """Who listens for feedback, once somebody does: the first child, or whoever took its place."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [pid for pid in family(relay.process.pid)[1:] if _listens(pid, relay.state / "feedback.sock")]
        return bool(found)

    wait_until(is_there, "the keeper")
    return found[0]


def workers(relay: Daemon) -> list[int]:
    return [pid for pid in family(relay.process.pid)[1:] if pid != keeper(relay)]


def _listens(pid: int, path: Path) -> bool:
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    ours = {f"socket:[{row[6]}]" for row in rows if row[-1] == str(path)}
    with contextlib.suppress(OSError):
        return any(os.readlink(descriptor) in ours for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    return False


def kill_one(relay: Daemon) -> int:
    """Kill a worker, and wait until another one has its place; the pid of the one that is gone."""
    pid = workers(relay)[0]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in (now := workers(relay)) and len(now) == WORKERS, "another worker")
    return pid


@contextlib.contextmanager
def at_each_worker(relay: Daemon) -> Iterator[Sequence[Client]]:
    """A client at each worker."""
    with contextlib.ExitStack() as stack:
        found: dict[int, Client] = {}
        while len(found) < WORKERS:
            client = stack.enter_context(Client(relay.port))
            if pid := server_of(relay.process.pid, relay.port, client.socket):
                found.setdefault(pid, client)
        yield list(found.values())


def journalled(relay: Daemon) -> list[str]:
    """The Message-IDs in the journal."""
    with contextlib.closing(sqlite3.connect(relay.database)) as database:
        return [row[0] for row in database.execute("SELECT message_id FROM journal")]


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
