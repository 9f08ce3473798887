"""What the relay asks of a next hop: conversations, and replies as they came."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

SHORT = 128
"""Bytes of a line that is likely to come again."""
_BREAKING = bytes.maketrans(b"\r\n\0", b"???")


@dataclass(frozen=True, slots=True)
class Reply:
    """An SMTP reply: its code, and all its lines as they came, each ended by CR LF."""

    code: int
    raw: bytes

    @staticmethod
    def of(*lines: bytes | str) -> "Reply":
        """A reply from whole lines, each with its code, without line ends: of('250 2.0.0 Ok')."""
        return _often(lines[0]) if len(lines) == 1 and len(lines[0]) <= SHORT else _reply(*lines)

    @property
    def positive(self) -> bool:
        return 200 <= self.code < 300

    @property
    def text(self) -> str:
        """The reply on one line, for journal and log."""
        return re.sub(r"\r\n\d*[ -]?", " ", self.raw.decode("utf-8", "replace").rstrip())


def _reply(*lines: bytes | str) -> Reply:
    plain = [line.encode() if isinstance(line, str) else line for line in lines]
    raw = b"".join(line.translate(_BREAKING) + b"\r\n" for line in plain)
    return Reply(int(plain[-1][:3]), raw)


_often = lru_cache(256)(_reply)
"""A mail is six replies that are the same as those to the mail before."""


class Conversation(ABC):
    """A session with a next hop. NextHopError from any method: it is of no use any more."""

    keywords: Mapping[str, str]
    """What the next hop announced: keyword in capitals -> its parameters."""

    @abstractmethod
    async def command(self, line: bytes) -> Reply:
        """Send one command line, without its line end, and return the reply."""

    def foresee(self, lines: Iterable[bytes]) -> None:  # noqa: B027 - optional
        """Send commands that are about to come, in this order, at once: RFC 2920.

        A reply still is that of its own command. If one of them does not come after all and was not refused either, the
        conversation is of no use any more, so that nobody gets a mail who was not asked for in the end.
        """

    @abstractmethod
    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        """Hand over a message: the reply to DATA if that refuses, else the reply after the dot.

        parts: the message, lines ended by CR LF, dots not doubled.
        """

    @abstractmethod
    async def forget(self) -> None:
        """End the transaction; where the next hop does not, the conversation is closed. Raises nothing."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it can be used no more."""

    @abstractmethod
    def release(self) -> None:
        """The client needs it no more; another one may get it."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection at once, so that a running command has no effect."""


async def offer(conversation: Conversation, sender: bytes, recipients: Sequence[bytes], mail: bytes) -> Reply:
    """Send a mail of ours to all of these recipients; its reply, or the first reply that rejects the envelope."""
    parameters = b"" if all(path.isascii() for path in (sender, *recipients)) else b" SMTPUTF8"
    for line in (b"MAIL FROM:<%s>%s" % (sender, parameters), *(b"RCPT TO:<%s>" % path for path in recipients)):
        reply = await conversation.command(line)
        if not reply.positive:
            return reply
    return await conversation.data([mail])


class NextHop(ABC):
    """Where judged mail goes."""

    @abstractmethod
    async def open(self) -> Conversation:
        """A greeted session, without a transaction. Raises NextHopError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection that is not in use."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Its address, for people to read."""
