"""The XFORWARD command, by which a trusted client names the real client of a mail.

Source: Postfix XFORWARD_README. Values are xtext (RFC 3461); unencoded ones are tolerated.
Invariant: an attribute has no control characters, and is always sent encoded.
"""

import re
from collections.abc import Iterator, Mapping

ATTRIBUTES = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE")
MAX_VALUE = 255
MAX_COMMAND = 512
"""Limits of the protocol, for a value and for a command line with its line end."""
UNAVAILABLE = "[UNAVAILABLE]"
IPV6 = "IPV6:"
"""What stands before an IPv6 address. XFORWARD_README writes it so, Postfix itself sends "IPv6:" as in RFC 5321."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PLAIN = re.compile(rb"[!-*,-<>-~]*")
_HEX = re.compile(rb"\+([0-9A-F]{2})")
_BROKEN_CODE = re.compile(rb"\+[0-9A-F]?\Z")


def parse(argument: str) -> dict[str, str]:
    """The attributes of one command. Raises ValueError with the text of a 501 reply."""
    found: dict[str, str] = {}
    for pair in filter(None, argument.split(" ")):  # other blanks of Unicode are part of a value
        name, equals, value = pair.partition("=")
        name = name.upper() if name.isascii() else name  # U+017F is no S
        if not equals or name not in ATTRIBUTES:
            raise ValueError(f"unknown attribute {name[:20]!a}")
        raw = _HEX.sub(lambda match: bytes([int(match.group(1), 16)]), value.encode("utf-8", "surrogateescape"))
        value = raw.decode("utf-8", "replace")
        # Be tolerant: Postfix would take a rejection for a broken filter.
        value = _CONTROL.sub("?", value)[:MAX_VALUE]
        found[name] = value
    if not found:
        raise ValueError("attributes are missing")
    return found


def observed(peer: str, port: int, greeted: str, *, local: bool) -> dict[str, str]:
    """The attributes of a client that has sent none, from its connection."""
    return {
        "NAME": UNAVAILABLE,
        "ADDR": f"{IPV6}{peer}" if ":" in peer else peer or UNAVAILABLE,
        "PORT": str(port),
        "PROTO": "ESMTP",
        "HELO": greeted[:MAX_VALUE],
        "SOURCE": "LOCAL" if local else "REMOTE",
    }


def client(attributes: Mapping[str, str], peer: str) -> str:
    """The IP address of the real client, or the peer's if XFORWARD has not named it."""
    if not is_named(attributes):
        return peer
    address = attributes["ADDR"]
    return address[len(IPV6) :] if address[: len(IPV6)].upper() == IPV6 else address


def is_named(attributes: Mapping[str, str]) -> bool:
    """Whether XFORWARD has named the IP address of the real client."""
    return attributes.get("ADDR", UNAVAILABLE) != UNAVAILABLE


def is_told(attributes: Mapping[str, str]) -> bool:
    """Whether `client` is surely the client that the mail came from.

    A peer that sends XFORWARD without the address of the client must say SOURCE=LOCAL to be believed.
    """
    return not attributes or attributes.get("SOURCE") == "LOCAL" or is_named(attributes)


def commands(attributes: Mapping[str, str], wanted: str) -> Iterator[bytes]:
    """Command lines with the attributes that the next hop has announced."""
    line = b"XFORWARD"
    names = wanted.upper().split()
    for name in ATTRIBUTES:
        if name not in names or name not in attributes:
            continue
        pair = b" " + name.encode() + b"="
        pair += _xtext(attributes[name], MAX_COMMAND - len(b"XFORWARD\r\n" + pair))
        if len(line) + len(pair) + 2 > MAX_COMMAND:
            yield line
            line = b"XFORWARD"
        line += pair
    if line != b"XFORWARD":
        yield line


def _xtext(value: str, most: int) -> bytes:
    """A value as xtext of at most `most` bytes: a next hop might obey the rest of too long a line as a command."""
    raw = value.encode("utf-8", "surrogateescape")
    if _PLAIN.fullmatch(raw):
        return raw[:most]
    coded = b"".join(b"%c" % byte if 0x21 <= byte <= 0x7E and byte not in b"+=" else b"+%02X" % byte for byte in raw)
    return _BROKEN_CODE.sub(b"", coded[:most])
