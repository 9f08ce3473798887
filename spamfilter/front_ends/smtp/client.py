"""A client's connection, as a subclass of aiosmtpd's: who it is, its timers, its end.

aiosmtpd gives the connection, STARTTLS and timers. What it would do on its own account is taken
over: the end of input does not stop a hand-over, and nobody is cut off without a word.
"""

import asyncio
import logging

from aiosmtpd.smtp import SMTP

from spamfilter.front_ends.front_end import Relay
from spamfilter.front_ends.smtp.limits import OVER
from spamfilter.front_ends.smtp.transaction import Transaction
from spamfilter.front_ends.smtp.wire import Wire
from spamfilter.next_hops import Reply
from spamfilter.verdict import printable

log = logging.getLogger(__name__)

LINGER_SECONDS = 5.0
"""For a client to take our last words before it is cut off."""
REFUSALS_LOGGED = 20
"""Refused commands of a session that have a line in the log; a session may have as many as [limits] commands."""


class _Parting(asyncio.Protocol):
    """Drops what a client still sends until it has heard us out.

    What is unread when a connection is closed makes the system reset it, and the client loses the replies that are on
    their way, a 250 among them: it would send that mail again.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client

    def pause_writing(self) -> None:
        self._client.pause_writing()

    def resume_writing(self) -> None:
        self._client.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.connection_lost(error)


class Client(SMTP):
    """The connection; `_leaving` once its last words are said, `_parted` once nothing is written or read any more."""

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
        self._leaving = self._parted = self._ended = False
        self._transaction: Transaction | None = None
        self._began = self.loop.time()
        self._commands = 0  # since the last accepted message
        self._refused = 0
        self._timer = "idle_seconds"  # the limit that ends this session if nothing comes

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
        self._ended = True
        asyncio.StreamReaderProtocol.eof_received(self)
        return self.session.ssl is None

    def _timeout_cb(self) -> None:
        if self.transport is not None:
            self._last_words(self._over(self._timer))

    def abort(self) -> None:
        """Cut the connection."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def _over(self, limit: str) -> Reply:
        """What this client hears that has gone over a limit."""
        reply = OVER[limit]
        self._relay.excess.noted(limit, f"{self._peer} hears {reply.text}")
        return reply

    def _last_words(self, reply: Reply) -> None:
        self._leaving = True
        if not self._gone():
            self._relay.replied(reply.code)
            self._writer.write(reply.raw)
            self._close()

    def _close(self) -> None:
        """Close once what is written has been read; a client that does not read loses its place all the same."""
        if self._gone() or not isinstance(self.transport, asyncio.Transport):
            return
        self._parted = True
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        if self._ended or not self.transport.can_write_eof():  # TLS says goodbye, and hears the client out, by itself
            self.transport.close()
            return
        self.transport.set_protocol(_Parting(self))
        self.transport.resume_reading()
        try:
            self.transport.write_eof()
        except OSError:  # it has hung up already, which our last words made the system see
            self.transport.abort()
        self._reader.feed_eof()

    async def _send(self, reply: Reply) -> None:
        if self._parted:
            raise ConnectionError("the last words are said")
        self._relay.replied(reply.code)
        self._writer.write(reply.raw)
        await self._writer.drain()

    @property
    def _trusted(self) -> bool:
        return self._relay.trusts(self._peer)

    def _end(self) -> tuple[str, float]:
        """When the time of this session is over, or of its transaction while there is one; and by which limit."""
        limits = self._relay.limits
        if self._transaction is not None:
            return "transaction_seconds", self._transaction.began + limits.transaction_seconds
        return "session_seconds", self._began + limits.session_seconds

    def _start_timeout(self) -> None:
        """Let the client have its time for the next command, or to read a reply."""
        idle = self._relay.limits.idle_seconds
        limit, end = self._end()
        left = end - self.loop.time()
        self._timer = limit if left < idle else "idle_seconds"
        self._reset_timeout(max(min(left, idle), 0.001))

    def _exceeded(self) -> str:
        """The limit that the session is over already when a command comes, '' if none."""
        limit, end = self._end()
        if self._commands > self._relay.limits.commands:
            return "commands"
        return limit if self.loop.time() >= end else ""

    def _pause_timeout(self) -> None:
        """While a command is obeyed, blocks and the next hop have limits of their own; the idle timer must wait."""
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()

    def _log_refusal(self, line: bytes, reply: Reply) -> None:
        self._refused += 1
        if self._refused <= REFUSALS_LOGGED:
            verb = printable(line[:8].decode("ascii", "replace").split(" ")[0])
            log.info("%s: %s is answered with %s", self._peer, verb, printable(reply.text, 200))

    def _sum_up(self) -> None:
        """Say how much was left out of the log."""
        if self._refused > REFUSALS_LOGGED:
            log.info("%s: %d further refusals in this session", self._peer, self._refused - REFUSALS_LOGGED)

    def _gone(self) -> bool:
        return self._parted or self.transport is None or self.transport.is_closing()
