"""Checks of addresses, networks, domains and paths in a configuration.

Each returns its text, or raises ValueError with a sentence for the user.
"""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from spamfilter.system.paths import LONGEST_SOCKET

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOCAL = re.compile(r"[A-Za-z0-9!#$&'*/=?^_`{|}~.+-]{1,64}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
_TAKEN = frozenset(("authorization", "content-length", "content-type", "cookie", "host", "origin", "transfer-encoding"))
"""Fields of HTTP that browsers send themselves."""
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


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
    ipaddress.ip_network(text)
    return text


def next_hop(text: str) -> str:
    if text.startswith("maildir:"):
        if not text.removeprefix("maildir:").startswith("/") or "\0" in text:
            raise ValueError("name an absolute path, as in maildir:/var/mail/judged")
    elif text.startswith("smtp://"):
        url = urlsplit(text)
        if url.path or url.query or url.fragment or "@" in url.netloc:
            raise ValueError("nothing may follow the port, as in smtp://127.0.0.1:10026")
        if split_address(url.netloc)[1] == 0:
            raise ValueError("the port 0 cannot be connected to")
    else:
        raise ValueError("not a next hop; smtp://host:port and maildir:/path are known")
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
    if not _HOST.fullmatch(text):
        raise ValueError("not a domain name; without @ or blanks, as in example.org")
    return text


def mailbox(text: str) -> str:
    local, at, host = text.rpartition("@")
    if not (at and _LOCAL.fullmatch(local) and _HOST.fullmatch(host)):
        raise ValueError("not an address, as in spam@example.org")
    return text.lower()


def absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("not an absolute path")
    return text


def header_name(text: str) -> str:
    if not _HEADER.fullmatch(text) or text.lower() in _TAKEN:
        raise ValueError("not a header field of a proxy's own, as in X-Remote-User")
    return text
