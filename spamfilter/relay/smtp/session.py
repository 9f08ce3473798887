"""One client's mail: a transparent proxy's transactions.

A proxy has to pass on what a server may answer itself: commands with all their parameters go to
the next hop as they came, and its replies come back as they are.
"""

import logging
from collections.abc import Iterator
from itertools import chain, islice
from time import perf_counter

from spamfilter.mail.line_ends import has_bare_newlines, normalised
from spamfilter.relay import xforward
from spamfilter.relay.delivery import hand_over
from spamfilter.relay.front_end import Relay
from spamfilter.relay.limits.crowd import Crowd
from spamfilter.relay.limits.memory_budget import Held
from spamfilter.relay.local_delivery import end_here, purpose_of, refusal
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.next_hops.connection import TooLate
from spamfilter.relay.next_hops.keep_alive import kept_alive
from spamfilter.relay.paths import MAX_PATH, is_plain, path_of, size_of
from spamfilter.relay.smtp.dialogue import LEAVING, UNREACHABLE, Dialogue, decoded, encoded, is_sound
from spamfilter.relay.smtp.wire import BLOCK, NoRoom, TooLarge
from spamfilter.relay.transaction import Transaction
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

GO_ON = Reply.of("354 End data with <CR><LF>.<CR><LF>")


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
            return Reply.of(f"501 5.5.4 Syntax: MAIL FROM:<address of at most {MAX_PATH} bytes> [parameters]")
        size = size_of(argument)
        if size > self._relay.limits.message_size:
            return self._over("message_size")
        if not self._relay.memory.fits(size):
            self._broken = True  # for now, and so for what is pipelined behind it
            return self._over("memory_megabytes")
        self._broken = False
        began = self.loop.time()
        conversation = await self._open()
        lines = self._told(conversation)
        conversation.foresee(chain(lines, [encoded(f"MAIL {argument}")], self._ahead(self._relay.limits.recipients)))
        for line in lines:
            reply = await conversation.command(line)
            if not reply.positive:
                log.warning("%s: the next hop answers XFORWARD with %s", self._peer, printable(reply.text))
        reply = await self._next("MAIL", argument)
        self._broken = 400 <= reply.code < 500  # what is pipelined behind it must not hear worse
        if reply.positive:
            client = xforward.client(self._forwarded, self._peer)
            trusted = self._trusted if client == self._peer else self._relay.trusts(client)
            own = self._submission or (trusted and xforward.is_told(self._forwarded))
            self._transaction = Transaction(
                encoded(path), client, own, self._submission, xforward.is_named(self._forwarded), began, size
            )
        return reply

    def _told(self, conversation: Conversation) -> list[bytes]:
        """What the next hop is told of the client by XFORWARD, if it wants to know."""
        wanted = conversation.keywords.get("XFORWARD")
        if wanted is None:
            return []
        told = self._forwarded or xforward.seen(self._peer, self._port, self._greeted, local=self._trusted)
        return list(xforward.commands(told, wanted))

    async def _rcpt(self, argument: str) -> Reply:
        if self._transaction is None:
            return UNREACHABLE if self._broken else Reply.of("503 5.5.1 Need MAIL before RCPT")
        path = path_of(argument, "TO")
        if path is None:
            return Reply.of(f"501 5.5.4 Syntax: RCPT TO:<address of at most {MAX_PATH} bytes> [parameters]")
        purpose = purpose_of(self._relay, path)
        if purpose == "relay" and not self._may_send(path):
            return Reply.of("554 5.7.1 Relay access denied")
        room = self._relay.limits.recipients - len(self._transaction.recipients)
        if room <= 0:
            return self._over("recipients")
        reply = refusal(self._transaction, purpose)
        if reply is None and purpose == "relay":
            assert self._conversation is not None
            line = encoded(f"RCPT {argument}")
            self._conversation.foresee(chain([line], self._ahead(room - 1)))
            reply = await self._conversation.command(line)
        elif reply is None:
            reply = Reply.of("250 2.1.5 Ok")
        if reply.positive:
            self._transaction.purpose = purpose
            self._transaction.recipients.append(encoded(path))
        else:
            self._transaction.refused.append(reply.code)
        return reply

    def _may_send(self, path: str) -> bool:
        """Whether this client may address mail to this recipient."""
        return self._trusted or is_plain(path, self._relay.domains)

    def _ahead(self, most: int) -> Iterator[bytes]:
        """RCPT commands, as they will be passed on, that the client has sent behind the one that is obeyed now."""
        for line in islice(self._wire.ahead(), most):
            verb, _, argument = line.partition(b" ")
            if verb.upper() != b"RCPT" or not is_sound(line):
                return
            path = path_of(decoded(argument), "TO")
            if path is None or purpose_of(self._relay, path) != "relay" or not self._may_send(path):
                return
            yield encoded(f"RCPT {decoded(argument)}")

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
        with Held(self._relay.memory) as held:
            began = perf_counter()
            mail = await self._received(held)
            if isinstance(mail, Reply):
                return mail
            self._relay.metrics.observe("stage_seconds", perf_counter() - began, "receive")
            if has_bare_newlines(mail):
                if not self._relay.normalise:
                    return await self._refuse(Reply.of("550 5.6.0 A CR or LF stands alone; lines must end with CR LF"))
                mail = normalised(mail)
            return await self._hand_over(mail)

    async def _received(self, held: Held) -> bytes | Reply:
        """The mail behind DATA, read to its end, or why it is not taken. Raises EOFError, ConnectionError."""
        assert self._conversation is not None
        limits = self._relay.limits
        limit, end = self._end()
        self._receiving = True
        self.due(self.loop.time() + limits.data_seconds)
        try:
            await self._send(GO_ON)
            async with kept_alive(self._conversation, self._peer):
                return await self._wire.message(limits.message_size, limits.data_seconds, held.grow, end)
        except TooLarge:
            return await self._refuse(self._over("message_size"))
        except NoRoom:
            return await self._refuse(self._over("memory_megabytes"))
        # From here on the mail is not here to its end. What follows is the rest of it: this connection must not go on.
        except TooLate:
            self._drop()
            return self._over(limit if self.loop.time() >= end else "data_seconds")
        except (EOFError, ConnectionError):
            raise
        except Exception:
            self._drop()
            log.exception("%s: a mail could not be received", self._peer)
            self._relay.metrics.count("faults", "session")
            return Reply.of("421 4.3.0 Temporary fault; closing connection")
        finally:
            self._receiving = False
            self._pause_timeout()

    async def _hand_over(self, mail: bytes) -> Reply:
        """The part that outlives the client; the conversation is the session's again when it is done."""
        assert self._task is not None
        self._handing_over = True
        self._relay.handovers.add(self._task)
        try:
            return await self._handed_over(mail)
        finally:
            self._relay.handovers.discard(self._task)
            self._handing_over = False

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
