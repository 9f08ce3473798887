"""One client's SMTP dialogue, up to the mail itself: commands in, replies out, greeting, STARTTLS, XFORWARD.

Guarantee: an exception in here is a 451 without details. What fails for a time is never made a 5xx,
nor is what was pipelined behind it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping

from spamfilter.errors import NextHopError
from spamfilter.relay import xforward
from spamfilter.relay.front_end import Relay
from spamfilter.relay.limits.crowd import Crowd
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.smtp.client import Client
from spamfilter.relay.smtp.keywords import announced
from spamfilter.relay.smtp.wire import LineTooLong, Wire
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

MAX_LINE = 2000
"""Bytes of a command: RFC 5321 wants 512 and 1,000 more for DSN's ORCPT. Postfix cuts a line off at 2,048 bytes, and
would obey another command than the one that was judged."""

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

OK = Reply.of("250 2.0.0 Ok")
UNREACHABLE = Reply.of("451 4.4.1 The next hop cannot be reached; try again later")
LEAVING = Reply.of("421 4.3.2 Shutting down; try again later")


def decoded(argument: bytes) -> str:
    """The argument of a command, whatever bytes it has."""
    return argument.strip().decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """What a client has sent, as it came."""
    return text.encode("utf-8", "surrogateescape")


def is_sound(line: bytes) -> bool:
    """Whether a command is short enough, and free of what might divide it for others."""
    return len(line) <= MAX_LINE and not _CONTROL.search(line)


class Dialogue(Client):
    """The commands beside the transaction's, which a subclass adds to `_verbs`. crowd: those it is one of."""

    def __init__(self, relay: Relay, crowd: Crowd) -> None:
        super().__init__(relay)
        self._crowd = crowd
        self._wire = Wire(self)
        self._conversation: Conversation | None = None
        self._forwarded: dict[str, str] = {}
        self._broken = False
        self._errors = 0
        self._busy = self._securing = self._secured = False
        self._verbs: dict[bytes, Callable[[str], Awaitable[Reply | None]]] = {
            b"HELO": self._helo, b"EHLO": self._ehlo, b"STARTTLS": self._starttls, b"XFORWARD": self._xforward,
            b"RSET": self._rset, b"NOOP": self._noop, b"VRFY": self._vrfy, b"QUIT": self._quit,
        }  # fmt: skip

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.leave(self)
        super().connection_lost(error)

    def leave_if_idle(self) -> None:
        """Say goodbye unless a transaction is running; it may end, and then no new one begins."""
        if self._securing:
            self.abort()  # in the middle of a handshake there are no words
        elif not self._busy and self._transaction is None and not self._leaving:
            self._last_words(LEAVING)

    async def _handle_client(self) -> None:
        if limit := self._crowd.enter(self, self._peer, self._relay.limits, trusted=self._trusted):
            self._last_words(self._over(limit))
            return
        self._relay.metrics.count("sessions")
        try:
            await self._send(Reply.of(f"220 {self._relay.hostname} ESMTP spamfilter"))
            while not self._leaving:
                await self._turn()
        except (EOFError, ConnectionError, TimeoutError):
            pass
        finally:
            self._crowd.leave(self)
            self._sum_up()
            if self._conversation is not None:
                self._conversation.release()
                self._conversation = None
            self._close()

    async def _turn(self) -> None:
        """One command and its reply."""
        self._start_timeout()
        try:
            line = await self._wire.line(MAX_LINE)
        except LineTooLong:
            await self._answer(Reply.of("500 5.5.2 Command line too long"))
            return
        self._commands += 1
        if limit := self._exceeded():
            self._last_words(self._over(limit))
            return
        self._busy = True
        self._pause_timeout()
        try:
            reply = await self._obey(line)
            if reply is not None and reply.code >= 400:
                self._log_refusal(line, reply)
            self._start_timeout()
            await self._answer(reply)
        finally:
            self._busy = False
        if self._relay.draining and self._transaction is None:
            self._last_words(LEAVING)

    async def _obey(self, line: bytes) -> Reply | None:
        verb, _, argument = line.partition(b" ")
        command = self._verbs.get(verb.upper())
        if command is None:
            return Reply.of("500 5.5.2 Command not recognised")
        if not is_sound(line):
            return Reply.of("501 5.5.4 Control characters in a command")
        try:
            return await command(decoded(argument))
        except NextHopError as error:
            log.warning("%s: %s", self._peer, printable(str(error), 300))
            self._relay.failed(error)
            self._drop()
            return UNREACHABLE
        except (EOFError, ConnectionError, TimeoutError, asyncio.CancelledError):
            self._drop()
            raise
        except Exception:
            log.exception("%s: a command failed", self._peer)
            self._relay.metrics.count("faults", "session")
            self._drop()
            return Reply.of("451 4.3.0 Temporary fault; try again later")

    async def _answer(self, reply: Reply | None) -> None:
        if reply is None:
            return
        if reply.code == 421:
            self._last_words(reply)
            return
        if 500 <= reply.code <= 504:  # of the protocol; a refused recipient or message is no client's fault
            self._errors += 1
            if self._errors > self._relay.limits.errors:
                self._last_words(self._over("errors"))
                return
        await self._send(reply)

    def _drop(self) -> None:
        """Give up the conversation with a next hop that cannot be relied on.

        What a client has pipelined behind the failed command must hear 451, never 503: that would
        be final, and cost the mail.
        """
        self._broken = True
        self._transaction = None
        self._forwarded.clear()
        if self._conversation is not None:
            self._conversation.abort()
            self._conversation = None

    async def _next(self, verb: str, argument: str) -> Reply:
        """Pass a command on as it came, and its reply back."""
        assert self._conversation is not None
        return await self._conversation.command(encoded(f"{verb} {argument}"))

    async def _open(self) -> Conversation:
        if self._conversation is None or self._conversation.closed:
            self._conversation = await self._relay.next_hop.open()
        return self._conversation

    async def _helo(self, argument: str) -> Reply:
        if not argument:
            return Reply.of("501 5.5.4 Syntax: HELO hostname")
        await self._reset()
        self._greeted = argument
        return Reply.of(f"250 {self._relay.hostname}")

    async def _ehlo(self, argument: str) -> Reply:
        if not argument:
            return Reply.of("501 5.5.4 Syntax: EHLO hostname")
        await self._reset()
        self._greeted = argument
        try:
            theirs = (await self._open()).keywords
        except NextHopError as error:
            # The greeting must succeed all the same, or Postfix takes us for broken; MAIL will say 451.
            log.warning("%s: %s", self._peer, printable(str(error), 300))
            self._relay.failed(error)
            self._drop()
            theirs = {}
        *first, last = [self._relay.hostname, *self._keywords(theirs)]
        return Reply.of(*(f"250-{line}" for line in first), f"250 {last}")

    def _keywords(self, theirs: Mapping[str, str]) -> list[str]:
        offers_tls = self._relay.tls is not None and not self._secured
        return announced(theirs, self._relay.limits.message_size, tls=offers_tls, trusted=self._trusted)

    async def _starttls(self, argument: str) -> Reply | None:
        if argument:
            return Reply.of("501 5.5.4 Syntax: STARTTLS")
        if self._relay.tls is None or self._secured:
            return Reply.of("502 5.5.1 STARTTLS is not offered")
        await self._reset()
        self._forwarded.clear()
        self._securing = True
        try:
            async with asyncio.timeout(self._relay.limits.tls_seconds):
                await self._send(Reply.of("220 2.0.0 Ready to start TLS"))
                self._wire.clear()
                await self.secure(self._relay.tls, server_side=True)
        except TimeoutError:
            self._relay.excess.noted("tls_seconds", f"{self._peer} has not ended its handshake")
            self.abort()
            raise
        except OSError as error:
            log.info("%s: no TLS: %s", self._peer, printable(str(error)))
            raise ConnectionError from error
        finally:
            self._securing = False
        self._secured = True
        self._greeted = ""
        return None

    async def _xforward(self, argument: str) -> Reply:
        if not self._trusted:
            return Reply.of("550 5.7.1 XFORWARD is for trusted clients only")
        if self._transaction is not None:
            return Reply.of("503 5.5.1 XFORWARD within a transaction")
        try:
            self._forwarded |= xforward.parse(argument)
        except ValueError as error:
            return Reply.of(f"501 5.5.4 {error}")
        return OK

    def _end_transaction(self) -> None:
        self._transaction = None
        self._broken = False
        self._forwarded.clear()

    async def _refuse(self, reply: Reply) -> Reply:
        """A refusal of ours after DATA: the next hop forgets the envelope."""
        await self._reset()
        return reply

    async def _reset(self) -> Reply:
        """End the transaction here and at the next hop."""
        running = self._transaction is not None
        self._end_transaction()
        if not running or self._conversation is None:
            return OK
        try:
            reply = await self._conversation.command(b"RSET")
        except NextHopError:
            reply = None
        if reply is not None and reply.positive:
            return reply
        self._conversation.abort()  # with the connection the envelope is gone, too
        return OK

    async def _rset(self, argument: str) -> Reply:
        return Reply.of("501 5.5.4 Syntax: RSET") if argument else await self._reset()

    async def _noop(self, argument: str) -> Reply:
        return OK

    async def _vrfy(self, argument: str) -> Reply:
        if not self._trusted:
            return Reply.of("252 2.0.0 Send some mail and see")
        if self._transaction is None:  # another connection would know nothing of it
            await self._open()
        return await self._next("VRFY", argument)

    async def _quit(self, argument: str) -> None:
        self._last_words(Reply.of("221 2.0.0 Bye"))
