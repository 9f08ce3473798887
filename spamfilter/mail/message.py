"""Bytes of a mail to a Message: header fields, the text of its parts, what was odd.

Guarantee: `parse` never raises and takes time linear in what it scans, the first 65,536 bytes.
It is a reader for statistics, not a validator: a broken part is read as far as it goes.
It does not change or keep the mail; the relay passes on the bytes it received.
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
"""Bytes of a mail that are looked at: words further down gained nothing on three corpora."""
MAX_DEPTH = 6
MAX_PARTS = 12
"""Nesting and parts of one level that are walked; real mail stays well below both."""
MAX_BOUNDARIES = 4_000
"""Lines of a mail that are compared with a boundary, in all levels together: those that only begin like one, too. What
follows belongs to the part that was begun."""
MAX_LINES = 1_000
MAX_FIELDS = 250
MAX_FIELD_BYTES = 16_000
ENCODED_WORD = 30
"""Lines of a header that are looked at, unfolded; fields kept of it, with their names and values. The same for the
headers of all parts together. Of 26,000 mails of two corpora none has more than 125 fields and 4,614 bytes; without a
bound a header of nothing else takes fifty times as long as a mail (benchmarks/hostile_mail.py). Of a value with =? in
it all that was read counts, and ENCODED_WORD bytes more for each encoded word, since that is what takes time."""
MAX_NAME = 76
"""Bytes of a header field's name. The longest in use have some 40 letters; a bound, since each word of the value is
kept together with the name."""
MAX_VALUE = 600
"""Bytes kept of a header field's value: Received and References lines run longer, and say no more."""
MAX_ENCODED = 16_000
MAX_TEXT = 4_000
"""Encoded bytes read of a part, and bytes of text kept in all: more text was no gain and cost time."""
MAX_HEAD = 2_500
"""Bytes kept of the header as it was written: the same."""

Field = tuple[bytes, bytes]
"""A header field: name in lower case, value unfolded, decoded, in UTF-8."""

_ENCODED_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_ENCODED_WORDS = re.compile(rb"(?<=\?=)[ \t\n]+(?==\?)")
_PARAMETER = re.compile(rb"""(boundary|charset)[ \t]*=[ \t]*(?:"([^"]*)"?|([^\s;"]+))""", re.IGNORECASE)
_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
# RFC 5322 section 2.2: printable ASCII but the colon.
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
    """What the filter sees of a mail.

    fields: the header fields of the mail, in order, without those of other filters and mailboxes.
    part_fields: the header fields of all MIME parts, in the order of the walk.
    head: at most 2,500 bytes of UTF-8, the same fields as they were written, folded, those of the parts after them.
    text: at most 4,000 bytes of UTF-8, the decoded text parts one after the other.
    size: bytes of the whole mail; scanned: how many of them were looked at.
    defects: what was odd, one word each, for logs and explanations.
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
        """16 bytes that name this mail wherever it travels.

        Taken over what transit leaves alone: Message-ID, Date and From, and the words of the text.
        The subject counts only where there is no Message-ID, since a relay may have marked it.
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
        """What tokens are found in, for `unpacked`: the fields, the head and the text."""
        pieces = [*chain.from_iterable((*self.fields, *self.part_fields)), self.head, self.text]
        sizes = (len(self.fields), self.size, self.scanned, *map(len, pieces))
        return b"%s\n%s" % (" ".join(map(str, sizes)).encode(), b"".join(pieces))

    @classmethod
    def unpacked(cls, packed: bytes) -> "Message":
        """What `packed` has packed; its defects are not kept."""
        sizes, _, rest = packed.partition(b"\n")
        fields, size, scanned, *lengths = map(int, sizes.split())
        ends = list(accumulate(lengths))
        pieces = [rest[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        pairs = tuple(zip(pieces[:-2:2], pieces[1:-2:2], strict=True))
        return cls(pairs[:fields], pairs[fields:], pieces[-2], pieces[-1], size, scanned, ())


def parse(data: bytes) -> Message:
    """Read a mail: at most its first 65,536 bytes, line ends of any kind, a leading mbox line skipped."""
    # Cut after the line ends are alike, so that a mail is the same on the wire and on disk.
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
    """What may still be taken of headers."""

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
        """The parts between the boundary lines of RFC 2046 section 5.1; one more than walked at most."""
        text = b"\n" + body
        begin, found = -1, 0  # the preamble belongs to no part
        place = text.find(delimiter)
        while place >= 0 and self.boundaries:
            self.boundaries -= 1
            start = place + len(delimiter)
            end = text.find(b"\n", start)
            line = text[start : end if end >= 0 else len(text)].rstrip()
            if line and line != b"--":  # a longer boundary that begins like ours
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
    """The header fields of a mail or part, as many as there is room for; the same as they were written; the body."""
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
        # Cut, so that no field can fill the cache.
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
    """Whether a field tells what another filter or a mailbox thought of the mail."""
    return (
        name in _DROPPED
        or name.startswith(_DROPPED_PREFIXES)
        or (name.startswith(b"x-") and (b"spam" in name or b"virus" in name))
    )


@functools.lru_cache(maxsize=1024)
def _kept_name(raw: bytes) -> bytes | None:
    """What stands before a colon as the name of a field; empty if it is dropped, None if it is no name."""
    name = raw.rstrip().lower()
    if not _NAME.fullmatch(name):
        return None
    return b"" if dropped(name) else name


def _value(value: bytes) -> tuple[bytes, int]:
    """A value as it is kept, and what it takes of the room: where words are encoded more than they say."""
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
    """Foreign characters dropped, an unfinished last group too; None if nothing is left."""
    text = text.partition(b"=")[0] if text.rstrip().endswith(b"=") else text
    text = text.translate(None, _NOT_BASE64)
    text += b"=" * (-len(text) % 4) if len(text) % 4 != 1 else b""
    return binascii.a2b_base64(text[: len(text) // 4 * 4]) or None


def cut(text: bytes, size: int) -> bytes:
    """At most `size` bytes of UTF-8 text, cut between characters."""
    if len(text) <= size:
        return text
    while size and text[size] & 0xC0 == 0x80:
        size -= 1
    return text[:size]
