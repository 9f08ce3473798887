"""A connection to a next hop, with one buffer for bytes that were received but not used yet.

asyncio's streams cost more, and hide unexpected input. Guarantee: the memory of a connection is bounded: reading pauses
if the peer sends too much, and writing waits if the peer does not read.
"""

import asyncio
import ssl
import threading
from collections.abc import Iterable
from typing import Any, cast

from spamfilter.relay.limits.deadline import Deadline

UNREAD = 262_144
"""Bytes in the buffer from which on reading pauses, and the most bytes of one read."""


class TooLate(Exception):
    """The deadline of the connection has passed. No OSError: the connection is whole."""


class _ReadBuffer(threading.local):
    """The memory for a read, before its bytes are added to a buffer: one for all connections of an event loop.

    asyncio allocates memory for the largest read each time, which takes five times as long as the read.
    """

    def __init__(self) -> None:
        self.room = memoryview(bytearray(UNREAD))


read_buffer = _ReadBuffer()


class Connection(asyncio.BufferedProtocol):
    """A connection for one reader and one writer at a time. buffer: received bytes; ended: the peer sends no more.

    Once the deadline has passed, `more` and `drain` raise TooLate, also those that wait by then, until another is set.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.ended = self.lost = False
        self._held = False  # no more is read
        self._error: Exception | None = None
        self._more: asyncio.Future[bool] | None = None
        self._room: asyncio.Future[None] | None = None
        self._clogged = False
        self._late = False
        self._deadline = Deadline(self._passed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return read_buffer.room

    def buffer_updated(self, size: int) -> None:
        self.received(read_buffer.room[:size])

    def received(self, data: bytes | memoryview) -> None:
        """Add received bytes to the buffer."""
        try:
            self.buffer += data
        except MemoryError as error:  # raised here, it would close the connection without a reason
            self.buffer = bytearray()
            self._error = error
            self._fail(error)
            return
        if not _settle(self._more, True) and len(self.buffer) > UNREAD and not self._held:
            self._held = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = True
        _settle(self._more, False)
        # TLS connections cannot be half open.
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = self.lost = True
        self._error = error
        self._fail(error)
        self._deadline.cancel()

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        _settle(self._room, None)

    @property
    def closing(self) -> bool:
        """Whether the connection is closed for writing."""
        return self.transport.is_closing()

    async def more(self) -> None:
        """Wait until bytes are added to the buffer.

        Raises EOFError if the peer sends no more, OSError if the connection broke, MemoryError if there was no memory
        for received bytes, TooLate after the deadline.
        """
        if self._error is not None:
            raise self._error
        if self.ended:
            raise EOFError
        if self._late:
            raise TooLate
        if self._held and not self.closing:
            self._held = False
            self.transport.resume_reading()
        self._more = self.loop.create_future()
        try:
            if not await self._more:
                raise EOFError
        finally:
            self._more = None

    def write(self, data: bytes) -> None:
        """Send bytes. On a closed connection they are dropped, and `drain` raises an error."""
        if not self.closing:  # asyncio drops them, too, but warns from the fifth one on
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until more may be written. Raises OSError if the connection broke, TooLate after the deadline."""
        if self.closing:
            await asyncio.sleep(0)  # the event loop reports the error in its next turn
        if self.lost:
            raise self._error or ConnectionResetError("the connection is lost")
        if self._late:
            raise TooLate
        if self._clogged:
            self._room = self.loop.create_future()
            try:
                await self._room
            finally:
                self._room = None

    async def secure(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """Do the TLS handshake. Raises OSError, of which SSLError is a subclass; then the connection is closed."""
        transport = await self.loop.start_tls(self.transport, self, context, server_hostname=server_hostname)
        if transport is None:  # it was closed meanwhile
            raise ConnectionResetError("the connection is lost")
        self.transport = transport

    def close(self) -> None:
        """Close the connection when what was written is sent."""
        self.transport.close()

    def abort(self) -> None:
        """Cut the connection; data that is not sent yet is dropped."""
        self.transport.abort()

    def set_deadline(self, at: float) -> None:
        """Set the deadline, by the event loop's clock; math.inf: none."""
        self._late = False
        self._deadline.set(at)

    def _passed(self) -> None:
        self._late = True  # it may pass while nobody waits
        self._fail(TooLate())

    def _fail(self, error: Exception | None) -> None:
        """Wake the waiting reader and writer with an error; None: the end of input."""
        _settle(self._more, error or False)
        _settle(self._room, error or ConnectionResetError("the connection is lost"))


def _settle(waiting: "asyncio.Future[Any] | None", outcome: object) -> bool:
    """Wake the one that waits, with a result or an error; whether one did."""
    if waiting is None or waiting.done():
        return False
    if isinstance(outcome, Exception):
        waiting.set_exception(outcome)
    else:
        waiting.set_result(outcome)
    return True


FIRST_SECONDS = 3.0
"""For an address that says nothing, before the next one is tried: the kernel asks again after one second. Less where
the time for all of them would not last to the last one."""
SILENT_SECONDS = 60.0
"""For so long an address that said nothing is tried after the others, or each new connection would wait for it."""


async def connected(addresses: Iterable[str], port: int, seconds: float, silent: dict[str, float]) -> Connection:
    """A connection to the first of these IP addresses that accepts one. seconds: that the caller waits. silent:
    addresses that said nothing -> until when they are tried last. Raises OSError."""
    loop = asyncio.get_running_loop()
    *others, last = sorted(addresses, key=lambda address: silent.get(address, 0.0) > loop.time())
    patience = min(FIRST_SECONDS, seconds / (len(others) + 1))
    for address in others:
        try:
            async with asyncio.timeout(patience):
                return (await loop.create_connection(Connection, address, port))[1]
        except TimeoutError:
            silent[address] = loop.time() + SILENT_SECONDS
        except OSError:
            pass
    return (await loop.create_connection(Connection, last, port))[1]
