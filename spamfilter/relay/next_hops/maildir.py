"""A Maildir as next hop, which is the default, and as quarantine.

Guarantee: a message that was reported as stored is on the disk under its final name, file and folder synced; a crash
leaves nothing but a file in tmp. Lines end with LF, as in every Maildir. The envelope is in X-Spamfilter-Sender and
X-Spamfilter-Recipients, and `unwrapped` is the exact inverse of `wrapped`, since an accepted mail has no lone CR or LF.
Format: D. J. Bernstein, https://cr.yp.to/proto/maildir.html
"""

import asyncio
import itertools
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from spamfilter.errors import NextHopError, StoreError
from spamfilter.mail.tagging import MBOX_LINE
from spamfilter.relay.envelope_paths import decoded, encoded, path_of
from spamfilter.relay.next_hops.next_hop import Conversation, NextHop, Reply
from spamfilter.system.file_access import make_folder
from spamfilter.system.ids import new_id

_ENVELOPE = re.compile(
    rb"(%b)?X-Spamfilter-Sender: <([^\n]*)>\nX-Spamfilter-Recipients: (<[^\n]*>(?:,\n <[^\n]*>)*)\n" % MBOX_LINE.pattern
)


class Maildir:
    """A folder with tmp, new and cur, which are made if missing. Raises StoreError if that fails."""

    _numbers = itertools.count()

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            for name in ("tmp", "new", "cur"):
                make_folder(path / name)
        except OSError as error:
            raise StoreError(f"{path}: cannot be made a Maildir: {error.strerror}") from error

    def write(
        self, parts: Sequence[bytes | memoryview], sender: bytes, recipients: Sequence[bytes], id: str = ""
    ) -> Path:
        """Store a message whose lines end with CR LF; returns its file. Raises OSError; then nothing is stored.

        id: part of the file's name, by which the file is found without reading all files.
        """
        now = time.time_ns()
        host = socket.gethostname().replace("/", "\\057").replace(":", "\\072")
        number = f"M{now % 10**9 // 1000}P{os.getpid()}Q{next(self._numbers)}"
        final = self.path / "new" / f"{now // 10**9}.{number}{'_' if id else ''}{id}.{host}"
        try:
            self.put(wrapped(b"".join(parts), sender, recipients), final)
        except OSError:
            # The client will hear 451 and send it again, so this copy must not stay.
            final.unlink(missing_ok=True)
            raise
        return final

    def put(self, content: bytes, final: Path) -> None:
        """Write a file in new or cur, by way of tmp. Raises OSError; then tmp has no trace of it.

        If root writes, an existing file keeps its owner, and a new one gets the owner of its folder.
        """
        temporary = self.path / "tmp" / f"{final.name}.{new_id()}"
        folder = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open(temporary, "xb", opener=partial(os.open, mode=0o600)) as file:
                if os.geteuid() == 0:
                    owner = os.fstat(folder)
                    with suppress(FileNotFoundError):
                        owner = final.lstat()
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(final)
            os.fsync(folder)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(folder)


def wrapped(mail: bytes, sender: bytes, recipients: Sequence[bytes]) -> bytes:
    """The content of a file: a mail whose lines end with CR LF, and its envelope."""
    envelope = b"X-Spamfilter-Sender: <%s>\nX-Spamfilter-Recipients: %s\n" % (
        sender,
        b",\n ".join(b"<%s>" % recipient for recipient in recipients),
    )
    mail = mail.replace(b"\r\n", b"\n")
    # Mail systems take such a line for a separator, so fields above it would not be in the header.
    start = match.end() if (match := MBOX_LINE.match(mail)) else 0
    return mail[:start] + envelope + mail[start:]


def envelope_end(content: bytes) -> int:
    """Where the envelope in a file ends, 0 if it is not whole or there is none."""
    envelope = _ENVELOPE.match(content)
    return envelope.end() if envelope else 0


def unwrapped(content: bytes) -> tuple[bytes, bytes, list[bytes]]:
    """The mail in a file with CR LF line ends, its sender and its recipients; empty ones if it has no envelope."""
    envelope = _ENVELOPE.match(content)
    if envelope is None:
        return content.replace(b"\n", b"\r\n"), b"", []
    mbox_line, sender, recipients = envelope.groups(b"")
    mail = mbox_line + content[envelope.end() :]
    return mail.replace(b"\n", b"\r\n"), sender, [path[1:-1] for path in recipients.split(b",\n ")]


class MaildirNextHop(NextHop):
    """Accepts every recipient; stores a message in one file."""

    def __init__(self, path: Path) -> None:
        self._maildir = Maildir(path)

    @property
    def where(self) -> str:
        return f"maildir:{self._maildir.path}"

    async def keywords(self) -> Mapping[str, str]:
        return _MaildirConversation.keywords

    async def open(self) -> Conversation:
        return _MaildirConversation(self._maildir)


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
        path = path_of(decoded(line[5:]), "FROM" if verb == b"MAIL" else "TO")
        if path is None:
            return Reply.of("501 5.5.4 Syntax: MAIL FROM:<address> or RCPT TO:<address>")
        if verb == b"MAIL":
            self._sender, self._recipients = encoded(path), []
            return Reply.of("250 2.1.0 Ok")
        self._recipients.append(encoded(path))
        return Reply.of("250 2.1.5 Ok")

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        try:
            path = await asyncio.to_thread(self._maildir.write, parts, self._sender, self._recipients)
        except OSError as error:
            raise NextHopError(f"maildir:{self._maildir.path}: {error.strerror}", "disk") from error
        return Reply.of(f"250 2.0.0 Ok: stored as {path.name}")

    async def forget(self) -> None:
        self._recipients = []
