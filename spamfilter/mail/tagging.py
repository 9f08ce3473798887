"""The bytes of a mail with our header fields put in, and nothing else changed.

Guarantee: every byte but our own fields, forged ones of the same names and the subject prefix
leaves as it came, so that DKIM signatures stay valid. Incoming fields with our names are removed
first: nobody can vouch for their own mail.
"""

import re
from collections.abc import Iterable, Iterator
from email.header import Header

# What some readers tolerate between name and colon counts, too. No two neighbours here can match the
# same byte, so that the time is linear whatever a header holds; and the *+ keeps nothing to come back to, which
# took fifty times the memory of a header of folded lines.
_OURS = re.compile(
    rb"^(?:x-spam-flag|x-spam-status|x-spamfilter-[!-9;-~]*+)[\x00-\x20\x7f\xa0]*+:[^\n]*+\n(?:[ \t][^\n]*+\n)*+",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT_FIELD = re.compile(rb"\n(?=[!-9;-~])")
_SUBJECT = re.compile(rb"^subject[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
PIECE = 65_536
"""Bytes of a header that are searched at a time: some milliseconds."""
MBOX_LINE = re.compile(rb">?From [^\n]*\n")


def mark(mail: bytes, fields: Iterable[tuple[str, str]], subject_prefix: str = "") -> tuple[bytes, memoryview]:
    """The new head of a mail, and the untouched rest of its bytes.

    mail: lines ended by CR LF. fields: names and values of printable ASCII.
    """
    end = header_end(mail)
    head = mail[:end]
    first = b""
    if match := MBOX_LINE.match(head):
        # Mail systems take this line for a separator; a header field above it would end the header.
        first, head = match.group(), head[match.end() :]
    head = _without_ours(head)
    ours = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("ascii")
    if subject_prefix:
        head = _prefixed(head, _encoded(subject_prefix.strip()))
    return first + ours + head, memoryview(mail)[end:]


def header_end(mail: bytes) -> int:
    """Where the header ends, its last line break included; the whole mail if no empty line follows."""
    if mail.startswith(b"\r\n"):
        return 0
    end = mail.find(b"\r\n\r\n")
    return len(mail) if end < 0 else end + 2


def _without_ours(head: bytes) -> bytes:
    if b"x-spam" not in head.lower():
        return head
    return b"".join(_OURS.sub(b"", head[start:end]) for start, end in _pieces(head))


def _pieces(head: bytes) -> Iterator[tuple[int, int]]:
    """A header in pieces of whole fields: patterns let no other thread work until they are through with one."""
    start = 0
    while start < len(head):
        match = _NEXT_FIELD.search(head, start + PIECE)
        end = match.end() if match else len(head)
        yield start, end
        start = end


def _prefixed(head: bytes, prefix: bytes) -> bytes:
    for start, end in _pieces(head):
        if match := _SUBJECT.search(head[start:end]):
            at = start + match.end()
            return head if head.startswith(prefix, at) else head[:at] + prefix + b" " + head[at:]
    return b"Subject: " + prefix + b"\r\n" + head


def _encoded(prefix: str) -> bytes:
    """ASCII as it is, anything else as an encoded word of RFC 2047."""
    return Header(prefix, None if prefix.isascii() else "utf-8", maxlinelen=998).encode().encode("ascii")
