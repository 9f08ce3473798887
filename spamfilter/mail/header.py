"""The header of a mail or of one of its parts: fields by name, decoded, and the same as they were written."""

import binascii
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, groupby

from spamfilter.mail.charsets import to_utf8, undeclared_to_utf8
from spamfilter.mail.text import cut, decode_base64

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
MAX_HEAD = 2_500
"""Bytes kept of the header as it was written: more gained nothing and cost time."""

Field = tuple[bytes, bytes]
"""A header field: name in lower case, value unfolded, decoded, in UTF-8."""

_LINE_END = re.compile(rb"\r?\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_ENCODED_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?]*)\?=")
_ENCODED_WORDS = re.compile(rb"(?:=\?[^?\s]{1,40}\?[bBqQ]\?[^?]*\?=)+")
_BETWEEN_ENCODED_WORDS = re.compile(rb"(?<=\?=)[ \t]+(?==\?)")
# RFC 5322 section 2.2: printable ASCII without the colon.
_NAME = re.compile(rb"[!-9;-~]{1,%d}" % MAX_NAME)
_FIELD_END = re.compile(rb"\n(?![ \t])")
OF_CONTENT = re.compile(
    rb"^(content-(?:type|transfer-encoding|disposition))[ \t]*:([^\n]*+(?:\n[ \t][^\n]*+)*+)",
    re.IGNORECASE | re.MULTILINE,
)
"""The fields that may say what a body is, wherever they stand in a header."""

OTHERS, LAST = 6, 7
_TURNS = {
    b"subject": 1, b"from": 2, b"to": 3, b"reply-to": 4, b"list": 5, b"authentication-results": 5,
    b"received": LAST, b"received-spf": LAST, b"return-path": LAST, b"delivered-to": LAST, b"x-original-to": LAST,
    b"envelope-to": LAST, b"delivery-date": LAST, b"x-received": LAST, b"dkim-signature": LAST,
    b"domainkey-signature": LAST, b"x-google-dkim-signature": LAST, b"arc-": LAST,
}  # fmt: skip
"""Name of a field, or its first four letters -> when it is read."""

_DROPPED = frozenset((
    b"status", b"x-status", b"content-length", b"lines", b"x-keywords", b"replied",
    b"forwarded", b"delivered-to-trec",
))  # fmt: skip
_DROPPED_PREFIXES = (
    b"x-uid", b"x-mozilla", b"x-bogosity", b"x-rc-", b"x-hammie", b"x-gmail-", b"x-evolution", b"x-imap",
    b"x-scanned", b"x-amavis", b"x-dspam", b"x-crm114", b"x-barracuda", b"x-gnus",
)  # fmt: skip


@dataclass(slots=True)
class Room:
    """How much of headers may still be read."""

    lines: int = MAX_LINES
    fields: int = MAX_FIELDS
    size: int = MAX_FIELD_BYTES


def blank_line(mail: bytes, start: int, end: int) -> re.Match[bytes] | None:
    """What ends the header that begins at `start`, also where line ends are mixed; None if nothing does before `end`.

    By two patterns, the second of which begins with a constant: with a choice there, `re` takes twenty times as long.
    """
    return _LINE_END.match(mail, start, end) or _BLANK_LINE.search(mail, start, end)


def split_header(block: bytes, room: Room, defects: list[str]) -> tuple[list[Field], list[bytes], list[Field], bytes]:
    """The header fields of a mail or part, as many as `room` allows; the same as they were written; those that may say
    what the body is; the body.

    What is neither ASCII nor UTF-8 stays as it is, see `undeclared_to_utf8`. A line that is no field begins the body,
    as mail programs show it; fields behind it count all the same. However much stands before them, those that say what
    the body is are found, whole: a mail program shows the text that they hide from a filter that does not read them.
    """
    if block.startswith(b"\n"):
        return [], [], [], block[1:]
    head, _, body = block.partition(b"\n\n")
    fields: list[Field] = []
    written: list[bytes] = []
    *lines, rest = _FIELD_END.split(head, room.lines) if room.lines else [head]
    if len(lines) < room.lines:
        lines, rest = [*lines, rest], b""
    room.lines -= len(lines)
    plain = b"=?" not in head and head.isascii()
    places, size = room.fields, room.size
    first_odd = len(lines)
    for at, line in enumerate(lines):
        if places <= 0 or size <= 0:
            rest = line
            break
        raw, colon, value = line.partition(b":")
        # Cut, so that long names cannot fill the cache of _kept_name.
        name = _kept_name(raw[: MAX_NAME + 1]) if colon else None
        if name:
            if b"\n" in value:
                value = value.replace(b"\n ", b" ").replace(b"\n\t", b" ")
            value = value.strip()
            if plain:
                value = value[:MAX_VALUE]
                taken = len(value)
            else:
                value, taken = _decoded(value)
            fields.append((name, value))
            written.append(line)
            places -= 1
            size -= len(name) + taken
        elif name is None and line and at < first_odd and not line.startswith((b"From ", b">From ")):
            first_odd = at
    room.fields, room.size = places, size
    if first_odd < len(lines):
        defects.append("not-a-field")
        body = b"\n".join((*lines[first_odd:], b"", body))
    if rest:
        defects.append("many-fields")
    if rest or any(len(value) == MAX_VALUE and name == b"content-type" for name, value in fields):
        of_content = [(name.lower(), value.strip()) for name, value in OF_CONTENT.findall(head)]
        return fields, written, of_content + fields, body
    return fields, written, fields, body


def head_of(written: list[bytes], part_fields: list[Field], charset: bytes) -> bytes:
    """The lines of a header as they were written, and the fields of the parts, as many as are read.

    charset: that of the text, for what is not ASCII.
    """
    lines = [*written, *(name + b": " + value for name, value in part_fields)]
    head = b"\n".join(lines)
    if len(head) >= MAX_HEAD:
        head = b"\n".join(_first_read(lines))
    return cut(undeclared_to_utf8(head, charset), MAX_HEAD)


def _first_read(lines: list[bytes]) -> list[bytes]:
    """Of the lines of a header those that are read first, in their order, until MAX_HEAD is reached.

    Of each at most MAX_VALUE bytes, or a hundred recipients would take the room of all else.
    """
    kept: dict[int, bytes] = {}
    room = MAX_HEAD
    for _, at in sorted(zip(_turns(lines), count(), strict=False)):
        if room <= 0:
            break
        kept[at] = lines[at][: min(MAX_VALUE, room)]
        room -= len(kept[at]) + 1
    return [line for _, line in sorted(kept.items())]


def _turns(lines: list[bytes]) -> Iterator[int]:
    """When each line of a header is read: first what people and their programs look at, last what was added on the
    way, but for the topmost Received, which says from where it came to us."""
    ours = b"received"
    for line in lines:
        name = line.partition(b":")[0].rstrip().lower()
        if name == ours:
            ours = b""
            yield OTHERS
        else:
            yield _TURNS.get(name) or _TURNS.get(name[:4], OTHERS)


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


def _decoded(value: bytes) -> tuple[bytes, int]:
    """A value as it is kept, and how many bytes it takes of the room, which is more if it has encoded words."""
    read = 0
    if b"=?" in value:
        value = value[: 4 * MAX_VALUE]
        read = len(value) + ENCODED_WORD * len(_ENCODED_WORD.findall(value))
        value = _ENCODED_WORDS.sub(_decoded_words, _BETWEEN_ENCODED_WORDS.sub(b"", value))
    value = value[:MAX_VALUE]
    return value, max(read, len(value))


def _decoded_words(match: re.Match[bytes]) -> bytes:
    """Encoded words side by side; those of one charset together, as programs divide them within a character."""
    words = _ENCODED_WORD.findall(match.group())
    return b"".join(
        to_utf8(b"".join(_decoded_word(encoding, text) for _, encoding, text in some), charset)
        for charset, some in groupby(words, lambda word: word[0].partition(b"*")[0].lower())  # RFC 2231: a language
    )


def _decoded_word(encoding: bytes, text: bytes) -> bytes:
    return binascii.a2b_qp(text, header=True) if encoding in b"qQ" else decode_base64(text) or text
