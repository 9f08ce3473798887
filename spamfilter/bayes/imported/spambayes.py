"""The words of SpamBayes 1.1: those of the text in lower case with punctuation, and clues about addresses and links."""

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

from spamfilter.mail.message import Message

SHORTEST, LONGEST = 3, 12
"""Characters of a word that is kept as it is; of a longer one the first letter and the length, in tens."""
_SUBJECT_WORDS = re.compile(rb"[\w\x80-\xff$.%]+")
_PUNCTUATION = re.compile(rb"[^\w\x80-\xff]+")
_ADDRESSES = (b"from", b"to", b"cc", b"sender", b"reply-to")
_ADDRESS = re.compile(rb"(?:\"([^\"]*)\"\s{0,9}|([^<>,\"]{0,100}))<([^<>]*)>|([^\s,<>\"]+@[^\s,<>\"]+)")
_MESSAGE_ID = re.compile(rb"\s*<[^@]+@([^>]+)>\s*")
_LINK = re.compile(rb"(https?|ftp)://([^\s<>\"'\x7f-\xff]+)")
_BETWEEN = re.compile(rb"[;?:@&=+,$.]")
_NO_TEXT = re.compile(rb"(?s)<style\b.*?(?:</style>|\Z)|<!--.*?(?:-->|\Z)")
_BREAKS = re.compile(rb"&nbsp;|<(?:p|br)>")
_VIRUS = re.compile(rb"</?\s*(?:script|iframe)\b|\bsrc=['\"]?cid:|\b(?:height|width)=['\"]?0")
_TAG = re.compile(rb"<(?![\s<>])[^>]{0,256}>")
_SAFE = frozenset(
    b"abuse-reports-to date errors-to from importance in-reply-to message-id mime-version organization"
    b" received reply-to return-path subject to user-agent x-abuse-info x-complaints-to x-face".split()
)
MOST = 160
"""Bytes of a word that is looked up: no two mails share a longer one."""
_HEADER = b"header:"
_PART_FIELDS = (b"content-type", b"content-disposition")


def counted(word: bytes) -> bytes:
    """A word of a dump as `tokens` spells it: names of fields in lower case, as a Message has them."""
    return word.lower() if word.startswith(_HEADER) else word


def tokens(message: Message) -> Iterator[bytes]:
    """The words, some of them more than once; without those beyond MOST, as a whole header field may be, and those that
    _ADDRESS has cut within a letter."""
    return (word for word in _tokens(message) if len(word) <= MOST and word.decode("utf-8", "ignore").encode() == word)


def _tokens(message: Message) -> Iterator[bytes]:
    fields: dict[bytes, list[bytes]] = {}
    for name, value in message.fields:
        fields.setdefault(name, []).append(value)
    if b"content-type" not in fields:
        yield b"content-type:text/plain"
    for name, value in (*message.fields, *message.part_fields):
        if name in _PART_FIELDS:
            yield from _content(name, value)
    for value in fields.get(b"subject", [b""])[:1]:
        yield from (b"subject:" + part for word in _SUBJECT_WORDS.findall(value) for part in _word(word))
        yield from (b"subject:" + run for run in _PUNCTUATION.findall(value))
    for name in _ADDRESSES:
        yield from _addresses(name, fields.get(name, []))
    for name in (b"to", b"cc"):
        if number := sum(value.count(b",") + 1 for value in fields.get(name, [])):
            yield b"%s:2**%d" % (name, round(log2(number)))
    yield b"x-mailer:" + b" ".join(fields.get(b"x-mailer", [b"none"])[0].lower().split())
    match = _MESSAGE_ID.match(fields.get(b"message-id", [b""])[0])
    yield b"message-id:@" + match.group(1) if match else b"message-id:invalid"
    for name, times in Counter(name for name, _ in message.fields if name in _SAFE).items():
        yield b"%s%s:%d" % (_HEADER, name, times)
    # Either may have been read further.
    yield from _of_text(b"\n".join((message.text, message.shown)).lower())


def _content(name: bytes, value: bytes) -> Iterator[bytes]:
    """Clues of a Content-Type or a Content-Disposition."""
    kind, *parameters = (part.strip() for part in value.lower().split(b";"))
    yield b"%s:%s" % (name, kind)
    for parameter in parameters:
        key, _, said = parameter.partition(b"=")
        key, said = key.strip(), said.partition(b" ")[0].strip(b"\"' ")
        if key == b"type":
            yield b"content-type/type:" + said
        elif key == b"charset":
            yield b"charset:" + said
        elif key in (b"filename", b"name") and said:
            yield b"filename:fname:" + said
            yield from (b"filename:fname piece:" + piece for piece in re.split(rb"[^a-z0-9_]+", said))


def _addresses(name: bytes, values: list[bytes]) -> Iterator[bytes]:
    if not values:
        yield name + b":none"
    nameless = 0
    for value in values:
        for quoted, plain, bracketed, bare in _ADDRESS.findall(value):
            called = (quoted or plain).strip().lower()
            if called:
                yield b"%s:name:%s" % (name, called)
            else:
                nameless += 1
            yield from (b"%s:addr:%s" % (name, part) for part in (bracketed or bare).lower().split(b"@"))
    if nameless:
        yield b"%s:no real name:2**%d" % (name, round(log2(nameless)))


def _of_text(text: bytes) -> Iterator[bytes]:
    for clue in _VIRUS.findall(text):
        yield b"virus:" + clue
    for protocol, link in _LINK.findall(text):
        yield b"proto:" + protocol
        yield from (b"url:" + word for part in link.rstrip(b".,;:!?)").split(b"/") for word in _BETWEEN.split(part))
    text = _TAG.sub(b"", _BREAKS.sub(b" ", _NO_TEXT.sub(b" ", _LINK.sub(b" ", text))))
    for word in text.split():
        yield from _word(word)


def _word(word: bytes) -> Iterator[bytes]:
    size = len(word)
    if SHORTEST <= size <= LONGEST:
        yield word
    elif size > LONGEST:
        if size < 40 and b"." in word and word.count(b"@") == 1:
            name, _, host = word.partition(b"@")
            yield b"email name:" + name
            yield b"email addr:" + host
        else:
            # SpamBayes has the first byte, here as Latin-1, as `dumps` reads what is not UTF-8.
            yield b"skip:%s %d" % (chr(word[0]).encode(), size // 10 * 10)
