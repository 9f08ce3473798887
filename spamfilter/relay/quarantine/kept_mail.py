"""One file of the quarantine: the mail and envelope in it, its Maildir flags, its name.

Only files of the relay count: regular files that begin with its envelope.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from spamfilter.mail.mailboxes import FLAGS
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import MBOX_LINE, header_end, header_id
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.next_hops.maildir import envelope_end, unwrapped
from spamfilter.system.escaping import harmless

LONGEST_AUTHOR = 200
"""Characters of From that are shown."""
HEAD = 65_536
"""Bytes of a mail that a list reads, behind its envelope; header fields after that are not shown."""
PASSED = "P"
"""The flag in the name of a file in a Maildir whose mail was sent on."""
_ENVELOPE = re.compile(rb"(?:%b)?X-Spamfilter-Sender: <" % MBOX_LINE.pattern)
_NAME = re.compile(r"([0-9]{1,11})(?:\.(?:M([0-9]{1,6})P)?|$)")
"""The begin of a Maildir file's name: seconds, and microseconds if it has them, without leading zeros."""
_SCORE = re.compile(rb"^X-Spam-Status: [^\n]*?\bscore=([0-9.]{1,10})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A mail in quarantine. sender: of the envelope; author: the field From. score: None if its header has none; size:
    bytes of the file.

    recipients: those that do not have it yet. broken_off: a release was interrupted, and may have delivered it.
    """

    path: Path
    id: str
    at: datetime
    sender: str
    author: str
    recipients: Sequence[str]
    subject: str
    score: float | None
    size: int

    @property
    def shown_sender(self) -> str:
        """The sender as people know it: the field From, followed by the domain of the envelope if that differs."""
        domain = self.sender.rpartition("@")[2].lower()
        if not self.author or domain in self.author.lower():
            return self.author or self.sender
        return f"{self.author} [{domain}]"

    @property
    def broken_off(self) -> bool:
        return PASSED in flags_of(self.path)

    def is_for(self, address: str) -> bool:
        """Whether a mailbox, in lower case, is among the recipients."""
        return any(mailbox_of(recipient) == address for recipient in self.recipients)


def looked_at(path: Path) -> Quarantined | None:
    """The mail in a file; None if the relay has not written the file, or it is gone.

    Raises PermissionError if it may not be read.
    """
    try:
        with path.open("rb") as file:
            content, size = _beginning(file), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    if not _ENVELOPE.match(content):
        return None
    mail, sender, recipients = unwrapped(content)
    head = mail[: header_end(mail)]
    score, message = _SCORE.search(head), parse(head + b"\r\n")
    return Quarantined(
        path=path,
        id=header_id(mail),
        at=came(path),
        sender=sender.decode("utf-8", "replace"),
        author=message.field(b"from").strip()[:LONGEST_AUTHOR],
        recipients=[named(name) for name in recipients],
        subject=message.field(b"subject").strip(),
        score=float(score.group(1)) if score else None,
        size=size,
    )


def _beginning(file: BinaryIO) -> bytes:
    """The envelope, which a thousand recipients make longer than HEAD, and what a list reads of the mail behind it."""
    content = file.read(HEAD)
    while _ENVELOPE.match(content) and not envelope_end(content) and (more := file.read(len(content))):
        content += more
    return content + file.read(envelope_end(content))


def named(recipient: bytes) -> str:
    """A recipient as text. Two recipients never have the same text, because a note of a delivery is about one."""
    try:
        return recipient.decode()
    except UnicodeDecodeError:  # no path that can be decoded ends like this
        return recipient.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace") + " (not UTF-8)"


def is_ours(path: Path) -> bool:
    """Whether the relay has written this file; one that may not be read is not ours."""
    try:
        with path.open("rb") as file:
            return _ENVELOPE.match(file.read(HEAD)) is not None
    except (FileNotFoundError, PermissionError):
        return False


def came(path: Path) -> datetime:
    """When a mail was added, to the microsecond: by the name of its file, as in every Maildir, else by its time."""
    match = _NAME.match(path.name)
    if match is None:
        return written(path)
    return datetime.fromtimestamp(int(match[1]), UTC).replace(microsecond=int(match[2] or 0))


def written(path: Path) -> datetime:
    """When a file was written; now, if it is gone."""
    with suppress(FileNotFoundError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return datetime.now(UTC)


def flags_of(path: Path) -> str:
    return path.name.partition(FLAGS)[2]


def unflagged(path: Path) -> str:
    """The name of a file, which stays the same while its flags change."""
    return path.name.partition(FLAGS)[0]


def dated(path: Path, at: datetime) -> Path:
    """The path of a file by whose name the mail came at this moment."""
    return path.with_name(re.sub(r"^[0-9]+", str(int(at.timestamp())), path.name))


def flagged(path: Path) -> Path:
    """The path of a file with the flag PASSED."""
    flags = "".join(sorted({*flags_of(path), PASSED}))
    return path.parent.parent / "cur" / (unflagged(path) + FLAGS + flags)


def move(path: Path, to: Path) -> None:
    """Rename a file, and sync its folders to disk."""
    if path == to:
        return
    path.rename(to)
    for name in {path.parent, to.parent}:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def readable(path: bytes) -> str:
    """A path of an envelope, for people."""
    return harmless(path.decode("utf-8", "replace"))
