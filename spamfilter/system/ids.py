"""Ids of journal entries, which headers, reports and bounces quote."""

import os
import re
import time
from datetime import datetime

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
_ID = re.compile(rf"(?<![0-9A-Za-z])[{_CROCKFORD}{_CROCKFORD.lower()}]{{{ID_LENGTH}}}(?![0-9A-Za-z])")
_LOOKALIKES = str.maketrans("OIL", "011")
"""Letters that are in no id -> the digits that Crockford's base 32 reads them as."""

_LED = re.compile(rf":? \(?{_ID.pattern}\)?")
"""An id with the colon, the blank and the brackets around it."""


def new_id() -> str:
    """A ULID: 48 bits of milliseconds and 80 random bits; sorts by time and has no letters that look like digits."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return _written(number)


def first_id(at: datetime) -> str:
    """The smallest id of a moment: all that are made before it are smaller. Of one before 1970 the smallest of all.

    >>> first_id(datetime.fromisoformat("2026-01-01T00:00+00:00"))
    '01KDVDNA000000000000000000'
    """
    return _written(max(0, int(at.timestamp() * 1000)) << 80)


def _written(number: int) -> str:
    return "".join([_CROCKFORD[number >> bits & 31] for bits in range(5 * ID_LENGTH - 5, -1, -5)])


def id_in(text: str) -> str:
    """The only id in a text such as a header field, a report or a bounce; '' if there is none or more than one.

    Where an id is all of the text, it may have been typed, and is read as in `id_of`.
    """
    if len(text) == ID_LENGTH and (id := id_of(text)):
        return id
    found = {match.upper() for match in _ID.findall(text)}
    return found.pop() if len(found) == 1 else ""


def without_ids(text: str) -> str:
    """The text without its ids, nor the brackets and colons that lead to them.

    >>> without_ids("451 Try again (01JD0000000000000000000000)"), without_ids("250 2.0.0 Ok")
    ('451 Try again', '250 2.0.0 Ok')
    """
    return _LED.sub("", text)


def id_of(text: str) -> str:
    """The id that this text is, as it is stored; '' if it is none. O, I and L are read as the digits they look like.

    >>> id_of("o1kdvdnaooooooooooooooooil")
    '01KDVDNA000000000000000011'
    """
    written = text.upper().translate(_LOOKALIKES) if text.isascii() else ""
    return written if _ID.fullmatch(written) else ""
