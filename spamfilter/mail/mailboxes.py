"""Finds and reads mail on disk: Maildir, mbox, single files, and folders of these.

Guarantee: nothing is changed, not even a file's flags. Mails come in a fixed order, and each is read only when it is
needed, so that a mailbox may be larger than memory.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from spamfilter.errors import InputError, NotMail, file_errors

# The separator as mail programs write it, with a date: a line of text may begin with "From ", too.
_SEPARATOR = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]{0,300}?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +"
    rb"[^\r\n]{0,40}?[0-9]{2}:[0-9]{2}[^\r\n]*\r?\n"
)
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
# Bit 3 of its flags, among the fields that Thunderbird writes at the top; other mail may have such a field below.
_REMOVED = re.compile(
    rb"From [^\n]{0,300}\n(?:X-(?:Account-Key|UIDL): [^\n]{0,200}\n){0,2}X-Mozilla-Status: [0-9a-fA-F]{3}[89a-fA-F]"
)

_COMPRESSED = {
    "gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18", "zip": b"PK\3\4",
}  # fmt: skip
"""Program -> how what it has compressed begins."""

_DBOX = b"\n\1\2N"
"""What begins the first mail of a file in Dovecot's formats sdbox and mdbox, in its second line."""
_DBOX_WITHIN = 100
"""Bytes in which _DBOX is looked for: the first line, with the date of the file, has some twenty."""

FIRST = 65_536
"""Bytes in which the end of a file is looked for at first. No separator is longer, with what Thunderbird adds."""
BLOCK = 4_194_304
"""Bytes of an mbox that are searched at a time."""
BEFORE = 3
"""Bytes before a separator by which it is known."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FLAGS = ":2,"
"""Begins the flags in the name of a mail in a Maildir."""


LONGEST_LINE = 65_536
"""Bytes in which the end of the first line is looked for: as many as are read of a mail."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail on disk: `name` says where it is, `read` returns its bytes or raises InputError."""

    name: str
    read: Callable[[], bytes]


def find(path: Path, left_out: Callable[[Path], bool] = lambda _: False) -> list[Mail]:
    """The mails of a file or folder. Raises NotMail if there are none, and InputError if there is no such file.

    left_out: whether a file or folder below is passed over.
    """
    try:
        if path.is_dir():
            mails = [mail for file in _files(path, left_out, set()) for mail in _file(file)]
        elif path.is_file():
            mails = list(_file(path))
        else:
            raise InputError(f"{path}: {'neither a file nor a folder' if path.exists() else 'no such file or folder'}")
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror}") from error
    if not mails:
        raise NotMail(f"{path}: no mail in it")
    return mails


def _files(
    folder: Path, left_out: Callable[[Path], bool], seen: set[tuple[int, int]], listed: Iterable[Path] | None = None
) -> Iterator[Path]:
    """The files of mail below a folder; in a Maildir those of new, cur and its subfolders.

    seen: folders that were visited; links that lead back up would multiply them without end. listed: what is in it.
    """
    found = folder.stat()
    if (identity := (found.st_dev, found.st_ino)) in seen:
        return
    seen.add(identity)
    paths = sorted(folder.iterdir() if listed is None else listed)
    maildir = (folder / "cur").is_dir() and (folder / "new").is_dir()
    # Listed before the first mail is opened, and in this order: a mail that somebody looks at moves from new to cur.
    within = {name: [*(folder / name).iterdir()] for name in ("new", "cur")} if maildir else {}
    for path in paths:
        if left_out(path):
            continue
        if path.is_dir():
            if not (maildir and path.name == "tmp"):  # mails there are not yet delivered
                yield from _files(path, left_out, seen, within.get(path.name))
        elif not maildir and not path.name.startswith("."):
            renamed = folder.name in ("new", "cur") and not os.path.lexists(path)  # `_opened` finds it, or says so
            if renamed or path.is_file():
                yield path


def _file(path: Path) -> Iterator[Mail]:
    """The mails of one file. A file that cannot be opened is one mail, whose `read` raises."""
    try:
        starts, end, removed = _starts(path)
    except OSError:
        starts, end, removed = [0], -1, set()
    if len(starts) == 1 and not removed:
        yield Mail(str(path), partial(_slice, path, str(path), starts[0], -1))
        return
    for number, (start, stop) in enumerate(pairwise((*starts, end)), 1):
        if start not in removed:
            name = f"{path}:{number}"
            yield Mail(name, partial(_slice, path, name, start, stop))


def _starts(path: Path) -> tuple[list[int], int, set[int]]:
    """The offsets of the mails of a file, none in an empty file, of its end, -1 if it is one mail, and of those mails
    that Thunderbird has deleted or moved away, and leaves in the file until it compacts the folder."""
    with open(path, "rb", buffering=0) as file:
        first = file.read(5)
        begin = 0
        if first[:1] in (b"\r", b"\n", _BYTE_ORDER_MARK[:1]):  # left by editors and scripts
            more = first + file.read(FIRST)
            begin = len(more) - len(more.removeprefix(_BYTE_ORDER_MARK).lstrip(b"\r\n"))
            file.seek(begin)
            first = file.read(5) if more.startswith(b"From ", begin) else first
        if first != b"From ":
            return [0] if first else [], -1, set()
        more = file.read(FIRST)
        if len(more) < FIRST and b"\nFrom " not in more:  # most mails
            return [begin], begin + len(first + more), {begin} if _REMOVED.match(first + more) else set()
        file.seek(begin)
        starts, end, removed = _separators(file, begin)
        if _REMOVED.match(first + more):
            removed.add(begin)
        # The first line may be no whole separator; what it begins is a mail all the same.
        return starts if starts[:1] == [begin] else [begin, *starts], end, removed


def _separators(file: BinaryIO, begin: int) -> tuple[list[int], int, set[int]]:
    """As `_starts`, of an mbox from here on.

    In blocks, and not mapped into memory: a file that somebody shortens meanwhile would end the process (SIGBUS).
    """
    starts, removed = list[int](), set[int]()
    content, place, sought = b"", begin, 0  # bytes of the file, where they begin in it, and how many have been searched
    while True:
        content += (more := file.read(BLOCK))
        sure = max(sought, len(content) - FIRST) if more else len(content)  # a separator behind may be cut off
        found = _SEPARATOR.finditer(content, sought) if content.find(b"From ", sought) >= 0 else ()
        for match in found:
            if match.start() >= sure:
                break
            starts.append(place + match.start())
            if _REMOVED.match(content, match.start()):
                removed.add(place + match.start())
        if not more:
            return starts, place + len(content), removed
        kept = max(0, sure - BEFORE)
        content, place, sought = content[kept:], place + kept, sure - kept


def is_mbox(content: bytes) -> bool:
    """Whether this is a file of more than one mail."""
    return content.startswith(b"From ") and _SEPARATOR.search(content, 1) is not None


def whole_file(path: str) -> Mail:
    """A file that is one mail; `read` raises InputError if it is missing."""
    return Mail(path, partial(_whole, path))


def compression_of(content: bytes) -> str:
    """The program that has compressed this, as mail servers do with mailboxes; '' if none has."""
    return next((kind for kind, sign in _COMPRESSED.items() if content.startswith(sign)), "")


def checked(name: str, mail: bytes) -> bytes:
    """The same bytes. Raises NotMail unless they begin with a header field, after the separator of an mbox if any."""
    if kind := compression_of(mail):
        raise NotMail(
            f"{name}: is compressed by {kind}, and not read; unpack it first (a mailbox of Dovecot: docs/training.md)"
        )
    if _DBOX in mail[:_DBOX_WITHIN]:
        raise NotMail(
            f"{name}: is in Dovecot's format dbox, and not read; copy the mailbox into a Maildir: docs/training.md"
        )
    start = mail.find(b"\n") + 1 if mail.startswith((b"From ", b">From ")) else 0
    line = mail[start : start + LONGEST_LINE].partition(b"\n")[0]
    field, colon, _ = line.partition(b":")
    letters = field.rstrip().translate(None, b"-_.")
    if not (colon and letters.isalnum() and letters[:1].isalpha()) or b"\0" in line:
        raise NotMail(f"{name}: begins with no header field, so it is no mail; tables and texts: spamfilter classify")
    return mail


def _whole(path: str) -> bytes:
    return checked(path, _read(path, lambda file: file.read()))


def _slice(path: Path, name: str, start: int, stop: int) -> bytes:
    """The mail at this offset of a file. stop: where it ended when it was found, -1 if it was the only one."""
    mail = _read(path, partial(_one_mail, start=start, stop=stop))
    if stop >= 0 and not mail.startswith(b"From "):
        raise InputError(f"{path}: a mail in it was removed or changed meanwhile; run the command again for the others")
    checked(name, mail)
    return _QUOTED_FROM.sub(rb"\1", mail) if mail.startswith(b"From ") and stop >= 0 else mail


def _one_mail(file: BinaryIO, start: int, stop: int) -> bytes:
    """As `_slice`; where another mail has come to this place meanwhile, the whole of that, and of no further one."""
    file.seek(start)
    mail = file.read(stop - start if stop >= 0 else -1)
    if not mail.startswith(b"From "):
        return mail
    if stop >= 0 and file.read(len(b"From ")) not in (b"", b"From "):
        file.seek(start + len(mail))
        while not is_mbox(mail) and (more := file.read(max(FIRST, len(mail)))):
            mail += more
    behind = _SEPARATOR.search(mail, 1) if b"\nFrom " in mail else None
    return mail[: behind.start()] if behind else mail


def _read(path: str | Path, bytes_of: Callable[[BinaryIO], bytes]) -> bytes:
    with file_errors(path), _opened(Path(path)) as file:
        return bytes_of(file)


def _opened(path: Path) -> BinaryIO:
    """The file, also under the name that a mail of a Maildir gets when somebody reads or flags it meanwhile."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        if path.parent.name not in ("new", "cur"):
            raise
        folder, unique = path.parent.with_name("cur"), path.name.partition(FLAGS)[0]
        # A client has looked into the folder, or read the mail; to go through a list of all names takes longer.
        likely = (name for name in (f"{unique}{FLAGS}", f"{unique}{FLAGS}S") if (folder / name).exists())
        now = next(likely, "") or next((name for name in os.listdir(folder) if name.partition(FLAGS)[0] == unique), "")
        if not now:
            raise
        return (folder / now).open("rb")
