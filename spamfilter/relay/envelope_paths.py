"""The arguments of MAIL and RCPT: path and SIZE. The relay passes on all other parameters unread."""

import re
from collections.abc import Iterator

from spamfilter.mail.folded_addresses import folded, lowered

# Angle brackets may be missing, because many next hops tolerate that.
_PATH = re.compile(r'(FROM|TO):[ ]?(?:<((?:"(?:[^"\\]|\\.)*"|[^>"])*)>|([^\s<>]+))( .*)?', re.IGNORECASE)
_SIZE = re.compile(r" SIZE=([0-9]{1,20})(?: |$)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")
_ROUTING = re.compile(r'[@%!:,"\\]')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_LINE = 2000
"""Bytes of a command: RFC 5321 wants 512, and 1,000 more for DSN's ORCPT. Postfix cuts lines at 2,048 bytes, and would
then obey another command than the relay has checked."""
MAX_PATH = 512
"""Bytes of a path: twice what RFC 5321 section 4.5.3.1.3 demands. A mail has up to a thousand, in memory that no limit
counts, and in the journal."""


def decoded(argument: bytes) -> str:
    """The argument of a command as text; `encoded` is the exact inverse, whatever its bytes are."""
    return argument.strip().decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The bytes of a decoded argument."""
    return text.encode("utf-8", "surrogateescape")


def has_control(argument: str) -> bool:
    """Whether an argument has control characters, which another server might take for the end of the command."""
    return _CONTROL.search(argument) is not None


def path_of(argument: str, keyword: str) -> str | None:
    """The path after 'FROM:' or 'TO:', without angle brackets; None if the syntax is wrong or the path too long.

    >>> path_of("FROM:<> BODY=8BITMIME", "FROM"), path_of("TO:<a@b>", "FROM")
    ('', None)
    """
    match = _PATH.fullmatch(argument)
    if not match or match.group(1).upper() != keyword:
        return None
    path = match.group(3) if match.group(2) is None else match.group(2)
    return path if len(encoded(path)) <= MAX_PATH else None


def mailbox_of(path: str) -> str:
    """The address of a path as `folded`, without source route, quotes, escapes and a dot at its end: Postfix delivers
    to the same mailbox with and without them.

    >>> mailbox_of('@relay.example:"S\\\\pam"@Example.org'), mailbox_of("s\\\\pam@example.org.")
    ('spam@example.org', 'spam@example.org')
    >>> mailbox_of("postmaster")
    'postmaster'
    """
    if path.startswith("@") and ":" in path:
        path = path.partition(":")[2]
    local, at, domain = path.removesuffix(".").rpartition("@")
    if len(local) > 1 and local[0] == local[-1] == '"':
        local = local[1:-1]
    local = _ESCAPED.sub(r"\1", local)
    return folded(f"{local}{at}{domain}")


def above(address: str) -> Iterator[str]:
    """An address, its domain and all domains above that.

    >>> list(above("a@b.example.org"))
    ['a@b.example.org', 'b.example.org', 'example.org', 'org']
    """
    yield address
    domain = address.rpartition("@")[2]
    while domain:
        yield domain
        domain = domain.partition(".")[2]


def size_of(argument: str) -> int:
    """The SIZE that MAIL declares, 0 if none.

    >>> size_of("FROM:<a@b> SIZE=1000 BODY=7BIT"), size_of("FROM:<a SIZE=9 @b>")
    (1000, 0)
    """
    match = _PATH.fullmatch(argument)
    size = _SIZE.search(match.group(4) or "") if match else None
    return int(size.group(1)) if size else 0


def parameters_of(argument: str) -> set[str]:
    """The names of the parameters of MAIL or RCPT, in capitals.

    >>> sorted(parameters_of("FROM:<a@b RET=X> BODY=8BITMIME smtputf8"))
    ['BODY', 'SMTPUTF8']
    """
    match = _PATH.fullmatch(argument)
    return {word.partition("=")[0].upper() for word in (match.group(4) or "").split()} if match else set()


def without_size(argument: str) -> str:
    """The argument of MAIL without its SIZE.

    >>> without_size("FROM:<a@b> SIZE=1000 BODY=7BIT")
    'FROM:<a@b> BODY=7BIT'
    """
    match = _PATH.fullmatch(argument)
    if match is None or not match.group(4):
        return argument
    return argument[: match.start(4)] + _SIZE.sub(lambda found: " " * found[0].endswith(" "), match.group(4), count=1)


def is_plain(recipient: str, domains: frozenset[str]) -> bool:
    """Whether an untrusted client may send to a recipient: a plain address in these domains, or postmaster.

    An address that a mail server might take for a route to another host is not plain: the next hop trusts the relay,
    and would send the mail there.
    """
    local, at, domain = recipient.rpartition("@")
    if not at:
        return lowered(domain) == "postmaster"  # RFC 5321 section 4.5.1
    return local != "" and folded(domain) in domains and not _ROUTING.search(local)
