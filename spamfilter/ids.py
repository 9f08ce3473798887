"""Ids of the journal, as headers, reports and bounces quote them."""

import re
import secrets
import time
from base64 import b32encode

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
_TO_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _CROCKFORD.encode("ascii"))
_ID = re.compile(rf"(?<![0-9A-Za-z])[{_CROCKFORD}{_CROCKFORD.lower()}]{{{ID_LENGTH}}}(?![0-9A-Za-z])")


def new_id() -> str:
    """A ULID: 48 bits of milliseconds, 80 of chance; sorts by time and can be read out over a telephone."""
    number = (time.time_ns() // 1_000_000).to_bytes(6, "big") + secrets.token_bytes(10)
    return b32encode(number.rjust(20, b"\0"))[-ID_LENGTH:].translate(_TO_CROCKFORD).decode("ascii")


def id_in(text: str) -> str:
    """The one id that a text holds, as a header field, a report or a bounce quotes it; '' for none or several."""
    found = {match.upper() for match in _ID.findall(text)}
    return found.pop() if len(found) == 1 else ""


def is_id(text: str) -> bool:
    """Whether this looks like an id of the journal, in either case."""
    return _ID.fullmatch(text) is not None
