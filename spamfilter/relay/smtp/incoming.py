"""The mail after DATA, read in blocks, not in lines; its memory is counted as it arrives, and bounded.

Guarantee: only CR LF . CR LF ends a mail; every other dot, CR and LF is content.
"""

import asyncio

from spamfilter.relay.session import Dropped, HasRoom
from spamfilter.relay.smtp.server import Server

LINE_END = b"\r\n"
END = b"\r\n.\r\n"
FRAME = len(LINE_END + b".\r\n")
"""Bytes that are read but not part of the mail: the line end before it, and the dot with its line end after it."""

SLOWEST, PACE_SECONDS = 250, 180.0
"""Bytes a second that a mail must bring, and the time over which that is measured: the slowest modem in use brings
more, and 180 s bridge a gap."""


class Incoming:
    """A mail that is being received. most: largest accepted size in bytes. has_room: see session.HasRoom."""

    def __init__(self, server: Server, most: int, has_room: HasRoom) -> None:
        self._server = server
        self._most = most
        self._has_room = has_room
        self._come = 0
        self._slow_at, self._due = server.loop.time() + PACE_SECONDS, SLOWEST * PACE_SECONDS
        self._content = bytearray()  # one large block of memory goes back to the system, many small ones do not
        self._dropped = False
        server.unread[:0] = LINE_END  # the line end of DATA counts as the one before a dot at the begin
        self.came(len(server.unread))

    def came(self, size: int) -> None:
        """Count bytes that have arrived, and hold memory for them."""
        self._come += size
        # Ask for no more than may be kept, so that a single message of the largest size always fits.
        if not self._dropped and not self._has_room(min(self._come, self._most)):
            self._drop()

    def is_slow(self) -> bool:
        """Whether less than SLOWEST bytes a second have come in the last PACE_SECONDS; to be asked when some come."""
        now = self._server.loop.time()
        if now < self._slow_at:
            return False
        slow = self._come < self._due
        self._slow_at, self._due = now + PACE_SECONDS, self._come + SLOWEST * PACE_SECONDS
        return slow

    def _drop(self) -> None:
        self._dropped = True
        self._content.clear()
        self._has_room(0)  # releases the memory for other mails

    async def mail(self) -> bytes:
        """The mail with single dots and the last line end.

        Raises Dropped after the end of a mail that is not kept, IncompleteReadError if the client hangs up.
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
            del block  # no connection keeps a block while it waits for the next
        if size > self._most:
            raise Dropped("message_size")
        if self._dropped:
            raise Dropped("memory_megabytes")
        # A copy is as large as the message; there is never more than one copy at a time.
        content, self._content = self._content, bytearray()
        del content[len(LINE_END) + size :]
        if b"\r\n." in content:
            content = content.replace(b"\r\n.", b"\r\n")
        with memoryview(content) as view:
            return bytes(view[len(LINE_END) :])

    async def _block(self) -> bytes:
        """A block of the mail; the end of the mail is also the end of a block."""
        try:
            return await self._server.reader.readuntil(END)
        except asyncio.LimitOverrunError as overrun:
            return await self._server.reader.read(overrun.consumed)
