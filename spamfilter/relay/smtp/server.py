"""aiosmtpd's server, fitted to a proxy. No other module touches its private names.

Guarantee: the end of the client's input stops nothing that is being done, and nothing that a client sends is logged.
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

PRIVATE = {
    "_handle_client": "a session is counted when it begins, and has last words when it ends",
    "_reader": "reads the mail behind DATA in blocks; is woken when a session ends by its time",
    "_reader._buffer": "commands that were pipelined, for the next hop; the line end before a first dot",
    "_writer": "a reply is many lines as they came, which `push` would end once more",
    "_smtp_methods": "an unknown command is one of those that a session may have, and no line of the log",
    "_reset_timeout": "makes a timer for each command: seven for each mail",
    "_timeout_handle": "the timer, which is cancelled with the connection",
    "_proxy_timeout": "whether a PROXY header is waited for, which depends on the client's address",
}
"""Name -> what it is needed for. Those of asyncio begin with the name of aiosmtpd that holds them."""
BLOCK = 65_536
"""Bytes of a mail that are taken at a time, and half of those that may wait unread."""
COMMANDS = ("HELO", "EHLO", "STARTTLS", "XFORWARD", "RSET", "NOOP", "VRFY", "QUIT", "MAIL", "RCPT", "DATA")
"""AUTH, EXPN and HELP are aiosmtpd's, and not ours to offer."""
_METHODS = [f"smtp_{command}" for command in COMMANDS]

for name in ("mail.log", "mail.debug"):  # aiosmtpd's: they quote what clients send
    logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class _OneLimit(dict[str, int]):
    """Bytes of a command, whatever it is; aiosmtpd's own keeps each word that a client says as a key."""

    def __missing__(self, command: str) -> int:
        return MAX_LINE


class _Methods(dict[str, Any]):
    """Command -> its method. aiosmtpd ends a session at the fifth command that is unknown."""

    def __init__(self, known: dict[str, Any], unknown: Any) -> None:
        super().__init__(known)
        self._unknown = unknown

    def get(self, command: str, default: object = None) -> Any:
        return super().get(command) or partial(self._unknown, command)


class Hooks:
    """What aiosmtpd asks beside the commands. It looks through all names of this object for each connection."""

    def __dir__(self) -> list[str]:
        return ["handle_PROXY"]

    async def handle_PROXY(self, server: "Server", session: Connection, envelope: Envelope, header: ProxyData) -> bool:
        """A header is good."""
        server.proxied(header)
        return True


HOOKS = Hooks()


class Server(SMTP):
    """One connection. parted: nothing is written or read any more. deadline: calls `timed_out`."""

    command_size_limit = MAX_LINE
    command_size_limits = _OneLimit()
    line_length_limit = BLOCK

    def __init__(self, hostname: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            HOOKS,
            data_size_limit=None,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident="ESMTP spamfilter",
            tls_context=tls,
            loop=asyncio.get_running_loop(),
        )
        self._smtp_methods = _Methods(self._smtp_methods, self.unknown)
        self.deadline = Deadline(self.timed_out)
        self._timeout_handle = cast(asyncio.TimerHandle, self.deadline)  # it is cancelled, and nothing else
        self.parted = self.ended = False

    def __dir__(self) -> list[str]:
        """aiosmtpd looks through all names for each connection, which took three times as long as the rest."""
        return _METHODS

    @abstractmethod
    async def serve(self) -> None:
        """The whole of a session; calls `converse`."""

    @abstractmethod
    async def unknown(self, command: str, argument: str | None) -> None:
        """Answer a command that is none."""

    @abstractmethod
    def timed_out(self) -> None:
        """The time of `deadline` has passed."""

    @abstractmethod
    def proxied(self, header: ProxyData) -> None:
        """The client is another one, for whom a trusted proxy speaks."""

    @property
    def link(self) -> asyncio.Transport:
        """The transport; `transport` is None when the session shall end."""
        return cast(asyncio.Transport, self._writer.transport)

    @property
    def reader(self) -> asyncio.StreamReader:
        return self._reader

    @property
    def unread(self) -> bytearray:
        """What has come and was not taken yet; may be changed."""
        buffer: bytearray = vars(self._reader)["_buffer"]
        return buffer

    def coming(self) -> Iterator[bytes]:
        """The lines of what is unread, without their ends; to be read before anything is taken."""
        start = 0
        while (end := self.unread.find(b"\n", start)) >= 0:
            yield bytes(self.unread[start:end]).removesuffix(b"\r")
            start = end + 1

    async def _handle_client(self) -> None:
        await self.serve()

    async def converse(self) -> None:
        """Greet, and obey commands until `stop`."""
        await super()._handle_client()

    def stop(self) -> None:
        """Let the session end: no command is read any more."""
        self.transport = None
        self._reader.feed_eof()

    def await_proxy(self, seconds: float) -> None:
        """Let the session begin with a PROXY header."""
        self._proxy_timeout = seconds

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError where nobody hears it."""
        if self.parted or self.link.is_closing():  # uvloop raises RuntimeError
            raise ConnectionResetError("nobody hears any more")
        self._writer.write(data)
        await self._writer.drain()

    def data_received(self, data: bytes) -> None:
        # What is unread when a connection is closed makes the system reset it, and the client loses the replies that
        # are on their way, a 250 among them: it would send that mail again. So it is read to its end, and dropped.
        if self.parted:
            return
        try:
            super().data_received(data)
        except MemoryError as error:  # raised in here it would end the connection without a word
            self._reader.set_exception(error)

    def eof_received(self) -> bool:
        # aiosmtpd's would cancel what is being done.
        super(SMTP, self).eof_received()
        self.ended = True
        assert self.session is not None
        return self.session.ssl is None and not self.parted  # TLS is never half open

    def _reset_timeout(self, duration: float | None = None) -> None:
        """Set by aiosmtpd before a PROXY header and each command; the limits here are other ones."""
        self.deadline.set(math.inf if duration is None else self.loop.time() + duration)
