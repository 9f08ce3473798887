"""FRONT_ENDS, the table of protocols by which mail is received; and accepting connections, the same for each of them.

Several processes that listen on one socket get about the same number of them. The kernel wakes all processes for a
connection, and the first to accept gets it, so one process might get all. So a process accepts one connection at a
time, and waits for a moment if another process has fewer. After that moment it accepts the connection if it is still
there, so no connection waits for a process that hangs. A single process leaves accepting to asyncio: a mail on a new
connection takes a seventh less processor time then (benchmarks/relay_speed.py, "a new one for each message").
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from functools import partial

from spamfilter.relay.limits.connections import Crowd
from spamfilter.relay.milter.connection import Connection
from spamfilter.relay.relay import Relay
from spamfilter.relay.smtp.dialogue import Dialogue
from spamfilter.relay.smtp.lmtp import LmtpDialogue

MOMENT = 0.005
"""Seconds to wait: an idle process needs a fiftieth of it to accept, a busy one has time for some mails."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_SECONDS = 1.0
"""Time before the next attempt when the system has no descriptors or memory, as in asyncio."""


class Acceptor:
    """Accepts on one socket from `start` to `close`."""

    def __init__(self, sock: socket.socket, made: Callable[[], asyncio.BaseProtocol], crowd: Crowd) -> None:
        self._sock = sock
        self._made = made
        self._crowd = crowd
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_waited = False
        self._beginning: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop.add_reader(self._sock, self._ready)

    def close(self) -> None:
        """Take no more connections."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def _ready(self) -> None:
        if self._crowd.is_larger() and not self._has_waited:
            self._has_waited = True
            self._pause(MOMENT)
            return
        self._has_waited = False
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            message = "socket.accept() out of system resource"
            self._loop.call_exception_handler({"message": message, "exception": error, "socket": self._sock})
            self._pause(EXHAUSTED_SECONDS)
            return
        sock.setblocking(False)
        self._crowd.coming += 1
        task = self._loop.create_task(self._begin(sock))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._timer = self._loop.call_later(seconds, self.start)

    async def _begin(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, sock)
            await asyncio.sleep(0)  # lets it enter the crowd
        except OSError:
            sock.close()  # the client has hung up
        finally:
            self._crowd.coming -= 1


FRONT_ENDS: dict[str, Callable[[Relay, bool], asyncio.BaseProtocol]] = {
    "smtp": Dialogue,
    "lmtp": LmtpDialogue,
    "milter": Connection,
}
"""Protocol -> what makes a connection, which enters and leaves the crowd; True for one of authenticated senders."""


class FrontEnds:
    """The sockets by which mail comes to a process."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._servers: list[asyncio.Server | Acceptor] = []

    async def start(self, protocol: str, sockets: Sequence[socket.socket], *, submission: bool = False) -> None:
        """Serve on these bound sockets. submission: only authenticated senders can reach them."""
        loop = asyncio.get_running_loop()
        made = partial(FRONT_ENDS[protocol], self._relay, submission)
        for sock in sockets:
            if self._relay.shared.has_others:
                acceptor = Acceptor(sock, made, self._relay.crowd)
                acceptor.start()
                self._servers.append(acceptor)
            elif sock.family == socket.AF_UNIX:
                self._servers.append(await loop.create_unix_server(made, sock=sock, backlog=1024))
            else:
                self._servers.append(await loop.create_server(made, sock=sock, backlog=1024))

    async def drain(self) -> None:
        """Accept no new connections or transactions; return when the running ones have ended."""
        self._relay.draining = True
        for server in self._servers:
            server.close()
        while self._relay.crowd or self._relay.background_tasks:
            for client in self._relay.crowd:
                client.leave_if_idle()
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """End every connection at once."""
        for server in self._servers:
            server.close()
        for client in self._relay.crowd:
            client.leave()
