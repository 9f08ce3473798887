"""Reads the bytes of a mail into a Message: its header fields, the text of its parts, its defects.

Guarantee: `parse` never raises, and takes time linear in the bytes it reads: the header and 65,536 behind it. It reads
for statistics and validates nothing: a broken part is read as far as possible.
"""

import hashlib
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from spamfilter.mail.charsets import to_utf8, undeclared_to_utf8
from spamfilter.mail.header import MAX_VALUE, Field, Room, blank_line, head_of, split_header
from spamfilter.mail.letters import plain_letters
from spamfilter.mail.multipart import content, parts
from spamfilter.mail.text import GAP, at_ends, cut, decoded, ends, hidden_apart, without_styles, without_tags

SCANNED = 65_536
"""Bytes behind the header that are read: words further down gained nothing on three corpora."""
LONGEST_HEADER = 1_048_576
"""Bytes of a header up to which it is read to its end, so that a long field does not hide the text. Exim takes no
longer header, and Gmail none of half of it."""
MAX_DEPTH = 6
MAX_PARTS = 12
"""Levels of nested parts, and parts of one level, that are read; real mail stays well below both."""
MAX_BOUNDARIES = 4_000
"""Lines compared with a boundary, in all levels together, including those that only begin like one. What follows
belongs to the part that has begun."""
MAX_TEXTS = 12
MAX_BODY = 16_000
MAX_MARKUP = 8_000
MAX_TEXT = 4_000
"""Text parts that are read, decoded bytes of each, bytes of HTML without styles that are looked through for what is
shown, and bytes of text kept of all parts: more gained nothing and cost time. Of what is longer the beginning and the
end are kept, half each, so that nothing put before a text hides it."""
SHORT = 1_000
SAMPLED = 10
"""An alternative of at most so many bytes can hide little; of a longer one every tenth word is looked for in the HTML
that is shown."""
STABLE = 1_500
LONGEST_CHARACTER = 4
"""Bytes of the words of a long text that stay the same in transit, and of a character of UTF-8."""
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
"""The line of a harmless mail that spam filters agree to call spam, so that an installation can be tried."""
_OF_DIGEST = [(b"content-type", b"message/rfc822")]
"""What a part of multipart/digest is that does not say it: RFC 2046 section 5.1.5."""


@dataclass(frozen=True, slots=True)
class Message:
    """What the filter reads of a mail.

    fields: the header fields of the mail, in order, without those that other filters and mailboxes add.
    part_fields: the header fields of all MIME parts, in their order.
    head: at most 2,500 bytes of UTF-8: `fields` as they were written, with their folds, and `part_fields` after them.
    If there is more, what servers on the way have added is left out first, and what people see last.
    text: at most 4,000 bytes of UTF-8: the decoded text parts one after the other, and what is not shown of them after
    all others; of more the beginning and the end.
    shown: the same of what a reader sees: HTML without its markup, and instead of its alternatives.
    In all of these but `head` letters are as they look, see letters.py; disguised: values of fields, and texts under
    the name of nothing, in which that is not how they were written, as they were written.
    size: bytes of the whole mail; scanned: how many of them were read.
    defects: names of what is malformed, for logs and explanations.
    """

    fields: tuple[Field, ...]
    part_fields: tuple[Field, ...]
    head: bytes
    text: bytes
    shown: bytes
    size: int
    scanned: int
    defects: tuple[str, ...]
    disguised: tuple[Field, ...] = ()

    def beginning(self, size: int) -> str:
        """The first characters of the text as people see it."""
        return (self.shown or self.text).decode("utf-8", "replace").strip()[:size]

    @property
    def is_test(self) -> bool:
        """Whether the text has GTUBE."""
        return GTUBE in self.text

    def field(self, name: bytes) -> str:
        """The first value of this name (lower case) as it was written, or ''."""
        found = next((value for key, value in self.fields if key == name), b"")
        written = (value for key, value in self.disguised if key == name and plain_letters(value) == found)
        return next(written, found).decode("utf-8", "replace")

    def digest(self) -> bytes:
        """A hash of 16 bytes that stays the same in transit.

        It is made of what mail servers do not change: Message-ID, Date, From and the words of the text; of a long one
        the first 1,500 bytes of them, since its encoding decides where its end is. The subject is used only if there
        is no Message-ID, as a relay may have put a prefix before it.
        """
        fields = dict(reversed(self.fields))
        stable = [fields.get(name, b"") for name in (b"message-id", b"date", b"from")]
        if not stable[0]:
            stable.append(fields.get(b"subject", b""))
        digest = hashlib.blake2b(digest_size=16)
        long = len(self.text) > MAX_TEXT - LONGEST_CHARACTER
        for value in (*stable, self.text):
            value_words = b" ".join(value.split())
            digest.update((value_words[:STABLE] if long else value_words) + b"\0")
        return digest.digest()

    def packed(self) -> bytes:
        """All fields but `defects` and `disguised`, as bytes for `unpacked`."""
        pieces = [*chain.from_iterable((*self.fields, *self.part_fields)), self.head, self.text]
        if self.shown != self.text:
            pieces.append(self.shown)  # an odd number of pieces then
        sizes = (len(self.fields), self.size, self.scanned, *map(len, pieces))
        return b"%s\n%s" % (" ".join(map(str, sizes)).encode(), b"".join(pieces))

    @classmethod
    def unpacked(cls, packed: bytes) -> "Message":
        """The message of `packed`, without what it leaves out."""
        sizes, _, rest = packed.partition(b"\n")
        fields, size, scanned, *lengths = map(int, sizes.split())
        pieces = [rest[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)]
        shown = pieces.pop() if len(pieces) % 2 else pieces[-1]
        *pairs, head, text = pieces
        named = tuple(zip(pairs[::2], pairs[1::2], strict=True))
        return cls(named[:fields], named[fields:], head, text, shown, size, scanned, ())


def parse(data: bytes) -> Message:
    """Read a mail, with LF or CR LF as line ends, as far as `_read_of` says; a leading mbox line is skipped."""
    walk, mail = _Walk(), _read_of(data)
    scanned = min(len(data), max(len(mail), SCANNED))
    if mail.startswith((b"From ", b">From ")):
        mail = mail.partition(b"\n")[2]
    fields, written, of_content, body = split_header(mail, Room(), walk.defects)
    walk.part(of_content, body, 0)
    if not walk.boundaries:
        walk.defects.append("many-boundaries")
    return Message(
        fields=walk.plain_fields(fields),
        part_fields=walk.plain_fields(walk.fields),
        head=head_of(written, walk.fields, walk.charset),
        text=walk.limited(b"\n".join((*walk.texts, *walk.hidden))),
        shown=walk.limited(b"\n".join(walk.shown)),
        size=len(data),
        scanned=scanned,
        defects=tuple(dict.fromkeys(walk.defects)),
        disguised=tuple(walk.disguised),
    )


def _read_of(data: bytes) -> bytes:
    """What is read of a mail, with LF as line ends: it ends at the same place of the text whatever the header gains."""
    blank = blank_line(data, 0, LONGEST_HEADER)
    start = blank.end() if blank else 0
    # Cut when all line ends are LF, so that a mail reads the same from the wire and from disk.
    body = bytes(data[start : start + 2 * SCANNED]).replace(b"\r\n", b"\n")[:SCANNED]
    return bytes(data[:start]).replace(b"\r\n", b"\n") + body


class _Walk:
    """The state of one walk through the MIME parts of a mail."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.headers = Room()
        self.attached = Room()
        self.texts: list[bytes] = []
        self.shown: list[bytes] = []
        self.hidden: list[bytes] = []
        self.defects: list[str] = []
        self.boundaries = MAX_BOUNDARIES
        self.charset = b""
        self.disguised: list[Field] = []

    def part(self, fields: list[Field], body: bytes, depth: int) -> None:
        """Read a part. fields: those that may say what its body is."""
        kind, encoding, parameters = content(fields)
        if kind.startswith(b"multipart/"):
            found = self._parts(body, parameters.get(b"boundary", b"").rstrip())
            if found and depth < MAX_DEPTH:
                if len(found) > MAX_PARTS:
                    self.defects.append("many-parts")
                before = len(self.texts)
                default = _OF_DIGEST if kind == b"multipart/digest" else []
                for part in found[:MAX_PARTS]:
                    inner, _, of_content, text = split_header(part, self.headers, self.defects)
                    self.fields += inner
                    at = len(self.texts)
                    self.part(of_content + default, text, depth + 1)
                    if kind == b"multipart/alternative" and self.shown[at:] != self.texts[at:]:  # it is HTML
                        self._supersede(before, at)
                return
            self.defects.append("deep" if found else "no-boundary")
        elif not kind.startswith((b"text", b"message", b"application/ics")) and b"/" in kind:
            return
        body = decoded(body, encoding, self.defects)
        if kind in (b"message/rfc822", b"message/global") and depth < MAX_DEPTH and len(self.texts) < MAX_TEXTS:
            self._attached_mail(body.replace(b"\r\n", b"\n").lstrip(b"\n"), depth)
            return
        if len(self.texts) < MAX_TEXTS:
            charset = parameters.get(b"charset", b"")
            self.charset = self.charset or charset
            text = GAP.join(to_utf8(piece, charset) for piece in at_ends(body, MAX_BODY))
            shown = text
            if kind == b"text/html":
                text, hidden = hidden_apart(text)
                self.hidden += [hidden] * bool(hidden)
                shown = without_tags(ends(without_styles(text), MAX_MARKUP))
            self.texts.append(text)
            self.shown.append(shown)

    def _attached_mail(self, mail: bytes, depth: int) -> None:
        """Read an attached mail; its header is text of the mail that has it."""
        fields, _, of_content, body = split_header(mail, self.attached, self.defects)
        header = to_utf8(b"".join(b"%s: %s\n" % field for field in fields), b"")
        at = len(self.texts)
        self.part(of_content, body, depth + 1)
        for texts in (self.texts, self.shown):
            texts[at : at + 1] = [header + b"\n".join(texts[at : at + 1])]

    def plain_fields(self, fields: list[Field]) -> tuple[Field, ...]:
        """The fields in UTF-8, with their letters as they look, which may take more bytes than before."""
        return tuple(field if field[1].isascii() else (field[0], self.plain_value(*field)) for field in fields)

    def plain_value(self, name: bytes, value: bytes) -> bytes:
        """A value in UTF-8, with its letters as they look."""
        value = cut(undeclared_to_utf8(value, self.charset), MAX_VALUE)
        return cut(self.plain(name, value), MAX_VALUE)

    def plain(self, name: bytes, value: bytes) -> bytes:
        """A value with its letters as they look."""
        as_it_looks = plain_letters(value)
        if as_it_looks != value:
            self.disguised.append((name, value))
        return as_it_looks

    def limited(self, text: bytes) -> bytes:
        """What is read of all texts together. Plain letters take fewer bytes than styled ones."""
        return ends(self.plain(b"", ends(text.replace(GAP, b""), MAX_MARKUP)), MAX_TEXT)

    def _supersede(self, first: int, last: int) -> None:
        """HTML is shown instead of its alternatives; one that is long and says something else is read last."""
        shown = b" ".join(self.shown[last:])
        for at in range(first, last):
            if len(self.texts[at]) > SHORT:
                sample = ends(self.texts[at], MAX_TEXT).split()[::SAMPLED]
                if sum(word in shown for word in sample) < len(sample) / 2:
                    self.hidden.append(self.texts[at])
                    self.texts[at] = b""
            self.shown[at] = b""

    def _parts(self, body: bytes, boundary: bytes) -> list[bytes]:
        """At most MAX_PARTS + 1 of the parts; none without a boundary."""
        body = b"\n" + body
        found = parts(body, 1, len(body), boundary, self) if boundary else ()
        return [body[begin:end] for begin, end in islice(found, MAX_PARTS + 1)]
