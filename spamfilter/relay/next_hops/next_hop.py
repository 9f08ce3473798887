"""The interface of a next hop: conversations, and replies byte for byte."""

import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

_BREAKING = bytes.maketrans(b"\r\n\0", b"???")


@dataclass(frozen=True, slots=True)
class Reply:
    """An SMTP reply: its code, and all its lines unchanged, each ended by CR LF. own: it is not the next hop's.

    each: the replies for the recipients of a message, in the order in which they were accepted; empty: this reply is
    for all of them.
    """

    code: int
    raw: bytes
    own: bool = field(default=True, compare=False)
    each: "tuple[Reply, ...]" = field(default=(), compare=False)

    @staticmethod
    def of(*lines: bytes | str, own: bool = True) -> "Reply":
        """A reply from its lines, each with the code and without line end: of('250 2.0.0 Ok')."""
        plain = [line.encode() if isinstance(line, str) else line for line in lines]
        raw = b"".join(line.translate(_BREAKING) + b"\r\n" for line in plain)
        return Reply(int(plain[-1][:3]), raw, own)

    @staticmethod
    def together(replies: "Sequence[Reply]") -> "Reply":
        """One reply for several recipients: the first that defers, else the first that rejects, else the first."""
        temporary, permanent = ([one for one in replies if one.code // 100 == kind] for kind in (4, 5))
        return replace((temporary or permanent or replies)[0], each=tuple(replies))

    def for_each(self, recipients: int) -> "tuple[Reply, ...]":
        """The reply for each of so many recipients."""
        return self.each or (self,) * recipients

    @property
    def positive(self) -> bool:
        return 200 <= self.code < 300

    @property
    def text(self) -> str:
        """The reply in one line, for journal and log."""
        return re.sub(r"\r\n\d*[ -]?", " ", self.raw.decode("utf-8", "replace").rstrip())


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for connection and greeting, for a command, and for the reply to the message."""

    connect: float = 15.0
    command: float = 60.0
    final: float = 80.0


class Conversation(ABC):
    """A session with a next hop. After a NextHopError from any method it cannot be used any more."""

    keywords: Mapping[str, str]
    """The keywords of the reply to EHLO: keyword in capitals -> its parameters."""

    @abstractmethod
    async def command(self, line: bytes) -> Reply:
        """Send one command line, without its line end, and return the reply."""

    def pipeline(self, lines: Iterable[bytes]) -> None:  # noqa: B027 - optional
        """Send commands that are about to come, in this order, at once: RFC 2920.

        `command` then returns the reply to each. If a command does not come, and the next hop has accepted it, the
        conversation cannot be used any more: otherwise a mail might go to a recipient that the client has not named.
        """

    @abstractmethod
    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        """Send a message. Returns the reply to DATA if that is no 354, else the reply to the message; with `each` if
        the next hop replies for each recipient.

        parts: the message, with CR LF line ends and single dots.
        """

    @abstractmethod
    async def forget(self) -> None:
        """End the transaction by RSET; if that fails, close the conversation. Raises nothing."""

    def release(self) -> None:  # noqa: B027 - nothing to do without a connection
        """Keep the conversation for another client."""

    def abort(self) -> None:  # noqa: B027 - as above
        """Close the connection at once, so that a running command has no effect."""


class NextHop(ABC):
    """Where judged mail goes.

    replies_for_each: it replies to a message once for each recipient, as in LMTP. tls: what secures a new connection;
    None: nothing.
    """

    replies_for_each = False
    tls: ssl.SSLContext | None = None

    @abstractmethod
    async def keywords(self) -> Mapping[str, str]:
        """The keywords that it announces, as far as is known: `Conversation.keywords`. Raises NextHopError."""

    @abstractmethod
    async def open(self) -> Conversation:
        """A conversation after EHLO, without a transaction. Raises NextHopError."""

    def close(self) -> None:  # noqa: B027 - as above
        """Close all connections that are not in use."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Its address, for people."""


async def offer(next_hop: NextHop, sender: bytes, recipient: bytes, mail: bytes) -> Reply:
    """Send a mail of ours; its reply, or the one that rejects the envelope. Raises NextHopError."""
    parameters = b"" if (sender + recipient).isascii() else b" SMTPUTF8"
    conversation = await next_hop.open()
    try:
        for line in (b"MAIL FROM:<%s>%s" % (sender, parameters), b"RCPT TO:<%s>" % recipient):
            reply = await conversation.command(line)
            if not reply.positive:
                break
        else:
            reply = await conversation.data([mail])
    except BaseException:
        conversation.abort()
        raise
    if reply.positive:
        conversation.release()
    else:
        conversation.abort()
    return reply
