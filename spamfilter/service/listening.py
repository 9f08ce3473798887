"""The listening sockets of the relay, and the file descriptors that its connections need.

Guarantee: an address that cannot be bound is an error that names its configuration key. A process that runs out of
descriptors logs that once in a while, and goes on.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from spamfilter.config.addresses import socket_of, split_address
from spamfilter.config.sections import Limits
from spamfilter.errors import ConfigError, NoSuchAddress
from spamfilter.system import unix_socket
from spamfilter.system.logs import SELDOM

log = logging.getLogger("spamfilter")

SPARE_FDS = 150
"""Descriptors besides connections: database, log, Maildir, threads, metrics, and connections that hear 421."""
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The host has no such address: IPv6 is off by a setting, or not in the kernel."""
FIRST_FD = 3
"""The first descriptor of a socket that systemd passes: sd_listen_fds(3)."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The listening sockets. mail: what `status` calls them -> those by which mail comes.

    A closed socket leaves its list, so a process that is forked later does not use it.
    """

    mail: dict[str, list[socket.socket]]
    metrics: list[socket.socket]

    def close(self, *, mail: bool = True, metrics: bool = True) -> None:
        for sockets in [*self.mail.values()] * mail + [self.metrics] * metrics:
            while sockets:
                sockets.pop().close()


def bound(key: str, *addresses: str) -> list[socket.socket]:
    """Sockets that listen at addresses, which may be paths where the key allows it. Raises ConfigError."""
    return [sock for address in addresses for sock in _bound(key, address)]


def _bound(key: str, address: str) -> list[socket.socket]:
    if path := socket_of(address):
        try:
            sock = unix_socket.bound(path)
        except ConfigError as error:
            raise ConfigError(f"{key} = {address!r}: {error}") from error
        sock.listen(1024)
        sock.setblocking(False)
        return [sock]
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets = _servers((family, where) for family, _, _, _, where in found)
    except OSError as error:
        # Of a socket the number says why: Python's text repeats the address.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        hint = "; is another spamfilter running?" if error.errno == errno.EADDRINUSE else ""
        if error.errno == errno.EACCES and key == "relay.listen":
            hint = "; of a port below 1024 let systemd listen: systemd/spamfilter.socket"
        kind = NoSuchAddress if error.errno == errno.EADDRNOTAVAIL else ConfigError
        raise kind(f"{key} = {address!r}: cannot listen there: {reason}{hint}") from error
    for sock in sockets:
        sock.setblocking(False)
    return sockets


def _servers(addresses: Iterable[tuple[int, tuple[Any, ...]]]) -> list[socket.socket]:
    """Sockets that listen at the addresses of one host, as family and address. Raises OSError."""
    sockets = []
    absent: OSError | None = None
    for family, where in addresses:
        try:
            sockets.append(socket.create_server(where, family=family, backlog=1024))
        except OSError as error:
            # /etc/hosts names ::1 for localhost also where IPv6 is off, as in most containers. An address that is not
            # of the loopback may come later, and mail for it would get lost in silence.
            if error.errno not in ABSENT or not ipaddress.ip_address(where[0]).is_loopback:
                raise
            absent = error
    if absent is not None and not sockets:
        raise absent
    return sockets


def inherited() -> list[socket.socket]:
    """The sockets of a systemd socket unit, if there are any: sd_listen_fds(3). Raises ConfigError."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    return [_handed(FIRST_FD + number) for number in range(int(os.environ.get("LISTEN_FDS", "0")))]


def _handed(descriptor: int) -> socket.socket:
    with suppress(OSError):
        sock = socket.socket(fileno=descriptor)
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.setblocking(False)
            return sock
        sock.close()
    raise ConfigError(
        f"systemd hands over descriptor {descriptor}, which is no socket that listens; the socket unit needs"
        " ListenStream=, and no Accept=yes: systemd/spamfilter.socket"
    )


def name_of(sock: socket.socket) -> str:
    """The address of a socket, as in the configuration."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    return _name(*sock.getsockname()[:2])


def _name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def not_open(listen: Iterable[str], names: Collection[str]) -> list[str]:
    """Those of these addresses, as in the configuration, at which none of the sockets of these names listens."""
    return [address for address in listen if not _names(address) & {*names}]


def _names(address: str) -> set[str]:
    """The names that sockets at this address have; none if its host is unknown."""
    if path := socket_of(address):
        return {f"unix:{path}"}
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return set()
    return {_name(str(where[0]), int(where[1])) for _, _, _, _, where in found}


def descriptors(limits: Limits) -> int:
    """How many descriptors the relay may need: one for each client, and one for its next hop."""
    return 2 * limits.connections + _beside(limits)


def raise_descriptor_limit(limits: Limits) -> None:
    """Raise the limit of descriptors to what the relay needs, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors(limits)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        log.warning(
            "limits.connections = %d may need %d descriptors, but only %d are allowed; what does not fit hears 421",
            limits.connections, wanted, soft,
        )  # fmt: skip


def _beside(limits: Limits) -> int:
    return SPARE_FDS + limits.feedback_connections


def within_descriptors(limits: Limits) -> Limits:
    """The limits, with no more connections than this process has descriptors for."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = max((soft - _beside(limits)) // 2, soft // 4, 1)
    return limits.model_copy(update={"connections": min(limits.connections, allowed)})


def note_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a fault of the event loop; that no connection can be accepted seldom: asyncio says so at each attempt."""
    if str(context.get("message", "")).startswith("socket.accept() out of system resource"):
        log.error("no connection can be accepted: %s", context.get("exception"), extra=SELDOM)
    else:
        loop.default_exception_handler(context)
