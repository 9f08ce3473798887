"""What lists, mail systems and mail programs do to a mail on its way: ALTERATIONS, each a function of its bytes.

Mails have line ends of the wire. Each alteration leaves what the mail says, to a reader, as it was.
"""

import base64
import email
import quopri
import re
from collections.abc import Callable, Iterator
from email.message import Message

FOOTER = (
    b"_______________________________________________\r\nBirds mailing list -- birds@lists.example.org\r\n"
    b"To unsubscribe send an email to birds-leave@lists.example.org\r\nhttps://lists.example.org/birds.lists/\r\n"
)
BANNER = "CAUTION: this message came from outside of the organisation. Do not click links you do not know.\n\n"
ADDED = (
    b"Received: from list.example.org (list.example.org [192.0.2.25]) by mx.example.net (Postfix)\r\n"
    b"\twith ESMTPS id 4XyZ1234 for <reader@example.net>; Mon,  2 Mar 2026 08:00:00 +0000 (UTC)\r\n"
    b"Delivered-To: reader@example.net\r\nReturn-Path: <birds-bounces@lists.example.org>\r\n"
    b"Authentication-Results: mx.example.net; dkim=pass header.d=example.org; spf=pass\r\n"
    b"DKIM-Signature: v=1; a=rsa-sha256; d=lists.example.org; s=k1; h=from:to:subject;\r\n"
    b"\tbh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=; b=aGVsbG8gd29ybGQ=\r\n"
    b"List-Id: Birds <birds.lists.example.org>\r\nPrecedence: list\r\nX-Mailman-Version: 3.3.3\r\n"
)
KEPT = (b"from", b"to", b"date", b"subject", b"message-id", b"mime-version", b"content-", b"x-spamfilter-id")
"""Fields that a mail program shows or needs: what a mailbox that keeps little keeps."""
LIST = (
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"===list===\"\r\n\r\n--===list===\r\n%s"
    b"\r\n--===list===\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Disposition: inline\r\n\r\n"
    + FOOTER + b"\r\n--===list===--\r\n"
)  # fmt: skip


def split(mail: bytes) -> tuple[list[bytes], bytes]:
    """The header fields, each with its line end, and the body."""
    head, _, body = mail.partition(b"\r\n\r\n")
    return re.findall(rb"[^\n]+\n(?:[ \t][^\n]*\n)*", head + b"\r\n"), body


def joined(fields: list[bytes], body: bytes) -> bytes:
    return b"".join(fields) + b"\r\n" + body


def added(mail: bytes) -> bytes:
    """Trace and list fields on top."""
    return ADDED + mail


def removed(mail: bytes) -> bytes:
    """All but what a reader sees."""
    fields, body = split(mail)
    return joined([field for field in fields if field.lower().startswith(KEPT)], body)


def traced(mail: bytes) -> bytes:
    """Another way through the network: the trace fields of the first are gone."""
    fields, body = split(mail)
    return joined(re.findall(rb"Received[^\n]*\n\t[^\n]*\n", ADDED), b"")[:-2] + joined(
        [field for field in fields if not field.lower().startswith(b"received:")], body
    )


def tagged(mail: bytes) -> bytes:
    """The subject with the tag of a list."""
    return re.sub(rb"(?im)^(subject:[ \t]*)", rb"\1[Birds] ", mail, count=1)


def unix(mail: bytes) -> bytes:
    return mail.replace(b"\r\n", b"\n")


def mbox(mail: bytes) -> bytes:
    return b"From ann@example.org Sun Mar  1 12:00:00 2026\r\n" + mail


def truncated(mail: bytes) -> bytes:
    return mail[:65_536]


def wrapped(mail: bytes) -> bytes:
    """As one part of the multipart that a list makes of it, with the list's footer as another."""
    fields, body = split(mail)
    inner = [field for field in fields if field.lower().startswith(b"content-")]
    outer = [field for field in fields if field not in inner and not field.lower().startswith(b"mime-version")]
    return b"".join(outer) + LIST.replace(b"%s", joined(inner, body))


def footed(mail: bytes) -> bytes:
    """With the footer of a list below the text, where that is plain, else as a part."""
    head = b"".join(split(mail)[0]).lower()
    if b"content-type: multipart" in head or b"base64" in head or b"content-type: text/html" in head:
        return wrapped(mail)
    return mail + FOOTER


def _texts(mail: bytes) -> tuple[Message, list[Message]]:
    message = email.message_from_bytes(mail)
    return message, [
        part for part in message.walk() if part.get_content_maintype() == "text" and not part.is_multipart()
    ]


def _bytes(message: Message) -> bytes:
    return re.sub(rb"\r?\n", b"\r\n", message.as_bytes())


def _filled(part: Message, text: bytes, encoding: str) -> None:
    del part["Content-Transfer-Encoding"]
    part["Content-Transfer-Encoding"] = encoding
    coded = base64.encodebytes(text) if encoding == "base64" else quopri.encodestring(text)
    part.set_payload(coded.decode("ascii"))


def recoded(encoding: str) -> Callable[[bytes], bytes]:
    """Each text in another transfer encoding."""

    def alter(mail: bytes) -> bytes:
        message, texts = _texts(mail)
        for part in texts:
            _filled(part, _decoded(part), encoding)
        return _bytes(message)

    return alter


def _decoded(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload


def _text(part: Message) -> str:
    raw = _decoded(part)
    try:
        return raw.decode(part.get_content_charset("utf-8"))
    except (LookupError, UnicodeDecodeError):
        return raw.decode("latin-1")


def recharset(mail: bytes) -> bytes:
    """Each text in another charset: UTF-8, or what was UTF-8 already in UTF-16."""
    message, texts = _texts(mail)
    for part in texts:
        other = "utf-16" if part.get_content_charset() == "utf-8" else "utf-8"
        text = _text(part)
        part.set_param("charset", other)
        _filled(part, text.encode(other, "replace"), "base64")
    return _bytes(message)


def warned(mail: bytes) -> bytes:
    """A gateway's banner above each text."""
    message, texts = _texts(mail)
    for part in texts:
        text = _text(part)
        part.set_param("charset", "utf-8")
        _filled(part, (BANNER + text).encode("utf-8", "replace"), "quoted-printable")
    return _bytes(message)


def plain(mail: bytes) -> bytes:
    """Of a text in several forms the first alone, as lists do that want no HTML."""
    message, _ = _texts(mail)
    for part in list(_alternatives(message)):
        first = part.get_payload(0)
        assert isinstance(first, Message)
        if not first.is_multipart():
            del part["Content-Type"]
            part["Content-Type"] = first.get("Content-Type", "text/plain")
            _filled(part, _decoded(first), "base64")
    return _bytes(message)


def _alternatives(message: Message) -> Iterator[Message]:
    for part in message.walk():
        if part.get_content_type() == "multipart/alternative" and part.is_multipart():
            yield part


ALTERATIONS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda mail: mail,
    "fields-added": added,
    "fields-removed": removed,
    "another-trace": traced,
    "subject-tagged": tagged,
    "unix-line-ends": unix,
    "mbox-line": mbox,
    "truncated": truncated,
    "wrapped-by-a-list": wrapped,
    "footer": footed,
    "quoted-printable": recoded("quoted-printable"),
    "base64": recoded("base64"),
    "quoted-printable-then-base64": lambda mail: recoded("base64")(recoded("quoted-printable")(mail)),
    "another-charset": recharset,
    "banner": warned,
    "without-html": plain,
    "all-of-a-list": lambda mail: added(wrapped(tagged(recoded("base64")(traced(mail))))),
}
