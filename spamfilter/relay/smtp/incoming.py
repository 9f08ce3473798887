"""A mail behind DATA: read in blocks, not in lines, counted as it comes, and never held beyond the limit.

Guarantee: it ends with CR LF . CR LF and with nothing else; every other dot, CR and LF is content.
"""

import asyncio

from spamfilter.relay.session import HasRoom, NoRoom, TooLarge
from spamfilter.relay.smtp.server import Server

LINE_END = b"\r\n"
END = b"\r\n.\r\n"
FRAME = len(LINE_END + b".\r\n")
"""Bytes that are read and belong to no mail: the line end before it, the dot after it."""


class Incoming:
    """most: bytes of the message."""

    def __init__(self, server: Server, most: int, has_room: HasRoom) -> None:
        self._server = server
        self._most = most
        self._has_room = has_room
        self._come = 0
        self._content = bytearray()  # a large one is given back to the system, which many blocks would not be
        self._dropped = False
        server.unread[:0] = LINE_END  # the command's own counts as the one before a first dot
        self.came(len(server.unread))

    def came(self, size: int) -> None:
        """So many bytes more have come; they are held from now on."""
        self._come += size
        # No more is asked for than may be kept, so that a message of that size has room where it is alone.
        if not self._dropped and not self._has_room(min(self._come, self._most)):
            self._drop()

    def _drop(self) -> None:
        self._dropped = True
        self._content.clear()
        self._has_room(0)  # others may have what is given back

    async def mail(self) -> bytes:
        """Lines as they came, doubled dots single, the last line end included.

        Raises TooLarge or NoRoom after the end of a mail that is not kept, IncompleteReadError where it has no end.
        """
        size = -FRAME
        ended = False
        while not ended:
            block = await self._block()
            ended = block.endswith(END)
            size += len(block)
            if size > self._most:
                self._drop()
            elif not self._dropped:
                self._content += block
            del block  # none is kept while the next is waited for, by no connection
        if size > self._most:
            raise TooLarge
        if self._dropped:
            raise NoRoom
        # Each copy is as large as the message, and there is never more than one beside it.
        content, self._content = self._content, bytearray()
        del content[len(LINE_END) + size :]
        if b"\r\n." in content:
            content = content.replace(b"\r\n.", b"\r\n")
        with memoryview(content) as view:
            return bytes(view[len(LINE_END) :])

    async def _block(self) -> bytes:
        """Some of what has come; the end of the mail is the end of a block."""
        try:
            return await self._server.reader.readuntil(END)
        except asyncio.LimitOverrunError as overrun:
            return await self._server.reader.read(overrun.consumed)
