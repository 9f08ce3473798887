"""Letters that only look like others, as spam writes words that a filter should not know, read as what a reader sees.

Styled and full-width letters become plain ones (Unicode's NFKC), characters that are not shown go, and Cyrillic and
Greek letters that look like Latin ones become these in words that have Latin letters too.
"""

import re
from collections.abc import Iterable
from unicodedata import is_normalized, normalize

# Soft hyphen, joiners, marks of direction, invisible operators, byte order mark.
_NOT_SHOWN = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
# In the order of the Latin letters that they look like, below.
_CYRILLIC = (
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"
    "\u0430\u0435\u0455\u0456\u0458\u043e\u0440\u0441\u0443\u0445\u04bb\u0501\u051b\u051d"
)
_GREEK = (
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03b1\u03bd\u03bf\u03c1\u03c5\u03c7\u03b9"
)
_LATIN = str.maketrans(_CYRILLIC + _GREEK, "ABESIJKMHOPCTYXaesijopcyxhdqw" + "ABEZHIKMNOPTYXavopuxi")
_LOOK_ALIKE = re.compile(f"[{_CYRILLIC}{_GREEK}]")  # alone, it is looked for in a seventh of the time of the next
_MIXED = re.compile(f"[A-Za-z][{_CYRILLIC}{_GREEK}]|[{_CYRILLIC}{_GREEK}][A-Za-z]")
_WORD = re.compile(r"\w+")
_BETWEEN_WORDS = re.compile(r"[\s!-&(-,./:-?@\[-^`{-~]+")


def plain_letters(text: bytes) -> bytes:
    r"""UTF-8 text with its letters as they look.

    >>> plain_letters("\uff36\u0456agra, va\u00adlium; Москва".encode()).decode()
    'Viagra, valium; Москва'
    """
    if text.isascii():
        return text
    written = text.decode("utf-8", "replace")
    plain = written if is_normalized("NFKC", written) else normalize("NFKC", written)
    plain = _NOT_SHOWN.sub("", plain)
    if _LOOK_ALIKE.search(plain) and _MIXED.search(plain):
        plain = _WORD.sub(_as_latin, plain)
    return text if plain == written else plain.encode("utf-8", "replace")


def _as_latin(word: re.Match[str]) -> str:
    return word[0].translate(_LATIN) if _MIXED.search(word[0]) else word[0]


def as_written(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    r"""Word as it looks -> as it was written first, for the words of the fields' values in which they differ.

    >>> as_written([(b"subject", "Buy \uff36\u0456agra!".encode())]) == {"Viagra": "\uff36\u0456agra"}
    True
    """
    words = _BETWEEN_WORDS.split(b"\n".join(value for _, value in fields).decode("utf-8", "replace"))
    found: dict[str, str] = {}
    for word in words:
        plain = plain_letters(word.encode()).decode()
        if plain != word and plain.isalnum():
            found.setdefault(plain, word)
    return found
