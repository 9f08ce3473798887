"""The parts of a mail: what a header says of its body, and where the parts between the lines of a boundary are."""

import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from spamfilter.mail.header import MAX_VALUE, Field

_PARAMETER = re.compile(
    rb"""[;\s](boundary|charset)(\*[0-9]{1,2})?(\*?)[ \t]*=[ \t]*(?:"([^"]*)"?|([^\s;"]+))"""
    rb"""|=[ \t]*"(?:\\.|[^"\\])*+"?""",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(rb"(?:\s*+\([^()]*+\))*+[\s\"]*+([^\s;,(\"]*+)")


def content(fields: Iterable[Field]) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    """Media type and transfer encoding in lower case, and the parameters boundary and charset."""
    kind = encoding = b""
    parameters: dict[bytes, bytes] = {}
    for name, value in fields:
        if name == b"content-type" and not kind:
            kind = _first_word(value)
            for key, section, extended, quoted, plain in _PARAMETER.findall(value):
                key, said = key.lower(), quoted or plain
                if extended:  # RFC 2231: charset'language'text, with some bytes as %XX, as quoted-printable has =XX
                    said = binascii.a2b_qp(said.replace(b"=", b"=3D").replace(b"%", b"=")).split(b"'", 2)[-1]
                if section > b"*0" and key in parameters:  # and a value may be in sections
                    parameters[key] = (parameters[key] + said)[:MAX_VALUE]  # so that many take linear time
                else:
                    parameters.setdefault(key, said)
        elif name == b"content-transfer-encoding" and not encoding:
            encoding = _first_word(value)
    return kind, encoding, parameters


def _first_word(value: bytes) -> bytes:
    """What a value says, in lower case, without parameters, comments and quotes."""
    match = _FIRST_WORD.match(value)
    return match.group(1).lower() if match else b""


class Walk(Protocol):
    """boundaries: lines that may still be compared with a boundary, including those that only begin like one."""

    boundaries: int


def parts(mail: bytes, start: int, end: int, boundary: bytes, walk: Walk) -> Iterator[tuple[int, int]]:
    """The offsets of the parts between the boundary lines of RFC 2046 section 5.1.

    start: of the body; a boundary there needs the line break before it. walk: counts the lines that are compared; what
    follows the last one belongs to the part that has begun.
    """
    delimiter = b"\n--" + boundary
    begin = -1  # the preamble belongs to no part
    place = mail.find(delimiter, max(start - 1, 0), end)
    while place >= 0 and walk.boundaries:
        walk.boundaries -= 1
        after = place + len(delimiter)
        stop = mail.find(b"\n", after, end)
        line = mail[after : stop if stop >= 0 else end].rstrip()
        if line and line != b"--":  # another boundary that begins like this one
            place = mail.find(delimiter, after, end)
            continue
        if begin >= 0:
            yield begin, max(begin, place - (mail[place - 1 : place] == b"\r"))
        if line:
            return
        begin = stop + 1 if stop >= 0 else end
        place = mail.find(delimiter, begin - 1, end)
    if begin >= 0:
        yield begin, end
