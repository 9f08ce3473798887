"""Makers of hostile mail: each fills a mail of a given size with one kind of trouble.

Each is a function of the size in bytes, which it comes near to and never exceeds by more than a line; lines end with
CR LF, so that a relay takes them.
"""

import base64
import bz2
import itertools
import zlib
from collections.abc import Callable, Iterator
from functools import partial

Bomb = Callable[[int], bytes]

HEAD = (
    b"Message-ID: <bomb@example.org>\r\nDate: Sun, 1 Mar 2026 12:00:00 +0000\r\nFrom: a@example.org\r\n"
    b"To: b@example.test\r\nMIME-Version: 1.0\r\n"
)
COUNTED = 1_000_000
"""Bytes of numbered pieces, which are made one by one; enough for 10,000 levels of multiparts."""
LONG_BOUNDARY = 10_000_000
NOT_CHARSETS = (
    "utf-7", "utf-16", "utf-32", "idna", "punycode", "rot13", "zlib", "bz2", "hex", "base64", "quopri", "uu",
    "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem", "charmap", "iso-2022-jp", "iso-2022-kr", "hz",
    "gb18030", "utf-8-sig", "cp65001", "../../etc/passwd", "a" * 40,
)  # fmt: skip
"""Names that are no charsets, or such that read much of little; of Python, and of nobody."""


def _filled(head: bytes, piece: bytes, size: int, tail: bytes = b"\r\n") -> bytes:
    """The head, and the piece so often as fits."""
    return head + piece * max(1, (size - len(head) - len(tail)) // len(piece)) + tail


def _counted(head: bytes, piece: str, size: int) -> bytes:
    """The head and numbered pieces, as many as fit; beyond a million bytes plain text."""
    pieces = [head]
    length = len(head)
    for number in itertools.count():
        made = piece.format(number, number + 1).encode()
        if length + len(made) > min(size, COUNTED):
            break
        pieces.append(made)
        length += len(made)
    return _filled(b"".join(pieces) + b"\r\n", b"x\r\n", size)


def _multipart(boundary: bytes = b"x", end: bytes = b"\r\n") -> bytes:
    return HEAD + b"Content-Type: multipart/mixed; boundary=" + boundary + b"\r\n" + end


def _tree(size: int) -> bytes:
    """Twelve parts in each of twelve parts, and so on, six levels deep."""

    def branch(level: int) -> Iterator[bytes]:
        if level == 6:
            yield b"x\r\n"
            return
        for _ in range(12):
            yield b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (level, level + 1)
            yield from branch(level + 1)

    pieces = []
    length = 0
    for piece in branch(0):
        pieces.append(piece)
        length += len(piece)
        if length > min(size, 1_000_000):
            break
    return _filled(_multipart(b"b0") + b"".join(pieces), b"x\r\n", size)


def _typed(rest: bytes, encoding: bytes = b"8bit") -> bytes:
    return HEAD + b"Content-Type: text/plain" + rest + b"\r\nContent-Transfer-Encoding: " + encoding + b"\r\n\r\n"


def _charset(name: str, size: int, raw: bytes = b"\xff+AA-\\u0041\x1b$B=FF xn--~{\r\n") -> bytes:
    return _filled(_typed(b'; charset="%s"' % name.encode()), raw, size)


def _compressed(name: str, compress: Callable[[bytes], bytes], size: int) -> bytes:
    """A thousand times its size, for whoever takes the name of a codec for a charset."""
    blown_up = compress(bytes(10_000_000)).replace(b"\r", b"").replace(b"\n", b"")
    return _filled(_typed(b"; charset=" + name.encode()), blown_up + b"\r\n", size)


def _encoded_words(size: int) -> bytes:
    words = b" ".join(b"=?%s?q?=FF?=" % name.encode() for name in NOT_CHARSETS)
    return _filled(HEAD, b"Subject: " + words + b"\r\n", size, b"\r\n\r\n")


def _nested_look_alikes(size: int) -> bytes:
    """Lines that begin like the boundaries of six levels, each of which begins like those within it."""
    head = _multipart(b"a")
    for level in range(1, 6):
        head += b"--%s\r\nContent-Type: multipart/mixed; boundary=%s\r\n\r\n" % (b"a" * level, b"a" * (level + 1))
    return _filled(head + b"--aaaaaa\r\n\r\n", b"--aaaaaaz\r\n", size)


def _in_both_headers(size: int) -> bytes:
    """Encoded words in the header of the mail and in one of its parts."""
    names = itertools.product("abcdefghijklmnopqrstuvwxyz0123456789", repeat=2)
    words = [b"=?%s?q?\xff?=" % "".join(name).encode() for name in names]
    lines = b"".join(
        b"a: %s\r\n" % b" ".join(some) for some in (words[at : at + 50] for at in range(0, len(words), 50))
    )
    return _filled(_multipart(b"b", lines + b"\r\n--b\r\n" + lines + b"\r\n"), b"x\r\n", size)


BOMBS: dict[str, Bomb] = {
    # MIME
    "multiparts-within-each-other": lambda size: _counted(
        _multipart(b"b0"), "--b{0}\r\nContent-Type: multipart/mixed; boundary=b{1}\r\n\r\n", size
    ),
    "mails-within-each-other": lambda size: _filled(HEAD, b"Content-Type: message/rfc822\r\n\r\n", size),
    "parts": lambda size: _filled(_multipart(), b"--x\r\n\r\n", size),
    "parts-with-a-header": lambda size: _filled(_multipart(), b"--x\r\nContent-Type: text/html\r\n\r\ny\r\n", size),
    "boundary-look-alikes": lambda size: _filled(_multipart(end=b"\r\n--x\r\n"), b"--xy\r\n", size),
    "boundary-look-alikes-far-in": lambda size: _filled(
        _multipart(end=b"\r\n--x\r\nContent-Type: text/plain\r\n\r\n") + b"y" * 30_000 + b"\r\n", b"--xy\r\n", size
    ),
    "boundaries-that-begin-like-others": lambda size: _counted(
        _multipart(b"a" * 60),
        "--" + "a" * 60 + "\r\nContent-Type: multipart/mixed; boundary=" + "a" * 61 + "\r\n\r\n",
        size,
    ),
    "boundary-look-alikes-of-six-levels": _nested_look_alikes,
    "a-tree-of-parts": _tree,
    "the-same-boundary-within": lambda size: _filled(
        _multipart(), b"--x\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n", size
    ),
    "an-empty-boundary": lambda size: _filled(_multipart(b'""'), b"--\r\n", size),
    "a-boundary-of-10-mb": lambda size: _filled(
        _multipart(b"y" * min(LONG_BOUNDARY, size // 2)), b"--" + b"y" * 60 + b"\r\n", size
    ),
    # header
    "fields": lambda size: _filled(HEAD, b"a:\r\n", size, b"\r\n\r\n"),
    "fields-of-words": lambda size: _counted(HEAD, "x{0}: y{0} z{0}\r\n", size),
    "fields-of-single-letters": lambda size: _filled(HEAD, b"b: a b c d e f g h i j k l m n o p q r s\r\n", size),
    "lines-that-are-no-fields": lambda size: _filled(HEAD, b"\0\r\n", size, b"\r\n\r\n"),
    "one-field": lambda size: _filled(HEAD + b"Subject: ", b"x", size, b"\r\n\r\n"),
    "one-field-of-words": lambda size: _counted(HEAD + b"Subject:", " w{0}", size),
    "continuation-lines": lambda size: _filled(HEAD + b"Subject: x\r\n", b" y\r\n", size, b"\r\n\r\n"),
    "blank-continuation-lines": lambda size: _filled(HEAD + b"Subject: x\r\n", b" \r\n", size, b"\r\n\r\n"),
    "parameters": lambda size: _filled(HEAD + b"Content-Type: text/plain", b"; a=b", size, b"\r\n\r\nx\r\n"),
    "charset-parameters": lambda size: _filled(HEAD + b"Content-Type: text/plain", b";charset", size, b"\r\n\r\nx\r\n"),
    "parameters-in-pieces": lambda size: _counted(
        HEAD + b"Content-Type: multipart/mixed", ";\r\n boundary*{0}=x", size
    ),
    "content-types": lambda size: _filled(
        HEAD, b"Content-Type: multipart/mixed; boundary=x\r\n", size, b"\r\n\r\n--x\r\n\r\ny\r\n"
    ),
    "our-own-fields": lambda size: _filled(HEAD, b"X-Spamfilter-Id \t:\r\n", size, b"\r\n\r\n"),
    "our-own-fields-never-finished": lambda size: _filled(HEAD, b"X-Spam-Flag ", size, b"\r\n\r\n"),
    "our-own-fields-and-blanks": lambda size: _filled(HEAD + b"X-Spam-Flag", b" ", size, b"\r\n\r\n"),
    "our-own-fields-folded": lambda size: _filled(HEAD + b"X-Spam-Flag:\r\n", b"\t\r\n", size, b"\r\n\r\n"),
    "subjects": lambda size: _filled(HEAD, b"Subject \t \r\n", size, b"\r\n\r\n"),
    "header-without-end": lambda size: _filled(HEAD, b"Received: from a by b; Sun, 1 Mar 2026 12:00:00\r\n", size, b""),
    # RFC 2047
    "encoded-words": lambda size: _filled(HEAD, b"Subject: =?utf-8?q?=C3=BC?= =?utf-8?b?w7w=?=\r\n", size, b"\r\n\r\n"),
    "encoded-words-of-no-charset": _encoded_words,
    "encoded-words-of-made-up-charsets": lambda size: _counted(
        HEAD, "Subject:" + "".join(f" =?{letter}{{0}}?q?=FF?=" for letter in "abcdefghijklmnopqrst") + "\r\n", size
    ),
    "encoded-words-in-both-headers": _in_both_headers,
    "encoded-words-in-one-field": lambda size: _filled(HEAD + b"Subject:", b" =?a?q?=41?=", size, b"\r\n\r\n"),
    "encoded-words-half-open": lambda size: _filled(HEAD + b"Subject:", b"=?utf-8?q?", size, b"\r\n\r\n"),
    "encoded-words-half-open-fields": lambda size: _filled(HEAD, b"S: " + b"=?a?b?" * 150 + b"\r\n", size, b"\r\n\r\n"),
    "encoded-words-within-each-other": lambda size: _filled(HEAD + b"Subject: ", b"=?a?q?=3D=3Fa=3Fq=3F?=", size),
    "a-huge-encoded-word": lambda size: _filled(
        HEAD + b"Subject: =?utf-8?b?", base64.b64encode(b"buy now " * 6), size, b"?=\r\n\r\n"
    ),
    "blanks-between-encoded-words": lambda size: _filled(
        HEAD + b"Subject: =?a?q?b?=", b"\r\n \t", size, b"=?x\r\n\r\n"
    ),
    # transfer encodings
    "base64-of-padding": lambda size: _filled(_typed(b"", b"base64"), b"=" * 76 + b"\r\n", size),
    "base64-of-nothing": lambda size: _filled(_typed(b"", b"base64"), b"! " * 38 + b"\r\n", size),
    "base64-padded-each": lambda size: _filled(_typed(b"", b"base64"), b"YQ==" * 19 + b"\r\n", size),
    "base64-padded-letters": lambda size: _filled(_typed(b"", b"base64"), b"Y=" * 38 + b"\r\n", size),
    "base64-one-too-many": lambda size: _filled(_typed(b"", b"base64"), b"YWJjY\r\n", size),
    "quoted-printable-of-signs": lambda size: _filled(_typed(b"", b"quoted-printable"), b"=", size),
    "quoted-printable-soft-ends": lambda size: _filled(_typed(b"", b"quoted-printable"), b"=\r\n", size),
    "quoted-printable-blanks": lambda size: _filled(_typed(b"", b"quoted-printable"), b" ", size),
    "quoted-printable-blank-lines": lambda size: _filled(_typed(b"", b"quoted-printable"), b"= \t", size),
    # charsets
    **{f"charset-{name[:20].replace('/', '-')}": partial(_charset, name) for name in NOT_CHARSETS},
    "a-zlib-bomb-as-charset": lambda size: _compressed("zlib_codec", zlib.compress, size),
    "a-bz2-bomb-as-charset": lambda size: _compressed("bz2", bz2.compress, size),
    # characters
    "combining-marks": lambda size: _filled(_typed(b"; charset=utf-8"), "ạ̈".encode() + "\u0300".encode() * 20, size),
    "bidirectional-marks": lambda size: _filled(_typed(b"; charset=utf-8"), "\u202e\u2066x\u2069".encode(), size),
    "zero-width": lambda size: _filled(_typed(b"; charset=utf-8"), "a\u200b\ufeff".encode(), size),
    "astral": lambda size: _filled(_typed(b"; charset=utf-8"), "\N{GRINNING FACE}\U0010ffff ".encode(), size),
    "han": lambda size: _filled(_typed(b"; charset=utf-8"), "中文가あ".encode(), size),
    "han-in-the-header": lambda size: _filled(HEAD, b"Subject: " + "中文가あ".encode() * 50 + b"\r\n", size),
    "surrogates": lambda size: _filled(_typed(b"; charset=utf-8"), b"\xed\xa0\x80", size),
    "overlong": lambda size: _filled(_typed(b"; charset=utf-8"), b"\xc0\x80\xe0\x80\x80\xf8", size),
    "latin-1-in-the-header": lambda size: _filled(HEAD, b"Subject: \xff \xfe \xfd\r\n", size, b"\r\n\r\n"),
    "nuls": lambda size: _filled(HEAD + b"\r\n", b"\0", size),
    "nuls-in-the-header": lambda size: _filled(HEAD + b"Subject: ", b"\0 ", size, b"\r\n\r\n"),
    # shape
    "line-ends": lambda size: b"\r\n" * (size // 2),
    "text-without-header": lambda size: _filled(b"\r\n", b"buy now\r\n", size),
    "header-only": lambda size: _filled(b"", b"Subject: x\r\n", size, b""),
    "mbox-lines": lambda size: _filled(b"", b"From a@example.org Sun Mar  1 12:00:00 2026\r\n", size),
    "an-mbox-line-without-end": lambda size: _filled(b"From ", b"x", size),
    "dots": lambda size: _filled(HEAD + b"\r\n", b".\r\n", size),
    "words": lambda size: _counted(HEAD + b"\r\n", "w{0} ", size),
    "one-word": lambda size: _filled(HEAD + b"\r\n", b"x", size),
    "letters": lambda size: _filled(HEAD + b"\r\n", b"a b\r\nc d ", size),
    "words-everywhere": lambda size: _counted(_multipart(), "--x\r\na{0}: b{0} c{0}\r\n\r\nd{0}\r\n", size),
}
"""What the trouble is -> its maker."""
