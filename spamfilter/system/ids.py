"""Ids of the journal, as headers, reports and bounces quote them."""

import re
import secrets
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_ID = re.compile(rf"(?<![0-9A-Za-z])[{_CROCKFORD}{_CROCKFORD.lower()}]{{{ID_LENGTH}}}(?![0-9A-Za-z])")


def new_id() -> str:
    """A ULID: 48 bits of milliseconds, 80 of chance; sorts by time and can be read out over a telephone."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join([_PAIRS[number >> bits & 0x3FF] for bits in range(5 * ID_LENGTH - 10, -1, -10)])


def id_in(text: str) -> str:
    """The one id that a text holds, as a header field, a report or a bounce quotes it; '' for none or several."""
    found = {match.upper() for match in _ID.findall(text)}
    return found.pop() if len(found) == 1 else ""


def is_id(text: str) -> bool:
    """Whether this looks like an id of the journal, in either case."""
    return _ID.fullmatch(text) is not None
