"""The words of bogofilter 1.2.5: words of the text as they are written, those of the header with a prefix."""

import re
from collections.abc import Iterable, Iterator

from spamfilter.mail.message import Message

# bogofilter: a letter, then anything but blanks and the punctuation below; the last one no . _ ~ ' ` - either. Amounts
# of dollars and addresses of four numbers are words, too.
_NEVER = rb"\s\x00-\x1f\x7f<>;=():&%$#@+|/\\{}^\"?*,\[\]"
_BOGOFILTER = re.compile(
    rb"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|\$[0-9]+(?:\.[0-9]+)?"
    rb"|[A-Za-z\x80-\xff](?:[^" + _NEVER + rb"]*[^" + _NEVER + rb"._~'`-])?"
)
_SHORTEST, _LONGEST = 3, 30
"""Bytes of a word that bogofilter keeps."""
_TAGS = re.compile(rb"(?is)<!--.*?(?:-->|\Z)|<(?!(?:a|img|font)\b)[/a-z!?][^>]{0,2000}>|<(?:a|img|font)\b")
"""What bogofilter passes over in HTML: all but what links, images and fonts say of themselves."""
_PASSED_OVER = re.compile(rb"(?i)\b(?:id|by)\s+\S+|\bboundary=(?:\"[^\"]*\"|\S+)|\b(?:file)?name=")
_PREFIXES = {
    b"subject": b"subj:",
    b"from": b"from:",
    b"to": b"to:",
    b"cc": b"to:",
    b"bcc": b"to:",
    b"return-path": b"rtrn:",
    b"received": b"rcvd:",
}
_NAME_ALONE = frozenset((b"message-id", b"date", b"in-reply-to", b"references"))
"""Fields of which bogofilter counts the name only."""
HEADER, PART = b"head:", b"mime:"


def counted(word: bytes) -> bytes:
    """A word of a dump as `tokens` spells it: names of fields in lower case, as a Message has them."""
    return word.lower() if word.startswith((HEADER, PART)) else word


def tokens(message: Message) -> Iterator[bytes]:
    """The words, some of them more than once."""
    for name, value in message.fields:
        prefix = _PREFIXES.get(name, HEADER)
        if prefix == HEADER:
            yield HEADER + name
        if name in _NAME_ALONE:
            continue
        if prefix in (HEADER, b"rcvd:"):
            value = _PASSED_OVER.sub(b" ", value)
        yield from (counted(prefix + word) for word in _words(value))
    for name, value in message.part_fields:
        yield PART + name
        yield from (PART + word.lower() for word in _words(_PASSED_OVER.sub(b" ", value)))
    yield from _words(_TAGS.sub(b"", message.text))


def _words(text: bytes) -> Iterable[bytes]:
    found: list[bytes] = _BOGOFILTER.findall(text)
    return [word for word in found if _SHORTEST <= len(word) <= _LONGEST or word.startswith(b"$")]
