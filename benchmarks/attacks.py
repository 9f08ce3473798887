"""Mails of an attacker: spam taken apart and put together again with words that speak for it, and floods of words.

Each mail of a corpus becomes a header block and the text of all its text parts; an attack writes both anew, so that
a mail without words and one with them differ in the words alone.
"""

import email
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from spamfilter.bayes.tokens import words
from spamfilter.mail.message import parse

LINE = 70
"""Bytes of a line of stuffed words, as of any text."""
FIELD = 500
"""Bytes of a header field of stuffed words: what the tokenizer looks at of one is 600."""
_CONTENT = re.compile(rb"(?im)^(?:content-[a-z-]+|mime-version|x-stuffed)[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")
_PLAIN = re.compile(rb"[a-z]{3,20}")


@dataclass(frozen=True)
class Parts:
    """A mail taken apart. head: its header fields but for those of MIME, with their line ends; kind: html or plain."""

    head: bytes
    text: bytes
    kind: bytes
    charset: bytes


def apart(mail: bytes) -> Parts:
    """Any mail; what cannot be decoded stays as it is."""
    mail = mail.replace(b"\r\n", b"\n")
    if mail.startswith((b"From ", b">From ")):
        mail = mail.partition(b"\n")[2]
    head, _, body = mail.partition(b"\n\n")
    texts: list[bytes] = []
    kind, charset = b"plain", b"us-ascii"
    for part in email.message_from_bytes(mail).walk():
        if part.get_content_maintype() != "text":
            continue
        try:
            found = part.get_payload(decode=True)
        except (ValueError, LookupError, AssertionError):
            found = None
        if isinstance(found, bytes):
            if part.get_content_subtype() == "html":
                kind = b"html"
            if not texts:
                charset = (part.get_content_charset("us-ascii") or "us-ascii").encode("ascii", "replace")
            texts.append(found)
    return Parts(_CONTENT.sub(b"", head + b"\n"), b"\n".join(texts) if texts else body, kind, charset)


def _lines(some: Iterable[bytes], width: int) -> list[bytes]:
    lines = [b""]
    for word in some:
        if len(lines[-1]) + len(word) >= width:
            lines.append(b"")
        lines[-1] += (b" " if lines[-1] else b"") + word
    return lines


def block(some: Iterable[bytes]) -> bytes:
    """Words as lines of text."""
    return b"\n".join(_lines(some, LINE)) + b"\n"


def fields(some: Iterable[bytes], name: bytes = b"X-Stuffed") -> bytes:
    """Words as header fields of a name that says nothing itself."""
    return b"".join(name + b": " + line + b"\n" for line in _lines(some, FIELD))


def whole(parts: Parts, head: bytes = b"", before: bytes = b"", after: bytes = b"") -> bytes:
    """The mail again, with more in its header, before its text and after it."""
    content = b"MIME-Version: 1.0\nContent-Type: text/%b; charset=%b\n" % (parts.kind, parts.charset)
    return parts.head + head + content + b"\n" + before + parts.text + b"\n" + after


def hidden_part(parts: Parts, stuffed: bytes) -> bytes:
    """An alternative that no mail program shows, in front of the one that is read."""
    return (
        parts.head
        + b'MIME-Version: 1.0\nContent-Type: multipart/alternative; boundary="=_b"\n\n'
        + b"--=_b\nContent-Type: text/plain; charset=us-ascii\n\n" + stuffed
        + b"\n--=_b\nContent-Type: text/html; charset=%b\n\n" % parts.charset + parts.text + b"\n--=_b--\n"
    )  # fmt: skip


def hidden_html(parts: Parts, stuffed: bytes) -> bytes:
    """HTML whose beginning is not displayed; plain text becomes a paragraph.

    Tags in what is stuffed are text: they would end the element, and the rest would be displayed.
    """
    text = parts.text if parts.kind == b"html" else b"<p>" + _as_html(parts.text)
    shown = Parts(parts.head, text, b"html", parts.charset)
    return whole(shown, before=b'<div style="display:none">\n' + _as_html(stuffed) + b"</div>\n")


def _as_html(text: bytes) -> bytes:
    return escape(text.decode("latin-1")).encode("latin-1")


PLACES: dict[str, Callable[[Parts, Sequence[bytes]], bytes]] = {
    "at the end": lambda parts, some: whole(parts, after=block(some)),
    "at the start": lambda parts, some: whole(parts, before=block(some)),
    "in a hidden part": lambda parts, some: hidden_part(parts, block(some)),
    "in header fields": lambda parts, some: whole(parts, head=fields(some)),
}
"""Where words are stuffed -> how."""


def forged(parts: Parts, tokens: Sequence[bytes]) -> bytes:
    """The mail with header fields that make these tokens, each `name:word`; a name's words stand in one field."""
    made: dict[bytes, list[bytes]] = {}
    for token in tokens:
        name, _, word = token.partition(b":")
        made.setdefault(name, []).append(word)
    return whole(parts, head=b"".join(fields(some, name) for name, some in made.items()))


def flood(head: bytes, some: Sequence[bytes], number: int) -> bytes:
    """A mail of nothing but words; `number` makes it another one than the last."""
    named = re.sub(rb"(?im)^message-id[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*", b"", head)
    return b"Message-ID: <flood-%d@attack.example>\n" % number + named + b"\n" + block(some)


def sliced(dictionary: Sequence[bytes], chance: random.Random, size: int) -> list[bytes]:
    """Words of the dictionary in a new order, as many as fit into this many bytes."""
    order = list(dictionary)
    chance.shuffle(order)
    room, taken = size, 0
    for word in order:
        room -= len(word) + 1
        if room < 0:
            break
        taken += 1
    return order[:taken]


def frequent(mails: Iterable[bytes], number: int) -> list[bytes]:
    """The plain words that most of these mails have in their text: what an attacker guesses of ham."""
    seen: Counter[bytes] = Counter()
    for mail in mails:
        seen.update({word for word in words(parse(mail).text) if _PLAIN.fullmatch(word)})
    return [word for word, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:number]]
