"""A connection in memory: what is written is kept, what is fed arrives in the pieces that the fuzzer chose.

No sockets, since a million connections would use up the machine's ports; the protocols on top are the real ones.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PIECES = 64
HANG_SECONDS = 60.0
"""Nothing here waits for anybody, so whatever is not done by then hangs."""


class Transport(asyncio.Transport):
    """The near end of a connection whose far end is a fuzzer. wrote: called after each write, with its bytes."""

    def __init__(self, protocol: asyncio.BaseProtocol, wrote: Callable[[bytes], None] | None = None) -> None:
        super().__init__({"peername": ("127.0.0.1", 2525), "sockname": ("127.0.0.1", 25)})
        self.written = bytearray()
        self.reading = True
        self._protocol = protocol
        self._wrote = wrote
        self._closing = self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._ended, "written behind the end of what is written"
        if not self._closing:
            self.written += data
            if self._wrote is not None:
                self._wrote(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ended = True

    def get_write_buffer_size(self) -> int:
        return 0


async def feed(protocol: asyncio.Protocol, transport: Transport, data: bytes, piece: int) -> None:
    """Everything in pieces, as fast as the protocol reads, then the end of input.

    piece: bytes of the first PIECES; the next ones are larger and larger, or long inputs would take a hundred times as
    long as others.
    """
    place = number = 0
    while place < len(data):
        while not transport.reading and not transport.is_closing():
            await asyncio.sleep(0)
        if transport.is_closing():
            return
        protocol.data_received(data[place : place + piece])
        await asyncio.sleep(0)
        place += piece
        number += 1
        if number % PIECES == 0:
            piece *= 2
    if not transport.is_closing() and not protocol.eof_received():
        transport.close()


class Loop:
    """An event loop that raises what its tasks and callbacks have failed of."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._failures: list[dict[str, Any]] = []

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(context)

    def run(self, work: Any) -> None:
        """Raises what the work raises, TimeoutError where it hangs, and what failed beside it."""
        self._loop.run_until_complete(asyncio.wait_for(work, HANG_SECONDS))
        if self._failures:
            failure = self._failures.pop()
            self._failures.clear()
            raise failure.get("exception") or AssertionError(failure["message"])

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@contextmanager
def loop() -> Iterator[Loop]:
    made = Loop()
    try:
        yield made
    finally:
        made.close()
