"""OVER: what a client hears that has gone over a limit."""

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from spamfilter.config import Limits
from spamfilter.next_hops import Reply

OVER: Mapping[str, Reply] = {
    "connections": Reply.of("421 4.7.0 Too many connections; try again later"),
    "connections_per_client": Reply.of("421 4.7.0 Too many connections from your address; try again later"),
    "commands": Reply.of("421 4.7.0 Too many commands; closing connection"),
    "errors": Reply.of("421 4.7.0 Too many errors"),
    "message_size": Reply.of("552 5.3.4 Message is larger than this relay takes"),
    "recipients": Reply.of("452 4.5.3 Too many recipients"),
    "memory_megabytes": Reply.of("452 4.3.1 No room for this message now; try again later"),
    "idle_seconds": Reply.of("421 4.4.2 Timeout; closing connection"),
    "data_seconds": Reply.of("421 4.4.2 Timeout in DATA; closing connection"),
    "transaction_seconds": Reply.of("421 4.4.2 This message takes too long; closing connection"),
    "session_seconds": Reply.of("421 4.4.2 This session takes too long; closing connection"),
}
"""Key of [limits] -> reply. A TLS handshake that takes too long has nobody who could read one."""

IPV6_CLIENT = 64
"""Bits of the network that one client has: the least that providers give, so that nobody has millions of shares."""


class Guest(Protocol):
    """Somebody who is connected."""

    def leave_if_idle(self) -> None: ...
    def abort(self) -> None: ...


class Crowd:
    """Those who are connected, and from where."""

    def __init__(self) -> None:
        self._clients: dict[Guest, str] = {}
        self._of: Counter[str] = Counter()

    def enter(self, client: Guest, address: str, limits: Limits, *, trusted: bool) -> str:
        """Take a client in; the limit that forbids it, '' if none does. Trusted ones bring the mail of many."""
        origin = origin_of(address)
        if len(self._clients) >= limits.connections:
            return "connections"
        if not trusted and self._of[origin] >= limits.connections_per_client:
            return "connections_per_client"
        self._clients[client] = origin
        self._of[origin] += 1
        return ""

    def leave(self, client: Guest) -> None:
        """Let a client go, if it is here."""
        origin = self._clients.pop(client, None)
        if origin is not None:
            self._of[origin] -= 1
            if not self._of[origin]:
                del self._of[origin]

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Guest]:
        """All of them, as they are now."""
        return iter(list(self._clients))


def origin_of(address: str) -> str:
    """The client that an IP address belongs to.

    >>> origin_of("192.0.2.7"), origin_of("2001:db8::1:2:3:4%eth0")
    ('192.0.2.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], IPV6_CLIENT), strict=False))
