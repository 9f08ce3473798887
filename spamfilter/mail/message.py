"""Reads the bytes of a mail into a Message: its header fields, the text of its parts, its defects.

Guarantee: `parse` never raises, and takes time linear in the bytes that it reads, the first 65,536. It reads for
statistics and validates nothing: a broken part is read as far as possible.
"""

import binascii
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain

from spamfilter.mail.charsets import to_utf8

SCANNED = 65_536
"""Bytes of a mail that are read: words further down gained nothing on three corpora."""
MAX_DEPTH = 6
MAX_PARTS = 12
"""Levels of nested parts, and parts of one level, that are read; real mail stays well below both."""
MAX_BOUNDARIES = 4_000
"""Lines compared with a boundary, in all levels together, including those that only begin like one. What follows
belongs to the part that has begun."""
MAX_LINES = 1_000
MAX_FIELDS = 250
MAX_FIELD_BYTES = 16_000
ENCODED_WORD = 30
"""Unfolded lines of a header that are read, fields that are kept, and bytes of their names and values. The same again
for the headers of all parts together. Of 26,000 mails of two corpora none has more than 125 fields or 4,614 bytes;
without these limits a mail that is all header takes fifty times as long as another (benchmarks/hostile_mail.py). A
value with =? counts with all that was read of it, and ENCODED_WORD bytes more for each encoded word, as decoding takes
time."""
MAX_NAME = 76
"""Bytes of a header field's name. The longest in use have some 40; limited, as each token of the value has the name."""
MAX_VALUE = 600
"""Bytes kept of a header field's value: Received and References may be longer, which gained nothing."""
MAX_ENCODED = 16_000
MAX_TEXT = 4_000
"""Encoded bytes read of a part, and bytes of text kept of all parts: more gained nothing and cost time."""
MAX_HEAD = 2_500
"""Bytes kept of the header as it was written: more gained nothing and cost time."""

Field = tuple[bytes, bytes]
"""A header field: name in lower case, value unfolded, decoded, in UTF-8."""

_ENCODED_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_ENCODED_WORDS = re.compile(rb"(?<=\?=)[ \t\n]+(?==\?)")
_PARAMETER = re.compile(rb"""(boundary|charset)[ \t]*=[ \t]*(?:"([^"]*)"?|([^\s;"]+))""", re.IGNORECASE)
_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
# RFC 5322 section 2.2: printable ASCII without the colon.
_NAME = re.compile(rb"[!-9;-~]{1,%d}" % MAX_NAME)
_FIELD_END = re.compile(rb"\n(?![ \t])")

_DROPPED = frozenset((
    b"status", b"x-status", b"content-length", b"lines", b"x-keywords", b"replied",
    b"forwarded", b"delivered-to-trec",
))  # fmt: skip
_DROPPED_PREFIXES = (
    b"x-uid", b"x-mozilla", b"x-bogosity", b"x-rc-", b"x-hammie", b"x-gmail-", b"x-evolution", b"x-imap",
    b"x-scanned", b"x-amavis", b"x-dspam", b"x-crm114", b"x-barracuda", b"x-gnus",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """What the filter reads of a mail.

    fields: the header fields of the mail, in order, without those that other filters and mailboxes add.
    part_fields: the header fields of all MIME parts, in their order.
    head: at most 2,500 bytes of UTF-8: `fields` as they were written, with their folds, and `part_fields` after them.
    text: at most 4,000 bytes of UTF-8: the decoded text parts one after the other.
    size: bytes of the whole mail; scanned: how many of them were read.
    defects: names of what is malformed, for logs and explanations.
    """

    fields: tuple[Field, ...]
    part_fields: tuple[Field, ...]
    head: bytes
    text: bytes
    size: int
    scanned: int
    defects: tuple[str, ...]

    def field(self, name: bytes) -> str:
        """The first value of this name (lower case), or ''."""
        return next((value.decode("utf-8", "replace") for key, value in self.fields if key == name), "")

    def digest(self) -> bytes:
        """A hash of 16 bytes that stays the same in transit.

        It is made of what mail servers do not change: Message-ID, Date, From and the words of the text. The subject is
        used only if there is no Message-ID, as a relay may have put a prefix before it.
        """
        fields = dict(reversed(self.fields))
        stable = [fields.get(name, b"") for name in (b"message-id", b"date", b"from")]
        if not stable[0]:
            stable.append(fields.get(b"subject", b""))
        digest = hashlib.blake2b(digest_size=16)
        for value in (*stable, self.text):
            digest.update(b" ".join(value.split()) + b"\0")
        return digest.digest()

    def packed(self) -> bytes:
        """All fields but `defects`, as bytes for `unpacked`."""
        pieces = [*chain.from_iterable((*self.fields, *self.part_fields)), self.head, self.text]
        sizes = (len(self.fields), self.size, self.scanned, *map(len, pieces))
        return b"%s\n%s" % (" ".join(map(str, sizes)).encode(), b"".join(pieces))

    @classmethod
    def unpacked(cls, packed: bytes) -> "Message":
        """The message of `packed`, without its defects."""
        sizes, _, rest = packed.partition(b"\n")
        fields, size, scanned, *lengths = map(int, sizes.split())
        ends = list(accumulate(lengths))
        pieces = [rest[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        pairs = tuple(zip(pieces[:-2:2], pieces[1:-2:2], strict=True))
        return cls(pairs[:fields], pairs[fields:], pieces[-2], pieces[-1], size, scanned, ())


def parse(data: bytes) -> Message:
    """Read the first SCANNED bytes of a mail, with LF or CR LF as line ends; a leading mbox line is skipped."""
    # Cut when all line ends are LF, so that a mail reads the same from the wire and from disk.
    head = bytes(data[: 2 * SCANNED]).replace(b"\r\n", b"\n")[:SCANNED]
    if head.startswith((b"From ", b">From ")):
        head = head.partition(b"\n")[2]
    walk = _Walk()
    fields, written, body = _split(head, _Room(), walk.defects)
    walk.part(fields, body, 0)
    if not walk.boundaries:
        walk.defects.append("many-boundaries")
    return Message(
        fields=tuple(fields),
        part_fields=tuple(walk.fields),
        head=_head(written, walk.fields),
        text=cut(b"\n".join(walk.texts), MAX_TEXT),
        size=len(data),
        scanned=min(len(data), SCANNED),
        defects=tuple(dict.fromkeys(walk.defects)),
    )


@dataclass(slots=True)
class _Room:
    """How much more may be taken of headers."""

    lines: int = MAX_LINES
    fields: int = MAX_FIELDS
    size: int = MAX_FIELD_BYTES


class _Walk:
    """The state of one walk through the MIME parts of a mail."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.headers = _Room()
        self.texts: list[bytes] = []
        self.defects: list[str] = []
        self.room = MAX_TEXT
        self.boundaries = MAX_BOUNDARIES

    def part(self, fields: list[Field], body: bytes, depth: int) -> None:
        kind, encoding, parameters = _content(fields)
        if kind.startswith(b"multipart/"):
            boundary = parameters.get(b"boundary", b"").rstrip()
            parts = list(self._parts(body, b"\n--" + boundary)) if boundary else []
            if parts and depth < MAX_DEPTH:
                if len(parts) > MAX_PARTS:
                    self.defects.append("many-parts")
                for part in parts[:MAX_PARTS]:
                    inner, _, text = _split(part, self.headers, self.defects)
                    self.fields += inner
                    self.part(inner, text, depth + 1)
                return
            self.defects.append("deep" if parts else "no-boundary")
        elif not kind.startswith((b"text", b"message")) and b"/" in kind:
            return
        if self.room > 0:
            text = _text(body[:MAX_ENCODED], encoding, parameters.get(b"charset", b""), self.defects)
            self.texts.append(text)
            self.room -= len(text)

    def _parts(self, body: bytes, delimiter: bytes) -> Iterator[bytes]:
        """The parts between the boundary lines of RFC 2046 section 5.1; at most MAX_PARTS + 1."""
        text = b"\n" + body
        begin, found = -1, 0  # the preamble belongs to no part
        place = text.find(delimiter)
        while place >= 0 and self.boundaries:
            self.boundaries -= 1
            start = place + len(delimiter)
            end = text.find(b"\n", start)
            line = text[start : end if end >= 0 else len(text)].rstrip()
            if line and line != b"--":  # another boundary that begins like this one
                place = text.find(delimiter, start)
                continue
            if found:
                yield text[begin:place]
            if line or found > MAX_PARTS:
                return
            begin = end + 1 if end >= 0 else len(text)
            found += 1
            place = text.find(delimiter, begin - 1)
        if found:
            yield text[begin:]


def _split(block: bytes, room: _Room, defects: list[str]) -> tuple[list[Field], list[bytes], bytes]:
    """The header fields of a mail or part, as many as `room` allows; the same as they were written; the body."""
    if block.startswith(b"\n"):
        return [], [], block[1:]
    head, _, body = block.partition(b"\n\n")
    fields: list[Field] = []
    written: list[bytes] = []
    *lines, rest = _FIELD_END.split(head, room.lines) if room.lines else [head]
    if len(lines) < room.lines:
        lines, rest = [*lines, rest], b""
    room.lines -= len(lines)
    odd = False
    for line in lines:
        if room.fields <= 0 or room.size <= 0:
            rest = line
            break
        raw, colon, value = line.partition(b":")
        # Cut, so that long names cannot fill the cache of _kept_name.
        name = _kept_name(raw if len(raw) <= MAX_NAME else raw.rstrip()[: MAX_NAME + 1]) if colon else None
        if name:
            value, taken = _value(value)
            fields.append((name, value))
            written.append(line)
            room.fields -= 1
            room.size -= len(name) + taken
        elif name is None and line:
            odd = True
    if odd:
        defects.append("not-a-field")
    if rest:
        defects.append("many-fields")
    return fields, written, body


def _head(written: list[bytes], part_fields: list[Field]) -> bytes:
    head = b"\n".join((*written, *(name + b": " + value for name, value in part_fields)))
    return cut(to_utf8(head, b""), MAX_HEAD)


def dropped(name: bytes) -> bool:
    """Whether a field is left out because another filter or a mailbox adds it."""
    return (
        name in _DROPPED
        or name.startswith(_DROPPED_PREFIXES)
        or (name.startswith(b"x-") and (b"spam" in name or b"virus" in name))
    )


@functools.lru_cache(maxsize=1024)
def _kept_name(raw: bytes) -> bytes | None:
    """The bytes before a colon as the name of a field; empty if it is left out, None if it is no name."""
    name = raw.rstrip().lower()
    if not _NAME.fullmatch(name):
        return None
    return b"" if dropped(name) else name


def _value(value: bytes) -> tuple[bytes, int]:
    """A value as it is kept, and how many bytes it takes of the room, which is more if it has encoded words."""
    if b"\n" in value:
        value = value.replace(b"\n ", b" ").replace(b"\n\t", b" ")
    value = value.strip()
    read = 0
    if b"=?" in value:
        value = value[: 4 * MAX_VALUE]
        read = len(value)
        value, words = _ENCODED_WORD.subn(_encoded_word, _BETWEEN_ENCODED_WORDS.sub(b"", value))
        read += words * ENCODED_WORD
    value = value[:MAX_VALUE]
    if not value.isascii():
        value = cut(to_utf8(value, b""), MAX_VALUE)
    return value, max(read, len(value))


def _encoded_word(match: re.Match[bytes]) -> bytes:
    charset, encoding, text = match.groups()
    raw = binascii.a2b_qp(text, header=True) if encoding in b"qQ" else _base64(text) or text
    return to_utf8(raw, charset.partition(b"*")[0])  # RFC 2231: a language may follow the charset


def _content(fields: list[Field]) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    """Media type and transfer encoding in lower case, and the parameters boundary and charset."""
    kind = encoding = b""
    parameters: dict[bytes, bytes] = {}
    for name, value in fields:
        if name == b"content-type" and not kind:
            kind = value.partition(b";")[0].strip().lower()
            for key, quoted, plain in _PARAMETER.findall(value):
                parameters.setdefault(key.lower(), quoted or plain)
        elif name == b"content-transfer-encoding" and not encoding:
            encoding = value.strip().lower()
    return kind, encoding, parameters


def _text(body: bytes, encoding: bytes, charset: bytes, defects: list[str]) -> bytes:
    if encoding == b"base64":
        decoded = _base64(body)
        if decoded is None:
            defects.append("base64")
        else:
            body = decoded
    elif encoding == b"quoted-printable":
        body = binascii.a2b_qp(body)
    return to_utf8(body[:MAX_TEXT], charset)


def _base64(text: bytes) -> bytes | None:
    """Base64 up to its padding, decoded; None if that is nothing."""
    return decode_base64(text.partition(b"=")[0] if text.rstrip().endswith(b"=") else text) or None


def decode_base64(text: bytes) -> bytes:
    """Base64 decoded, without other characters and without an incomplete last group."""
    text = text.translate(None, _NOT_BASE64)
    text += b"=" * (-len(text) % 4) if len(text) % 4 != 1 else b""
    return binascii.a2b_base64(text[: len(text) // 4 * 4])


def cut(text: bytes, size: int) -> bytes:
    """At most `size` bytes of UTF-8 text, cut between characters."""
    if len(text) <= size:
        return text
    while size and text[size] & 0xC0 == 0x80:
        size -= 1
    return text[:size]
