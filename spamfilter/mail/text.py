"""The text of one part of a mail: decoded, without what a reader does not see, cut to what is read of it."""

import binascii
import re
from html import unescape

_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
GAP = b"\xff"
"""Stands where what lies between the beginning and the end of a text is not read; no byte of UTF-8."""
MAX_PADDED = 1_000
"""Signs of padding within Base64: no program writes more, and many would take long."""
NEAR = 1_000
"""Bytes in which the end of a line is looked for; a longer line is cut within."""
_INNER_BYTES = bytes(range(0x80, 0xC0))
"""All but the first of a character in UTF-8."""
# Bounded, as a pattern that may look at all that follows for each < takes time by the square of the text.
_HIDDEN = re.compile(rb"<([a-z]{1,20})\b[^>]{0,200}\bdisplay\s{0,9}:\s{0,9}none\b")
_NOT_SHOWN = re.compile(
    rb"(?is)<!---?>|<!--.*?(?:--!?>|\xff|\Z)"
    rb"|<(style|script)(?=[\s/>]).*?(?:</\1(?=[\s/>])[^>\xff]{0,99}>|\xff(?:[^<]*</\1\s*>)?|\Z)"  # a style has no <
    rb"|</?(?:b|i|u|em|strong|font|span|a|big|small|o:p)\b[^<>\xff]{0,500}+>"  # which may stand within a word
    rb"|<[/a-z][^<>\xff]*+<[^>\xff]*+>?"  # what begins in a tag is none of these
)
_TAG = re.compile(rb"<[/a-zA-Z!?][^>]*(?:>|\Z)")


def decoded(body: bytes, encoding: bytes, defects: list[str]) -> bytes:
    """The text of a part, in its charset. encoding: that of the transfer in lower case; defects: gets `base64`."""
    if encoding == b"quoted-printable":
        return binascii.a2b_qp(body)
    if encoding != b"base64":
        return body
    text = decode_base64(body)
    if not text:
        defects.append("base64")
    return text or body


def decode_base64(text: bytes) -> bytes:
    """Base64 decoded, without other characters; as in mail programs, padding does not end it (MAX_PADDED times)."""
    return b"".join(_decoded_groups(piece) for piece in text.split(b"=", MAX_PADDED) if piece)


def _decoded_groups(text: bytes) -> bytes:
    """Base64 decoded, but for padding and what is too short to be a byte."""
    text = text.translate(None, _NOT_BASE64)
    text += b"=" * (-len(text) % 4) if len(text) % 4 != 1 else b""
    return binascii.a2b_base64(text[: len(text) // 4 * 4])


def at_ends(text: bytes, size: int) -> list[bytes]:
    """A text in any charset; of a longer one its beginning and its end, of half of these bytes each.

    They are cut at the end of a line that is near, where each charset begins anew; else, and where characters have two
    or four bytes, between such.
    """
    if len(text) <= size:
        return [text]
    half = size // 8 * 4
    first, last = text[:half], text[(len(text) - half) // 4 * 4 :]
    if b"\0" in text:
        return [first, last]
    return [first[: first.rfind(b"\n", half - NEAR) + 1 or half], last[last.find(b"\n", 0, NEAR) + 1 :]]


def hidden_apart(html: bytes) -> tuple[bytes, bytes]:
    """HTML without the elements that say they are not displayed, and these elements.

    A style sheet may display them all the same, so they are not left out, only apart. One without an end, like an
    image, hides nothing.
    """
    lower = html.lower()
    if b"display" not in lower:
        return html, b""
    displayed, hidden, place = [], [], 0
    endless: set[bytes] = set()
    for tag in _HIDDEN.finditer(lower):
        name = tag.group(1)
        if tag.start() < place or name in endless:
            continue
        end = lower.find(b"</" + name, tag.end())
        if end < 0:
            endless.add(name)
            continue
        displayed.append(html[place : tag.start()])
        hidden.append(html[tag.start() : end])
        place = end
    return b"".join((*displayed, html[place:])), b"\n".join(hidden)


def without_styles(html: bytes) -> bytes:
    """HTML without comments, style sheets, scripts, and tags within words.

    Of what is open at GAP, only a style sheet goes on behind it.
    """
    return _NOT_SHOWN.sub(b"", html).replace(GAP, b"")


def without_tags(html: bytes) -> bytes:
    """The text of HTML without styles."""
    text = _TAG.sub(b" ", html)
    if b"&" in text:
        text = unescape(text.decode("utf-8", "replace")).encode("utf-8", "replace")
    return b" ".join(text.split())


def ends(text: bytes, size: int) -> bytes:
    """At most `size` bytes of UTF-8 text: all, or its beginning and its end."""
    if len(text) <= size:
        return text
    return cut(text, size // 2) + text[-(size // 2) :].lstrip(_INNER_BYTES)


def cut(text: bytes, size: int) -> bytes:
    """At most `size` bytes of UTF-8 text, cut between characters."""
    if len(text) <= size:
        return text
    while size and text[size] & 0xC0 == 0x80:
        size -= 1
    return text[:size]
