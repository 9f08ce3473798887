"""Converts text in the charset that a mail declares to UTF-8.

Guarantee: never raises, takes linear time, and keeps memory bounded, whatever charsets mails declare.
"""

import codecs
import encodings.aliases
import functools
import re

# All charsets of Python, of which some have no alias; without its other codecs, of which two take quadratic time.
# Only these names are looked up: Python searches the disk for an unknown one, and keeps it in memory for ever.
_CODECS = frozenset((
    *encodings.aliases.aliases, *encodings.aliases.aliases.values(),
    "charmap", "cp1006", "cp720", "cp737", "cp856", "cp874", "cp875", "koi8_t", "koi8_u", "mac_arabic", "mac_croatian",
    "mac_farsi", "mac_romanian", "palmos", "utf_8_sig",
))  # fmt: skip
# Read as UTF-8, like ASCII: mail programs hardly know EBCDIC and UTF-32, which would hide a text from the filter.
_NOT_OF_MAIL = frozenset((
    "ascii", "utf-8", "utf-32", "utf-32-be", "utf-32-le",
    "cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140",
))  # fmt: skip
_OTHER_NAMES = {
    "iso_8859_6_e": "iso8859_6", "iso_8859_6_i": "iso8859_6", "iso_8859_8_e": "iso8859_8", "iso_8859_8_i": "iso8859_8",
    "windows_874": "cp874", "dos_874": "cp874", "koi8_ru": "koi8_u", "x_mac_roman": "mac_roman",
    "x_mac_cyrillic": "mac_cyrillic", "x_cp1250": "cp1250", "x_cp1251": "cp1251", "x_cp1252": "cp1252",
    "x_sjis": "cp932", "windows_31j": "cp932", "cswindows31j": "cp932", "x_euc_jp": "euc_jp",
    "iso_2022_jp_ms": "iso2022_jp_ext", "cp50220": "iso2022_jp_ext", "cp50221": "iso2022_jp_ext",
    "windows_949": "cp949", "x_windows_949": "cp949", "cseuckr": "cp949", "ks_c_5601_1989": "cp949",
    "x_gbk": "gbk", "csgb2312": "gbk", "cn_gb": "gbk", "windows_936": "gbk", "cn_big5": "big5", "x_x_big5": "big5",
}  # fmt: skip
"""Names that mail has, as Hebrew and Thai of Outlook, and that Python 3.11 lacks; most are in the Encoding Standard of
browsers (https://encoding.spec.whatwg.org), which mail programs follow."""
_OF_ASCII = ("iso2022", "utf-7", "utf-16", "hz")
"""How the codecs begin in which bytes of ASCII are other letters."""
_BEYOND_ASCII = bytes(range(0x80, 0x100))
# Chinese as GB2312 writes it: two characters or more, and no byte beyond ASCII alone.
_PAIRS = re.compile(rb"(?:[\x00-\x7f]*[\xa1-\xa9\xb0-\xf7][\xa1-\xfe]){2,}[\x00-\x7f]*")
# Replaces what separates the parts of a charset's name, as in encodings.normalize_encoding, by blanks.
_TO_CODEC = bytes(byte if byte < 0x80 and (chr(byte).isalnum() or byte == 0x2E) else 0x20 for byte in range(256))


def to_utf8(raw: bytes, charset: bytes) -> bytes:
    """The text in UTF-8. If the charset is unknown, ASCII or UTF-8: read as UTF-8, and if it is not, as Latin-1.

    A few bytes that are no UTF-8 do not make it another charset: a text may be cut within a character, or broken so
    that a filter cannot read what a reader sees.
    """
    codec = _codec(charset.lower())
    if raw.isascii() and not (codec and codec.startswith(_OF_ASCII)):
        return raw
    if codec:
        return raw.decode(codec, "replace").encode("utf-8", "replace")
    text = _strictly(raw)
    return (_mostly(raw) if text is None else text).encode()


def undeclared_to_utf8(raw: bytes, likely: bytes) -> bytes:
    """Text in UTF-8 of which nothing says in what charset it is, as the headers of much spam are.

    UTF-8 if it is that, which other text hardly ever is; else in the charset `likely`; else GB18030 where it looks
    like Chinese; else Latin-1.
    """
    for codec in ("", _codec(likely.lower())):
        if codec is not None and (text := _strictly(raw, codec)) is not None:
            return text.encode("utf-8", "replace")
    return to_utf8(raw, b"gb18030" if _PAIRS.fullmatch(raw) else b"")


def _mostly(raw: bytes) -> str:
    """Read as UTF-8, or as Latin-1 if it has no more characters of UTF-8 beyond ASCII than bytes that are none."""
    text = raw.decode("utf-8", "replace")
    odd = text.count("\ufffd")
    whole = len(text) - len(raw.translate(None, _BEYOND_ASCII)) - odd
    return text if odd < whole else raw.decode("latin-1")


def _strictly(raw: bytes, codec: str = "") -> str | None:
    """The text, None if it is not of this codec. Without one it is UTF-8, whose last character may have been cut."""
    try:
        return raw.decode(codec) if codec else codecs.utf_8_decode(raw, "strict", False)[0]
    except UnicodeDecodeError:
        return None


@functools.lru_cache(maxsize=512)
def _codec(charset: bytes) -> str | None:
    """The codec for a declared charset; None for an unknown one, and those read as UTF-8."""
    name = b"_".join(charset.translate(_TO_CODEC).split()).decode()
    name = _OTHER_NAMES.get(name, name)
    if _CODECS.isdisjoint((name, name.replace(".", "_"))):
        return None
    if name in ("gb2312", "gbk"):
        name = "gb18030"  # a superset of both, which such mail uses
    try:
        codec = codecs.lookup(name)
    except LookupError:  # exists on other systems only
        return None
    if codec.name in _NOT_OF_MAIL or not codec._is_text_encoding:
        return None
    return codec.name
