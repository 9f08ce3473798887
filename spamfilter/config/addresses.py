"""Checks of addresses, networks, domains and paths in a configuration.

Each returns its text, or raises ValueError with a sentence for the user.
"""

import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from spamfilter.mail.folded_addresses import in_ascii
from spamfilter.system.paths import LONGEST_SOCKET

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOCAL = re.compile(r"[A-Za-z0-9!#$&'*/=?^_`{|}~.+-]{1,64}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
_TAKEN = frozenset(("authorization", "content-length", "content-type", "cookie", "host", "origin", "transfer-encoding"))
"""Fields of HTTP that browsers send themselves."""
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,260}/?")
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
"""Hosts of an address to listen on that mean all addresses of the host."""


def split_address(text: str) -> tuple[str, int]:
    """Host and port of 'host:port' or '[IPv6]:port'. Raises ValueError with a sentence for the user."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host:
        raise ValueError("not of the form host:port, [IPv6]:port")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"the port {port!r} is not a number from 0 to 65535")
    if ":" in host or re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address") from None
    elif not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a host name")
    return host, int(port)


def address(text: str) -> str:
    split_address(text)
    return text


def socket_of(text: str) -> Path | None:
    """The path of 'unix:/path', None for any other address."""
    return Path(text.removeprefix("unix:")) if text.startswith("unix:") else None


def next_hop_place(text: str) -> str:
    """'host:port' of a next hop that is reached over the network; '' for any other.

    >>> next_hop_place("lmtp://[::1]:24"), next_hop_place("lmtp:///run/lmtp"), next_hop_place("maildir:/mail")
    ('[::1]:24', '', '')
    """
    scheme, _, place = text.partition("://")
    return place if scheme in ("smtp", "lmtp") and not place.startswith("/") else ""


def maildir_of(text: str) -> Path | None:
    """The path of 'maildir:/path', None for any other next hop."""
    return Path(text.removeprefix("maildir:")) if text.startswith("maildir:") else None


def address_or_socket(text: str) -> str:
    if text.startswith("unix:"):
        socket_path(text.removeprefix("unix:"))
        return text
    return address(text)


def socket_path(text: str) -> str:
    absolute(text)
    if len(os.fsencode(text)) > LONGEST_SOCKET:
        raise ValueError(f"longer than the {LONGEST_SOCKET} bytes of a socket's path")
    return text


def network(text: str) -> str:
    found = ipaddress.ip_network(text)
    if found.version == 6 and found.subnet_of(MAPPED):
        raise ValueError("IPv4 within IPv6; write it as IPv4, as in 192.0.2.0/24")
    return text


def next_hop(text: str) -> str:
    if text.startswith("maildir:"):
        if not text.removeprefix("maildir:").startswith("/") or "\0" in text:
            raise ValueError("name an absolute path, as in maildir:/var/mail/judged")
    elif text.startswith("lmtp:///"):
        socket_path(text.removeprefix("lmtp://"))
    elif text.startswith(("smtp://", "lmtp://")):
        url = urlsplit(text)
        if url.path or url.query or url.fragment or "@" in url.netloc:
            raise ValueError(f"nothing may follow the port, as in {url.scheme}://127.0.0.1:10026")
        if split_address(url.netloc)[1] == 0:
            raise ValueError("the port 0 cannot be connected to")
    else:
        raise ValueError("not a next hop; smtp://host:port, lmtp://host:port, lmtp:///path and maildir:/path are known")
    return text


def one_line(text: str) -> str:
    if not text.isprintable() or len(text) > 60:
        raise ValueError("must be one line of at most 60 printable characters")
    return text


def host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("not a host name")
    return text


def domain(text: str) -> str:
    """The name in lower case and in ASCII, without a dot at its end."""
    name = in_ascii(text.removesuffix("."))
    if not _HOST.fullmatch(name):
        raise ValueError("not a domain name; without @ or blanks, as in example.org")
    return name.lower()


def mailbox(text: str) -> str:
    """The address in lower case, its domain in ASCII and without a dot at its end."""
    local, at, host = text.rpartition("@")
    name = f"{local}{at}{in_ascii(host.removesuffix('.'))}"
    if not is_mailbox(name):
        raise ValueError("not an address, as in spam@example.org")
    return name.lower()


def is_mailbox(text: str) -> bool:
    """Whether this is an address of letters, digits and common signs, which no program reads in another way."""
    local, at, host = text.rpartition("@")
    return bool(at and _LOCAL.fullmatch(local) and _HOST.fullmatch(host))


def page_url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError("not the address of a web page, as in https://mail.example.org")
    return text


def absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("not an absolute path")
    return text


def header_name(text: str) -> str:
    if not _HEADER.fullmatch(text) or text.lower() in _TAKEN:
        raise ValueError("not a header field of a proxy's own, as in X-Remote-User")
    return text


def is_in(address: str, networks: Iterable[Network]) -> bool:
    """Whether this IP address, with or without a zone, is in one of these networks; a text that is none is not."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(found in network for network in networks)


def host_and_port(text: str) -> tuple[str, int] | None:
    """As `split_address`; None for what is no such address, as a socket in the file system."""
    try:
        return split_address(text)
    except ValueError:
        return None


def is_everywhere(text: str) -> bool:
    """Whether this address to listen on is every address of the host."""
    found = host_and_port(text)
    return found is not None and found[0] in EVERYWHERE


def leads_to(target: tuple[str, int] | None, listening: tuple[str, int] | None) -> bool:
    """Whether a connection to `target` reaches a server on `listening`, as far as the addresses themselves say."""
    if target is None or listening is None or target[1] != listening[1]:
        return False
    anywhere = (*EVERYWHERE, "localhost")
    if target[0] in anywhere:
        return listening[0] in (*anywhere, "127.0.0.1", "::1")
    is_loopback = target[0].startswith("127.") or target[0] == "::1"
    return target[0] == listening[0] or (is_loopback and listening[0] in anywhere)
