"""Adds our header fields to the bytes of a mail, and finds the id among them.

Guarantee: all other bytes stay as they are, so that DKIM signatures stay valid; only the subject gets a prefix where
one is set. Fields with our names that came with the mail are removed first: a sender cannot forge a verdict.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from email.header import Header
from itertools import takewhile

from spamfilter.mail.header import blank_line
from spamfilter.system.ids import id_of

# Also with characters between name and colon that some mail programs tolerate. No two neighbouring parts can match the
# same byte, so that the time is linear whatever a header holds. The *+ does not backtrack, which would take fifty times
# the memory of a header of folded lines.
_OURS = re.compile(
    rb"^(?:x-spam-flag|x-spam-status|x-spamfilter-[!-9;-~]*+)[\x00-\x20\x7f\xa0]*+:[^\n]*+\n(?:[ \t][^\n]*+\n)*+",
    re.IGNORECASE | re.MULTILINE,
)
MOST_ADDED = 8
"""More fields than `mark` adds: a verdict has four."""
_NEXT_FIELD = re.compile(rb"\n(?=[!-9;-~])")
_SUBJECT = re.compile(rb"^subject[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
PIECE = 65_536
"""Bytes of a header searched at a time: some milliseconds."""
MBOX_LINE = re.compile(rb">?From [^\n]*\n")


def mark(mail: bytes, fields: Iterable[tuple[str, str]], subject_prefix: str = "") -> tuple[bytes, memoryview]:
    """The new header of a mail, and the unchanged rest of its bytes.

    mail: lines end with CR LF. fields: names and values of printable ASCII.
    """
    end = header_end(mail)
    head = mail[:end]
    first = b""
    if match := MBOX_LINE.match(head):
        # Mail systems take this line for a separator, so that it must stay above our fields.
        first, head = match.group(), head[match.end() :]
    head = _without_ours(head)
    ours = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("ascii")
    if subject_prefix:
        head = _prefixed(head, subject_prefix.strip())
    return first + ours + head, memoryview(mail)[end:]


def header_end(mail: bytes) -> int:
    """The offset behind the header and its last line break; the size of the mail if no empty line follows."""
    if mail.startswith(b"\r\n"):
        return 0
    end = mail.find(b"\r\n\r\n")
    return len(mail) if end < 0 else end + 2


def is_ours(name: bytes) -> bool:
    """Whether a header field of this name is removed, as one that a sender has forged."""
    return name[:6].lower() == b"x-spam" and _OURS.fullmatch(name + b":\n") is not None


def fields_added(head: bytes) -> list[tuple[bytes, bytes]]:
    """The fields that `mark` has put at the top of a header: names and values."""
    first = MBOX_LINE.match(head)
    lines = head[first.end() if first else 0 :].split(b"\r\n", MOST_ADDED)
    fields = (line.partition(b": ") for line in lines)
    return [(name, value) for name, _, value in takewhile(lambda field: is_ours(field[0]), fields)]


def subject_of(head: bytes) -> bytes | None:
    """The first subject of a header as it is written, folded lines and all, without the blanks before it.

    head: each line ends with CR LF.
    """
    for start, end in _pieces(head):
        if match := _SUBJECT.search(head, start, end):
            stop = head.find(b"\r\n", match.end())
            while head[stop + 2 : stop + 3] in (b" ", b"\t"):
                stop = head.find(b"\r\n", stop + 2)
            return head[match.end() : stop]
    return None


def _without_ours(head: bytes) -> bytes:
    if b"x-spam" not in head.lower():
        return head
    return b"".join(_OURS.sub(b"", head[start:end]) for start, end in _pieces(head))


def _pieces(head: bytes) -> Iterator[tuple[int, int]]:
    """The offsets of pieces of whole fields: other threads wait while a pattern searches a piece."""
    start = 0
    while start < len(head):
        match = _NEXT_FIELD.search(head, start + PIECE)
        end = match.end() if match else len(head)
        yield start, end
        start = end


def _prefixed(head: bytes, prefix: str) -> bytes:
    plain, wide = _encoded(prefix), _encoded(f"{prefix} ")
    for start, end in _pieces(head):
        if match := _SUBJECT.search(head[start:end]):
            at = start + match.end()
            if head.startswith((plain, wide), at):
                return head
            return head[:at] + (wide if head.startswith(b"=?", at) else plain) + b" " + head[at:]
    return b"Subject: " + plain + b"\r\n" + head


def _encoded(prefix: str) -> bytes:
    """The prefix as ASCII: as an encoded word of RFC 2047 if it has other characters, and then with a blank at its end,
    since those between encoded words are not shown."""
    if prefix.isascii():
        return prefix.rstrip().encode("ascii")
    return Header(prefix, "utf-8", maxlinelen=998).encode().encode("ascii")


def untagged(mail: bytes, prefixes: Collection[str]) -> bytes:
    """The mail without the prefix that `mark` has put before its subject; mail without an id of ours stays as it is.

    mail: with LF or CR LF as line ends, as it was delivered.
    """
    if not prefixes or not header_id(mail):
        return mail
    if subject := _SUBJECT.search(mail, 0, len(_head(mail))):
        for prefix in sorted(prefixes, key=len, reverse=True):  # one may begin with another
            for written in (_encoded(f"{prefix} "), _encoded(prefix)):
                if mail.startswith(written, subject.end()):
                    return mail[: subject.end()] + mail[subject.end() + len(written) :].lstrip(b" ")
    return mail


def header_id(mail: bytes) -> str:
    """The value of X-Spamfilter-Id in a mail's header, '' without a valid one."""
    head = _head(mail)
    if b"x-spamfilter-id" not in head.lower():
        return ""
    for line in head.split(b"\n"):
        name, _, value = line.partition(b":")
        if name.rstrip().lower() == b"x-spamfilter-id":
            words = value.decode("ascii", "replace").split()
            return id_of(words[0]) if words else ""
    return ""


def _head(mail: bytes) -> bytes:
    blank = blank_line(mail, 0, len(mail))
    return mail[: blank.end()] if blank else mail
