"""The mails that are attached to a mail to a feedback address.

Guarantee: an attached mail comes out byte for byte as it was attached, its transfer encoding decoded, without blank
lines before its header. The time is linear in the size of the mail, whatever its parts look like, and only InputError
is raised.
"""

import binascii
import re
from collections.abc import Collection, Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message as Entity
from itertools import islice

from spamfilter.errors import InputError
from spamfilter.mail.folded_addresses import folded
from spamfilter.mail.header import OF_CONTENT, Field, blank_line
from spamfilter.mail.message import parse
from spamfilter.mail.multipart import content, parts
from spamfilter.mail.tagging import header_id
from spamfilter.mail.text import decode_base64

MAX_MAILS = 100
"""Mails attached to one: half of the default limit of marks a day, and some seconds of learning."""
MAX_DEPTH = 10
"""Levels of nested parts that are read: mail programs make two or three."""
MAX_FEEDBACK_DEPTH = 2
"""Levels of feedback mails within each other that are opened: a user who forwards a rejected one makes one level. Each
level holds a copy of nearly the whole mail in memory."""
MAX_PARTS = 2000
"""Lines compared with a boundary, including those that only begin like one: twenty for each of MAX_MAILS."""
MAX_HEAD = 65_536
MAX_VALUE = 2000
"""Bytes read of a part's header and of a field's value: real ones stay far below."""

_A_HEADER = re.compile(rb"(?:>?From [^\n]*\n)?[!-9;-~]+[ \t]*:")
# The lookbehind lets a match begin only where a run of such characters begins, so that the time is linear.
_ADDRESS = re.compile(r"(?<![^\s<>,;:\"()@])[^\s<>,;:\"()@]+@[\w.-]+")


def mails_of(mail: bytes, author: str, addresses: Collection[str]) -> list[bytes]:
    """The mails attached to this one, or this one if it was resent; [] if neither, as for an inline forward.

    author: the address of the mail's author; addresses: the feedback addresses; both folded. A mail of this
    author to a feedback address is never taken itself: if one is attached, the mails attached to it are taken instead.
    Raises InputError if there are too many mails, or too many levels of such feedback mails.
    """
    fields = parse(mail).fields
    resent = any(name in (b"resent-from", b"resent-to", b"resent-message-id") for name, _ in fields)
    if _is_feedback(mail, author, addresses):
        resent = False
    elif not addresses_in(fields, b"resent-to", b"resent-cc").isdisjoint(addresses):
        return [mail]  # redirected to us: what is attached belongs to it
    found = [*islice(_expanded(mail, author, addresses, MAX_FEEDBACK_DEPTH), MAX_MAILS + 1)]
    if len(found) > MAX_MAILS:
        raise InputError(f"more than {MAX_MAILS} mails are attached; send them in several")
    return found or ([mail] if resent else [])


def is_mail(attached: bytes) -> bool:
    """Whether these bytes begin with a header field, as a mail does."""
    return _A_HEADER.match(attached) is not None


def addresses_in(fields: Collection[Field], *names: bytes) -> set[str]:
    """The addresses in the values of these fields, folded."""
    values = (value.decode("utf-8", "replace") for name, value in fields if name in names)
    return {folded(address) for value in values for address in _ADDRESS.findall(value)}


def _is_feedback(mail: bytes, author: str, addresses: Collection[str]) -> bool:
    """Whether this is a mail of the author to a feedback address.

    A mail that the relay has passed on, with an id, is none: it passes on no feedback, and anybody may have written it.
    """
    if header_id(mail):
        return False
    fields = parse(mail).fields
    return author in addresses_in(fields, b"from") and not addresses_in(fields, b"to", b"cc").isdisjoint(addresses)


def _expanded(mail: bytes, author: str, addresses: Collection[str], depth: int) -> Iterator[bytes]:
    """The mails attached to a mail; a feedback mail is replaced by the mails attached to it, if there are any."""
    for one in _Walk(mail).attached():
        inner: Iterator[bytes] = iter(())
        if _is_feedback(one, author, addresses):
            if not depth:
                raise InputError(
                    f"more than {MAX_FEEDBACK_DEPTH} of your mails to us are within each other; attach the mail itself"
                )
            inner = _expanded(one, author, addresses, depth - 1)
        first = next(inner, None)
        yield one if first is None else first
        yield from inner


class _Walk:
    """One walk through the parts of a mail by their offsets, so that no level copies its parts."""

    def __init__(self, mail: bytes) -> None:
        self._mail = mail
        self.boundaries = MAX_PARTS + 1

    def attached(self) -> Iterator[bytes]:
        return self._part(0, len(self._mail), b"text/plain", MAX_DEPTH)

    def _part(self, start: int, end: int, default: bytes, depth: int) -> Iterator[bytes]:
        blank = blank_line(self._mail, start, end)
        stop, body = blank.span() if blank else (end, end)
        kind, encoding, boundary = _content(self._mail[start : min(stop, start + MAX_HEAD)], default)
        if kind in (b"message/rfc822", b"message/global"):
            yield _decoded(self._mail[body:end], encoding).lstrip(b"\r\n")
        elif kind.startswith(b"multipart/") and boundary and depth:
            default = b"message/rfc822" if kind == b"multipart/digest" else b"text/plain"  # RFC 2046 section 5.1.5
            for begin, behind in parts(self._mail, body, end, boundary, self):
                if self.boundaries:
                    yield from self._part(begin, behind, default, depth - 1)
            if not self.boundaries:
                raise InputError(f"more than {MAX_PARTS} parts; attach fewer mails to one")


def _content(head: bytes, default: bytes) -> tuple[bytes, bytes, bytes]:
    """Media type and transfer encoding in lower case, and the boundary.

    A file of a mail, as some programs attach one that was saved, is taken as the mail that it is.
    """
    fields: list[Field] = []
    entity = Entity()
    for name, written in OF_CONTENT.findall(head):
        value = b" ".join(written[:MAX_VALUE].split())
        fields.append((name.lower(), value))
        entity[name.decode("ascii")] = value.decode("latin-1")
    kind, encoding, parameters = content([*fields, (b"content-type", default)])
    if not kind.startswith((b"message/", b"multipart/")) and _file_name(entity).lower().endswith(".eml"):
        kind = b"message/rfc822"
    return kind, encoding, parameters.get(b"boundary", b"").rstrip()


def _file_name(entity: Entity) -> str:
    """The name of an attached file, also as encoded words, which no standard allows there; '' if it has none."""
    try:
        return str(make_header(decode_header(entity.get_filename() or "")))
    except (MessageError, LookupError, ValueError):
        return ""


def _decoded(body: bytes, encoding: bytes) -> bytes:
    """The body decoded: RFC 2046 forbids a transfer encoding of an attached mail, RFC 6532 allows it."""
    if encoding == b"base64":
        return decode_base64(body)
    return binascii.a2b_qp(body) if encoding == b"quoted-printable" else body
