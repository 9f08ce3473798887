"""Connections that say nothing more, by the thousand, and how they end."""

import resource
import select
import socket
import time
from dataclasses import dataclass, field

AT_ONCE = 200
"""Connections that are opened together: less than the relay's backlog."""
PATIENCE = 60.0


@dataclass
class Idle:
    """So many connections to a port, greeted. hello: whether they say EHLO before they fall silent.

    refused: they are connected and no more, whatever they hear.
    """

    port: int
    number: int
    hello: bool = False
    refused: bool = False
    sockets: list[socket.socket] = field(default_factory=list)
    silent_since: list[float] = field(default_factory=list)

    def __enter__(self) -> "Idle":
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        while len(self.sockets) < self.number:
            group = [self._opened() for _ in range(min(AT_ONCE, self.number - len(self.sockets)))]
            for client in group:
                if not self.refused:
                    self._expect(client, b"220")
                if self.hello:
                    client.sendall(b"EHLO idle.test\r\n")
            for client in group:
                if self.hello:
                    self._expect(client, b"250")
                self.silent_since.append(time.monotonic())
        return self

    def __exit__(self, *error: object) -> None:
        for client in self.sockets:
            client.close()

    def _opened(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.sockets.append(client)
        return client

    def _expect(self, client: socket.socket, code: bytes) -> None:
        said = b""
        while not (said.endswith(b"\n") and said.splitlines()[-1][3:4] == b" "):
            if not (more := client.recv(4096)):
                break
            said += more
        if not said.startswith(code):
            raise RuntimeError(f"an idle connection heard {said!r}")

    def ends(self, seconds: float) -> list[tuple[bytes, float]]:
        """What each heard until the relay closed it, and the seconds it was silent; without those that are still open.

        seconds: how long to wait.
        """
        poller = select.epoll()
        open_ones = {client.fileno(): number for number, client in enumerate(self.sockets)}
        heard = [b""] * len(self.sockets)
        found: list[tuple[bytes, float]] = []
        for descriptor in open_ones:
            poller.register(descriptor, select.EPOLLIN)
        deadline = time.monotonic() + seconds
        while open_ones and time.monotonic() < deadline:
            for descriptor, _ in poller.poll(1.0):
                number = open_ones[descriptor]
                more = self.sockets[number].recv(4096)
                heard[number] += more
                if not more:
                    poller.unregister(descriptor)
                    del open_ones[descriptor]
                    found.append((heard[number], time.monotonic() - self.silent_since[number]))
        poller.close()
        return found
