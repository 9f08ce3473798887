"""Which process of a relay serves which client."""

import contextlib
import os
import socket
from collections import Counter
from pathlib import Path

from tests.load.process import family


def connections(pid: int, port: int) -> set[int]:
    """The ports of the clients that a process serves on this port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    clients = {
        f"socket:[{row[9]}]": int(row[2].rpartition(":")[2], 16)
        for row in rows
        if row[1].endswith(f":{port:04X}") and row[3] == "01"
    }
    found = set()
    with contextlib.suppress(OSError):  # it has ended
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(clients.get(os.readlink(f"/proc/{pid}/fd/{descriptor}"), 0))
    return found - {0}


def server_of(pid: int, port: int, client: socket.socket) -> int:
    """The child of `pid` that serves this client; 0 where none does."""
    ours = client.getsockname()[1]
    return next((one for one in family(pid)[1:] if ours in connections(one, port)), 0)


def shares(pid: int, port: int) -> Counter[int]:
    """How many clients each child of `pid` serves."""
    return Counter({one: len(connections(one, port)) for one in family(pid)[1:]})
