"""A Message to tokens: the words that the counts are kept for.

Guarantee: never raises; a token is valid UTF-8, without line breaks. A word of a header field holds
a colon, a word of the text does not; only the bare name of a field may also be a word of a text.

FEATURES is the table of token families; a view of a message is a choice of them.
Measured on trec07p 1-30,000 / SpamAssassin / CSDMC, 1-ROCA%: body words alone .219/.297/.273; with
all header words and pairs .0159/.111/.072. HTML markup stays: removing it gained nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from spamfilter.message import Message

Token = bytes
Tokens = Mapping[Token, int]
"""Token -> occurrences in one message; a likelihood that wants presence looks at the keys."""

TOKENIZER = 1
"""Version of these rules; stored with the counts, since counts of other rules mean other words."""

MAX_WORD = 24
"""Longer runs are hashes, base64 or addresses of tracking links: their first letter and length serve."""

_WORD_BYTES = b"0123456789abcdefghijklmnopqrstuvwxyz'$_-" + bytes(range(0x80, 0x100))
_TO_WORDS = bytes(
    ord(chr(byte).lower()) if byte < 0x80 and chr(byte).lower().encode() in _WORD_BYTES
    else byte if byte >= 0x80 else 0x20
    for byte in range(256)
)  # fmt: skip
# U+3040-9FFF and U+AC00-D7AF in UTF-8: scripts without spaces, where each character is a word.
_CJK = re.compile(
    rb"\xe3[\x81-\xbf][\x80-\xbf]|[\xe4-\xe9][\x80-\xbf]{2}"
    rb"|\xea[\xb0-\xbf][\x80-\xbf]|[\xeb\xec][\x80-\xbf]{2}|\xed(?:[\x80-\x9d][\x80-\xbf]|\x9e[\x80-\xaf])"
)


def words(text: bytes) -> list[bytes]:
    """Maximal runs of letters, digits, ' $ _ - and everything beyond ASCII, in lower case.

    >>> words(b"Buy NOW: 100% free, it's $5")
    [b'buy', b'now', b'100', b'free', b"it's", b'$5']
    """
    if not text.isascii():
        text = _CJK.sub(rb"\g<0> ", text)
    found = text.translate(_TO_WORDS).split()
    if len(text) > MAX_WORD:
        found = [word if len(word) <= MAX_WORD else _abridged(word) for word in found]
    return found


def _abridged(word: bytes) -> bytes:
    return word.decode()[0].encode() + b"~%d" % (len(word) // 10)


def header(message: Message) -> Iterator[Token]:
    """`name`, `name:word` and `name:word1 word2` for each field of the mail and of its parts."""
    for name, value in (*message.fields, *message.part_fields):
        yield name
        prefix = name + b":"
        last = b""
        for word in words(value):
            yield prefix + word
            if last:
                yield prefix + last + b" " + word
            last = word


def body(message: Message) -> Iterable[Token]:
    """The words of the text."""
    return words(message.text)


FEATURES: dict[str, Callable[[Message], Iterable[Token]]] = {"header": header, "body": body}


def tokenize(message: Message, features: Iterable[str] = tuple(FEATURES)) -> Tokens:
    """The tokens of a message with their occurrences, for the named families of FEATURES."""
    tokens: Counter[Token] = Counter()
    for name in features:
        tokens.update(FEATURES[name](message))
    return tokens
