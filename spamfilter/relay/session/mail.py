"""The commands of a mail: MAIL, RCPT, DATA.

Guarantee: a delivery goes on when its client hangs up, and the memory of its mail is held until it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from time import perf_counter

from spamfilter.mail.line_ends import has_bare_newlines, normalised, normalised_size
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
    without_size,
)
from spamfilter.relay.limits.budget import Reservation
from spamfilter.relay.limits.connections import hash_of
from spamfilter.relay.local_delivery import end_here, purpose_of, refusal
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.next_hops.keep_alive import kept_alive
from spamfilter.relay.session import xforward
from spamfilter.relay.session.attempt import ONE_BY_ONE, OUT_OF_ORDER, Attempt
from spamfilter.relay.session.greeting import Greeting, answered
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

LEAST = 65_536
"""Bytes of memory that must be free before a mail of unknown size is accepted: most mails are smaller."""

LEAVING = Reply.of("421 4.3.2 Shutting down; try again later")

HasRoom = Callable[[int], bool]
"""Whether a mail may hold this many bytes in all; called again as the mail grows, and with 0 when it is dropped."""


class Dropped(Exception):
    """A message was read to its end and dropped. limit: the one that it exceeds, message_size or memory_megabytes."""

    def __init__(self, limit: str) -> None:
        self.limit = limit


class Session(Greeting):
    @answered
    async def mail(self, argument: str, coming: Iterable[bytes] = ()) -> Reply:
        """coming: the command lines that the client has pipelined behind this one."""
        reply = await self._begun(argument, coming)
        if self.transaction is None:
            self._failed = None if reply.own and reply.code in OUT_OF_ORDER else reply
        return reply

    async def _begun(self, argument: str, coming: Iterable[bytes]) -> Reply:
        client = xforward.client(self._forwarded, self.peer)
        if self.transaction is None:
            self.settle()
        if self._relay.draining:
            self.attempt = self.attempt or Attempt(client, path_of(argument, "FROM") or "", 0)
            return LEAVING
        if not self._greeted:
            return Reply.of(f"503 5.5.1 Say {'LHLO' if self._each else 'HELO or EHLO'} first")
        if self.transaction is not None:
            return Reply.of("503 5.5.1 Nested MAIL command")
        path = path_of(argument, "FROM")
        if path is None:
            return Reply.of(f"501 5.5.4 Syntax: MAIL FROM:<address of at most {MAX_PATH} bytes> [parameters]")
        size = size_of(argument)
        self.attempt = Attempt(client, path, size)
        if size > self._relay.limits.message_size:
            return self._relay.over("message_size", self.peer)
        trusted = self.trusted if client == self.peer else self._relay.trusts(client)
        origin = 0 if trusted else hash_of(client)
        if not self._relay.memory.fits(size, origin):
            return self._relay.over("memory_megabytes", self.peer)
        began = asyncio.get_running_loop().time()
        conversation = await self._open()
        if self._lacks(conversation, argument):
            return self.drop()
        told = self._told(conversation)
        # We announce SIZE in any case, and Dovecot rejects a parameter that it does not announce.
        line = encoded(f"MAIL {argument if 'SIZE' in conversation.keywords else without_size(argument)}")
        recipients = islice(self._recipients(coming), self._most)
        conversation.pipeline(chain(told, [line], recipients))
        for each in told:
            reply = await conversation.command(each)
            if not reply.positive:
                log.warning("%s: the next hop answers XFORWARD with %s", self.peer, printable(reply.text))
        reply = await conversation.command(line)
        if not reply.positive:
            self._give_back()
        else:
            own = self._submission or (trusted and xforward.is_told(self._forwarded))
            self.transaction = Transaction(
                encoded(path),
                client,
                own=own,
                authenticated=self._submission,
                proven=self._proven,
                peer=self.peer,
                began=began,
                size=size,
                origin=origin,
                each=self._each,
                opening=(*told, line) if self._each else (),
            )
        return reply

    @answered
    async def rcpt(self, argument: str, coming: Iterable[bytes] = ()) -> Reply:
        """coming: as for `mail`."""
        if self.transaction is None:
            return self._failed or Reply.of("503 5.5.1 Need MAIL before RCPT")
        path = path_of(argument, "TO")
        if path is None:
            return Reply.of(f"501 5.5.4 Syntax: RCPT TO:<address of at most {MAX_PATH} bytes> [parameters]")
        purpose = purpose_of(self._relay, path)
        if purpose == "relay" and not self._may_send(path):
            return Reply.of("554 5.7.1 Relay access denied")
        room = self._most - len(self.transaction.recipients)
        if room <= 0:
            return ONE_BY_ONE if self._one_by_one else self._relay.over("recipients", self.peer)
        reply = refusal(self.transaction, purpose)
        if reply is None and purpose == "relay":
            assert self._conversation is not None
            if self._lacks(self._conversation, argument):
                return self.drop()
            line = encoded(f"RCPT {argument}")
            self._conversation.pipeline(chain([line], islice(self._recipients(coming), room - 1)))
            reply = await self._conversation.command(line)
            if self._each and reply.positive:
                self.transaction.accepted.append(line)
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

        It raises Dropped if the mail came to its end but is not kept, EOFError or ConnectionError if the client has
        hung up. It is not called if DATA is rejected.
        """
        if self.transaction is None:
            return self._failed or Reply.of("503 5.5.1 Need MAIL and RCPT before DATA")
        if not self.transaction.recipients:
            if self.transaction.refused and max(self.transaction.refused) < 500:
                return Reply.of("451 4.5.1 No recipients accepted yet")
            return Reply.of("554 5.5.1 No valid recipients")
        if not self._relay.memory.fits(max(self.transaction.size, LEAST), self.transaction.origin):
            return await self._refuse(self._relay.over("memory_megabytes", self.peer))
        assert self._conversation is not None
        with ExitStack() as stack:
            held = Reservation(self._relay.memory, self.transaction.origin)
            stack.callback(held.release)
            began = perf_counter()
            try:
                async with kept_alive(self._conversation, self.peer):
                    mail = await receive(held.grow)
            except Dropped as error:
                return await self._refuse(self._relay.over(error.limit, self.peer))
            except (EOFError, ConnectionError):
                raise
            except Exception:
                # The next bytes may be the rest of the mail, which must not be taken for commands.
                self.fault()
                return Reply.of("421 4.3.0 Temporary fault; closing connection")
            self._relay.metrics.observe("stage_seconds", perf_counter() - began, "receive")
            if has_bare_newlines(mail):
                if not self._relay.normalise:
                    return await self._refuse(Reply.of("550 5.6.0 A CR or LF stands alone; lines must end with CR LF"))
                if (size := normalised_size(mail)) > self._relay.limits.message_size:
                    return await self._refuse(self._relay.over("message_size", self.peer))
                if not held.grow(size):
                    return await self._refuse(self._relay.over("memory_megabytes", self.peer))
                mail = normalised(mail)
            # From here on the delivery goes on even if the client's task is cancelled.
            conversation, transaction = self._conversation, self.transaction
            self._conversation = None
            stack.callback(self._place.release)
            self._place = Reservation(self._relay.conversations)
            self._end_transaction()
            self.settle(in_part=True)
            work = self._handed_over(conversation, transaction, mail, stack.pop_all())
            del mail  # so that its memory is free when that work ends, and not later
            return await asyncio.shield(self._relay.in_background(work))

    @property
    def _one_by_one(self) -> bool:
        """Whether a mail may have one recipient: the next hop replies for each, but the client hears only one reply.

        With different replies for two recipients, one would lose the mail, or the other would get it twice.
        """
        return self._relay.next_hop.replies_for_each and not self._each

    @property
    def _most(self) -> int:
        return 1 if self._one_by_one else self._relay.limits.recipients

    def _told(self, conversation: Conversation) -> list[bytes]:
        """XFORWARD commands that tell the next hop about the client, if it announces XFORWARD."""
        wanted = conversation.keywords.get("XFORWARD")
        if wanted is None:
            return []
        told = self._forwarded or xforward.observed(self.peer, self._port, self._greeted, local=self.trusted)
        return list(xforward.commands(told, wanted))

    def _may_send(self, path: str) -> bool:
        return self.trusted or is_plain(path, self._relay.domains)

    def _recipients(self, coming: Iterable[bytes]) -> Iterator[bytes]:
        """The RCPT commands at the begin of these lines that will be sent on to the next hop."""
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
        """Reject or defer a mail after DATA: the next hop forgets the envelope."""
        if self.attempt is not None:
            self.attempt.heard(reply)
        await self.rset()
        return reply

    async def _handed_over(
        self, conversation: Conversation, transaction: Transaction, mail: bytes, held: ExitStack
    ) -> Reply:
        """Deliver a mail, even if the client hangs up."""
        with held:
            try:
                if transaction.purpose == "relay":
                    reply = await hand_over(self._relay, conversation, transaction, mail, self._gone)
                else:
                    await conversation.forget()
            except BaseException:
                conversation.abort()
                raise
            conversation.release()
            if transaction.purpose != "relay":
                reply = await end_here(self._relay, transaction, mail, self._gone)
        return reply
