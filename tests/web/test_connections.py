"""Limits of connections, at a real server with small limits."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spamfilter.web.site import connections
from tests.integration.servers import wait_until

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n"
LARGE = 30_000_000
"""Bytes: more than sockets of both sides hold."""


class Server:
    """hold: answers of /held wait for it."""

    def __init__(self) -> None:
        self.hold = threading.Event()
        routes = [Route("/held", self._held), Route("/large", self._large), Route("/", self._large)]
        config = uvicorn.Config(Starlette(routes=routes), http=connections.Bounded, lifespan="off", log_config=None)
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    def _held(self, request: Request) -> Response:
        self.hold.wait(60)
        return PlainTextResponse("held")

    def _large(self, request: Request) -> Response:
        return PlainTextResponse("x" * (LARGE if request.url.path == "/large" else 1))

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._socket.getsockname(), timeout=60)

    @contextlib.contextmanager
    def running(self) -> Iterator["Server"]:
        self._thread.start()
        try:
            wait_until(lambda: self._server.started, "the server")
            yield self
        finally:
            self.hold.set()
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(60)
            self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as made:
        yield made


def answered(client: socket.socket, path: bytes = b"") -> bool:
    """Whether a whole request has an answer; False: cut."""
    try:
        client.sendall(GET % path + b"\r\n")
        return client.recv(100).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def dawdle(client: socket.socket) -> None:
    """A header that comes for a minute. Raises ConnectionError where that is cut short."""
    for byte in GET % b"" + b"X: " + b"y" * 1200:
        client.sendall(bytes([byte]))
        time.sleep(0.05)


def is_cut(client: socket.socket) -> bool:
    """Whether the server has ended this connection without a word."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("first", [b"", GET % b"" + b"\r\n"], ids=["at once", "behind an answer"])
def test_a_header_that_comes_byte_by_byte_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    with server.connect() as client:
        if first:
            client.sendall(first)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConnectionError):
            dawdle(client)
    wait_until(lambda: server.connections == 0, "the end of the connection")


def test_an_answer_that_nobody_reads_is_not_kept_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    with server.connect() as client:
        client.sendall(GET % b"large" + b"\r\n")
        wait_until(lambda: server.connections == 1, "the connection")
        wait_until(lambda: server.connections == 0, "the end of the connection")


def test_an_answer_that_takes_longer_than_a_header_may_is_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    with server.connect() as client:
        client.sendall(GET % b"held" + b"\r\n")
        time.sleep(1.5)
        server.hold.set()
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_who_asks_at_once_has_the_place_of_who_has_dawdled_longest(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        dawdlers: list[socket.socket] = []
        for _ in range(4):
            dawdlers.append(stack.enter_context(server.connect()))
            dawdlers[-1].sendall(GET % b"")
            wait_until(lambda: server.connections == len(dawdlers), "the connection")
            time.sleep(0.05)  # the loop's clock has milliseconds
        with server.connect() as client:
            assert answered(client)
            assert is_cut(dawdlers[0])
            for dawdler in dawdlers[1:]:
                dawdler.sendall(b"\r\n")
                assert dawdler.recv(100).startswith(b"HTTP/1.1 200")


def test_no_answer_under_way_is_given_up_for_a_new_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(3)]
        for client in clients:
            client.sendall(GET % b"held" + b"\r\n")
        wait_until(lambda: sum(not one.waits for one in server._server.server_state.connections) == 3, "the requests")  # type: ignore[union-attr]
        with server.connect() as further:
            assert is_cut(further)
        server.hold.set()
        assert all(client.recv(100).startswith(b"HTTP/1.1 200") for client in clients)
