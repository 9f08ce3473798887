"""A connection to a next hop, whose bytes wait in one buffer until they are asked for.

asyncio's streams do the same at several times the cost, and hide what has come unasked; see
benchmarks/results/2026-11-21-relay-speed.md. Guarantee: a peer that sends more than is asked for is not read any
further, and one that does not read is not written to without end.
"""

import asyncio
import ssl
import threading
from typing import cast

from spamfilter.relay.limits.deadline import Deadline

UNREAD = 262_144
"""Bytes that may wait unread before no more is taken from the peer, and the most that one read takes."""


class TooLate(TimeoutError):
    """The time that was set with `due` is over."""


class _Landing(threading.local):
    """Where the bytes of a read land, before they are added to a buffer: one for all connections of a loop.

    asyncio's own way gets room for the largest read each time, which takes five times as long as the read.
    """

    def __init__(self) -> None:
        self.room = memoryview(bytearray(UNREAD))


_landing = _Landing()


class Connection(asyncio.BufferedProtocol):
    """One reader and one writer at a time. buffer: what has come and was not taken yet; ended: the peer sends no more.

    A time may be set with `due`: when it passes, whoever waits hears that it is too late.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.ended = self.lost = False
        self._held = False  # no more is read
        self._error: Exception | None = None
        self._more: asyncio.Future[bool] | None = None
        self._room: asyncio.Future[None] | None = None
        self._clogged = False
        self._deadline = Deadline(lambda: self._fail(TooLate()))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _landing.room

    def buffer_updated(self, size: int) -> None:
        self.received(_landing.room[:size])

    def received(self, data: bytes | memoryview) -> None:
        """Add to the buffer what has come."""
        try:
            self.buffer += data
        except MemoryError as error:  # raised in here it would end the connection without a word
            self.buffer = bytearray()
            self._error = error
            self._fail(error)
            return
        if self._more is not None and not self._more.done():
            self._more.set_result(True)
        elif len(self.buffer) > UNREAD and self.transport is not None and not self._held:
            self._held = True
            self.transport.pause_reading()

    def eof_received(self) -> bool | None:
        self.ended = True
        if self._more is not None and not self._more.done():
            self._more.set_result(False)
        # TLS is never half open.
        return self.transport is not None and self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = self.lost = True
        self._error = error
        self._fail(error)
        self._deadline.cancel()

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    @property
    def closing(self) -> bool:
        """Whether nothing that is written now arrives any more."""
        return self.transport is None or self.transport.is_closing()

    async def more(self) -> None:
        """Wait until something was added to the buffer.

        Raises EOFError where the peer sends no more, OSError where the connection broke, MemoryError where there was
        no room for what came, TooLate after `due`.
        """
        if self._error is not None:
            raise self._error
        if self.ended:
            raise EOFError
        if self._held and self.transport is not None and not self.transport.is_closing():
            self._held = False
            self.transport.resume_reading()
        self._more = self.loop.create_future()
        try:
            if not await self._more:
                raise EOFError
        finally:
            self._more = None

    def write(self, data: bytes) -> None:
        """Send this; on a connection that is closed it is dropped, as `drain` will say."""
        if self.transport is not None and not self.transport.is_closing():  # uvloop raises where asyncio drops
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until more may be written. Raises OSError where the connection broke, TooLate after `due`."""
        if self.closing:
            await asyncio.sleep(0)  # what broke it is told in the next turn of the loop
        if self.lost:
            raise self._error or ConnectionResetError("the connection is lost")
        if self._clogged:
            self._room = self.loop.create_future()
            try:
                await self._room
            finally:
                self._room = None

    async def secure(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """The handshake of TLS. Raises OSError, of which SSLError is one; then the connection is closed."""
        assert self.transport is not None
        transport = await self.loop.start_tls(self.transport, self, context, server_hostname=server_hostname)
        if transport is None:  # it was closed meanwhile
            raise ConnectionResetError("the connection is lost")
        self.transport = transport

    def abort(self) -> None:
        """Cut the connection; what was written and is not sent yet never is."""
        if self.transport is not None:
            self.transport.abort()

    def due(self, at: float) -> None:
        """Wait no longer than until this time of the loop's clock; math.inf: for ever."""
        self._deadline.set(at)

    def _fail(self, error: Exception | None) -> None:
        """End the waiting; None: at the end of input."""
        if self._more is not None and not self._more.done():
            if error is None:
                self._more.set_result(False)
            else:
                self._more.set_exception(error)
        if self._room is not None and not self._room.done():
            self._room.set_exception(error or ConnectionResetError("the connection is lost"))
