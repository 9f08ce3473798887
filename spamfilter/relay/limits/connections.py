"""The limits of connections, and LIMIT_REPLIES, the replies to a client that exceeds a limit."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Protocol

from spamfilter.config.sections import Limits
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.next_hops import Reply

LIMIT_REPLIES: Mapping[str, Reply] = {
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
"""Key of [limits] -> reply. There is none for tls_seconds: during a handshake no reply can be sent."""

IPV6_CLIENT = 64
"""Bits of the network that counts as one client: providers give each customer at least such a network."""


class Guest(Protocol):
    def leave_if_idle(self) -> None: ...
    def leave(self) -> None: ...


class Crowd:
    """The clients of all front ends in this process; limits count those of all processes.

    coming: connections that were accepted, but have not entered yet.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._clients: dict[Guest, int] = {}
        self.coming = 0

    def enter(self, client: Guest, address: str, limits: Limits, *, trusted: bool) -> str:
        """Add a client; the limit that forbids it, '' if none. Trusted clients have no limit for each client."""
        origin = 0 if trusted else hash_of(address)
        self._clients[client] = origin
        counts = self._shared.connections
        counts.add(self._shared.own, origin, 1)
        over = ""
        if sum(counts.all) > limits.connections:
            over = "connections"
        elif origin and counts.of(origin) > limits.connections_per_client:
            over = "connections_per_client"
        elif origin and sum(counts.strangers) > limits.connections - reserve(limits):
            over = "connections"
        if over:
            self.leave(client)
        return over

    def leave(self, client: Guest) -> None:
        """Remove a client, if it is here."""
        origin = self._clients.pop(client, None)
        if origin is not None:
            self._shared.connections.add(self._shared.own, origin, -1)

    def is_larger(self) -> bool:
        """Whether another worker has fewer connections, by more than one and a tenth of its own."""
        connections = self._shared.connections.all
        least = min(connections[1:])
        return connections[self._shared.own] + self.coming > least + 1 + least // 10

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Guest]:
        """The clients at this moment; they may leave during the iteration."""
        return iter(list(self._clients))


def reserve(limits: Limits) -> int:
    """The connections that only trusted clients get: a tenth, and at least one unless there is no other."""
    return min(max(limits.connections // 10, 1), limits.connections - 1)


def hash_of(address: str) -> int:
    """A number for the client that an IP address belongs to, never 0; keyed, so that nobody can forge a collision."""
    return hash(origin_of(address)) or 1


def origin_of(address: str) -> str:
    """The client that an IP address belongs to.

    >>> origin_of("192.0.2.7"), origin_of("2001:db8::1:2:3:4%eth0")
    ('192.0.2.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], IPV6_CLIENT), strict=False))
    except ValueError:  # a trusted client may call another client anything
        return address
