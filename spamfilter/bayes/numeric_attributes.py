"""Numeric attributes of a message, for the Gaussian likelihood: ATTRIBUTES is the table.

Guarantee: whole numbers of at least 0, or None where the message lacks the attribute, so that nothing is concluded from
what is missing. Sizes are logarithms and shares are thousandths, since their distribution is bell-shaped on that scale.

Of thirteen attributes tried on SpamAssassin and trec07p, these four lowered 1-ROCA% on both: `hour` and `subject_size`
together with multinomial words (1.2274 -> 1.2273), `markup` and `text_size` together with Bernoulli words
(1.9976 -> 1.9891). Together with the default voices none did.
"""

import math
import re
from collections.abc import Callable

from spamfilter.mail.message import Message

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def scaled(number: int) -> int:
    """100 times the binary logarithm of 1 + number: steps of 0.7 %."""
    return round(100 * math.log2(1 + number))


def text_size(message: Message) -> int:
    return scaled(len(message.text))


def markup(message: Message) -> int | None:
    """How much of the text is the beginning of a tag, in thousandths."""
    return round(1000 * message.text.count(b"<") / len(message.text)) if message.text else None


def subject_size(message: Message) -> int | None:
    subject = _field(message, b"subject")
    return len(subject) if subject else None


def hour(message: Message) -> int | None:
    """Minutes since midnight where the sender is."""
    clock = _CLOCK.search(_field(message, b"date"))
    return 60 * int(clock[1]) + int(clock[2]) if clock else None


def _field(message: Message, name: bytes) -> str:
    """The first value of a field with its letters as they look: a message that was packed has no others."""
    return next((value for key, value in message.fields if key == name), b"").decode("utf-8", "replace")


ATTRIBUTES: dict[str, Callable[[Message], int | None]] = {
    function.__name__: function for function in (text_size, markup, subject_size, hour)
}


def attributes(message: Message) -> dict[bytes, int]:
    """Attribute -> value, for those that the message has."""
    found = ((name.encode(), function(message)) for name, function in ATTRIBUTES.items())
    return {name: value for name, value in found if value is not None}
