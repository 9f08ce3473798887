"""Text in the charset that a mail declares to UTF-8.

Guarantee: never raises, takes linear time, and remembers nothing of a mail for ever, whatever is declared.
"""

import codecs
import encodings.aliases
import functools

# All of Python's charsets, some of which have no alias; not those of its other codecs, of which two are quadratic.
# It looks on the disk for any name that it does not know, and remembers it for ever.
_CODECS = frozenset((
    *encodings.aliases.aliases, *encodings.aliases.aliases.values(),
    "charmap", "cp1006", "cp720", "cp737", "cp856", "cp874", "cp875", "koi8_t", "koi8_u", "mac_arabic", "mac_croatian",
    "mac_farsi", "mac_romanian", "palmos", "utf_8_sig",
))  # fmt: skip
# What separates the parts of a charset's name, as encodings.normalize_encoding has it.
_TO_CODEC = bytes(byte if byte < 0x80 and (chr(byte).isalnum() or byte == 0x2E) else 0x20 for byte in range(256))


def to_utf8(raw: bytes, charset: bytes) -> bytes:
    """The text; where the charset is none, or is ASCII or UTF-8, it is read as UTF-8, or else as Latin-1."""
    if raw.isascii() and not charset.lower().startswith((b"iso-2022", b"utf-7", b"utf-16", b"utf-32", b"hz")):
        return raw
    codec = _codec(charset.lower())
    if codec:
        return raw.decode(codec, "replace").encode("utf-8", "replace")
    try:
        # A multi-byte character may be cut in two at the end; that makes it no less UTF-8.
        return codecs.utf_8_decode(raw, "strict", False)[0].encode()
    except UnicodeDecodeError:
        return raw.decode("latin-1").encode()


@functools.lru_cache(maxsize=512)
def _codec(charset: bytes) -> str | None:
    """The codec for a declared charset, None where UTF-8 or Latin-1 must be guessed."""
    name = b"_".join(charset.translate(_TO_CODEC).split()).decode()
    if _CODECS.isdisjoint((name, name.replace(".", "_"))):
        return None
    if name in ("gb2312", "gbk"):
        name = "gb18030"  # a superset of both, and what such mail really holds
    try:
        codec = codecs.lookup(name)
    except LookupError:  # of other systems
        return None
    if codec.name in ("ascii", "utf-8") or not codec._is_text_encoding:
        return None
    return codec.name
