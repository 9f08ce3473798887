"""The tokenizer: a Message to the tokens that are counted. FEATURES is the table of token families.

Guarantee: it never raises; a token is valid UTF-8, without control characters of ASCII.
In the families `header` and `text` a word of a header field contains a colon and a word of the text does not; only the
bare name of a field may also be a word of a text. A phrase of the header begins with ^; one of the text does so only if
its first word does.

Measured on trec07p 1-30,000 / SpamAssassin / CSDMC, 1-ROCA%: body words alone .219/.297/.273; with all header words and
pairs .0159/.111/.072. HTML markup stays: removing it gained nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from spamfilter.bayes.compiled import token_helper
from spamfilter.bayes.imported import IMPORTED_TOKENS
from spamfilter.bayes.numeric_attributes import attributes
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.mail.message import Message
from spamfilter.mail.text import cut

Token = bytes
Tokens = Mapping[Token, int]
"""Token -> occurrences in one message, or the value of a numeric attribute."""

TOKENIZER = 2
"""Version of the tokenizer; stored with the counts, since another version counts other tokens."""

MAX_WORD = 24
"""Bytes of the longest word. Longer ones are hashes, base64 or addresses of tracking links: their first letter and
length are enough."""

MAX_RUN = 128
"""Bytes kept of a word of a phrase: as accurate as whole words; 64 lose a little on the SpamAssassin corpus."""
MAX_PHRASED = 4_000
MIN_PHRASED = 1_500
"""Bytes of header and text together that phrases and grams are taken from, and of the text at least."""
HEADER_PHRASE = b"^"
GRAM = 5
"""Characters of a gram."""
READ = frozenset((
    "subject", "from", "to", "cc", "reply-to", "sender", "organization", "comments", "keywords", "thread-topic",
    "list-id", "content-description", "content-disposition",
))  # fmt: skip
"""Fields of which people read the words, in a list of mail or at its top."""

MARKUP = ("<", ">", '="', "{", "}")
"""What words have that stand in HTML and style sheets, and that nobody sees."""

_WORD_BYTES = b"0123456789abcdefghijklmnopqrstuvwxyz'$_-" + bytes(range(0x80, 0x100))
_TO_WORDS = bytes(
    ord(chr(byte).lower()) if byte < 0x80 and chr(byte).lower().encode() in _WORD_BYTES
    else byte if byte >= 0x80 else 0x20
    for byte in range(256)
)  # fmt: skip
# Printable ASCII and all beyond it stays, the rest separates.
_TO_RUNS = bytes(byte if 33 <= byte <= 126 or byte >= 128 else 0x20 for byte in range(256))
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
            if last:
                yield prefix + last + b" " + word
            yield prefix + word
            last = word


def phrases(message: Message) -> Iterator[Token]:
    """Words as they are written, each with the pair that it begins, across line ends too; those of the header have ^.

    On the SpamAssassin corpus a ^ for the header is a little more accurate when the mail changes suddenly and with
    wrong labels, and elsewhere as accurate as none.
    """
    for mark, part in zip((HEADER_PHRASE, b""), _phrased(message), strict=True):
        runs = _runs(part)
        for run, follower in zip_longest(runs, runs[1:]):
            yield mark + run
            if follower is not None:
                yield mark + run + b" " + follower


def grams(message: Message) -> Iterable[Token]:
    """All sequences of GRAM characters of header and text, as they are written."""
    text = b"\n\n".join(_phrased(message)).translate(_TO_RUNS).decode("utf-8", "replace")
    return [text[start : start + GRAM].encode() for start in range(len(text) - GRAM + 1)]


def _phrased(message: Message) -> tuple[bytes, bytes]:
    return message.head, cut(message.text, max(MIN_PHRASED, MAX_PHRASED - len(message.head)))


def _runs(text: bytes) -> list[bytes]:
    runs = text.translate(_TO_RUNS).split()
    return [run if len(run) <= MAX_RUN else cut(run, MAX_RUN) for run in runs]


def is_read(token: str) -> bool:
    """Whether people read such words: those of the text but markup, and of the fields that mail programs show.

    >>> tokens = "money", "subject:money", "received:mail", "^with ESMTP", "<td width=9>", "p{margin:0}"
    >>> [is_read(token) for token in tokens]
    [True, True, False, False, False, False]
    """
    field, colon, _ = token.partition(":")
    if colon and field.islower() and field.replace("-", "").isalnum():
        return field in READ
    return not (token.startswith(HEADER_PHRASE.decode()) or any(sign in token for sign in MARKUP))


FEATURES: dict[str, Callable[[Message], Iterable[Token] | Tokens]] = {
    "header": header,
    "text": lambda message: words(message.text),
    "shown": lambda message: words(message.shown),
    "phrases": phrases,
    "grams": grams,
    "attributes": attributes,
    **IMPORTED_TOKENS,
}
"""Family -> its tokens of a message; of `shown` they are the words of the text as a reader sees it."""


def tokenize(message: Message, families: Sequence[str]) -> Tokens:
    """The tokens of these families of FEATURES together, with their occurrences."""
    if token_helper is not None and COMPILED.keys() >= set(families):
        parts = tuple(part for family in families for part in COMPILED[family](message))
        return TokenArrays.of_parts(*token_helper.find(parts))
    found: Counter[Token] = Counter()
    for family in families:
        found.update(FEATURES[family](message))
    return found


_FIELDS, _WORDS, _HEADER_PHRASES, _PHRASES = range(4)
"""Kinds of parts, as in compiled/tokens.c."""
Part = tuple[int, tuple[Any, ...] | bytes]

COMPILED: dict[str, Callable[[Message], tuple[Part, ...]]] = {
    "header": lambda message: ((_FIELDS, message.fields), (_FIELDS, message.part_fields)),
    "text": lambda message: ((_WORDS, message.text),),
    "shown": lambda message: ((_WORDS, message.shown),),
    "phrases": lambda message: tuple(zip((_HEADER_PHRASES, _PHRASES), _phrased(message), strict=True)),
}
"""Families that the compiled helper finds -> the parts of a message that have their tokens, each with its kind."""
