"""The keywords in our reply to EHLO."""

from collections.abc import Mapping

from spamfilter.relay.session import xforward

OWN_KEYWORDS = ("8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES")
"""Announced if the next hop announces them. PIPELINING, SIZE, STARTTLS and XFORWARD have other rules."""


def announced(theirs: Mapping[str, str], message_size: int, *, tls: bool, trusted: bool) -> list[str]:
    """The keywords that the relay and the next hop both support.

    message_size: bytes of our own limit. tls: whether STARTTLS is offered. trusted: whether XFORWARD is.

    >>> announced({"SIZE": "1000", "DSN": ""}, 2000, tls=False, trusted=False)
    ['DSN', 'PIPELINING', 'SIZE 1000']
    """
    found = [keyword for keyword in OWN_KEYWORDS if keyword in theirs]
    size = message_size
    if theirs.get("SIZE", "").isdigit():
        size = min(size, int(theirs["SIZE"]) or size)
    found += ["PIPELINING", f"SIZE {size}"]
    if tls:
        found.append("STARTTLS")
    if trusted:
        found.append("XFORWARD " + " ".join(xforward.ATTRIBUTES))
    return found
