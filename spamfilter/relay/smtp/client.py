"""A client's connection: its address, the limits of its session, its end.

Guarantee: a client hears a reply before its connection is closed, except during a handshake of TLS or PROXY. What is
not SMTP ends the session: a browser that was made to send a form to this port delivers no mail.
"""

import asyncio
import logging
import socket
from ipaddress import IPv4Address, IPv6Address

from aiosmtpd.proxy_protocol import V2_CMD, ProxyData

from spamfilter.relay.next_hops import Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.session import LEAVING, Session
from spamfilter.relay.smtp.incoming import Incoming
from spamfilter.relay.smtp.server import Server
from spamfilter.system import unix_socket
from spamfilter.system.escaping import printable
from spamfilter.system.logs import SELDOM

log = logging.getLogger(__name__)

LINGER_SECONDS = 5.0
"""Time for a client to read our last reply before the connection is cut."""
PROXY_SECONDS = 10.0
"""Time for a proxy to send its header at the begin; the specification wants at least three seconds."""
GREETING_SECONDS = 0.05
"""Time before the greeting, in which a client that is not trusted must not talk: what it sends at once has arrived by
then, and no mail server notices the wait."""
EARLY = Reply.of("421 4.7.0 Input before the greeting; closing connection")
NOT_SMTP = Reply.of("421 4.7.0 This is not SMTP; closing connection")
NO_MEMORY = Reply.of("421 4.3.0 Temporary fault; closing connection")
REFUSALS_LOGGED = 20
"""Rejected commands of a session that are logged; a session may have as many as [limits] commands."""
LOOPBACK = "127.0.0.1"
"""The address of a client on a socket in the file system, which has none."""


class Client(Server):
    """The connection of a client. relaying: the session with its transactions."""

    relaying: Session
    each = False  # a reply to a mail for each recipient

    def __init__(self, relay: Relay, submission: bool = False) -> None:
        super().__init__(relay.hostname, relay.tls)
        self._relay = relay
        self._submission = submission
        self._proven = False
        self._began = self.loop.time()
        self._commands = 0  # since the last accepted message
        self._errors = self._refused = 0
        self._introduced = False  # by HELO or EHLO
        self._unknown = 0  # lines before that which are no command
        self._leaving = self._busy = False
        self._handshaking = False  # of TLS or PROXY
        self._incoming: Incoming | None = None
        self._waits = "idle_seconds"  # the limit that ends this session if nothing comes; '' before a PROXY header

    async def serve(self) -> None:
        assert self.session is not None
        sock = self.link.get_extra_info("socket")
        local = sock is not None and sock.family == socket.AF_UNIX
        self._proven = local and self._submission
        if local:
            self._is(LOOPBACK, 0)
        else:
            self._is(*(self.session.peer or ("", 0))[:2])  # unknown of a peer that has hung up already
        try:
            if not self._enters():
                return
            if self._proven and not unix_socket.is_mail_server(user := unix_socket.user_of(sock)):
                log.warning("submission: uid %d is not the mail server (%s); refused", user, unix_socket.MAIL_SERVER)
                self._say_goodbye(Reply.of("554 5.7.1 This socket is for the mail server only"))
                return
            self._relay.metrics.count("sessions")
            self._handshaking = self._relay.proxy_protocol and self.relaying.trusted and not local
            if self._handshaking:
                self._waits = ""
                self.await_proxy(PROXY_SECONDS)
            elif await self._talks_early():
                return
            await self.converse()
            if self._handshaking:
                log.warning("%s: no valid PROXY header; closing connection", self.relaying.peer)
        except (EOFError, ConnectionError):
            pass
        finally:
            self._relay.crowd.leave(self)
            if self._refused > REFUSALS_LOGGED:
                log.info("%s: %d further refusals in this session", self.relaying.peer, self._refused - REFUSALS_LOGGED)
            self.relaying.close()
            self._close()

    def _is(self, address: str, port: int) -> None:
        peer = address.removeprefix("::ffff:") if "." in address else address
        self.relaying = Session(
            self._relay, peer, port, submission=self._submission, proven=self._proven, each=self.each, gone=self._gone
        )

    def _enters(self) -> bool:
        """Whether the limits allow this client; if not, it hears why."""
        limits = self._relay.limits
        if limit := self._relay.crowd.enter(self, self.relaying.peer, limits, trusted=self.relaying.trusted):
            self._say_goodbye(self._relay.over(limit, self.relaying.peer))
            return False
        return True

    async def _talks_early(self) -> bool:
        """Whether a client that is not trusted sends anything before the greeting; then it hears 421."""
        if self.relaying.trusted:
            return False
        await asyncio.sleep(GREETING_SECONDS)
        if self.unread:
            self._log_refusal("input", EARLY)
            self._say_goodbye(EARLY)
        return self._leaving

    async def proxied(self, header: ProxyData) -> None:
        self._handshaking = False
        # A proxy that connects for itself, as in a health check, says LOCAL or names no client.
        client = header.src_addr
        if isinstance(client, IPv4Address | IPv6Address) and header.command != V2_CMD.LOCAL:
            self._relay.crowd.leave(self)
            mapped = client.ipv4_mapped if isinstance(client, IPv6Address) else None
            self._is(str(mapped or client), header.src_port or 0)
            if self._enters():
                await self._talks_early()

    def leave_if_idle(self) -> None:
        """Close the connection unless a transaction is running; after that no new one begins."""
        if self._handshaking or (not self._busy and self.relaying.transaction is None):
            self.leave()

    def leave(self) -> None:
        """End the session, also within a transaction: the client hears 421, or nothing in a handshake."""
        if self._handshaking:
            self.link.abort()
        else:
            self._say_goodbye(LEAVING)

    async def push(self, status: str | bytes | Reply) -> None:
        """Send and count a reply of ours or a line of aiosmtpd's; does nothing if the session has ended."""
        if self._leaving or not status:
            return
        reply = status if isinstance(status, Reply) else _reply(status)
        if reply.code == 421:
            self._say_goodbye(reply)
            return
        # An error in the protocol; a rejected recipient or message is none, nor is what the next hop says.
        if reply.own and 500 <= reply.code <= 504:
            self._errors += 1
            if self._errors > self._relay.limits.errors:
                self._say_goodbye(self._relay.over("errors", self.relaying.peer))
                return
            if reply.code == 500 and not self._introduced:
                self._unknown += 1
                if self._unknown > 1:
                    self._say_goodbye(NOT_SMTP)
                    return
        self._wait()
        self._relay.replied(reply.code)
        await self.write(reply.raw)

    async def handle_exception(self, error: Exception) -> str:
        """The reply after an exception: 451, or nothing if the session has ended."""
        if isinstance(error, EOFError | ConnectionError):
            self.stop()
            return ""
        if isinstance(error, MemoryError) or self.reader.exception() is not None:  # nothing can be read any more
            self._say_goodbye(NO_MEMORY)  # before anything that takes memory, as the log does
        return self.relaying.fault().text

    def data_received(self, data: bytes | memoryview) -> None:
        if self._incoming is not None:
            self._incoming.came(len(data))
            self._wait()
            if self._incoming.is_slow():
                self._say_goodbye(self._relay.over("data_seconds", self.relaying.peer))
        super().data_received(data)

    def _wait(self) -> None:
        """Set the deadline for the next command, for more of the mail, or for the handshake."""
        limits, now = self._relay.limits, self.loop.time()
        if self._handshaking:
            self._waits = "tls_seconds"
            self.deadline.set(now + limits.tls_seconds)
            return
        seconds, self._waits = limits.idle_seconds, "idle_seconds"
        if self._incoming is not None:
            seconds, self._waits = limits.data_seconds, "data_seconds"
        limit, end = self._end()
        if end - now < seconds:
            self._waits = limit
        self.deadline.set(min(now + seconds, end))

    def timed_out(self) -> None:
        if self._handshaking:
            if self._waits:
                self._relay.limit_log.noted(self._waits, f"{self.relaying.peer} has not ended its handshake")
            else:
                why = "%s: no PROXY header in %g seconds; closing connection"
                log.warning(why, self.relaying.peer, PROXY_SECONDS, extra=SELDOM)
            self.link.abort()
        else:
            self._say_goodbye(self._relay.over(self._waits, self.relaying.peer))

    def _end(self) -> tuple[str, float]:
        """The limit of time for the transaction, or for the session between transactions, and when it ends."""
        limits = self._relay.limits
        if self.relaying.transaction is not None:
            return "transaction_seconds", self.relaying.transaction.began + limits.transaction_seconds
        return "session_seconds", self._began + limits.session_seconds

    def _exceeded(self) -> str:
        """The limit that the session has exceeded when a command comes, '' if none."""
        limit, end = self._end()
        if self._commands > self._relay.limits.commands:
            return "commands"
        return limit if self.loop.time() >= end else ""

    def _log_refusal(self, verb: str, reply: Reply) -> None:
        self._refused += 1
        if self._refused <= REFUSALS_LOGGED:
            text = printable(reply.text, 200)
            log.info("%s: %s is answered with %s", self.relaying.peer, printable(verb, 8), text)

    def _say_goodbye(self, reply: Reply) -> None:
        if not self._leaving:
            self._leaving = True
            if not self._gone():
                self._relay.replied(reply.code)
                self.link.write(reply.raw)
                self._close()
            self.stop()

    def _close(self) -> None:
        """Close when the client has read the last reply, or after LINGER_SECONDS."""
        self.deadline.cancel()
        if self._gone():
            return
        self.parted = True
        self.loop.call_later(LINGER_SECONDS, self.link.abort)
        if self.ended or not self.link.can_write_eof():  # TLS has its own way to close
            self.link.close()
            return
        self.link.resume_reading()
        try:
            self.link.write_eof()
        except OSError:  # the client has hung up already
            self.link.abort()

    def _gone(self) -> bool:
        return self.parted or self.link.is_closing()


def _reply(line: str | bytes) -> Reply:
    """A line of aiosmtpd's as a reply, with the enhanced status code that it lacks."""
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    return Reply.of(text.replace("500 ", "500 5.5.2 ", 1) if text.startswith("500 ") else text)
