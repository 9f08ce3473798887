"""The next hop over SMTP: a client that sends commands unchanged and returns the replies unchanged.

Guarantee: replies are returned byte for byte; a message is sent unchanged but for doubled dots. No library does that:
aiosmtplib strips the text of replies and rewrites line ends. A message is never sent a second time; only the first
command of a transaction is, if the connection was closed before its reply.
Connections are kept for the next transaction, and checked with RSET unless they have just ended one. They end with QUIT
unless a reply is outstanding; nobody waits for the reply to QUIT.
"""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from spamfilter.errors import NextHopError
from spamfilter.relay.limits.deadline import Deadline
from spamfilter.relay.next_hops.connection import Connection, TooLate, connected
from spamfilter.relay.next_hops.dot_stuffing import stuffed
from spamfilter.relay.next_hops.keywords import Keywords, keywords_of
from spamfilter.relay.next_hops.next_hop import Conversation, NextHop, Reply, Timeouts
from spamfilter.relay.next_hops.replies import broken, kind_by, read_reply
from spamfilter.relay.next_hops.resolver import Resolver

KEPT_SECONDS = 60.0
KEPT_CONNECTIONS = 20
"""Time and number of idle connections: Postfix closes them after 300 s, and limits their number. Others are kept for
FRESH_SECONDS: to connect anew for each client between two messages took a fifth more processor time a message."""
CHECK_SECONDS = 5.0
"""Time for a kept connection to answer RSET: usually milliseconds, and the client's MAIL waits for it."""
FRESH_SECONDS = 1.0
"""A connection on which a transaction has ended, or none has begun, within this time is not checked: most messages
come in close succession, and RSET was a fourteenth of what the relay spends on one."""


class SmtpNextHop(NextHop):
    """host, port: where to connect. hostname: our name in EHLO. tls: context for STARTTLS; None: no TLS."""

    scheme = "smtp"

    def __init__(
        self, host: str, port: int, hostname: str, tls: ssl.SSLContext | None = None, timeouts: Timeouts | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.hostname = hostname
        self.tls = tls
        self.timeouts = timeouts or Timeouts()
        self._kept: list[SmtpConversation] = []
        self._closed = False
        self._resolver = Resolver(host)
        self._silent: dict[str, float] = {}
        self._keywords = Keywords(self.connect)

    @property
    def where(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def keywords(self) -> Mapping[str, str]:
        return await self._keywords.known()

    async def open(self) -> Conversation:
        while self._kept:
            conversation = self._kept.pop()
            conversation.idle.set(math.inf)
            if not conversation.fresh:
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await conversation.forget()
                except TimeoutError:
                    # The others may hang, too, and the client must not wait for each of them in turn.
                    conversation.abort()
                    self._leave_kept()
                except BaseException:
                    conversation.abort()
                    raise
            if not conversation.closed:
                conversation.unasked = True  # after RSET Exim may still say 421 to MAIL: too many on one connection
                return conversation
        return await self.connect()

    def close(self) -> None:
        self._closed = True
        self._leave_kept()

    def _leave_kept(self) -> None:
        for conversation in self._kept:
            conversation.leave()
        self._kept.clear()

    async def connect(self) -> "SmtpConversation":
        """A new conversation, after EHLO. Raises NextHopError."""
        try:
            async with asyncio.timeout(self.timeouts.connect):
                conversation = self._begin(await self._connected())
                try:
                    await conversation.greet()
                except NextHopError:
                    conversation.leave()
                    raise
                except BaseException:
                    conversation.abort()
                    raise
                self._keywords.learn(conversation.keywords)
                conversation.ended = asyncio.get_running_loop().time()
                return conversation
        except TimeoutError as error:
            raise NextHopError(
                f"{self.where}: no greeting within {self.timeouts.connect:g} s", "timeout", "connect_seconds"
            ) from error
        except OSError as error:
            raise broken(self.where, error, "unreachable") from error

    def _begin(self, connection: Connection) -> "SmtpConversation":
        return SmtpConversation(self, connection)

    async def _connected(self) -> Connection:
        return await connected(await self._resolver.addresses(), self.port, self.timeouts.connect, self._silent)

    def keep(self, conversation: "SmtpConversation") -> None:
        if self._closed or conversation.closed:
            conversation.leave()
            return
        seconds = KEPT_SECONDS if len(self._kept) < KEPT_CONNECTIONS else FRESH_SECONDS
        conversation.idle.set(asyncio.get_running_loop().time() + seconds)
        self._kept.append(conversation)

    def expire(self, conversation: "SmtpConversation") -> None:
        self._kept.remove(conversation)
        conversation.leave()


class SmtpConversation(Conversation):
    def __init__(self, hop: SmtpNextHop, connection: Connection) -> None:
        self._hop = hop
        self._connection = connection
        self._end = math.inf  # deadline of the message that is being sent
        self._pipelined: deque[bytes] = deque()
        self.idle = Deadline(lambda: hop.expire(self))  # set while it is kept
        self.ended = -math.inf  # when EHLO or RSET was answered or a message accepted, if nothing was sent since
        self.unasked = False  # used again without RSET: the connection may be closed
        self.keywords: Mapping[str, str] = {}

    async def greet(self) -> None:
        greeting = await self._reply()
        if greeting.code != 220:
            raise self._failure(f"greeted with {greeting.text}", kind_by(greeting))
        await self._hello()
        if self._hop.tls is not None:
            if "STARTTLS" not in self.keywords:
                raise self._failure("does not offer STARTTLS, which the configuration demands", "tls")
            reply = await self._exchange(b"STARTTLS")
            if reply.code != 220:
                raise self._failure(f"STARTTLS was answered with {reply.text}", "tls")
            # Input in clear text after the reply may be forged: RFC 3207 section 6. `_exchange` checks that again.
            if self._connection.buffer:
                raise self._failure("sent more than its reply to STARTTLS", "tls")
            await self._connection.secure(self._hop.tls, self._hop.host)
            await self._hello()  # keywords that were announced in clear text must be forgotten

    async def _hello(self) -> None:
        name = self._hop.hostname.encode()
        reply = await self._exchange(b"EHLO " + name)
        self.keywords = keywords_of(reply) if reply.positive else {}
        if reply.positive:
            return
        if reply.code < 500:  # a temporary failure, which does not mean that EHLO is unknown
            raise self._failure(f"EHLO was answered with {reply.text}", kind_by(reply))
        reply = await self._exchange(b"HELO " + name)
        if not reply.positive:
            raise self._failure(f"HELO was answered with {reply.text}", kind_by(reply))

    async def command(self, line: bytes) -> Reply:
        reply = await self._command(line)
        if 300 <= reply.code < 400:
            raise self._failure(f"answered {reply.text} where nothing is to follow")
        if line == b"RSET" and reply.positive:
            self.ended = self._connection.loop.time()
        return reply

    async def forget(self) -> None:
        """Send RSET; if that fails, close the connection, which ends the transaction, too."""
        with suppress(NextHopError):
            if (await self.command(b"RSET")).code == 250:
                return
        self.abort()

    def pipeline(self, lines: Iterable[bytes]) -> None:
        if "PIPELINING" in self.keywords and not self._pipelined and not self._connection.buffer:
            self._pipelined.extend(lines)
            self.ended = -math.inf
            self._connection.write(b"\r\n".join([*self._pipelined, b""]))

    async def _command(self, line: bytes) -> Reply:
        if not self.unasked:
            return await self._said(line)
        self.unasked = False
        try:
            if (reply := await self._said(line)).code != 421:
                return reply
        except NextHopError as error:
            if error.kind != "closed":
                raise
        # The connection was closed before this first command of a transaction, so the command had no effect.
        lines = [line, *self._pipelined]
        self._connection.abort()
        self._pipelined.clear()
        other = await self._hop.connect()
        self._connection, self.keywords = other._connection, other.keywords
        self.pipeline(lines)
        return await self._said(line)

    async def _said(self, line: bytes) -> Reply:
        """The reply to a command, within the time for one."""
        seconds = self._hop.timeouts.command
        self._connection.set_deadline(min(self._connection.loop.time() + seconds, self._end))
        try:
            return await self._exchange(line)
        except TooLate as error:
            verb = line[:4].decode("ascii", "replace")
            raise self._failure(f"no reply to {verb} within {seconds:g} s", "timeout", "command_seconds") from error
        finally:
            self._connection.set_deadline(self._end)

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        limit = self._hop.timeouts.final
        # One limit for the whole message, because the client has one, too.
        self._end = self._connection.loop.time() + limit
        self._connection.set_deadline(self._end)
        try:
            reply = await self._exchange(b"DATA")
            if reply.code == 354:
                reply = await self._send(parts)
                if reply.positive:
                    self.ended = self._connection.loop.time()
                if reply.code >= 400 or reply.positive:
                    return reply
            elif reply.code >= 400:
                # This reply ends the transaction for the client, so it must end at the next hop, too.
                await self.forget()
                return reply
        except TooLate as error:
            raise self._failure(f"no reply to the message within {limit:g} s", "timeout", "final_seconds") from error
        finally:
            self._end = math.inf
            self._connection.set_deadline(self._end)
        raise self._failure(f"answered the message with {reply.text}")

    async def _send(self, parts: Sequence[bytes | memoryview]) -> Reply:
        """Send the message with doubled dots; returns the reply to it."""
        connection = self._connection
        last = b""
        try:
            for block in stuffed(parts):
                if last:
                    connection.write(last)
                    await connection.drain()
                last = block
            # A reply that arrives before the end of the message is not the reply to the message.
            if connection.buffer:
                reply = await self._reply()
                if reply.code >= 400:
                    self.abort()
                    return self._refused(reply)
                raise self._failure(f"said {reply.text} before it had the message")
            connection.write(last + b".\r\n")
            await connection.drain()
        except OSError as error:
            # A server may send a reply before it closes the connection; a 2xx is not believed here.
            reply = await self._reply()
            if reply.positive:
                raise self._failure(f"broke off and said {reply.text}") from error
            return self._refused(reply)
        return await self._outcome()

    def _refused(self, reply: Reply) -> Reply:
        """The reply to a message that the next hop has refused before its end."""
        return reply

    async def _outcome(self) -> Reply:
        return await self._reply()

    async def _exchange(self, line: bytes) -> Reply:
        if self._pipelined and self._pipelined[0] == line:
            self._pipelined.popleft()
            return await self._reply()
        while self._pipelined:
            await self._skip(self._pipelined.popleft())
        # An unexpected reply must not be taken for the reply to this command.
        if self._connection.buffer:
            raise self._failure("said more than its reply to the command before")
        self.ended = -math.inf
        try:
            self._connection.write(line + b"\r\n")
            await self._connection.drain()
        except OSError as error:
            raise broken(self._hop.where, error, "closed") from error
        return await self._reply()

    async def _skip(self, line: bytes) -> None:
        """Read the reply to a command that was sent in advance, but then not wanted: it must be a rejection."""
        reply = await self._reply()
        if reply.code < 400:
            verb = line[:4].decode("ascii", "replace")
            raise self._failure(f"answered {verb}, which is not to be, with {reply.text}")

    def _failure(self, text: str, kind: str = "protocol", limit: str = "") -> NextHopError:
        return NextHopError(f"{self._hop.where}: {text}", kind, limit)

    async def _reply(self) -> Reply:
        return await read_reply(self._connection, self._hop.where)

    @property
    def fresh(self) -> bool:
        """Whether the next hop has said lately that no transaction is open, and nothing was sent since."""
        now = self._connection.loop.time()
        return not self.closed and not self._connection.buffer and now - self.ended < FRESH_SECONDS

    @property
    def closed(self) -> bool:
        return self._connection.closing or self._connection.ended

    def release(self) -> None:
        self._hop.keep(self)

    def leave(self) -> None:
        """Say QUIT and close, without waiting; `abort` if it is unknown what the next hop would take QUIT for."""
        self.idle.cancel()
        if self.closed or self._pipelined or self._connection.buffer:
            self.abort()
        else:
            self._connection.write(b"QUIT\r\n")
            self._connection.close()

    def abort(self) -> None:
        self.idle.cancel()
        # Not close(), which would first send the rest to a next hop that may react to it.
        self._connection.abort()
