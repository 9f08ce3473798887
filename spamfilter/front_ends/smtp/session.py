"""One client's SMTP dialogue: a transparent proxy's.

A proxy has to pass on what a server may answer itself: commands with all their parameters go to
the next hop as they came, and its replies come back as they are.

Guarantee: an exception in here is a 451 without details. What fails for a time is never made a 5xx,
nor is what was pipelined behind it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping

from aiosmtpd.smtp import TLSSetupException

from spamfilter.errors import NextHopError
from spamfilter.front_ends.front_end import Relay
from spamfilter.front_ends.smtp import xforward
from spamfilter.front_ends.smtp.client import Client
from spamfilter.front_ends.smtp.handover import hand_over
from spamfilter.front_ends.smtp.local import end_here, purpose_of, refusal
from spamfilter.front_ends.smtp.paths import is_plain, path_of, size_of
from spamfilter.front_ends.smtp.transaction import Transaction
from spamfilter.front_ends.smtp.wire import LineTooLong, TooLarge, Wire, has_bare_newlines, normalised
from spamfilter.next_hops import Conversation, Reply
from spamfilter.verdict import printable

log = logging.getLogger(__name__)

MAX_LINE = 8192
"""Bytes of a command: RFC 5321 wants 512 and 1,000 more for DSN's ORCPT; Postfix takes 2,048 and up."""
KEEP_ALIVE_SECONDS = 60.0
"""Between NOOPs to a next hop that waits while a client sends slowly; Postfix hangs up after 300 s."""
OWN_KEYWORDS = ("8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES")
"""Announced where the next hop announces them; PIPELINING, SIZE, STARTTLS, XFORWARD have rules of their own."""

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

OK = Reply.of("250 2.0.0 Ok")
UNREACHABLE = Reply.of("451 4.4.1 The next hop cannot be reached; try again later")
LEAVING = Reply.of("421 4.3.2 Shutting down; try again later")


class Session(Client):
    """The dialogue with one client. sessions: the set it counts itself into; submission: senders are authenticated."""

    def __init__(self, relay: Relay, sessions: "set[Session]", submission: bool = False) -> None:
        super().__init__(relay)
        self._submission = submission
        self._sessions = sessions
        self._conversation: Conversation | None = None
        self._transaction: Transaction | None = None
        self._forwarded: dict[str, str] = {}
        self._broken = False
        self._errors = 0
        self._busy = False
        self._verbs: dict[bytes, Callable[[str], Awaitable[Reply | None]]] = {
            b"HELO": self._helo, b"EHLO": self._ehlo, b"STARTTLS": self._starttls, b"XFORWARD": self._xforward,
            b"MAIL": self._mail, b"RCPT": self._rcpt, b"DATA": self._data, b"RSET": self._rset,
            b"NOOP": self._noop, b"VRFY": self._vrfy, b"QUIT": self._quit,
        }  # fmt: skip

    def connection_lost(self, error: Exception | None) -> None:
        self._sessions.discard(self)
        super().connection_lost(error)

    def leave_if_idle(self) -> None:
        """Say goodbye unless a transaction is running; it may end, and then no new one begins."""
        if not self._busy and self._transaction is None and not self._leaving:
            self._last_words(LEAVING)

    async def _handle_client(self) -> None:
        if len(self._sessions) >= self._relay.limits.connections:
            self._last_words(Reply.of("421 4.7.0 Too many connections; try again later"))
            return
        self._sessions.add(self)
        self._wire = Wire(self._reader)
        try:
            await self._send(Reply.of(f"220 {self.hostname} ESMTP spamfilter"))
            while not self._leaving:
                await self._turn(self._wire)
        except (EOFError, ConnectionError, TimeoutError):
            pass
        finally:
            self._sessions.discard(self)
            if self._conversation is not None:
                self._conversation.release()
                self._conversation = None
            self._close()

    async def _turn(self, wire: Wire) -> None:
        """One command and its reply."""
        self._reset_timeout()
        try:
            line = await wire.line(MAX_LINE)
        except LineTooLong:
            await self._answer(Reply.of("500 5.5.2 Command line too long"))
            return
        self._busy = True
        self._pause_timeout()
        try:
            reply = await self._obey(line)
            if reply is not None and reply.code >= 400:
                verb = printable(line[:8].decode("ascii", "replace").split(" ")[0])
                log.info("%s: %s is answered with %s", self._peer, verb, printable(reply.text, 200))
            self._reset_timeout()
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
        if _CONTROL.search(line):
            return Reply.of("501 5.5.4 Control characters in a command")
        try:
            return await command(argument.strip().decode("utf-8", "surrogateescape"))
        except NextHopError as error:
            log.warning("%s: %s", self._peer, printable(str(error), 300))
            self._drop()
            return UNREACHABLE
        except (EOFError, ConnectionError, TimeoutError, asyncio.CancelledError):
            self._drop()
            raise
        except Exception:
            log.exception("%s: a command failed", self._peer)
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
                self._last_words(Reply.of("421 4.7.0 Too many errors"))
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
        return await self._conversation.command(f"{verb} {argument}".encode("utf-8", "surrogateescape"))

    async def _open(self) -> Conversation:
        if self._conversation is None or self._conversation.closed:
            self._conversation = await self._relay.next_hop.open()
        return self._conversation

    async def _helo(self, argument: str) -> Reply:
        if not argument:
            return Reply.of("501 5.5.4 Syntax: HELO hostname")
        await self._reset()
        self._greeted = argument
        return Reply.of(f"250 {self.hostname}")

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
            self._drop()
            theirs = {}
        *first, last = [self.hostname, *self._keywords(theirs)]
        return Reply.of(*(f"250-{line}" for line in first), f"250 {last}")

    def _keywords(self, theirs: Mapping[str, str]) -> list[str]:
        """What we announce: ours cut with the next hop's."""
        assert self.session is not None
        found = [keyword for keyword in OWN_KEYWORDS if keyword in theirs]
        size = self._relay.limits.message_size
        if theirs.get("SIZE", "").isdigit():
            size = min(size, int(theirs["SIZE"]) or size)
        found += ["PIPELINING", f"SIZE {size}"]
        if self.tls_context is not None and self.session.ssl is None:
            found.append("STARTTLS")
        if self._trusted:
            found.append("XFORWARD " + " ".join(xforward.ATTRIBUTES))
        return found

    async def _starttls(self, argument: str) -> Reply | None:
        assert self.session is not None
        assert self._wire is not None
        if argument:
            return Reply.of("501 5.5.4 Syntax: STARTTLS")
        if self.tls_context is None or self.session.ssl is not None:
            return Reply.of("502 5.5.1 STARTTLS is not offered")
        await self._reset()
        self._forwarded.clear()
        try:
            await super().smtp_STARTTLS("")
        except TLSSetupException as error:
            log.info("%s: no TLS: %s", self._peer, printable(str(error.__cause__)))
            raise ConnectionError from error
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

    async def _mail(self, argument: str) -> Reply:
        if self._relay.draining:
            return LEAVING
        if not self._greeted:
            return Reply.of("503 5.5.1 Say HELO or EHLO first")
        if self._transaction is not None:
            return Reply.of("503 5.5.1 Nested MAIL command")
        path = path_of(argument, "FROM")
        if path is None:
            return Reply.of("501 5.5.4 Syntax: MAIL FROM:<address> [parameters]")
        if size_of(argument) > self._relay.limits.message_size:
            return Reply.of("552 5.3.4 Message is larger than this relay takes")
        self._broken = False
        conversation = await self._open()
        for line in xforward.commands(self._client(), conversation.keywords.get("XFORWARD", "")):
            reply = await conversation.command(line)
            if not reply.positive:
                log.warning("%s: the next hop answers XFORWARD with %s", self._peer, printable(reply.text))
        reply = await self._next("MAIL", argument)
        self._broken = 400 <= reply.code < 500  # what is pipelined behind it must not hear worse
        if reply.positive:
            client = xforward.client(self._forwarded, self._peer)
            own = self._submission or (self._relay.trusts(client) and xforward.is_told(self._forwarded))
            self._transaction = Transaction(
                _bytes(path), client, own, self._submission, xforward.is_named(self._forwarded)
            )
        return reply

    def _client(self) -> dict[str, str]:
        """What XFORWARD tells the next hop: what a trusted client said, else what we see ourselves."""
        if self._forwarded:
            return self._forwarded
        return {
            "NAME": xforward.UNAVAILABLE,
            "ADDR": f"IPV6:{self._peer}" if ":" in self._peer else self._peer or xforward.UNAVAILABLE,
            "PORT": str(self._port),
            "PROTO": "ESMTP",
            "HELO": self._greeted[: xforward.MAX_VALUE],
            "SOURCE": "LOCAL" if self._trusted else "REMOTE",
        }

    async def _rcpt(self, argument: str) -> Reply:
        if self._transaction is None:
            return UNREACHABLE if self._broken else Reply.of("503 5.5.1 Need MAIL before RCPT")
        path = path_of(argument, "TO")
        if path is None:
            return Reply.of("501 5.5.4 Syntax: RCPT TO:<address> [parameters]")
        purpose = purpose_of(self._relay, path)
        if purpose == "relay" and not self._trusted and not is_plain(path, self._relay.domains):
            return Reply.of("554 5.7.1 Relay access denied")
        if len(self._transaction.recipients) >= self._relay.limits.recipients:
            return Reply.of("452 4.5.3 Too many recipients")
        reply = refusal(self._transaction, purpose)
        if reply is None:
            reply = await self._next("RCPT", argument) if purpose == "relay" else Reply.of("250 2.1.5 Ok")
        if reply.positive:
            self._transaction.purpose = purpose
            self._transaction.recipients.append(_bytes(path))
        else:
            self._transaction.refused.append(reply.code)
        return reply

    async def _data(self, argument: str) -> Reply | None:
        if argument:
            return Reply.of("501 5.5.4 Syntax: DATA")
        if self._transaction is None:
            return UNREACHABLE if self._broken else Reply.of("503 5.5.1 Need MAIL and RCPT before DATA")
        if not self._transaction.recipients:
            if self._transaction.refused and max(self._transaction.refused) < 500:
                return Reply.of("451 4.5.1 No recipients accepted yet")
            return Reply.of("554 5.5.1 No valid recipients")
        async with asyncio.timeout(self._relay.limits.data_seconds):
            await self._send(Reply.of("354 End data with <CR><LF>.<CR><LF>"))
        # Until the mail is here to its end, what follows is the rest of it: then this connection must not go on.
        try:
            mail = await self._received()
        except TimeoutError:
            self._drop()
            return Reply.of("421 4.4.2 Timeout in DATA; closing connection")
        except (EOFError, ConnectionError):
            raise
        except Exception:
            self._drop()
            log.exception("%s: a mail could not be received", self._peer)
            return Reply.of("421 4.3.0 Temporary fault; closing connection")
        if mail is None:
            return await self._refuse(Reply.of("552 5.3.4 Message is larger than this relay takes"))
        if has_bare_newlines(mail):
            if not self._relay.normalise:
                return await self._refuse(Reply.of("550 5.6.0 A CR or LF stands alone; lines must end with CR LF"))
            mail = normalised(mail)
        reply: Reply = await self._relay.shielded(self._hand_over(mail))
        return reply

    async def _received(self) -> bytes | None:
        """The mail behind DATA, read to its end; None if it is too large."""
        assert self._wire is not None
        limits = self._relay.limits
        received = asyncio.Event()
        keeping_alive = asyncio.create_task(self._keep_alive(received))
        try:
            return await self._wire.message(limits.message_size, limits.data_seconds)
        except TooLarge:
            return None
        finally:
            received.set()
            await keeping_alive

    async def _keep_alive(self, received: asyncio.Event) -> None:
        """NOOP to the next hop now and then until the message is here, so that it does not hang up.

        Raises nothing: if the next hop is gone, the hand-over will find out.
        """
        conversation = self._conversation
        assert conversation is not None
        while not received.is_set():
            try:
                await asyncio.wait_for(received.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                try:
                    await conversation.command(b"NOOP")
                except NextHopError as error:
                    log.warning("%s: %s", self._peer, printable(str(error), 300))
                    conversation.abort()
                    return

    async def _hand_over(self, mail: bytes) -> Reply:
        """The part that outlives the client; the conversation is the session's again when it is done."""
        conversation, transaction = self._conversation, self._transaction
        assert conversation is not None
        assert transaction is not None
        self._conversation = None
        self._end_transaction()
        if transaction.purpose == "relay":
            reply = await hand_over(self._relay, conversation, transaction, mail, self._gone)
        else:
            await conversation.forget()
            reply = await end_here(self._relay, transaction, mail, self._gone)
        if self._gone():
            conversation.release()
        else:
            self._conversation = conversation
        return reply

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
        await self._open()
        return await self._next("VRFY", argument)

    async def _quit(self, argument: str) -> None:
        self._last_words(Reply.of("221 2.0.0 Bye"))


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
