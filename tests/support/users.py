"""Other users of this machine, as whom a test connects to a socket or runs a program; needs root."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.real import require_root

NOBODY = 65_534
UNNAMED = 4_294_967_294
"""A number without a login name; and the greatest there is, which is negative where it is taken for a signed one."""
_BECOME = "import os, socket, sqlite3, sys; os.setgroups([]); os.setgid({user}); os.setuid({user})\n"
"""All that is imported is imported before: the interpreter may be where only root can read."""
_CONNECT = """
there = socket.socket(fileno=int(sys.argv[1]))
for _ in range(int(sys.argv[3])):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[2])
    socket.send_fds(there, [b"x"], [client.fileno()])
    client.close()
    there.recv(1)
"""
_LIGHT = """
import click, concurrent.futures.thread
import spamfilter.cli, spamfilter.commands.mark, spamfilter.mail.mailboxes, spamfilter.system.ids
"""
_WHOLE = (
    _LIGHT
    + """
import spamfilter.commands.judge, spamfilter.commands.train
import spamfilter.config.settings, spamfilter.learning.bulk.training, spamfilter.learning.filter
import spamfilter.reports.rendering, spamfilter.stores.migration, spamfilter.stores.sql
"""
)
"""What a command of this checkout may import, read while it is still root: others may have no way to the folder."""
_COMMAND = "from spamfilter.cli import main; sys.argv[0] = 'spamfilter'; main()\n"


def connected_as(user: int, path: Path, count: int = 1) -> list[socket.socket]:
    """Connections that the kernel says are this user's."""
    require_root("to be several users")
    here, there = socket.socketpair()
    with here, there:
        code = _BECOME.format(user=user) + _CONNECT
        words = [sys.executable, "-I", "-S", "-c", code, str(there.fileno()), str(path), str(count)]
        child = subprocess.Popen(words, pass_fds=[there.fileno()])
        there.close()
        found: list[socket.socket] = []
        while len(found) < count:
            _, fds, _, _ = socket.recv_fds(here, 1, 1)
            if not fds:
                break
            found.append(socket.socket(fileno=fds[0]))
            here.send(b"x")
        if child.wait(60) or len(found) < count:
            raise RuntimeError(f"user {user} got {len(found)} of {count} connections to {path}")
        return found


async def connected(user: int, path: Path, count: int = 1) -> list[socket.socket]:
    """The same, for a server in this event loop."""
    found = await asyncio.to_thread(connected_as, user, path, count)
    for client in found:
        client.setblocking(False)
    return found


def _run(
    code: str, *words: str, input: bytes = b"", environment: Mapping[str, str] = os.environ, folder: str = "/"
) -> "subprocess.CompletedProcess[bytes]":
    require_root("to be several users")
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment, input=input, capture_output=True, timeout=60, check=False, cwd=folder,
    )  # fmt: skip


def script_as(user: int, script: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a script that wants os, socket, sqlite3 and sys."""
    return _run(_BECOME.format(user=user) + script, *words)


def program_as(user: int) -> str:
    """A program that is `spamfilter` as this user, for a root who starts it elsewhere."""
    return _WHOLE + _BECOME.format(user=user) + _COMMAND


def command_as(
    user: int, environment: Mapping[str, str], *words: str, input: bytes = b"", whole: bool = False, folder: str = "/"
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command of spamfilter as this user, in this folder; whole: one that does more than to ask a relay."""
    return _run(
        (_WHOLE if whole else _LIGHT) + _BECOME.format(user=user) + _COMMAND,
        *words,
        input=input,
        environment=environment,
        folder=folder,
    )
