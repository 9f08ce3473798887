"""Numbers of a message, for Gaussians: ATTRIBUTES is the table.

Guarantee: whole numbers of at least 0, or None where the message has none of its kind, so that nothing is
concluded from what is missing. Sizes are on a scale of logarithms, shares in thousandths: what is bell-shaped
there is not on a plain one.
"""

import math
import re
from collections.abc import Callable

from spamfilter.message import Message

_CLOCK = re.compile(r"(\d\d):(\d\d)(?::\d\d)?\s*(?:([+-])(\d\d)(\d\d))?")


def _scaled(number: int) -> int:
    """100 times the binary logarithm of 1 + number: steps of 0.7 %."""
    return round(100 * math.log2(1 + number))


def _thousandths(part: int, whole: int) -> int | None:
    return round(1000 * part / whole) if whole else None


def size(message: Message) -> int:
    return _scaled(message.size)


def text_size(message: Message) -> int:
    return _scaled(len(message.text))


def fields(message: Message) -> int:
    return len(message.fields)


def parts(message: Message) -> int:
    return sum(name == b"content-type" for name, _ in message.part_fields)


def links(message: Message) -> int:
    return _scaled(message.text.lower().count(b"http"))


def recipients(message: Message) -> int | None:
    lists = [value.count(b"@") for name, value in message.fields if name in (b"to", b"cc")]
    return _scaled(sum(lists)) if lists else None


def capitals(message: Message) -> int | None:
    upper = sum(map(message.text.count, _CAPITALS))
    return _thousandths(upper, upper + sum(map(message.text.count, _SMALL)))


def digits(message: Message) -> int | None:
    return _thousandths(sum(map(message.text.count, _DIGITS)), len(message.text))


def markup(message: Message) -> int | None:
    return _thousandths(message.text.count(b"<"), len(message.text))


def foreign(message: Message) -> int | None:
    return _thousandths(len(message.text) - len(message.text.decode("utf-8", "replace")), len(message.text))


def subject_size(message: Message) -> int | None:
    subject = message.field(b"subject")
    return len(subject) if subject else None


def hour(message: Message) -> int | None:
    """Minutes since midnight where the sender is."""
    clock = _CLOCK.search(message.field(b"date"))
    return 60 * int(clock[1]) + int(clock[2]) if clock else None


def hops(message: Message) -> int | None:
    return sum(name == b"received" for name, _ in message.fields) or None


_CAPITALS = [bytes((byte,)) for byte in range(65, 91)]
_SMALL = [bytes((byte,)) for byte in range(97, 123)]
_DIGITS = [bytes((byte,)) for byte in range(48, 58)]

ATTRIBUTES: dict[str, Callable[[Message], int | None]] = {
    function.__name__: function
    for function in (
        size, text_size, fields, parts, links, recipients, capitals, digits, markup, foreign, subject_size, hour, hops,
    )
}  # fmt: skip


def attributes(message: Message) -> dict[bytes, int]:
    """Attribute -> value, for those that the message has."""
    found = ((name.encode(), function(message)) for name, function in ATTRIBUTES.items())
    return {name: value for name, value in found if value is not None}
