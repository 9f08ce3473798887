"""The mails of a client: MAIL, RCPT, DATA.

Guarantee: a hand-over outlives its client, and so does the memory that its mail takes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from time import perf_counter

from spamfilter.mail.line_ends import has_bare_newlines, normalised
from spamfilter.relay.delivery import hand_over
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.envelope_paths import (
    MAX_LINE,
    MAX_PATH,
    decoded,
    encoded,
    has_control,
    is_plain,
    path_of,
    size_of,
)
from spamfilter.relay.limits.memory_budget import Held
from spamfilter.relay.local_delivery import end_here, purpose_of, refusal
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.next_hops.keep_alive import kept_alive
from spamfilter.relay.session import xforward
from spamfilter.relay.session.greeting import UNREACHABLE, Greeting, answered
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

LEAST = 65_536
"""Bytes of memory that must be free before a mail of unknown size is asked for: most mails are smaller."""

LEAVING = Reply.of("421 4.3.2 Shutting down; try again later")

HasRoom = Callable[[int], bool]
"""Whether a mail may take so many bytes of memory in all; asked again as it grows, or with less when it is given up."""


class TooLarge(Exception):
    """A message exceeded the limit; it has been read to its end and dropped."""


class NoRoom(Exception):
    """There was no memory left for a message; it has been read to its end and dropped."""


class Session(Greeting):
    """The transactions of a transparent proxy with one client."""

    @answered
    async def mail(self, argument: str, coming: Iterable[bytes] = ()) -> Reply:
        """coming: command lines that the client has sent behind this one already."""
        if self._relay.draining:
            return LEAVING
        if not self._greeted:
            return Reply.of("503 5.5.1 Say HELO or EHLO first")
        if self.transaction is not None:
            return Reply.of("503 5.5.1 Nested MAIL command")
        path = path_of(argument, "FROM")
        if path is None:
            return Reply.of(f"501 5.5.4 Syntax: MAIL FROM:<address of at most {MAX_PATH} bytes> [parameters]")
        size = size_of(argument)
        if size > self._relay.limits.message_size:
            return self.over("message_size")
        if not self._relay.memory.fits(size):
            self._broken = True  # for now, and so for what is pipelined behind it
            return self.over("memory_megabytes")
        self._broken = False
        began = asyncio.get_running_loop().time()
        conversation = await self._open()
        told = self._told(conversation)
        line = encoded(f"MAIL {argument}")
        recipients = islice(self._recipients(coming), self._relay.limits.recipients)
        conversation.foresee(chain(told, [line], recipients))
        for each in told:
            reply = await conversation.command(each)
            if not reply.positive:
                log.warning("%s: the next hop answers XFORWARD with %s", self.peer, printable(reply.text))
        reply = await conversation.command(line)
        self._broken = 400 <= reply.code < 500  # what is pipelined behind it must not hear worse
        if reply.positive:
            client = xforward.client(self._forwarded, self.peer)
            trusted = self.trusted if client == self.peer else self._relay.trusts(client)
            own = self._submission or (trusted and xforward.is_told(self._forwarded))
            self.transaction = Transaction(
                encoded(path), client, own, self._submission, xforward.is_named(self._forwarded), began, size
            )
        return reply

    @answered
    async def rcpt(self, argument: str, coming: Iterable[bytes] = ()) -> Reply:
        """coming: as for `mail`."""
        if self.transaction is None:
            return UNREACHABLE if self._broken else Reply.of("503 5.5.1 Need MAIL before RCPT")
        path = path_of(argument, "TO")
        if path is None:
            return Reply.of(f"501 5.5.4 Syntax: RCPT TO:<address of at most {MAX_PATH} bytes> [parameters]")
        purpose = purpose_of(self._relay, path)
        if purpose == "relay" and not self._may_send(path):
            return Reply.of("554 5.7.1 Relay access denied")
        room = self._relay.limits.recipients - len(self.transaction.recipients)
        if room <= 0:
            return self.over("recipients")
        reply = refusal(self.transaction, purpose)
        if reply is None and purpose == "relay":
            assert self._conversation is not None
            line = encoded(f"RCPT {argument}")
            self._conversation.foresee(chain([line], islice(self._recipients(coming), room - 1)))
            reply = await self._conversation.command(line)
        elif reply is None:
            reply = Reply.of("250 2.1.5 Ok")
        if reply.positive:
            self.transaction.purpose = purpose
            self.transaction.recipients.append(encoded(path))
        else:
            self.transaction.refused.append(reply.code)
        return reply

    @answered
    async def data(self, receive: Callable[[HasRoom], Awaitable[bytes]]) -> Reply:
        """receive: asks the client for its mail, and returns it with single dots and the last line end.

        It raises TooLarge or NoRoom where the mail came to its end but is not kept, EOFError or ConnectionError where
        the client is gone. It is called only where a mail may come.
        """
        if self.transaction is None:
            return UNREACHABLE if self._broken else Reply.of("503 5.5.1 Need MAIL and RCPT before DATA")
        if not self.transaction.recipients:
            if self.transaction.refused and max(self.transaction.refused) < 500:
                return Reply.of("451 4.5.1 No recipients accepted yet")
            return Reply.of("554 5.5.1 No valid recipients")
        if not self._relay.memory.fits(max(self.transaction.size, LEAST)):
            return await self._refuse(self.over("memory_megabytes"))
        assert self._conversation is not None
        with ExitStack() as stack:
            held = stack.enter_context(Held(self._relay.memory))
            began = perf_counter()
            try:
                async with kept_alive(self._conversation, self.peer):
                    mail = await receive(held.grow)
            except TooLarge:
                return await self._refuse(self.over("message_size"))
            except NoRoom:
                return await self._refuse(self.over("memory_megabytes"))
            except (EOFError, ConnectionError):
                raise
            except Exception:
                # What comes next may be the rest of the mail: nothing of it may be taken for a command.
                self.fault()
                return Reply.of("421 4.3.0 Temporary fault; closing connection")
            self._relay.metrics.observe("stage_seconds", perf_counter() - began, "receive")
            if has_bare_newlines(mail):
                if not self._relay.normalise:
                    return await self._refuse(Reply.of("550 5.6.0 A CR or LF stands alone; lines must end with CR LF"))
                mail = normalised(mail)
            # From here on it is no more the client's: its task may be cancelled, this one goes on.
            conversation, transaction = self._conversation, self.transaction
            self._conversation = None
            self._end_transaction()
            work = self._handed_over(conversation, transaction, mail, stack.pop_all())
            del mail  # what it takes is given back at the end of that work, and no later
            return await asyncio.shield(self._relay.started(work))

    def _told(self, conversation: Conversation) -> list[bytes]:
        """What the next hop is told of the client by XFORWARD, if it wants to know."""
        wanted = conversation.keywords.get("XFORWARD")
        if wanted is None:
            return []
        told = self._forwarded or xforward.seen(self.peer, self._port, self._greeted, local=self.trusted)
        return list(xforward.commands(told, wanted))

    def _may_send(self, path: str) -> bool:
        """Whether this client may address mail to this recipient."""
        return self.trusted or is_plain(path, self._relay.domains)

    def _recipients(self, coming: Iterable[bytes]) -> Iterator[bytes]:
        """Those of the lines that are RCPT commands and will be passed on, up to the first that is another."""
        for line in coming:
            verb, _, rest = line.partition(b" ")
            argument = decoded(rest)
            if verb.upper() != b"RCPT" or len(line) > MAX_LINE or has_control(argument):
                return
            path = path_of(argument, "TO")
            if path is None or purpose_of(self._relay, path) != "relay" or not self._may_send(path):
                return
            yield encoded(f"RCPT {argument}")

    async def _refuse(self, reply: Reply) -> Reply:
        """A refusal of ours after DATA: the next hop forgets the envelope."""
        await self.rset()
        return reply

    async def _handed_over(
        self, conversation: Conversation, transaction: Transaction, mail: bytes, held: ExitStack
    ) -> Reply:
        """The part that outlives the client; the conversation is the session's again when it is done."""
        with held:
            if transaction.purpose == "relay":
                reply = await hand_over(self._relay, conversation, transaction, mail, self._gone)
            else:
                await conversation.forget()
                reply = await end_here(self._relay, transaction, mail, self._gone)
        if self._closed or self._gone():
            conversation.release()
        else:
            self._conversation = conversation
        return reply
