"""What a client sends, in lines and in messages.

Guarantee: a message ends with CR LF . CR LF and with nothing else; every other dot, CR and LF is
content. It is taken in blocks, not in lines, and never held beyond the limit.
"""

import asyncio
from collections.abc import Callable

BLOCK = 65_536
END = b"\r\n.\r\n"


class LineTooLong(Exception):
    """A command line exceeded its limit; it has been read to its end and dropped."""


class TooLarge(Exception):
    """A message exceeded the limit; it has been read to its end and dropped."""


class NoRoom(Exception):
    """There was no memory left for a message; it has been read to its end and dropped."""


class Wire:
    """Reads a StreamReader in blocks. EOFError where the client has closed its side."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()

    async def _more(self) -> bytes:
        block = await self._reader.read(BLOCK)
        if not block:
            raise EOFError
        return block

    def clear(self) -> None:
        """Forget what has been read ahead: RFC 3207 wants nothing of the clear text after STARTTLS."""
        self._buffer.clear()

    async def line(self, most: int) -> bytes:
        """The next line without its end, which is LF or CR LF. Raises LineTooLong."""
        overlong = False
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > most:
                overlong = True
                self._buffer.clear()
            self._buffer += await self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if overlong or len(line) > most:
            raise LineTooLong
        return line.removesuffix(b"\r")

    async def message(
        self, most: int, block_seconds: float, has_room: Callable[[int], bool] = lambda size: True
    ) -> bytes:
        """A message after DATA: lines as they came, doubled dots single, the last line end included.

        most: bytes of the message. block_seconds: the longest wait for one block (TimeoutError). has_room: whether so
        many bytes in all may be held. Raises TooLarge or NoRoom after the end of a message that is too large.
        """
        # The command's own line end counts as the one before a first dot.
        content = bytearray(b"\r\n") + self._buffer
        self._buffer = bytearray()
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
            async with asyncio.timeout(block_seconds):
                content += await self._more()
            # No more is asked for than may be kept, so that a message of that size has room where it is alone.
            fits = fits and (dropped > 0 or has_room(min(len(content), most)))
        self._buffer = content[end + len(END) :]
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
    """Whether any CR or LF stands alone."""
    pairs = mail.count(b"\r\n")
    return mail.count(b"\r") != pairs or mail.count(b"\n") != pairs


def normalised(mail: bytes) -> bytes:
    """A lone LF becomes CR LF, a lone CR a space, as Postfix' cleanup does."""
    lines = mail.replace(b"\r\n", b"\n")
    return lines.replace(b"\r", b" ").replace(b"\n", b"\r\n")
