"""A client's connection, as a subclass of aiosmtpd's: who it is, its timers, its end.

aiosmtpd gives the connection, STARTTLS and timers. What it would do on its own account is taken
over: the end of input does not stop a hand-over, and nobody is cut off without a word.
"""

import asyncio

from aiosmtpd.smtp import SMTP

from spamfilter.front_ends.front_end import Relay
from spamfilter.front_ends.smtp.wire import Wire
from spamfilter.next_hops import Reply

LINGER_SECONDS = 5.0
"""For a client to take our last words before it is cut off."""


class Client(SMTP):
    """The connection; `_leaving` once its last words are said."""

    line_length_limit = 2 * 65_536  # aiosmtpd makes it the size of the read buffer; lines are bounded by Wire

    def __init__(self, relay: Relay) -> None:
        super().__init__(
            None,
            hostname=relay.hostname,
            ident="ESMTP spamfilter",
            tls_context=relay.tls,
            timeout=relay.limits.idle_seconds,
            data_size_limit=relay.limits.message_size,
            enable_SMTPUTF8=True,
            loop=asyncio.get_running_loop(),
        )
        self._relay = relay
        self._wire: Wire | None = None
        self._peer = ""
        self._port = 0
        self._greeted = ""
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        secured = self._original_transport is not None
        # A peer that is gone already has no name.
        address, self._port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._peer = address.removeprefix("::ffff:") if "." in address else address
        super().connection_made(transport)
        if secured:
            assert self._wire is not None
            self._wire.clear()
            self._greeted = ""

    def eof_received(self) -> bool | None:
        """Let the handler find the end of input; aiosmtpd would cancel it in the middle of a hand-over."""
        assert self.session is not None
        asyncio.StreamReaderProtocol.eof_received(self)
        return self.session.ssl is None

    def _timeout_cb(self) -> None:
        if self.transport is not None:
            self._last_words(Reply.of("421 4.4.2 Timeout; closing connection"))

    def abort(self) -> None:
        """Cut the connection."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def _last_words(self, reply: Reply) -> None:
        self._leaving = True
        if self.transport is not None and not self.transport.is_closing():
            self._writer.write(reply.raw)
            self._close()

    def _close(self) -> None:
        """Close once what is written has been read; a client that does not read loses its place all the same."""
        if isinstance(self.transport, asyncio.Transport) and not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    async def _send(self, reply: Reply) -> None:
        self._writer.write(reply.raw)
        await self._writer.drain()

    @property
    def _trusted(self) -> bool:
        return self._relay.trusts(self._peer)

    def _pause_timeout(self) -> None:
        """While a command is obeyed, blocks and the next hop have limits of their own; the idle timer must wait."""
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()

    def _gone(self) -> bool:
        return self.transport is None or self.transport.is_closing()
