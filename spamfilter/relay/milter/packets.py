"""The milter protocol as bytes and values, without a socket: what the mail server sends, and what it is told.

A packet is its length in four bytes, a letter for the command, and data. Texts in the data end with NUL.
Source: libmilter of Sendmail 8.17, mfdef.h; Postfix MILTER_README. Version 6 is the newest; older ones down to 2 differ
by the steps that are offered.
Guarantee: any bytes give packets or a ProtocolError; nothing is read twice, whatever the pieces that the bytes come in.
"""

import ipaddress
import struct
from dataclasses import dataclass
from enum import IntFlag

VERSIONS = range(2, 7)
LONGEST = 1 + 2**20
"""Bytes of a packet without its length: the largest piece of text that libmilter knows, and the letter. Postfix and
Sendmail send pieces of 64 KB, and header fields of at most 100 KB."""
UNKNOWN = "0.0.0.0"  # noqa: S104 - in the journal, not listened on
"""The address of a client that has none, or that the mail server does not know."""
LOCAL = "127.0.0.1"
"""The address of a client that has reached the mail server without a network."""

NEGOTIATE, MACROS, CONNECT, HELO, MAIL, RCPT, DATA = b"O", b"D", b"C", b"H", b"M", b"R", b"T"
HEADER, HEADER_END, BODY, END, ABORT, QUIT, REUSE, UNKNOWN_COMMAND = b"L", b"N", b"B", b"E", b"A", b"Q", b"K", b"U"
"""What the mail server sends."""
CONTINUE, DISCARD, REPLY, INSERT, CHANGE = b"c", b"d", b"y", b"i", b"m"
"""What it is told."""


class ProtocolError(Exception):
    """The peer does not speak milter; the text says what is wrong, without content of a mail."""


class Actions(IntFlag):
    """What may be done to a mail: SMFIF_*."""

    ADD_HEADERS = 0x01
    CHANGE_HEADERS = 0x10


class Steps(IntFlag):
    """What the mail server leaves out, or sends without waiting for an answer, or how it sends it: SMFIP_*."""

    NO_HELO = 0x02
    NO_HEADER_END = 0x40
    NO_UNKNOWN = 0x100
    NO_DATA = 0x200
    SILENT_HEADER = 0x80
    SILENT_CONNECT = 0x1000
    SILENT_MAIL = 0x4000
    SILENT_RCPT = 0x8000
    SILENT_BODY = 0x80000
    LEADING_SPACE = 0x100000


SILENT = {
    CONNECT: Steps.SILENT_CONNECT,
    MAIL: Steps.SILENT_MAIL,
    RCPT: Steps.SILENT_RCPT,
    HEADER: Steps.SILENT_HEADER,
    BODY: Steps.SILENT_BODY,
}
"""Command -> the step by which it has no answer. What is not here always has one, but for UNANSWERED."""
UNANSWERED = {MACROS, ABORT, QUIT, REUSE}
"""The commands that never have an answer."""
IGNORED = {HELO, DATA, HEADER_END, UNKNOWN_COMMAND}
"""The commands of which nothing is needed, as a mail server sends them that cannot leave them out."""

_LENGTH = struct.Struct(">I")
_OFFER = struct.Struct(">III")


class Decoder:
    """Cuts what arrives into packets."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        self._unread += data

    @property
    def unread(self) -> int:
        """Bytes that wait."""
        return len(self._unread)

    def packet(self) -> tuple[bytes, bytes] | None:
        """Command and data of the next packet, None until it is whole. Raises ProtocolError."""
        if len(self._unread) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._unread)
        if not 0 < length <= LONGEST:
            raise ProtocolError(f"a packet of {length} bytes")
        end = _LENGTH.size + length
        if len(self._unread) < end:
            return None
        found = bytes(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        return found[:1], found[1:]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one side can do, in a negotiation."""

    version: int
    actions: Actions
    steps: Steps

    @staticmethod
    def of(data: bytes) -> "Offer":
        if len(data) < _OFFER.size:
            raise ProtocolError("a negotiation that is too short")
        version, actions, steps = _OFFER.unpack_from(data)
        return Offer(version, Actions(actions), Steps(steps))

    def packet(self) -> bytes:
        return packet(NEGOTIATE, _OFFER.pack(self.version, self.actions, self.steps))


def packet(command: bytes, data: bytes = b"") -> bytes:
    """The bytes of a packet.

    >>> packet(CONTINUE), packet(REPLY, b"451 later\\0")[:5]
    (b'\\x00\\x00\\x00\\x01c', b'\\x00\\x00\\x00\\x0by')
    """
    return _LENGTH.pack(len(data) + len(command)) + command + data


def texts(data: bytes) -> list[bytes]:
    """The texts in the data of a packet: arguments of a command, or name and value of a header field."""
    if not data.endswith(b"\0"):
        raise ProtocolError("a text without its end")
    return data[:-1].split(b"\0")


def macros(data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """For which command macros are meant, and the macros, names without braces.

    >>> macros(b"M{auth_authen}\\0ann\\0i\\x004711\\0")
    (b'M', {b'auth_authen': b'ann', b'i': b'4711'})
    """
    if not data:
        raise ProtocolError("macros for no command")
    parts = texts(data[1:]) if len(data) > 1 else []
    if len(parts) % 2:
        raise ProtocolError("a macro without a value")
    names = (name[1:-1] if name[:1] + name[-1:] == b"{}" else name for name in parts[::2])
    return data[:1], dict(zip(names, parts[1::2], strict=True))


def client_address(data: bytes) -> str:
    """The address of the client in the data of CONNECT, without IPv6 prefixes.

    >>> client_address(b"mail.test\\x004\\x00\\x19192.0.2.7\\0"), client_address(b"localhost\\0L\\0\\0/run/x\\0")
    ('192.0.2.7', '127.0.0.1')
    """
    _, end, rest = data.partition(b"\0")
    family, place = rest[:1], rest[3:]
    if not end or not family:
        raise ProtocolError("a client without an address")
    if family == b"L":
        return LOCAL
    if family not in (b"4", b"6"):
        return UNKNOWN
    text = texts(place)[0].decode("ascii", "replace")
    text = text[5:] if text[:5].lower() == "ipv6:" else text
    text = text.removeprefix("::ffff:") if "." in text else text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return UNKNOWN
    return text


def reply(*lines: bytes) -> bytes:
    """The packet that makes the mail server answer with this SMTP reply, lines with code and without line end."""
    return packet(REPLY, b"\r\n".join(lines).replace(b"%", b"%%") + b"\0")  # the text is a format of printf


def insert(name: bytes, value: bytes) -> bytes:
    """The packet that inserts a header field before all others."""
    return packet(INSERT, _LENGTH.pack(0) + name + b"\0" + value + b"\0")


def change(name: bytes, number: int, value: bytes) -> bytes:
    """The packet that changes the value of the field of this number, from 1, among those of its name; b"" deletes."""
    return packet(CHANGE, _LENGTH.pack(number) + name + b"\0" + value + b"\0")
