"""A mail to a feedback address: which mails it is about.

Guarantee: an attached mail comes out byte for byte as it was attached, its transfer encoding undone. The time is linear
in the size of the mail, whatever its parts look like, and nothing is raised but InputError.
"""

import binascii
import re
from collections.abc import Collection, Iterator
from email.message import Message as Entity

from spamfilter.errors import InputError
from spamfilter.mail.message import Field, parse

MAX_MAILS = 100
"""Mails that one may be about: half of a day's marks as they are set by default, and some seconds of learning."""
MAX_DEPTH = 10
"""Nesting that is walked: mail programs make two or three levels of it."""
MAX_FEEDBACK_DEPTH = 2
"""Feedback mails within each other that are opened: who forwards one that was refused makes one level, and each holds
a copy of nearly the whole mail in memory."""
MAX_PARTS = 2000
"""Boundary lines that are looked at, false ones too: twenty for each mail that may be attached."""
MAX_HEAD = 65_536
MAX_VALUE = 2000
"""Bytes of a part's header, and of a field's value, that are read: the longest in use stay far below."""

_BLANK_LINE = re.compile(rb"\n\r?\n")
_FIELD = re.compile(rb"^(content-type|content-transfer-encoding)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_FIELD_END = re.compile(rb"\n(?![ \t])|\Z")
_BOUNDARY_END = re.compile(rb"(--)?[ \t]*(?:\r?\n|\Z)")
_A_HEADER = re.compile(rb"(?:>?From [^\n]*\n)?[!-9;-~]+[ \t]*:")
# Looked for where such a run begins and nowhere within it, so that the time is linear.
_ADDRESS = re.compile(r"(?<![^\s<>,;:\"()@])[^\s<>,;:\"()@]+@[A-Za-z0-9_.-]+")
_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))


def mails_of(mail: bytes, author: str, addresses: Collection[str]) -> list[bytes]:
    """The mails that are attached to this one, or this one if it was resent; [] if neither, as in an inline forward.

    author, addresses: whose mail it is, and the feedback addresses, in lower case. What the author wrote to such an
    address is never taken itself: where it is attached, the mails attached to it are taken instead.
    Raises InputError where there are too many, or such mails are within each other too deep.
    """
    fields = parse(mail).fields
    resent = any(name in (b"resent-from", b"resent-to", b"resent-message-id") for name, _ in fields)
    if _is_feedback(fields, author, addresses):
        resent = False
    elif not addresses_in(fields, b"resent-to", b"resent-cc").isdisjoint(addresses):
        return [mail]  # redirected to us, whatever is attached to it
    found: list[bytes] = []
    for one in _expanded(mail, author, addresses, MAX_FEEDBACK_DEPTH):
        found.append(one)
        if len(found) > MAX_MAILS:
            raise InputError(f"more than {MAX_MAILS} mails are attached; send them in several")
    return found or ([mail] if resent else [])


def is_mail(attached: bytes) -> bool:
    """Whether it begins as a mail does, with a header field."""
    return _A_HEADER.match(attached) is not None


def addresses_in(fields: Collection[Field], *names: bytes) -> set[str]:
    """The addresses in the values of these fields, in lower case."""
    values = (value.decode("utf-8", "replace").lower() for name, value in fields if name in names)
    return {address for value in values for address in _ADDRESS.findall(value)}


def _is_feedback(fields: Collection[Field], author: str, addresses: Collection[str]) -> bool:
    """Whether the author wrote this to a feedback address."""
    return author in addresses_in(fields, b"from") and not addresses_in(fields, b"to", b"cc").isdisjoint(addresses)


def _expanded(mail: bytes, author: str, addresses: Collection[str], depth: int) -> Iterator[bytes]:
    """The mails attached to one, and in the place of a feedback mail those that are attached to that."""
    for one in _Walk(mail).attached():
        inner: Iterator[bytes] = iter(())
        if _is_feedback(parse(one).fields, author, addresses):
            if not depth:
                raise InputError(
                    f"more than {MAX_FEEDBACK_DEPTH} of your mails to us are within each other; attach the mail itself"
                )
            inner = _expanded(one, author, addresses, depth - 1)
        first = next(inner, None)
        yield one if first is None else first
        yield from inner


class _Walk:
    """One walk through the parts of a mail, by their places, so that no part is copied at each level."""

    def __init__(self, mail: bytes) -> None:
        self._mail = mail
        self._left = MAX_PARTS

    def attached(self) -> Iterator[bytes]:
        return self._part(0, len(self._mail), "text/plain", MAX_DEPTH)

    def _part(self, start: int, end: int, default: str, depth: int) -> Iterator[bytes]:
        head, body = self._header(start, end)
        kind, encoding, boundary = _content(head, default)
        if kind in ("message/rfc822", "message/global"):
            yield _decoded(self._mail[body:end], encoding)
        elif kind.startswith("multipart/") and boundary and depth:
            default = "message/rfc822" if kind == "multipart/digest" else "text/plain"  # RFC 2046 section 5.1.5
            for place in self._parts(body, end, boundary):
                yield from self._part(*place, default, depth - 1)

    def _header(self, start: int, end: int) -> tuple[bytes, int]:
        """The header of a part, as far as it is read, and where the body begins."""
        for line_end in (b"\r\n", b"\n"):
            if self._mail.startswith(line_end, start, end):
                return b"", start + len(line_end)
        blank = _BLANK_LINE.search(self._mail, start, end)
        stop = blank.start() if blank else end
        return self._mail[start : min(stop, start + MAX_HEAD)], blank.end() if blank else end

    def _parts(self, start: int, end: int, boundary: bytes) -> Iterator[tuple[int, int]]:
        """Where the parts between the boundary lines of RFC 2046 section 5.1 begin and end."""
        delimiter = b"\n--" + boundary
        begun: int | None = None
        # The line break before the first boundary is the one that ends the header.
        place = start - 1
        while (place := self._mail.find(delimiter, max(place, 0), end)) >= 0:
            self._left -= 1
            if self._left < 0:
                raise InputError(f"more than {MAX_PARTS} parts; attach fewer mails to one")
            line = _BOUNDARY_END.match(self._mail, place + len(delimiter), end)
            if line is None:  # a longer boundary that begins like ours
                place += 1
                continue
            if begun is not None:
                yield begun, max(begun, place - self._mail.startswith(b"\r", place - 1))
            if line.group(1):
                return
            begun = line.end()
            place = begun - 1
        if begun is not None:
            yield begun, end


def _content(head: bytes, default: str) -> tuple[str, str, bytes]:
    """Media type and transfer encoding in lower case, and the boundary."""
    entity = Entity()
    entity.set_default_type(default)
    for match in _FIELD.finditer(head):
        name, stop = match.group(1).decode("ascii"), _FIELD_END.search(head, match.end())
        value = head[match.end() : min(stop.start() if stop else len(head), match.end() + MAX_VALUE)]
        if name not in entity:
            entity[name] = " ".join(value.decode("latin-1").split())
    encoding = str(entity.get("content-transfer-encoding", "")).partition(";")[0].strip().lower()
    try:
        boundary = entity.get_boundary() or ""
    except ValueError:  # a charset of RFC 2231 that is none
        boundary = ""
    return entity.get_content_type(), encoding, boundary.encode("latin-1", "replace")


def _decoded(body: bytes, encoding: str) -> bytes:
    """RFC 2046 forbids these encodings of mails, and RFC 6532 allows them; what cannot be decoded is cut off."""
    if encoding == "base64":
        text = body.translate(None, _NOT_BASE64)
        text += b"=" * (-len(text) % 4) if len(text) % 4 != 1 else b""
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    return binascii.a2b_qp(body) if encoding == "quoted-printable" else body
