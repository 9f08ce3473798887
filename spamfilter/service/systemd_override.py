"""The systemd drop-in for a configuration: folders that it writes, hosts that it talks to, open files, time to stop.

It is for the relay, and for the units of report, digests and web page, which allow less on their own.
Guarantee: it never forbids what the configuration needs. If the addresses are not known, as for a host given by name,
the network is open, and a comment says why.
"""

import ipaddress
from pathlib import Path

from spamfilter.config.addresses import maildir_of, next_hop_place, socket_of, split_address
from spamfilter.config.sections import Limits
from spamfilter.config.settings import Settings
from spamfilter.service.listening import descriptors
from spamfilter.stores.sql.connection import hosts_of, service_of
from spamfilter.system.paths import SYSTEM_RUN, SYSTEM_STATE

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""The folders that ProtectHome= hides."""
TO_STOP = 45.0
"""Seconds that the unit gives a relay that stops beyond the default of drain_seconds, for a database that is locked."""


def drop_in(settings: Settings) -> str:
    """For spamfilter.service.d and spamfilter-.service.d: docs/install.md."""
    lines = ["[Service]", f"LimitNOFILE={descriptors(settings.limits)}"]
    if (drain := settings.limits.drain_seconds) > Limits().drain_seconds:
        lines.append(f"TimeoutStopSec={drain + TO_STOP:g}")
    folders = _folders(settings)
    for folder in folders:
        if _is_missing(folder):
            lines.append("# Make this folder before the start; without it systemd ends the service with 226/NAMESPACE.")
        lines.append(f"ReadWritePaths={_escaped(folder)}")
    if any(folder.is_relative_to(home) for folder in folders for home in HOMES):
        lines.append("ProtectHome=no")
    try:
        lines += ["IPAddressDeny=any", f"IPAddressAllow={' '.join(_addresses(settings))}"]
    except ValueError as error:
        lines += [f"# The network is open: {error}", "IPAddressAllow=any"]
    return "\n".join(lines)


def _folders(settings: Settings) -> list[Path]:
    """Folders that the relay writes besides its state directory."""
    url = settings.store.url
    named = [
        Path(url.removeprefix("sqlite:///")).parent if url.startswith("sqlite:") else None,
        Path(settings.feedback.socket).parent if settings.feedback.socket else None,
        Path(settings.verdict.quarantine) if settings.verdict.quarantine else None,
        maildir_of(settings.relay.next_hop),
    ]
    named += [path.parent for text in settings.relay.places() if (path := socket_of(text))]
    beside = {path for path in named if path and not path.is_relative_to(SYSTEM_STATE) and path != SYSTEM_RUN}
    return sorted(beside)


def _is_missing(folder: Path) -> bool:
    """Whether a folder is missing; False if this user has no right to look."""
    try:
        folder.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _addresses(settings: Settings) -> list[str]:
    """The addresses that the relay talks to. Raises ValueError, with the reason, if they are not known."""
    relay = settings.relay
    found = {"localhost"}
    places = [text for text in relay.places() if not socket_of(text)]
    ours = [split_address(text)[0] for text in (*places, settings.metrics.listen) if text]
    if not all(map(_is_loopback, ours)):
        if relay.domains:
            raise ValueError("mail for [relay] domains comes from everywhere")
        if settings.metrics.listen and not _is_loopback(split_address(settings.metrics.listen)[0]):
            raise ValueError("[metrics] listen is for other hosts")
        found |= set(relay.trusted)  # all others may send nothing anyway
    if place := next_hop_place(relay.next_hop):
        found |= _address(split_address(place)[0], "next_hop")
    if service_of(settings.store_url()):
        raise ValueError("the service file that [store] url refers to may name any host")
    for host in hosts_of(settings.store_url()):
        found |= _address(host, "[store] url")
    return sorted(found)


def _address(host: str, key: str) -> set[str]:
    """The address that a host has, none if that is this machine. Raises ValueError for a name."""
    if _is_loopback(host):
        return set()
    try:
        address = ipaddress.ip_address(host.partition("%")[0])  # systemd takes no zone
    except ValueError:
        raise ValueError(f"the addresses of {host} may change; {key} may name one") from None
    return {str(getattr(address, "ipv4_mapped", None) or address)}  # such packets are of IPv4


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _escaped(path: Path) -> str:
    """As a value of a unit: systemd.syntax(7)."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
