"""What a client sends, in lines and in messages.

Guarantee: a message ends with CR LF . CR LF and with nothing else; every other dot, CR and LF is
content. It is taken in blocks, not in lines, and never held beyond the limit.
"""

import math
from collections.abc import Callable, Iterator

from spamfilter.relay.next_hops.connection import Connection

BLOCK = 65_536
END = b"\r\n.\r\n"


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
        dotted = False  # whether a dot began a line before the end was here; that of the end, too, if it came in pieces
        while (dot := content.find(b"\r\n.", start)) < 0 or (end := content.find(END, dot)) < 0:
            dotted = dotted or dot >= 0
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
        if dotted or dot < end:
            content = content.replace(b"\r\n.", b"\r\n")
        with memoryview(content) as view:
            return bytes(view[2:])
