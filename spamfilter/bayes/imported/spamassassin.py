"""The words of SpamAssassin's Bayes, by their hashes: its database has only the last five bytes of SHA-1 of each word.

No word can be read out of such a database, but the words of a mail can be hashed and looked up in it.
"""

import hashlib
import re
from collections.abc import Iterator

from spamfilter.mail.message import Message

SHORTEST, LONGEST, KEPT = 3, 15, 7
"""Bytes of a word that is kept; of a longer one KEPT characters."""
_RUNS = re.compile(rb"[A-Za-z0-9,@*!_'\"$.\x80-\xff -]+")
_DOTS = re.compile(rb"(\w)(\.{3,6}|-{2,6})(\w)")
_TITLE = re.compile(rb"(?:^|\.\s+)([A-Z])([^A-Z]+)(?:\s|$)")
_COMMON = frozenset(
    b"able already all and any are because both can come each email even few first for from give has have http info"
    b" information into it's just know like long look made mail mailing mailto make many more most much need not now"
    b" number off one only out own people place right same see such that this through the time using web where why"
    b" with without work world year years you your you're".split()
)
"""English words that SpamAssassin leaves out."""
_NOT_WORD = re.compile(rb"[^\w:*]")
_HOST = re.compile(rb"\S\.[A-Za-z]")
_LINK = re.compile(rb"(?i)\b(?:https?|ftp)://[^\s<>\"']+")
_TAG = re.compile(rb"(?is)<!--.*?(?:-->|\Z)|<(style|script)\b.*?(?:</\1\s*>|\Z)|<[/a-z!?][^>]{0,2000}>")
_SHORT_NAMES = {
    b"Message-ID": b"*M", b"Message-Id": b"*m", b"Received": b"*r", b"User-Agent": b"*u", b"References": b"*f",
    b"In-Reply-To": b"*i", b"From": b"*F", b"Reply-To": b"*R", b"Return-Path": b"*p", b"Return-path": b"*rp",
    b"X-Mailer": b"*x", b"X-Authentication-Warning": b"*a", b"Organization": b"*o", b"Organisation": b"*o",
    b"Content-Type": b"*ct", b"Content-Disposition": b"*cd", b"Content-Transfer-Encoding": b"*ce",
}  # fmt: skip
"""Name of a field, as it is written, -> what its words begin with."""
_OWN_RELAYS, _OTHER_RELAYS = (b"*RT", b"x-spam-relays-internal"), (b"*RU", b"x-spam-relays-external")
"""What the words begin with of the hosts that have handed the mail on, within the own network and before it."""
_TOGETHER = {
    b"message-id": b"*MI", b"in-reply-to": b"*MI", b"references": b"*MI", b"from": b"*Ad", b"to": b"*Ad", b"cc": b"*Ad",
    b"x-mailer": b"*UA", b"user-agent": b"*UA",
}  # fmt: skip
_IGNORED = re.compile(
    rb"subject|date|(x-)?sender|delivered-to|delivery-date|(x-)?envelope-to|x-list.*|(x-)?mailing-list|(x-)?list-.*|x-loop"
    rb"|x-mailman-version|x-beenthere|mail-followup-to|(x-)?(resent|original)-(from|to|date)|x-spam.*|content-class"
    rb"|thread-(index|topic)|x-originalarrivaltime|lines|xref|(x-)?status|x-keywords|x-uidl?|content-length"
)
_PRESENCE = re.compile(
    rb"x-face|d(kim|omainkey)-signature|x-google-dkim-signature|arc-(message-signature|seal)|autocrypt"
)
_ADDRESSED = re.compile(rb"(x-|resent-)?(return-path|from|to|cc|reply-to|errors-to|sender)")
_ADDRESS = re.compile(rb"(?:\"([^\"]*)\"\s{0,9}|([^<>,\"]{0,100}))<([^<>]*)>|([^\s,<>\"]+@[^\s,<>\"]+)")
_DATE = re.compile(
    rb"(?:\w{3},\s+)?[0-3\s]?[0-9]\s+\w{3}\s+\d{2,4}\s+\d\d(?::\d\d){1,2}\s*(?:[+-]\d{4})?\s*(?:\(\w+\))?"
)
_ID = re.compile(rb"\bid\s[a-zA-Z0-9-]{7,20}\b")
_IP = re.compile(rb"\b(\d{1,3}\.\d{1,3}\.\d{1,3})(\.\d{1,3})\b")
_USUAL = re.compile(rb"\b(?:with|from|for|SMTP|ESMTP)\b")
_BOUNDARY = re.compile(rb"(?i)boundary=\"(.*?)\"")
_NAME = re.compile(rb"(?m)^([!-9;-~]+):")
_OUTLOOK_ID = re.compile(rb"<([0-9a-f]{4})[0-9a-f]{8}\$([0-9a-f]{4})[0-9a-f]{4}\$([0-9a-f]{8})@")
_OF_RELAY = re.compile(
    rb"^from\s+(\S+)|\((?:HELO\s+|helo=)([\w.-]+)|\(([\w.-]+)\s+(?=\[)|[\[(](\d{1,3}(?:\.\d{1,3}){3})[])]"
    rb"|\bby\s+(\S+)|\bid\s+([^\s;]+)"
)
"""What the host calls itself and is called, its address, who took the mail, and under which number."""
_ADDRESS_OF_RELAY = re.compile(rb"(?:^from\s+|[\[(])(\d{1,3}(?:\.\d{1,3}){3})\b")
_PRIVATE = re.compile(rb"10\.|127\.|192\.168\.|169\.254\.|172\.(?:1[6-9]|2\d|3[01])\.")


def hashed(word: bytes) -> bytes:
    """The hash of a word as a dump has it, in hexadecimal digits."""
    return hashlib.sha1(word, usedforsecurity=False).hexdigest()[-10:].encode()


def tokens(message: Message) -> Iterator[bytes]:
    """The hashes of the words."""
    return map(hashed, set(words(message)))


def words(message: Message) -> Iterator[bytes]:
    """The words, before they are hashed."""
    subject = b" ".join(value for name, value in message.fields if name == b"subject")
    text = b"\n\n".join((message.shown, _TAG.sub(b" ", message.text)))  # either may have read further
    for line in (subject, *re.split(rb"\n\s*\n", text)):
        yield from _of_line(b" ".join(line.split()), b"", True)
    for link in _LINK.findall(message.text):
        yield from _of_line(link, b"", True, uncut=True)
    for prefix, value in _header(message).items():
        yield from _of_line(value, b"H%s:" % prefix, False)


def _header(message: Message) -> dict[bytes, bytes]:
    """Prefix -> the values of the fields with it."""
    found: dict[bytes, list[bytes]] = {}
    written = {name.lower(): name for name in reversed(_NAME.findall(message.head))}  # those of the parts come last
    received = [value for name, value in message.fields if name == b"received"]
    prefixes = _OWN_RELAYS
    fetched = max((at for at, value in enumerate(received, 1) if b"fetchmail" in value), default=0)
    for value in received[fetched:]:
        address = _ADDRESS_OF_RELAY.search(value)
        if address:
            prefixes = _OWN_RELAYS if prefixes is _OWN_RELAYS and _PRIVATE.match(address[1]) else _OTHER_RELAYS
            relay = b" ".join(b"".join(words) for words in _OF_RELAY.findall(value))
            for prefix in prefixes:
                found.setdefault(prefix, []).append(relay)
    fields = [field for field in message.fields if field[0] != b"received" and not _IGNORED.fullmatch(field[0])]
    for name, value in (*fields, *((b"received", value) for value in received[-2:])):
        as_written = written.get(name) or b"-".join(map(bytes.capitalize, name.split(b"-")))
        if name == b"message-id":
            value = re.sub(rb"[^_A-Za-z0-9]", b" ", _OUTLOOK_ID.sub(rb" OEA\1 OEB\2 OEC\3 ", value))
        elif _ADDRESSED.fullmatch(name):
            value = b" ".join(_of_addresses(value))
        elif name == b"received":
            value = _USUAL.sub(b" ", _IP.sub(rb"\1 ip*\1\2 ", _DATE.sub(b"", _ID.sub(b" ", value))))
        elif as_written == b"Content-Type":
            value = _of_content_type(value)
        elif as_written == b"MIME-Version":
            value = value.replace(b"1.0", b"")
        elif _PRESENCE.fullmatch(name):
            value = b"1"
        together = (_TOGETHER[name],) if name in _TOGETHER else ()
        for prefix in (*together, _SHORT_NAMES.get(as_written, as_written)):
            found.setdefault(prefix, []).append(value)
    return {prefix: b" ".join(values) for prefix, values in found.items()}


def _of_content_type(value: bytes) -> bytes:
    boundary = _BOUNDARY.search(value)
    if boundary:
        digits = re.sub(rb"[a-fA-F0-9]", b"H", boundary.group(1))
        value = _BOUNDARY.sub(b" ", value) + re.sub(rb"([-_.=]+)", rb" \1 ", digits)
    return re.sub(rb"\b(?:text|charset)\b", b" ", value)


def _of_addresses(value: bytes) -> Iterator[bytes]:
    for quoted, plain, bracketed, bare in _ADDRESS.findall(value):
        yield from (b"N*" + word for word in (quoted or plain).split())
        yield from _of_address(bracketed or bare)


def _of_address(address: bytes) -> Iterator[bytes]:
    user, at, domain = address.rpartition(b"@")
    if not (at and user and domain):
        return
    yield b"U*" + user
    yield b"D*" + domain
    while b"." in domain[1:]:
        domain = domain.partition(b".")[2]
        yield b"D*" + domain


def _of_line(text: bytes, prefix: bytes, is_body: bool, uncut: bool = False) -> Iterator[bytes]:
    text = b" ".join(_RUNS.findall(text))
    text = _DOTS.sub(rb"\1 \2 \3", text)
    if is_body:
        text = _TITLE.sub(lambda match: b" " + match.group(1).lower() + match.group(2) + b" ", text)
    for word in text.split():
        word = word.strip(b"-'\".,")
        if len(word) < SHORTEST or word.lower() in _COMMON:
            continue
        if is_body:
            if b"@" in word[1:-1]:
                yield from _of_address(word)
            elif _HOST.search(word):
                yield b"UD:" + word
                rest = word
                while b"." in rest[1:-1]:
                    rest = rest.partition(b".")[2]
                    yield b"UD:" + rest
        if len(word) > LONGEST and b"*" not in word and not uncut:
            word = b"sk:" + word.decode("utf-8", "ignore")[:KEPT].encode()
        if is_body:
            yield prefix + _NOT_WORD.sub(b"", word)
            yield prefix + word.lower()
            yield prefix + _NOT_WORD.sub(b"", word.lower())
        yield prefix + word
