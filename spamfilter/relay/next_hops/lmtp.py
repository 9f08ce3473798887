"""The next hop over LMTP, as of Dovecot and Cyrus, on a port or a socket in the file system: RFC 2033.

It greets with LHLO, and replies to a message once for each recipient that it has accepted. Guarantee: a reply that has
come counts, whatever becomes of the connection after it; a recipient without a reply is deferred.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops.connection import Connection, TooLate
from spamfilter.relay.next_hops.keywords import keywords_of
from spamfilter.relay.next_hops.next_hop import Reply, Timeouts
from spamfilter.relay.next_hops.replies import kind_by
from spamfilter.relay.next_hops.smtp import SmtpConversation, SmtpNextHop

log = logging.getLogger(__name__)

NO_REPLY = Reply.of("451 4.4.2 The next hop did not reply for this recipient; try again later")


class LmtpNextHop(SmtpNextHop):
    scheme = "lmtp"
    replies_for_each = True

    def _begin(self, connection: Connection) -> SmtpConversation:
        return _LmtpConversation(self, connection)


class LmtpSocketNextHop(LmtpNextHop):
    """A server at a socket in the file system."""

    def __init__(self, path: Path, hostname: str, tls: ssl.SSLContext | None = None, timeouts: Timeouts | None = None):
        super().__init__("localhost", 0, hostname, tls, timeouts)
        self._path = path

    @property
    def where(self) -> str:
        return f"lmtp://{self._path}"

    async def _connected(self) -> Connection:
        return (await asyncio.get_running_loop().create_unix_connection(Connection, str(self._path)))[1]


class _LmtpConversation(SmtpConversation):
    _accepted = 0  # recipients of the running transaction

    async def _hello(self) -> None:
        reply = await self._exchange(b"LHLO " + self._hop.hostname.encode())
        if not reply.positive:
            raise self._failure(f"LHLO was answered with {reply.text}", kind_by(reply))
        self.keywords = keywords_of(reply)

    async def command(self, line: bytes) -> Reply:
        reply = await super().command(line)
        verb = line[:4].upper()
        if verb in (b"MAIL", b"RSET"):
            self._accepted = 0
        elif verb == b"RCPT":
            self._accepted += reply.positive
        return reply

    def _refused(self, reply: Reply) -> Reply:
        missing, self._accepted = self._accepted - 1, 0
        return Reply.together([reply, *[NO_REPLY] * missing])

    async def _outcome(self) -> Reply:
        replies: list[Reply] = []
        missing, self._accepted = self._accepted, 0
        try:
            while missing:
                reply = await self._reply()
                if reply.code < 400 and not reply.positive:
                    raise self._failure(f"answered the message with {reply.text}")
                replies.append(reply)
                missing -= 1
        except (NextHopError, TooLate) as error:
            if not replies:
                raise
            log.warning("%s: no reply to the message for %d recipients: %s", self._hop.where, missing, error)
            self.abort()
        return Reply.together([*replies, *[NO_REPLY] * missing])
