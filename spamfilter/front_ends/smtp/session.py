"""One client's mail: a transparent proxy's transactions.

A proxy has to pass on what a server may answer itself: commands with all their parameters go to
the next hop as they came, and its replies come back as they are.
"""

import asyncio
import logging

from spamfilter.front_ends.front_end import Relay
from spamfilter.front_ends.smtp import xforward
from spamfilter.front_ends.smtp.dialogue import LEAVING, UNREACHABLE, Dialogue
from spamfilter.front_ends.smtp.handover import hand_over
from spamfilter.front_ends.smtp.limits import Crowd
from spamfilter.front_ends.smtp.local import end_here, purpose_of, refusal
from spamfilter.front_ends.smtp.paths import is_plain, path_of, size_of
from spamfilter.front_ends.smtp.receiving import kept_alive
from spamfilter.front_ends.smtp.transaction import Transaction
from spamfilter.front_ends.smtp.wire import BLOCK, NoRoom, TooLarge, has_bare_newlines, normalised
from spamfilter.memory import Held
from spamfilter.next_hops import Reply
from spamfilter.verdict import printable

log = logging.getLogger(__name__)


class Session(Dialogue):
    """The dialogue with one client. crowd: those it is one of; submission: senders are authenticated."""

    def __init__(self, relay: Relay, crowd: Crowd, submission: bool = False) -> None:
        super().__init__(relay, crowd)
        self._submission = submission
        self._verbs |= {b"MAIL": self._mail, b"RCPT": self._rcpt, b"DATA": self._data}

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
        size = size_of(argument)
        if size > self._relay.limits.message_size:
            return self._over("message_size")
        if not self._relay.memory.fits(size):
            self._broken = True  # for now, and so for what is pipelined behind it
            return self._over("memory_megabytes")
        self._broken = False
        began = self.loop.time()
        conversation = await self._open()
        told = self._forwarded or xforward.seen(self._peer, self._port, self._greeted, local=self._trusted)
        for line in xforward.commands(told, conversation.keywords.get("XFORWARD", "")):
            reply = await conversation.command(line)
            if not reply.positive:
                log.warning("%s: the next hop answers XFORWARD with %s", self._peer, printable(reply.text))
        reply = await self._next("MAIL", argument)
        self._broken = 400 <= reply.code < 500  # what is pipelined behind it must not hear worse
        if reply.positive:
            client = xforward.client(self._forwarded, self._peer)
            own = self._submission or (self._relay.trusts(client) and xforward.is_told(self._forwarded))
            self._transaction = Transaction(
                _bytes(path), client, own, self._submission, xforward.is_named(self._forwarded), began, size
            )
        return reply

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
            return self._over("recipients")
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
        if not self._relay.memory.fits(max(self._transaction.size, BLOCK)):
            return await self._refuse(self._over("memory_megabytes"))
        async with asyncio.timeout(self._relay.limits.data_seconds):
            await self._send(Reply.of("354 End data with <CR><LF>.<CR><LF>"))
        with Held(self._relay.memory) as held:
            mail = await self._received(held)
            if isinstance(mail, Reply):
                return mail
            if has_bare_newlines(mail):
                if not self._relay.normalise:
                    return await self._refuse(Reply.of("550 5.6.0 A CR or LF stands alone; lines must end with CR LF"))
                mail = normalised(mail)
            reply: Reply = await self._relay.shielded(self._hand_over(mail, held.passed_on()))
            return reply

    async def _received(self, held: Held) -> bytes | Reply:
        """The mail behind DATA, read to its end, or why it is not taken. Raises EOFError, ConnectionError."""
        assert self._wire is not None
        assert self._conversation is not None
        limits = self._relay.limits
        limit, end = self._end()
        in_time = asyncio.timeout_at(end)
        try:
            async with in_time, kept_alive(self._conversation, self._peer):
                return await self._wire.message(limits.message_size, limits.data_seconds, held.grow)
        except TooLarge:
            return await self._refuse(self._over("message_size"))
        except NoRoom:
            return await self._refuse(self._over("memory_megabytes"))
        # From here on the mail is not here to its end. What follows is the rest of it: this connection must not go on.
        except TimeoutError:
            self._drop()
            return self._over(limit if in_time.expired() else "data_seconds")
        except (EOFError, ConnectionError):
            raise
        except Exception:
            self._drop()
            log.exception("%s: a mail could not be received", self._peer)
            self._relay.metrics.count("faults", "session")
            return Reply.of("421 4.3.0 Temporary fault; closing connection")

    async def _hand_over(self, mail: bytes, held: Held) -> Reply:
        """The part that outlives the client; the conversation is the session's again when it is done."""
        with held:
            return await self._handed_over(mail)

    async def _handed_over(self, mail: bytes) -> Reply:
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
        if reply.positive:
            self._commands = 0
        if self._gone():
            conversation.release()
        else:
            self._conversation = conversation
        return reply


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
