"""Reading the replies of an SMTP server: RFC 5321 section 4.2.

Guarantee: input that is no reply, has no end or has two codes raises an error, and is never passed on.
"""

import os
import re
import ssl

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops.connection import Connection
from spamfilter.relay.next_hops.next_hop import Reply

MAX_REPLY_LINE = 4096
MAX_REPLY_LINES = 200
"""Limits of a reply: RFC 5321 allows 512 bytes a line."""

_LINE = re.compile(rb"([2-5][0-9][0-9])([ -])?")


async def read_reply(connection: Connection, where: str) -> Reply:
    """The next reply. where: the next hop, for errors. Raises NextHopError, and TooLate after the deadline."""
    buffer = connection.buffer
    lines: list[bytes] = []
    start = 0
    while len(lines) < MAX_REPLY_LINES:
        while (end := buffer.find(b"\n", start)) < 0 and len(buffer) - start <= MAX_REPLY_LINE:
            await _more(connection, where)
        if end < 0 or end - start > MAX_REPLY_LINE:
            raise NextHopError(f"{where}: a line of its reply is too long")
        line = bytes(buffer[start:end]).removesuffix(b"\r")
        start = end + 1
        match = _LINE.match(line)
        if not match or not (match.group(2) or len(line) == 3):
            raise NextHopError(f"{where}: answered {line[:80]!r}, which is not SMTP")
        if lines and lines[0][:3] != line[:3]:
            raise NextHopError(f"{where}: gave two codes in one reply, {lines[0][:3]!r} and {line[:3]!r}")
        lines.append(line)
        if match.group(2) != b"-":
            del buffer[:start]
            return Reply.of(*lines, own=False)
    raise NextHopError(f"{where}: its reply has no end")


async def _more(connection: Connection, where: str) -> None:
    try:
        await connection.more()
    except EOFError as error:
        raise NextHopError(f"{where}: closed the connection", "closed") from error
    except OSError as error:
        raise broken(where, error, "closed") from error


def broken(where: str, error: OSError, kind: str) -> NextHopError:
    """What it means that a connection broke, or could not be made. kind: for the metrics, if it is not TLS.

    The system's own words, as "Connection refused": asyncio's text repeats the address instead.
    """
    if isinstance(error, ssl.SSLError):
        return NextHopError(f"{where}: {error}", "tls")
    number = error.errno or 0  # below 0 for a name that was not found, which strerror(3) does not know
    return NextHopError(f"{where}: {os.strerror(number) if number > 0 else error.strerror or error}", kind)


def kind_by(reply: Reply) -> str:
    """The kind of failure for the metrics that a reply tells of."""
    return f"{reply.code // 100}xx" if reply.code >= 400 else "protocol"
