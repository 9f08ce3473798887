"""What a client sends, in lines and in messages.

Guarantee: a message ends with CR LF . CR LF and with nothing else; every other dot, CR and LF is
content. It is taken in blocks, not in lines, and never held beyond the limit.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from spamfilter.compiled import _message
from spamfilter.connection import Connection

BLOCK = 65_536
END = b"\r\n.\r\n"
CR, LF = b"\r\n"
BARE_BLOCK = 262_144
"""Bytes of a mail that are looked at in one go: what that takes beside the mail stays in the processor's cache."""


class LineTooLong(Exception):
    """A command line exceeded its limit; it has been read to its end and dropped."""


class TooLarge(Exception):
    """A message exceeded the limit; it has been read to its end and dropped."""


class NoRoom(Exception):
    """There was no memory left for a message; it has been read to its end and dropped."""


class Wire:
    """Takes from a connection's buffer. EOFError where the client has closed its side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def clear(self) -> None:
        """Forget what has been read ahead: RFC 3207 wants nothing of the clear text after STARTTLS."""
        self._connection.buffer.clear()

    def ahead(self) -> Iterator[bytes]:
        """The lines, without their ends, that have come and are not taken yet; to be read before anything is taken."""
        buffer = self._connection.buffer
        start = 0
        while (end := buffer.find(b"\n", start)) >= 0:
            yield bytes(buffer[start:end]).removesuffix(b"\r")
            start = end + 1

    async def line(self, most: int) -> bytes:
        """The next line without its end, which is LF or CR LF. Raises LineTooLong."""
        buffer = self._connection.buffer
        overlong = False
        while (end := buffer.find(b"\n")) < 0:
            if len(buffer) > most:
                overlong = True
                buffer.clear()
            await self._connection.more()
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        if overlong or len(line) > most:
            raise LineTooLong
        return line.removesuffix(b"\r")

    async def message(
        self,
        most: int,
        block_seconds: float,
        has_room: Callable[[int], bool] = lambda size: True,
        end_at: float = math.inf,
    ) -> bytes:
        """A message after DATA: lines as they came, doubled dots single, the last line end included.

        most: bytes of the message. block_seconds: the longest wait for one block; end_at: when all of it must be here,
        by the loop's clock (TooLate). has_room: whether so many bytes in all may be held. Raises TooLarge or NoRoom
        after the end of a message that is too large.
        """
        connection = self._connection
        content = connection.buffer
        content[:0] = b"\r\n"  # the command's own line end counts as the one before a first dot
        dropped = 0
        start = 0
        fits = has_room(min(len(content), most))
        while (end := content.find(END, start)) < 0:
            start = max(0, len(content) - len(END) + 1)
            if dropped + start > most or not fits:
                dropped += start
                del content[:start]
                start = 0
                has_room(len(content))  # others may have what is given back
            connection.due(min(connection.loop.time() + block_seconds, end_at))
            await connection.more()
            # No more is asked for than may be kept, so that a message of that size has room where it is alone.
            fits = fits and (dropped > 0 or has_room(min(len(content), most)))
        connection.buffer = content[end + len(END) :]
        if dropped + end > most:
            raise TooLarge
        if not fits:
            raise NoRoom
        # Each copy is as large as the message, and there is never more than one beside it.
        del content[end + 2 :]
        if content.find(b"\r\n.") >= 0:
            content = content.replace(b"\r\n.", b"\r\n")
        with memoryview(content) as view:
            return bytes(view[2:])


def has_bare_newlines(mail: bytes) -> bool:
    """Whether any CR or LF stands alone.

    numpy takes a quarter of the time of counting them, and the helper a third of that; a tenth for a mail of 8 KB.
    """
    if _message is not None:
        return bool(_message.bare(mail))
    signs = np.frombuffer(mail, np.uint8)
    open_line = False  # the block before ends with a CR
    for start in range(0, len(signs), BARE_BLOCK):
        block = signs[start : start + BARE_BLOCK]
        cr, lf = block == CR, block == LF
        if lf[0] != open_line or (lf[1:] != cr[:-1]).any():
            return True
        open_line = bool(cr[-1])
    return open_line


def normalised(mail: bytes) -> bytes:
    """A lone LF becomes CR LF, a lone CR a space, as Postfix' cleanup does."""
    lines = mail.replace(b"\r\n", b"\n")
    return lines.replace(b"\r", b" ").replace(b"\n", b"\r\n")
