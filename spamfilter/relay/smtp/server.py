"""aiosmtpd's server, adapted to a proxy. No other module uses its private names.

Guarantee: the end of the client's input does not interrupt a running command, and aiosmtpd logs nothing that a client
sends.
"""

import asyncio
import logging
import math
import ssl
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from aiosmtpd.proxy_protocol import ProxyData
from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as Connection

from spamfilter.relay.envelope_paths import MAX_LINE
from spamfilter.relay.limits.deadline import Deadline
from spamfilter.relay.next_hops.connection import read_buffer

PRIVATE = {
    "_handle_client": "counts a session when it begins, and says goodbye when it ends",
    "_reader": "reads the mail behind DATA in blocks; is woken when a session ends by its time",
    "_reader._buffer": "commands that were pipelined, for the next hop; the line end before a first dot",
    "_writer": "a reply is many lines as they came, which `push` would end once more",
    "_smtp_methods": "an unknown command is one of those that a session may have, and no line of the log",
    "_reset_timeout": "makes a timer for each command: seven for each mail",
    "_timeout_handle": "the timer, which is cancelled with the connection",
    "_proxy_timeout": "whether a PROXY header is waited for, which depends on the client's address",
}
"""Private name -> why it is needed. Names of asyncio's follow the name of aiosmtpd's that holds them."""
BLOCK = 65_536
"""Bytes of a mail that are read at a time, and half of those that may wait unread."""
COMMANDS = ("HELO", "EHLO", "STARTTLS", "XFORWARD", "RSET", "NOOP", "VRFY", "QUIT", "MAIL", "RCPT", "DATA")
"""The commands that are offered; AUTH, EXPN and HELP of aiosmtpd's are not."""

for name in ("mail.log", "mail.debug"):  # aiosmtpd's: they quote what clients send
    logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class _Methods(dict[str, Any]):
    """Command -> its method, also for unknown commands: aiosmtpd would end a session at the fifth of them."""

    def __init__(self, known: dict[str, Any], unknown: Any) -> None:
        super().__init__(known)
        self._unknown = unknown

    def get(self, command: str, default: object = None) -> Any:
        return super().get(command) or partial(self._unknown, command)


class Hooks:
    """The hooks of aiosmtpd's other than commands. aiosmtpd searches all names of this object at each connection."""

    def __dir__(self) -> list[str]:
        return ["handle_PROXY"]

    async def handle_PROXY(self, server: "Server", session: Connection, envelope: Envelope, header: ProxyData) -> bool:
        """A PROXY header was received and is valid."""
        await server.proxied(header)
        return True


HOOKS = Hooks()


class Server(SMTP, asyncio.BufferedProtocol):
    """One connection. parted: nothing is read or written any more. deadline: calls `timed_out`."""

    protocol = "ESMTP"
    commands: tuple[str, ...] = COMMANDS

    command_size_limit = MAX_LINE
    line_length_limit = BLOCK

    def __init__(self, hostname: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            HOOKS,
            data_size_limit=None,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident=f"{self.protocol} spamfilter",
            tls_context=tls,
            loop=asyncio.get_running_loop(),
        )
        self._smtp_methods = _Methods(self._smtp_methods, self.unknown)
        self.deadline = Deadline(self.timed_out)
        self._timeout_handle = cast(asyncio.TimerHandle, self.deadline)  # aiosmtpd only cancels it
        self.parted = self.ended = False

    def __dir__(self) -> list[str]:
        """aiosmtpd searches all names at each connection, which took three times as long as everything else."""
        return [f"smtp_{command}" for command in self.commands]

    @abstractmethod
    async def serve(self) -> None:
        """The whole session; calls `converse`."""

    @abstractmethod
    async def unknown(self, command: str, argument: str | None) -> None:
        """Answer an unknown command."""

    @abstractmethod
    def timed_out(self) -> None:
        """The time of `deadline` has passed."""

    @abstractmethod
    async def proxied(self, header: ProxyData) -> None:
        """A trusted proxy has named the real client; the greeting follows."""

    @property
    def link(self) -> asyncio.Transport:
        """The transport; unlike `transport`, it is not None when the session shall end."""
        return cast(asyncio.Transport, self._writer.transport)

    @property
    def reader(self) -> asyncio.StreamReader:
        return self._reader

    @property
    def unread(self) -> bytearray:
        """The bytes that have arrived but were not read yet; may be changed."""
        buffer: bytearray = vars(self._reader)["_buffer"]
        return buffer

    def coming(self) -> Iterator[bytes]:
        """The unread lines, without their ends. Iterate before anything else is read."""
        start = 0
        while (end := self.unread.find(b"\n", start)) >= 0:
            yield bytes(self.unread[start:end]).removesuffix(b"\r")
            start = end + 1

    async def _handle_client(self) -> None:
        await self.serve()

    async def converse(self) -> None:
        """Greet, and answer commands until `stop`."""
        await super()._handle_client()

    def stop(self) -> None:
        """End the session: no further command is read."""
        self.transport = None
        self._reader.feed_eof()

    def await_proxy(self, seconds: float) -> None:
        """Wait for a PROXY header at the begin of the session."""
        self._proxy_timeout = seconds

    async def write(self, data: bytes) -> None:
        """Send bytes. Raises ConnectionError if the connection is closed."""
        if self.parted or self.link.is_closing():
            raise ConnectionResetError("nobody hears any more")
        self._writer.write(data)
        await self._writer.drain()

    def get_buffer(self, sizehint: int) -> memoryview:
        # asyncio would allocate memory for the largest read each time, and close the connection where there is none.
        return read_buffer.room

    def buffer_updated(self, size: int) -> None:
        self.data_received(read_buffer.room[:size])

    def data_received(self, data: bytes | memoryview) -> None:
        # If a connection is closed with unread input, the system resets it, and the client may lose our last replies,
        # even a 250, and would send that mail again. So input is read to its end, and dropped.
        if self.parted:
            return
        try:
            super().data_received(data)  # type: ignore[arg-type]  # a reader adds any bytes to its buffer
        except MemoryError as error:  # raised here, it would close the connection without a reply
            self._reader.set_exception(error)

    def eof_received(self) -> bool:
        # aiosmtpd's method would cancel the running command.
        super(SMTP, self).eof_received()
        self.ended = True
        assert self.session is not None
        return self.session.ssl is None and not self.parted  # TLS connections cannot be half open

    def _reset_timeout(self, duration: float | None = None) -> None:
        """Called by aiosmtpd before a PROXY header and before each command; sets our own deadline."""
        self.deadline.set(math.inf if duration is None else self.loop.time() + duration)
