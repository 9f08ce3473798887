"""The quarantine: a Maildir of mail that was not delivered, to be read, released or deleted.

Guarantee: a release removes a mail only after the next hop's 250; for recipients that the next hop rejects, it stays.
Before the text is sent, the file gets Maildir's flag P ("passed"), and loses it if the next hop rejects the mail. If a
release is interrupted when nobody can know whether the mail has arrived, the file stays with the flag; a second release
warns, because the mail may arrive twice. It is never lost.
Only files of the relay are touched: regular files that begin with its envelope.
"""

import fcntl
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spamfilter.errors import InputError, NextHopError, Refused, SpamfilterError, StoreBusy, StoreError, TryAgain
from spamfilter.learning.marks import header_id
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import MBOX_LINE, header_end
from spamfilter.relay.next_hops import Conversation, Maildir, NextHop, Reply
from spamfilter.relay.next_hops.maildir import unwrapped, wrapped
from spamfilter.system.escaping import harmless, printable

HEAD = 65_536
"""Bytes of a mail that a list reads; header fields after that are not shown."""
TEMPORARY_KEPT = timedelta(hours=36)
"""Age of an abandoned file in tmp, by Maildir's definition."""
MOST_EXPIRED = 10
"""Mails of a small quarantine that one expiry deletes; of a large one it deletes a tenth. In a month of steady mail an
hour's share is less than a five-hundredth."""
FLAGS = ":2,"
PASSED = "P"
"""The begin of Maildir's flags in a file name, and the flag of a mail that was sent on."""
_ENVELOPE = b"X-Spamfilter-Sender: <"
_FLAG = re.compile(rb"^X-Spam-Flag: YES\r\n", re.MULTILINE)
_SCORE = re.compile(rb"^X-Spam-Status: [^\n]*?\bscore=([0-9.]{1,10})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A mail in quarantine. score: None if its header has none; size: bytes of the file.

    broken_off: a release was interrupted, and may have delivered it.
    """

    path: Path
    id: str
    at: datetime
    sender: str
    recipients: Sequence[str]
    subject: str
    score: float | None
    size: int

    @property
    def broken_off(self) -> bool:
        return PASSED in _flags(self.path)


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a release: the mail as it was sent, its recipients, and those that were rejected, with replies."""

    mail: bytes
    delivered: Sequence[bytes]
    refused: Sequence[tuple[bytes, Reply]]


class Quarantine:
    """The mails in a Maildir. Raises OSError if its files may not be read or changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mails(self) -> list[Quarantined]:
        """All mails, the oldest first."""
        found = (_looked_at(path) for path in self._files("new", "cur"))
        return sorted((mail for mail in found if mail is not None), key=lambda mail: (mail.at, mail.path.name))

    def find(self, id: str) -> Quarantined:
        """The mail of an id. Raises InputError."""
        files = list(self._files("new", "cur"))
        for path in sorted(files, key=lambda path: id not in path.name):
            mail = _looked_at(path)
            if mail is not None and mail.id == id:
                return mail
        raise InputError(f"{id}: not in the quarantine {self.path}; it was released or deleted, or has expired")

    def read(self, mail: Quarantined) -> bytes:
        """The mail as it would have been delivered, lines ended by CR LF. Raises InputError if it is gone."""
        try:
            return unwrapped(mail.path.read_bytes())[0]
        except FileNotFoundError:
            raise _gone(mail) from None

    def delete(self, mail: Quarantined) -> None:
        """Delete a mail. Raises InputError if it is gone, StoreBusy during a release."""
        with self._locked():
            try:
                mail.path.unlink()
            except FileNotFoundError:
                raise _gone(mail) from None

    def older(self, before: datetime) -> list[Path]:
        """The files of mails from before this moment."""
        return [path for path in self._files("new", "cur") if _came(path) < before and _is_ours(path)]

    def expire(self, before: datetime, now: datetime, noted: Collection[str] | None = None) -> int:
        """Delete mails from before this moment, and abandoned files in tmp; returns the number of mails.

        noted: only files of these names, and at most MOST_EXPIRED of them or a tenth of all, the oldest first. Raises
        StoreBusy during a release.
        """
        with self._locked():
            old = self.older(before)
            if noted is not None:
                most = max(MOST_EXPIRED, sum(1 for _ in self._files("new", "cur")) // 10)
                old = sorted((path for path in old if path.name in noted), key=_came)[:most]
            abandoned = now - TEMPORARY_KEPT
            for path in (*old, *(path for path in self._files("tmp") if _written(path) < abandoned)):
                path.unlink(missing_ok=True)  # a mail program may have moved it
        return len(old)

    async def release(self, mail: Quarantined, next_hop: NextHop) -> Released:
        """Deliver a mail to its recipients, without X-Spam-Flag, and remove it from quarantine.

        Raises TryAgain if the next hop is down or defers it, Refused if the next hop rejects it, InputError if the mail
        is gone or has no envelope, StoreBusy during another release; then it stays as it is.
        """
        with self._locked():
            try:
                text, sender, recipients = unwrapped(mail.path.read_bytes())
            except FileNotFoundError:
                raise _gone(mail) from None
            if not recipients:
                raise InputError(f"{mail.path}: has no envelope, so there is nobody to deliver it to")
            try:
                conversation = await next_hop.open()
                try:
                    return await self._hand_over(conversation, mail, text, sender, recipients)
                finally:
                    conversation.abort()
            except NextHopError as error:
                raise TryAgain(f"{mail.id}: {error}; it stays in quarantine, try again") from error

    async def _hand_over(
        self, conversation: Conversation, mail: Quarantined, text: bytes, sender: bytes, recipients: list[bytes]
    ) -> Released:
        parameters = _parameters(conversation, text, (sender, *recipients))
        reply = await conversation.command(b"MAIL FROM:<%s>%s" % (sender, parameters))
        if not reply.positive:
            raise _refusal(mail, reply)
        replies = [await conversation.command(b"RCPT TO:<%s>" % recipient) for recipient in recipients]
        taken = [name for name, reply in zip(recipients, replies, strict=True) if reply.positive]
        refused = [(name, reply) for name, reply in zip(recipients, replies, strict=True) if not reply.positive]
        if not taken:
            raise _refusal(mail, replies[-1])
        marked = _flagged(mail.path)
        _move(mail.path, marked)
        sent = _without_flag(text)
        try:
            reply = await conversation.data([sent])
        except NextHopError as error:
            raise TryAgain(
                f"{mail.id}: {error}; it may have been delivered nevertheless; it stays in quarantine"
            ) from error
        if not reply.positive:
            _move(marked, mail.path)
            raise _refusal(mail, reply)
        try:
            if refused:
                Maildir(self.path).put(wrapped(text, sender, [name for name, _ in refused]), marked)
                _move(marked, mail.path)
            else:
                marked.unlink()
        except OSError as error:
            names = ", ".join(f"<{readable(name)}>" for name in taken)
            raise StoreError(
                f"{mail.id}: was delivered to {names}, but {marked} cannot be changed and names them still:"
                f" {error.strerror}"
            ) from error
        return Released(sent, taken, refused)

    def _files(self, *folders: str) -> Iterator[Path]:
        for folder in folders:
            with suppress(FileNotFoundError):
                for path in (self.path / folder).iterdir():
                    if not path.name.startswith(".") and _is_regular(path):
                        yield path

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from releasing, deleting or expiring meanwhile. New mail can still be added."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreBusy(f"{self.path}: something else is being released or deleted; try again") from error
            yield
        finally:
            os.close(folder)


def _looked_at(path: Path) -> Quarantined | None:
    """The mail in a file; None if the relay has not written the file, or it is gone."""
    try:
        with path.open("rb") as file:
            content, size = file.read(HEAD), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    if not _has_envelope(content):
        return None
    mail, sender, recipients = unwrapped(content)
    head = mail[: header_end(mail)]
    score = _SCORE.search(head)
    return Quarantined(
        path=path,
        id=header_id(mail),
        at=_came(path),
        sender=sender.decode("utf-8", "replace"),
        recipients=[name.decode("utf-8", "replace") for name in recipients],
        subject=parse(head + b"\r\n").field(b"subject"),
        score=float(score.group(1)) if score else None,
        size=size,
    )


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _is_ours(path: Path) -> bool:
    """Whether the relay has written this file; one that may not be read is not ours."""
    try:
        with path.open("rb") as file:
            return _has_envelope(file.read(HEAD))
    except (FileNotFoundError, PermissionError):
        return False


def _has_envelope(content: bytes) -> bool:
    return content.startswith(_ENVELOPE, match.end() if (match := MBOX_LINE.match(content)) else 0)


def _without_flag(mail: bytes) -> bytes:
    """The mail without X-Spam-Flag, by which mail servers sort into Junk; fields of senders were removed before."""
    end = header_end(mail)
    return _FLAG.sub(b"", mail[:end]) + mail[end:]


def _came(path: Path) -> datetime:
    """When a mail was added: by the name of its file, as in every Maildir, else by the file's time."""
    seconds = path.name.partition(".")[0]
    if seconds.isascii() and seconds.isdecimal() and len(seconds) <= 11:
        return datetime.fromtimestamp(int(seconds), UTC)
    return _written(path)


def _written(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)


def _flags(path: Path) -> str:
    return path.name.partition(FLAGS)[2]


def _flagged(path: Path) -> Path:
    """The path of a file with the flag PASSED."""
    flags = "".join(sorted({*_flags(path), PASSED}))
    return path.parent.parent / "cur" / (path.name.partition(FLAGS)[0] + FLAGS + flags)


def _move(path: Path, to: Path) -> None:
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


def _parameters(conversation: Conversation, text: bytes, paths: Sequence[bytes]) -> bytes:
    """The parameters of MAIL that this mail needs, as far as the next hop announces them.

    8-bit text in the header alone needs no SMTPUTF8: most senders send it without, and so did this mail's.
    """
    found = b""
    if not text.isascii() and "8BITMIME" in conversation.keywords:
        found += b" BODY=8BITMIME"
    if not all(path.isascii() for path in paths) and "SMTPUTF8" in conversation.keywords:
        found += b" SMTPUTF8"
    return found


def readable(path: bytes) -> str:
    """A path of an envelope, for people."""
    return harmless(path.decode("utf-8", "replace"))


def _refusal(mail: Quarantined, reply: Reply) -> SpamfilterError:
    kind = TryAgain if reply.code < 500 else Refused
    return kind(f"{mail.id}: the next hop says {printable(reply.text, 300)}; it stays in quarantine")


def _gone(mail: Quarantined) -> InputError:
    return InputError(f"{mail.id}: was released, deleted or moved in the meantime")
