"""Mail over SMTP, on aiosmtpd: a transparent proxy in front of the next hop.

server.py adapts aiosmtpd's class to a proxy, client.py has limits and the end of a connection, dialogue.py the
commands, incoming.py the mail after DATA, accepting.py new connections. The transaction itself is in ../session.
"""

import asyncio
import socket
from collections.abc import Sequence
from functools import partial

from spamfilter.relay.relay import FrontEnd, Relay
from spamfilter.relay.smtp.accepting import Acceptor
from spamfilter.relay.smtp.dialogue import Dialogue

__all__ = ["SmtpFrontEnd"]


class SmtpFrontEnd(FrontEnd):
    """SMTP on any number of sockets. dialogue: the class of a connection."""

    dialogue: type[Dialogue] = Dialogue

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._servers: list[asyncio.Server | Acceptor] = []
        self._crowd = relay.crowd

    async def start(self, sockets: Sequence[socket.socket], submission: Sequence[socket.socket] = ()) -> None:
        loop = asyncio.get_running_loop()
        for sock in (*sockets, *submission):
            session = partial(self.dialogue, self._relay, submission=sock in submission)
            if self._relay.shared.has_others:
                acceptor = Acceptor(sock, session, self._crowd)
                acceptor.start()
                self._servers.append(acceptor)
            elif sock.family == socket.AF_UNIX:
                self._servers.append(await loop.create_unix_server(session, sock=sock, backlog=1024))
            else:
                self._servers.append(await loop.create_server(session, sock=sock, backlog=1024))

    async def drain(self) -> None:
        self._relay.draining = True
        for server in self._servers:
            server.close()
        while self._crowd or self._relay.handovers:
            for session in self._crowd:
                session.leave_if_idle()
            await asyncio.sleep(0.05)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for session in self._crowd:
            session.abort()
