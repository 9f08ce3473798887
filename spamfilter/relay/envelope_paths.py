"""What the arguments of commands say, as far as a proxy has to know; everything else in them is passed on unread."""

import re
import string

# Angle brackets may lack: what a next hop tolerates is not refused here.
_PATH = re.compile(r'(FROM|TO):[ ]?(?:<((?:"(?:[^"\\]|\\.)*"|[^>"])*)>|([^\s<>]+))( .*)?', re.IGNORECASE)
_SIZE = re.compile(r" SIZE=([0-9]{1,20})(?: |$)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")
_TO_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ROUTING = re.compile(r'[@%!:,"\\]')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_LINE = 2000
"""Bytes of a command: RFC 5321 wants 512 and 1,000 more for DSN's ORCPT. Postfix cuts a line off at 2,048 bytes, and
would obey another command than the one that was judged."""
MAX_PATH = 512
"""Bytes of a path: twice what RFC 5321 section 4.5.3.1.3 promises to a client. Up to a thousand of them are kept of
each mail, in memory that no limit counts, and in the journal."""


def decoded(argument: bytes) -> str:
    """The argument of a command, whatever bytes it has."""
    return argument.strip().decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """What a client has sent, as it came."""
    return text.encode("utf-8", "surrogateescape")


def has_control(argument: str) -> bool:
    """Whether an argument has what might divide the command for others."""
    return _CONTROL.search(argument) is not None


def path_of(argument: str, keyword: str) -> str | None:
    """The path behind 'FROM' or 'TO', without angle brackets; None where the syntax is wrong, or it is too long.

    >>> path_of("FROM:<> BODY=8BITMIME", "FROM"), path_of("TO:<a@b>", "FROM")
    ('', None)
    """
    match = _PATH.fullmatch(argument)
    if not match or match.group(1).upper() != keyword:
        return None
    path = match.group(3) if match.group(2) is None else match.group(2)
    return path if len(encoded(path)) <= MAX_PATH else None


def mailbox_of(path: str) -> str:
    """The address that a path names, in lower case, however it is written.

    >>> mailbox_of('@relay.example:"S\\\\pam"@Example.org')
    'spam@example.org'
    """
    if path.startswith("@") and ":" in path:
        path = path.partition(":")[2]
    local, _, domain = path.rpartition("@")
    if len(local) > 1 and local[0] == local[-1] == '"':
        local = _ESCAPED.sub(r"\1", local[1:-1])
    return folded(f"{local}@{domain}")


def folded(address: str) -> str:
    """An address with the letters of ASCII in lower case; others make it another address (U+212A is no k).

    >>> folded("K\u212a@Example.org") == "k\u212a@example.org"
    True
    """
    return address.translate(_TO_LOWER)


def size_of(argument: str) -> int:
    """The SIZE that MAIL declares, 0 if none.

    >>> size_of("FROM:<a@b> SIZE=1000 BODY=7BIT"), size_of("FROM:<a SIZE=9 @b>")
    (1000, 0)
    """
    match = _PATH.fullmatch(argument)
    size = _SIZE.search(match.group(4) or "") if match else None
    return int(size.group(1)) if size else 0


def is_plain(recipient: str, domains: frozenset[str]) -> bool:
    """Whether a stranger may send there: a plain address in these domains, or the postmaster.

    Anything that a mail server might take for a route to elsewhere is not plain; the next hop
    trusts us, and would relay it.
    """
    local, at, domain = recipient.rpartition("@")
    if not at:
        return folded(domain) == "postmaster"  # RFC 5321 section 4.5.1
    return local != "" and folded(domain) in domains and not _ROUTING.search(local)
