"""The memory of a connection is bounded, whatever the peer sends, in both event loops."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from spamfilter.relay.next_hops.connection import UNREAD, Connection, TooLate, connected

SENT = 64 * UNREAD


async def test_a_deadline_that_passes_while_nobody_waits_is_not_forgotten() -> None:
    """As while this process stands still: the next wait would have no end."""
    loop = asyncio.get_running_loop()
    async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server:
        _, connection = await loop.create_connection(Connection, *server.sockets[0].getsockname()[:2])
        connection.set_deadline(loop.time())
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            with pytest.raises(TooLate):
                await connection.more()
            with pytest.raises(TooLate):
                await connection.drain()
            connection.set_deadline(math.inf)
            await connection.drain()
        connection.abort()


async def test_an_address_that_says_nothing_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def filtered(protocol: Any, host: str, port: int) -> Any:
        if host == "192.0.2.1":
            await asyncio.sleep(3600)
        return await connect(protocol, host, port)

    monkeypatch.setattr(loop, "create_connection", filtered)
    monkeypatch.setattr("spamfilter.relay.next_hops.connection.FIRST_SECONDS", 0.01)
    async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server, asyncio.timeout(10):
        (await connected(["192.0.2.1", "127.0.0.1"], server.sockets[0].getsockname()[1], 10, {})).abort()


@asynccontextmanager
async def silent_and_well() -> AsyncIterator[int]:
    """A port at which 127.0.0.2 answers nobody, and 127.0.0.1 everybody."""
    loop = asyncio.get_running_loop()
    async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with ExitStack() as held:
            silent = held.enter_context(socket.socket())
            silent.bind(("127.0.0.2", port))
            silent.listen(0)
            for _ in range(3):  # more than it has room for: the kernel answers nobody else
                waiting = held.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.2", port))
            yield port


async def test_silent_addresses_leave_time_for_the_last_however_short_it_is() -> None:
    """[limits] connect_seconds may be less than the time for one address that says nothing."""
    async with silent_and_well() as port, asyncio.timeout(1.5):
        (await connected(["127.0.0.2", "127.0.0.2", "127.0.0.1"], port, 1.5, {})).abort()


async def test_only_one_connection_waits_for_a_silent_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", tried := Tried())
    silent: dict[str, float] = {}
    async with silent_and_well() as port:
        for _ in range(2):
            (await connected(["127.0.0.2", "127.0.0.1"], port, 1.0, silent)).abort()
        assert tried.addresses == ["127.0.0.2", "127.0.0.1", "127.0.0.1"]
        silent["127.0.0.2"] = asyncio.get_running_loop().time()  # a minute later it is the first again
        (await connected(["127.0.0.2", "127.0.0.1"], port, 1.0, silent)).abort()
        assert tried.addresses[3:] == ["127.0.0.2", "127.0.0.1"]


class Tried:
    """Connects as the event loop does, and notes where to."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._connect = asyncio.get_running_loop().create_connection

    async def __call__(self, protocol: Any, host: str, port: int) -> Any:
        self.addresses.append(host)
        return await self._connect(protocol, host, port)


class Slow(Connection):
    """Looks into its buffer now and then. most: bytes that were in it."""

    def __init__(self, ended: asyncio.Future[int]) -> None:
        super().__init__()
        self.most = 0
        self.ended_with = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.task = self.loop.create_task(self._take())

    def received(self, data: bytes | memoryview) -> None:
        super().received(data)
        self.most = max(self.most, len(self.buffer))

    async def _take(self) -> None:
        taken = 0
        try:
            while True:
                await self.more()
                taken += len(self.buffer)
                self.buffer.clear()
                time.sleep(0.005)
        except EOFError:
            self.ended_with.set_result(taken)


def send(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(bytes(SENT))


async def most_buffered() -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    made: list[Slow] = []

    def accepted() -> Slow:
        made.append(Slow(ended))
        return made[0]

    server = await loop.create_server(accepted, "127.0.0.1", 0)
    async with server:
        thread = threading.Thread(target=send, args=server.sockets[0].getsockname()[1:])
        thread.start()
        assert await ended == SENT
        thread.join()
        made[0].abort()  # the server waits for its connections
    return made[0].most


async def test_what_nobody_has_taken_yet_stays_with_the_peer() -> None:
    assert await most_buffered() <= 2 * UNREAD
