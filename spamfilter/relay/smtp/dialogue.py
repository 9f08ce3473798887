"""The SMTP commands of a client: each calls the session and sends its reply."""

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiosmtpd.smtp import TLSSetupException

from spamfilter.relay.envelope_paths import has_control
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.session import LEAVING, OK, HasRoom
from spamfilter.relay.smtp.client import NOT_SMTP, Client
from spamfilter.relay.smtp.incoming import Incoming
from spamfilter.system.escaping import printable

log = logging.getLogger(__name__)

GO_ON = Reply.of("354 End data with <CR><LF>.<CR><LF>")
UNKNOWN = Reply.of("500 5.5.2 Command not recognised")
NOT_IMPLEMENTED = Reply.of("502 5.5.1 Command not implemented")
KNOWN = ("EXPN", "ETRN")
"""Commands that are not implemented, but not unknown either: RFC 5321 section 4.2.4."""
HTTP = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PRI", "PUT", "TRACE")
"""Methods of HTTP; PRI begins a connection of HTTP/2."""


def command(
    method: Callable[["Dialogue", str], Awaitable[Reply | None]],
) -> Callable[["Dialogue", str | None], Coroutine[Any, Any, None]]:
    """Make a command method of aiosmtpd's from one that returns the reply, or None if it has sent it."""
    verb = method.__name__.removeprefix("smtp_")

    async def obeyed(self: "Dialogue", argument: str | None) -> None:
        await self.turn(verb, method, argument or "")

    return obeyed


class Dialogue(Client):
    _received = False  # whether the last DATA was answered with 354

    async def turn(
        self, verb: str, method: Callable[["Dialogue", str], Awaitable[Reply | None]], argument: str
    ) -> None:
        self._commands += 1
        if limit := self._exceeded():
            self._say_goodbye(self._relay.over(limit, self.relaying.peer))
            return
        self._busy = True
        try:
            if has_control(argument):
                reply: Reply | None = Reply.of("501 5.5.4 Control characters in a command")
            else:
                reply = await method(self, argument)
            if reply is None:
                self._wait()
            else:
                for one in reply.each or (reply,):
                    if one.code >= 400:
                        self._log_refusal(verb, one)
                    await self.push(one)
        finally:
            self._busy = False
        if self._relay.draining and self.relaying.transaction is None:
            self._say_goodbye(LEAVING)

    async def unknown(self, command: str, argument: str | None) -> None:
        if command in HTTP and not self._introduced:
            reply = NOT_SMTP
        else:
            reply = NOT_IMPLEMENTED if command in KNOWN else UNKNOWN

        async def refused(self: Dialogue, argument: str) -> Reply:
            return reply

        await self.turn(command, refused, "")

    @command
    async def smtp_HELO(self, argument: str) -> Reply:
        if not _is_name(argument):
            return Reply.of("501 5.5.4 Syntax: HELO hostname")
        self._introduced = True
        return await self.relaying.helo(argument)

    @command
    async def smtp_EHLO(self, argument: str) -> Reply:
        if not _is_name(argument):
            return Reply.of("501 5.5.4 Syntax: EHLO hostname")
        self._introduced = True
        return await self.relaying.ehlo(argument, offers_tls=self._offers_tls())

    def _offers_tls(self) -> bool:
        assert self.session is not None
        return self.tls_context is not None and self.session.ssl is None

    @command
    async def smtp_STARTTLS(self, argument: str) -> Reply | None:
        if argument:
            return Reply.of("501 5.5.4 Syntax: STARTTLS")
        if not self._offers_tls():
            return Reply.of("502 5.5.1 STARTTLS is not offered")
        await self.relaying.restart()
        self._handshaking = True
        try:
            await super().smtp_STARTTLS("")
        except TLSSetupException as error:
            log.info("%s: no TLS: %s", self.relaying.peer, printable(str(error.__cause__)))
            raise ConnectionResetError("no TLS") from error
        finally:
            self._handshaking = False
        if self.link.is_closing():
            raise ConnectionResetError("the client left in the handshake")
        return None

    @command
    async def smtp_XFORWARD(self, argument: str) -> Reply:
        return await self.relaying.xforward(argument)

    @command
    async def smtp_RSET(self, argument: str) -> Reply:
        return Reply.of("501 5.5.4 Syntax: RSET") if argument else await self.relaying.rset()

    @command
    async def smtp_NOOP(self, argument: str) -> Reply:
        return OK

    @command
    async def smtp_VRFY(self, argument: str) -> Reply:
        return await self.relaying.vrfy(argument) if argument else Reply.of("501 5.5.4 Syntax: VRFY user")

    @command
    async def smtp_QUIT(self, argument: str) -> None:
        self._say_goodbye(Reply.of("221 2.0.0 Bye"))

    @command
    async def smtp_MAIL(self, argument: str) -> Reply:
        return await self.relaying.mail(argument, self.coming())

    @command
    async def smtp_RCPT(self, argument: str) -> Reply:
        return await self.relaying.rcpt(argument, self.coming())

    @command
    async def smtp_DATA(self, argument: str) -> Reply:
        if argument:
            return Reply.of("501 5.5.4 Syntax: DATA")
        self._received = False
        reply = await self._data()
        if any(one.positive for one in reply.each or (reply,)):
            self._commands = 0
        return reply

    async def _data(self) -> Reply:
        return await self.relaying.data(self._receive)

    async def _receive(self, has_room: HasRoom) -> bytes:
        self._received = True
        self._incoming = Incoming(self, self._relay.limits.message_size, has_room)
        try:
            await self.push(GO_ON)
            return await self._incoming.mail()
        finally:
            self._incoming = None
            self.deadline.set(math.inf)  # during a command, the limits of the next hop apply


def _is_name(argument: str) -> bool:
    """Whether there is a name, in UTF-8: other bytes are surrogates here."""
    return argument != "" and not any("\udc80" <= letter <= "\udcff" for letter in argument)
