"""Text in the charset that a mail declares becomes UTF-8, whatever is declared."""

import base64
import codecs
import encodings.aliases
import itertools
import pkgutil
from contextlib import suppress

import pytest

from spamfilter.mail import charsets
from spamfilter.mail.message import parse

CODECS = sorted(
    name for name in set(encodings.aliases.aliases.values()) | {"idna", "punycode", "undefined"} if name != "mbcs"
)
NO_CHARSETS = {"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"}


@pytest.mark.parametrize("charset", ["unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape"])
def test_a_codec_of_python_that_is_no_charset_leaves_the_text_as_it_is(charset: str) -> None:
    message = parse(f"Content-Type: text/plain; charset={charset}\n\n".encode() + b"\\u0041 \\x41 \\c caf\xc3\xa9")
    assert message.text == "\\u0041 \\x41 \\c café".encode()


def asked(name: str) -> str | None:
    """Python's codec of this name, if it is a charset of mail other than ASCII and UTF-8."""
    with suppress(LookupError):
        codec = codecs.lookup("gb18030" if name.lower() in ("gb2312", "gbk") else name)
        if codec._is_text_encoding and codec.name not in charsets._NOT_OF_MAIL:
            return codec.name
    return None


def test_other_names_are_of_charsets_that_python_has_and_stand_for_nothing_else() -> None:
    for name, codec in charsets._OTHER_NAMES.items():
        assert charsets._codec(name.encode()) == asked(codec) is not None
        if (theirs := asked(name)) is not None:  # later versions of Python know some
            for pair in map(bytes, itertools.product(range(256), repeat=2)):
                with suppress(UnicodeDecodeError):
                    assert pair.decode(theirs) == pair.decode(codec), (name, pair)


def test_a_charset_is_found_as_python_finds_it() -> None:
    """In any spelling; but not codecs that are no charsets."""
    modules = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    known = {*encodings.aliases.aliases, *modules - NO_CHARSETS} - charsets._OTHER_NAMES.keys()
    names = [*sorted(known), "no-such", "", ".."]
    forms = [
        form for name in names for form in (name, name.upper(), *(name.replace("_", by) for by in ("-", ".", "! ")))
    ]
    assert [charsets._codec(form.lower().encode()) for form in forms] == [asked(form) for form in forms]


@pytest.mark.parametrize("charset", CODECS)
def test_no_declared_charset_makes_it_fail(charset: str) -> None:
    for raw in (bytes(range(1, 256)), b"\x1b$(D~{~}+AA-\xff" * 9, b"+\xff-\x80" * 9, b"\xe4\xb8"):
        header = b"Subject: =?%s?b?%s?=\n" % (charset.encode(), base64.b64encode(raw))
        declared = b"Content-Type: text/plain; charset=%s\n\n" % charset.encode()
        parse(header + declared + raw).text.decode("utf-8")


@pytest.mark.parametrize(
    ("content_type", "raw", "text"),
    [
        pytest.param("text/plain", "grün".encode(), "grün", id="undeclared-utf-8"),
        pytest.param("text/plain", "grün".encode("latin-1"), "grün", id="undeclared-latin-1"),
        pytest.param("text/plain; charset=us-ascii", "grün".encode("latin-1"), "grün", id="ascii-that-is-latin-1"),
        pytest.param("text/plain; charset=utf-8", "grün".encode("latin-1"), "grün", id="utf-8-that-is-latin-1"),
        pytest.param(
            "text/plain; charset=utf-8",
            "да нет".encode() + b"\xff",
            "да нет\N{REPLACEMENT CHARACTER}",
            id="one-odd-byte",
        ),
        pytest.param("text/plain; charset=no-such", "grün".encode(), "grün", id="unknown-that-is-utf-8"),
        pytest.param('text/plain; CHARSET="KOI8-R"', "да".encode("koi8-r"), "да", id="quoted-upper-case"),
        pytest.param("text/plain; charset='iso-8859-2'", "ł".encode("iso-8859-2"), "ł", id="single-quotes"),
        pytest.param("text/plain; charset = koi8-r", "да".encode("koi8-r"), "да", id="spaces-around-equals"),
        pytest.param("text/plain; charset*=''koi8-r", "да".encode("koi8-r"), "да", id="as-in-rfc-2231"),
        pytest.param("text/plain; charset=gbk", "中〇".encode("gb18030"), "中〇", id="gbk-as-gb18030"),
        pytest.param("text/plain; charset=GB2312", "€".encode("gb18030"), "€", id="gb2312-as-gb18030"),
        pytest.param("text/plain; charset=iso-2022-jp", "日本".encode("iso-2022-jp"), "日本", id="seven-bit-japanese"),
        pytest.param("text/plain; charset=utf-7", b"+ZeU-", "日", id="utf-7"),
        pytest.param("text/plain; charset=csISO2022JP", "日本".encode("iso-2022-jp"), "日本", id="another-name-of-it"),
        pytest.param("text/plain; charset=unicode-1-1-utf-7", b"+ZeU-", "日", id="another-name-of-utf-7"),
        pytest.param("text/plain; charset=iso-8859-8-i", "כסף".encode("iso-8859-8"), "כסף", id="hebrew-of-outlook"),
        pytest.param("text/plain; charset=windows-874", "ไทย".encode("cp874"), "ไทย", id="thai-of-outlook"),
        pytest.param("text/plain; charset=x-sjis", "日本".encode("cp932"), "日本", id="older-japanese"),
        pytest.param("text/plain; charset=CP50221", "日本".encode("iso-2022-jp"), "日本", id="japanese-of-windows"),
        pytest.param("text/plain; charset=big5", b"\xff", "\N{REPLACEMENT CHARACTER}", id="undecodable"),
        pytest.param("text/plain; charset=base64", b"abc", "abc", id="a-codec-of-bytes"),
        pytest.param("text/plain; charset=\0", b"caf\xc3\xa9", "café", id="nul"),
    ],
)
def test_text_becomes_utf_8_by_its_charset(content_type: str, raw: bytes, text: str) -> None:
    assert parse(f"Content-Type: {content_type}\n\n".encode() + raw).text.decode() == text
