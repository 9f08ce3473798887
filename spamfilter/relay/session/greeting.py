"""The commands outside of a mail: HELO, EHLO, XFORWARD, VRFY, RSET; the conversation with the next hop."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from spamfilter.config.addresses import Network
from spamfilter.errors import NextHopError
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.envelope_paths import encoded, parameters_of, path_of
from spamfilter.relay.limits.budget import Reservation
from spamfilter.relay.limits.connections import hash_of
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.session import xforward
from spamfilter.relay.session.attempt import Attempt
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

OK = Reply.of("250 2.0.0 Ok")
UNREACHABLE = Reply.of("451 4.4.1 The next hop cannot be reached; try again later")
CROWDED = Reply.of("451 4.3.2 Too many messages at a time; try again later")
TEMPORARY = Reply.of("451 4.3.0 Temporary fault; try again later")

WAIT = 0.1
"""Seconds between two attempts to get a conversation that other processes may give back."""

NEEDED = ("8BITMIME", "SMTPUTF8", "DSN")
"""For want of one of these a client may return its mail for good."""
NEEDED_BY = {
    "BODY": "8BITMIME", "SMTPUTF8": "SMTPUTF8", "RET": "DSN", "ENVID": "DSN", "NOTIFY": "DSN", "ORCPT": "DSN",
}  # fmt: skip
"""Parameter of MAIL or RCPT -> the keyword without which a next hop rejects it for good."""
OWN_KEYWORDS = (*NEEDED, "ENHANCEDSTATUSCODES")
"""Announced if the next hop announces them. PIPELINING, SIZE, STARTTLS and XFORWARD have other rules."""

_S = TypeVar("_S", bound="Greeting")
_P = ParamSpec("_P")


class Crowded(Exception):
    """Strangers have all the conversations with the next hop that they may have."""


def answered(
    method: Callable[Concatenate[_S, _P], Awaitable[Reply]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, Reply]]:
    """Makes a command that fails answer 451, and give up the conversation with the next hop. Notes what was refused."""

    @wraps(method)
    async def guarded(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> Reply:
        try:
            reply = await method(self, *args, **kwargs)
        except NextHopError as error:
            log.warning("%s: %s", self.peer, printable(str(error), 300))
            self._relay.failed(error)
            reply = self.drop()
        except Crowded:
            self._relay.limit_log.noted("connect_seconds", f"{self.peer} hears {CROWDED.text}")
            reply = self.drop(CROWDED)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            self.drop()
            raise
        except Exception:
            reply = self.fault()
        if self.attempt is not None:
            _note(self.attempt, method.__name__, str(args[0]) if args else "", reply)
        return reply

    return guarded


class Greeting:
    """A session without the commands of a mail, which the subclass Session adds.

    peer, port: the client's address. submission: senders are authenticated. proven: the client is the mail server of
    this host, as the kernel says. each: it hears a reply to a mail for each recipient, as in LMTP. gone: whether the
    client has hung up. transaction: the running one, or None. attempt: the mail whose text has not arrived yet, or
    None; it outlives a transaction that fails, until the next begins.
    """

    def __init__(
        self,
        relay: Relay,
        peer: str,
        port: int = 0,
        *,
        submission: bool = False,
        proven: bool = False,
        each: bool = False,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.peer = peer
        self.transaction: Transaction | None = None
        self.attempt: Attempt | None = None
        self._relay = relay
        self._port = port
        self._submission = submission
        self._proven = proven
        self._each = each
        self._gone = gone
        self._conversation: Conversation | None = None
        self._place = Reservation(relay.conversations)
        self._forwarded: dict[str, str] = {}
        self._greeted = ""
        self._failed: Reply | None = None
        self._announced: frozenset[str] = frozenset()  # those of NEEDED that EHLO has announced
        self._networks: Sequence[Network] | None = None
        self._is_trusted = False

    @property
    def trusted(self) -> bool:
        """Whether the client is in a trusted network, or is the mail server of this host."""
        if self._proven:
            return True
        if self._networks is not self._relay.trusted:  # they may change while the session lasts
            self._networks, self._is_trusted = self._relay.trusted, self._relay.trusts(self.peer)
        return self._is_trusted

    def fault(self) -> Reply:
        """Log the exception that is being handled, a fault of ours, and return the reply for the client."""
        if isinstance(sys.exc_info()[1], MemoryError):
            log.error("%s: a command failed: the system has no more memory", self.peer)
        else:
            log.exception("%s: a command failed", self.peer)
        self._relay.metrics.count("faults", "session")
        return self.drop(TEMPORARY)

    def close(self) -> None:
        """End the session; a delivery that is running goes on."""
        self.settle()
        self._give_back()

    @answered
    async def helo(self, name: str) -> Reply:
        await self.rset()
        self._greeted, self._announced = name, frozenset()
        return Reply.of(f"250 {self._relay.hostname}")

    @answered
    async def ehlo(self, name: str, *, offers_tls: bool = False) -> Reply:
        await self.rset()
        self._greeted = name
        try:
            theirs = await self._relay.next_hop.keywords()
        except NextHopError as error:
            # EHLO must succeed all the same, or Postfix takes the relay for broken; MAIL hears 451, and counts.
            log.warning("%s: %s", self.peer, printable(str(error), 300))
            self.drop()
            theirs = dict.fromkeys(NEEDED, "")
        self._announced = frozenset(NEEDED) & theirs.keys()
        ours = announced(theirs, self._relay.limits.message_size, tls=offers_tls, trusted=self.trusted)
        *first, last = [self._relay.hostname, *ours]
        return Reply.of(*(f"250-{line}" for line in first), f"250 {last}")

    @answered
    async def restart(self) -> Reply:
        """Reset the session to its begin, as RFC 3207 demands after STARTTLS."""
        await self.rset()
        self._greeted = ""
        return OK

    @answered
    async def xforward(self, argument: str) -> Reply:
        if not self.trusted:
            return Reply.of("550 5.7.1 XFORWARD is for trusted clients only")
        if self.transaction is not None:
            return Reply.of("503 5.5.1 XFORWARD within a transaction")
        try:
            self._forwarded |= xforward.parse(argument)
        except ValueError as error:
            return Reply.of(f"501 5.5.4 {error}")
        return OK

    @answered
    async def rset(self) -> Reply:
        """End the transaction here and at the next hop."""
        self.settle()
        self._end_transaction()
        if self._conversation is None:
            return OK
        with suppress(NextHopError):
            reply = await self._conversation.command(b"RSET")
            if reply.positive:
                self._give_back()
                return reply
        self._let_go()  # without the connection, there is no envelope either
        return OK

    @answered
    async def vrfy(self, argument: str) -> Reply:
        if not self.trusted:
            return Reply.of("252 2.0.0 Send some mail and see")
        conversation = self._conversation or await self._open()
        reply = await conversation.command(encoded(f"VRFY {argument}"))
        if self.transaction is None:
            self._give_back()
        return reply

    def settle(self, *, in_part: bool = False) -> None:
        """The mail that was attempted is over: record it if it was refused. in_part: some recipients were accepted."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.record(self._relay, in_part=in_part)

    def drop(self, reply: Reply = UNREACHABLE) -> Reply:
        """Give up the conversation with a next hop that has failed, and return the reply for the client.

        Commands that the client has pipelined behind the failed one hear it, too. A 503 would be permanent, and the
        client would drop the mail.
        """
        self._failed = reply
        self.transaction = None
        self._forwarded.clear()
        self._let_go()
        return reply

    async def _open(self) -> Conversation:
        """Begin a conversation with the next hop. A stranger may have to wait for one, as for a busy next hop."""
        loop = asyncio.get_running_loop()
        self._place = Reservation(self._relay.conversations, 0 if self.trusted else hash_of(self.peer))
        end = loop.time() + self._relay.limits.connect_seconds
        while not self._place.grow(1):
            if loop.time() > end:
                raise Crowded
            await asyncio.sleep(WAIT)
        self._conversation = await self._relay.next_hop.open()
        return self._conversation

    def _lacks(self, conversation: Conversation, argument: str) -> bool:
        """Whether MAIL or RCPT needs what EHLO has announced, and the next hop does not support.

        EHLO may be of another server, as of one that could not be asked, was replaced, or has several addresses.
        """
        needed = {NEEDED_BY[name] for name in parameters_of(argument) & NEEDED_BY.keys()}
        lacking = sorted((needed & self._announced) - conversation.keywords.keys())
        if lacking:
            log.warning("%s: EHLO has announced %s, which the next hop lacks", self.peer, ", ".join(lacking))
        return bool(lacking)

    def _let_go(self) -> None:
        if self._conversation is not None:
            self._conversation.abort()
            self._conversation = None
        self._place.release()

    def _give_back(self) -> None:
        """Let other clients have the conversation."""
        if self._conversation is not None:
            self._conversation.release()
            self._conversation = None
        self._place.release()

    def _end_transaction(self) -> None:
        self.transaction = None
        self._failed = None
        self._forwarded.clear()


def _note(attempt: Attempt, command: str, argument: str, reply: Reply) -> None:
    """Note the reply to a command of the mail that is attempted."""
    if command == "rcpt":
        if (recipient := path_of(argument, "TO")) is not None:
            attempt.heard(reply, recipient)
    elif command in ("mail", "data"):
        attempt.heard(reply)


def announced(theirs: Mapping[str, str], message_size: int, *, tls: bool, trusted: bool) -> list[str]:
    """The keywords that the relay and the next hop both support.

    message_size: bytes of our own limit. tls: whether STARTTLS is offered. trusted: whether XFORWARD is.

    >>> announced({"SIZE": "1000", "DSN": ""}, 2000, tls=False, trusted=False)
    ['DSN', 'PIPELINING', 'SIZE 1000']
    """
    found = [keyword for keyword in OWN_KEYWORDS if keyword in theirs]
    size = message_size
    if theirs.get("SIZE", "").isdigit():
        size = min(size, int(theirs["SIZE"]) or size)
    found += ["PIPELINING", f"SIZE {size}"]
    if tls:
        found.append("STARTTLS")
    if trusted:
        found.append("XFORWARD " + " ".join(xforward.ATTRIBUTES))
    return found
