"""A client's connection: who it is, its timers, its end.

Guarantee: the end of input, or of the connection, does not stop a hand-over, and nobody is cut off without a word.
"""

import asyncio
import logging
import math
from abc import abstractmethod
from collections.abc import Sequence

from spamfilter.config.addresses import Network
from spamfilter.relay.front_end import Relay
from spamfilter.relay.limits.crowd import OVER
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.next_hops.connection import Connection
from spamfilter.relay.transaction import Transaction
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

LINGER_SECONDS = 5.0
"""For a client to take our last words before it is cut off."""
REFUSALS_LOGGED = 20
"""Refused commands of a session that have a line in the log; a session may have as many as [limits] commands."""


class Client(Connection):
    """The connection; `_leaving` once its last words are said, `_parted` once nothing is written or read any more."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self._task: asyncio.Task[None] | None = None
        self._peer = ""
        self._port = 0
        self._networks: Sequence[Network] | None = None
        self._is_trusted = False
        self._greeted = ""
        self._leaving = self._parted = self._receiving = self._handing_over = False
        self._transaction: Transaction | None = None
        self._began = self.loop.time()
        self._commands = 0  # since the last accepted message
        self._refused = 0
        self._timer = "idle_seconds"  # the limit that ends this session if nothing comes

    @abstractmethod
    async def _handle_client(self) -> None:
        """The session, from its greeting on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # A peer that is gone already has no name.
        address, self._port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._peer = address.removeprefix("::ffff:") if "." in address else address
        self._task = self.loop.create_task(self._handle_client())

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._task is not None and not self._handing_over:
            self._task.cancel()

    def received(self, data: bytes | memoryview) -> None:
        # What is unread when a connection is closed makes the system reset it, and the client loses the replies that
        # are on their way, a 250 among them: it would send that mail again. So it is read to its end, and dropped.
        if not self._parted:
            super().received(data)

    def eof_received(self) -> bool | None:
        return super().eof_received() and not self._parted

    def timed_out(self) -> None:
        if self._receiving:
            super().timed_out()
        else:
            self._last_words(self._over(self._timer))

    def _over(self, limit: str) -> Reply:
        """What this client hears that has gone over a limit."""
        reply = OVER[limit]
        self._relay.excess.noted(limit, f"{self._peer} hears {reply.text}")
        return reply

    def _last_words(self, reply: Reply) -> None:
        self._leaving = True
        if not self._gone():
            self._relay.replied(reply.code)
            self.write(reply.raw)
            self._close()

    def _close(self) -> None:
        """Close once what is written has been read; a client that does not read loses its place all the same."""
        if self._gone() or self.transport is None:
            return
        self._parted = True
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        if self.ended or not self.transport.can_write_eof():  # TLS says goodbye, and hears the client out, by itself
            self.transport.close()
            return
        self.transport.resume_reading()
        try:
            self.transport.write_eof()
        except OSError:  # it has hung up already, which our last words made the system see
            self.transport.abort()
        self.ended = True
        self._fail(None)

    async def _send(self, reply: Reply) -> None:
        if self._parted or self.lost:  # a session whose message was handed over goes on to this point
            raise ConnectionError("nobody hears any more")
        self._relay.replied(reply.code)
        self.write(reply.raw)
        await self.drain()

    @property
    def _trusted(self) -> bool:
        if self._networks is not self._relay.trusted:  # they may change while the session lasts
            self._networks, self._is_trusted = self._relay.trusted, self._relay.trusts(self._peer)
        return self._is_trusted

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
        self.due(self.loop.time() + min(left, idle))

    def _exceeded(self) -> str:
        """The limit that the session is over already when a command comes, '' if none."""
        limit, end = self._end()
        if self._commands > self._relay.limits.commands:
            return "commands"
        return limit if self.loop.time() >= end else ""

    def _pause_timeout(self) -> None:
        """While a command is obeyed, blocks and the next hop have limits of their own; the idle timer must wait."""
        self.due(math.inf)

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
        return self._parted or self.closing
