"""A Maildir as next hop: the built-in default, and the quarantine.

Guarantee: a message that was said to be stored is on the disk under its final name, file and
folder synced; a crash leaves nothing but a file under tmp/. Lines end with LF there, as in every
Maildir. The envelope is kept in X-Spamfilter-Sender and X-Spamfilter-Recipients.
Format: D. J. Bernstein, https://cr.yp.to/proto/maildir.html
"""

import asyncio
import itertools
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from spamfilter.errors import NextHopError, StoreError
from spamfilter.marking import MBOX_LINE
from spamfilter.next_hops.next_hop import Conversation, NextHop, Reply

_PATH = re.compile(rb'(?:MAIL FROM|RCPT TO):[ ]?(?:<((?:"(?:[^"\\]|\\.)*"|[^>"])*)>|([^\s<>]+))', re.IGNORECASE)


class Maildir:
    """A folder with tmp, new and cur, made where it is missing. Raises StoreError if that fails."""

    _numbers = itertools.count()

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            for name in ("tmp", "new", "cur"):
                (path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be made a Maildir: {error.strerror}") from error

    def write(self, parts: Sequence[bytes | memoryview], sender: bytes, recipients: Sequence[bytes]) -> Path:
        """Store one message, lines ended by CR LF; returns its file. Raises OSError; then nothing is stored."""
        now = time.time_ns()
        host = socket.gethostname().replace("/", "\\057").replace(":", "\\072")
        name = f"{now // 10**9}.M{now % 10**9 // 1000}P{os.getpid()}Q{next(self._numbers)}.{host}"
        envelope = b"X-Spamfilter-Sender: <%s>\r\nX-Spamfilter-Recipients: %s\r\n" % (
            sender,
            b",\r\n ".join(b"<%s>" % recipient for recipient in recipients),
        )
        content = b"".join(parts)
        # Mail systems take such a line for a separator: fields above it would not be in the header.
        start = match.end() if (match := MBOX_LINE.match(content)) else 0
        content = (content[:start] + envelope + content[start:]).replace(b"\r\n", b"\n")
        temporary, final = self.path / "tmp" / name, self.path / "new" / name
        folder = os.open(self.path / "new", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open(temporary, "xb", opener=_private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(final)
            os.fsync(folder)
        except OSError:
            # The client will hear 451 and send it again; what is here must not be found then.
            temporary.unlink(missing_ok=True)
            final.unlink(missing_ok=True)
            raise
        finally:
            os.close(folder)
        return final


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class MaildirNextHop(NextHop):
    """Takes every recipient; one file a message."""

    def __init__(self, path: Path) -> None:
        self._maildir = Maildir(path)

    @property
    def where(self) -> str:
        return f"maildir:{self._maildir.path}"

    async def open(self) -> Conversation:
        return _MaildirConversation(self._maildir)

    def close(self) -> None:
        return


class _MaildirConversation(Conversation):
    keywords: Mapping[str, str] = {"8BITMIME": "", "SMTPUTF8": "", "ENHANCEDSTATUSCODES": "", "SIZE": ""}

    def __init__(self, maildir: Maildir) -> None:
        self._maildir = maildir
        self._sender = b""
        self._recipients: list[bytes] = []

    async def command(self, line: bytes) -> Reply:
        verb = line[:4].upper()
        if verb == b"RSET":
            self._recipients = []
        if verb == b"VRFY":
            return Reply.of("252 2.0.0 Every recipient is taken")
        if verb not in (b"MAIL", b"RCPT"):
            return Reply.of("250 2.0.0 Ok")
        match = _PATH.match(line)
        if not match:
            return Reply.of("501 5.5.4 Syntax: MAIL FROM:<address> or RCPT TO:<address>")
        if verb == b"MAIL":
            self._sender, self._recipients = match.group(match.lastindex or 0), []
            return Reply.of("250 2.1.0 Ok")
        self._recipients.append(match.group(match.lastindex or 0))
        return Reply.of("250 2.1.5 Ok")

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        try:
            path = await asyncio.to_thread(self._maildir.write, parts, self._sender, self._recipients)
        except OSError as error:
            raise NextHopError(f"maildir:{self._maildir.path}: {error.strerror}") from error
        return Reply.of(f"250 2.0.0 Ok: stored as {path.name}")

    @property
    def closed(self) -> bool:
        return False

    async def forget(self) -> None:
        self._recipients = []

    def release(self) -> None:
        return

    def abort(self) -> None:
        return
