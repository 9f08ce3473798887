"""Ids of journal entries, which headers, reports and bounces quote."""

import re
import secrets
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
_ID = re.compile(rf"(?<![0-9A-Za-z])[{_CROCKFORD}{_CROCKFORD.lower()}]{{{ID_LENGTH}}}(?![0-9A-Za-z])")


def new_id() -> str:
    """A ULID: 48 bits of milliseconds and 80 random bits; sorts by time and has no letters that look like digits."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join([_CROCKFORD[number >> bits & 31] for bits in range(5 * ID_LENGTH - 5, -1, -5)])


def id_in(text: str) -> str:
    """The only id in a text such as a header field, a report or a bounce; '' if there is none or more than one."""
    found = {match.upper() for match in _ID.findall(text)}
    return found.pop() if len(found) == 1 else ""


def is_id(text: str) -> bool:
    """Whether this has the form of an id, in upper or lower case."""
    return _ID.fullmatch(text) is not None
