"""A real Postfix behind real relays, one for each way to treat lone line ends; and raw clients."""

import contextlib
import json
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.integration.servers import (
    Postfix,
    Received,
    Relay,
    Sink,
    free_port,
    postfix,
    relay,
    sink,
    wait_until,
    workshop,
)
from tests.support.doors import DOORS, RELAYING

SETTINGS = {
    "before-queue, reject": {"mode": "before-queue", "bare_newlines": "reject"},
    "before-queue, normalise": {"mode": "before-queue", "bare_newlines": "normalise"},
    "after-queue": {"mode": "after-queue", "bare_newlines": "reject"},
}
"""After the queue lone line ends are always normalised, whatever is set: a refusal would bounce."""
STRANGERS = {"trusted": ["192.0.2.0/24"], "domains": ["example.test"]}
"""Our clients are strangers: what they hide would be relayed by their own right otherwise."""
ANSWER_SECONDS = 60.0
PAUSE = 0.01
"""Between two packets, so that they are not read as one; a test that meets them joined just tests less."""


@dataclass(frozen=True)
class Judged:
    """A row of the journal."""

    sender: str
    recipients: tuple[str, ...]
    size: int
    reply: str


@dataclass(frozen=True)
class Chain:
    """Client -> one of the relays -> Postfix -> sink. ports: setting and door -> where the relay listens."""

    postfix: Postfix
    relays: dict[str, Relay]
    ports: dict[tuple[str, str], int]
    sink: Sink

    def settled(self) -> list[Received]:
        """All that ever reached the sink, once nothing is on its way to it any more."""
        wait_until(lambda: self.postfix.queued() == 0, "an empty queue", 120)
        return self.sink.received

    def journal(self, setting: str, count: int) -> dict[str, Judged]:
        """The mails that a relay has judged, by id, once its journal has this many."""
        query = "SELECT id, sender, recipients, size, reply FROM journal WHERE class != 'unjudged'"
        with contextlib.closing(sqlite3.connect(self.relays[setting].folder / "state" / "spamfilter.db")) as database:
            wait_until(lambda: len(database.execute(query).fetchall()) >= count, f"{count} rows in the journal")
            rows = database.execute(query).fetchall()
            return {id: Judged(sender, tuple(json.loads(to)), size, reply) for id, sender, to, size, reply in rows}


@contextlib.contextmanager
def chain() -> Iterator[Chain]:
    """One Postfix and a relay for each of SETTINGS."""
    with workshop() as folder, sink() as end, contextlib.ExitStack() as stack:
        back = free_port()
        ports = {(name, door): free_port() for name in SETTINGS for door in RELAYING}
        relays = {}
        for number, (name, setting) in enumerate(SETTINGS.items()):
            places = {DOORS[door].listen: [f"127.0.0.1:{ports[name, door]}"] for door in RELAYING}
            settings = {"next_hop": f"smtp://127.0.0.1:{back}", **places, **setting, **STRANGERS}
            relays[name] = stack.enter_context(relay(folder / str(number), relay=settings))
        first = next(iter(relays.values())).port
        server = stack.enter_context(postfix(folder / "postfix", to=end.port, back=back, proxy=first))
        yield Chain(server, relays, ports, end)


def heard(port: int, packets: Sequence[bytes], source: str = "127.0.0.1") -> list[bytes]:
    """The replies to what was sent in these packets, up to the end of the connection; each reply with all its lines.

    The greeting is waited for: a stranger who talks before it is not heard.
    """
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS, (source, 0)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client.makefile("rb", buffering=0) as unbuffered:
            raw = unbuffered.readline()
        for number, packet in enumerate(packets):
            time.sleep(PAUSE if number else 0)
            client.sendall(packet)
        while block := client.recv(65_536):
            raw += block
    return replies_in(raw)


def replies_in(raw: bytes) -> list[bytes]:
    """Whole replies, as a client reads them. AssertionError where this is not SMTP."""
    replies: list[bytes] = []
    begun = b""
    assert raw.endswith(b"\r\n"), raw[-200:]
    for line in raw.removesuffix(b"\r\n").split(b"\r\n"):
        assert line[:3].isdigit(), line
        assert line[3:4] in (b" ", b"-", b""), line
        assert not begun or begun[:3] == line[:3], line
        assert not any(byte in line for byte in b"\r\n\0"), line
        begun += line + b"\r\n"
        if line[3:4] != b"-":
            replies.append(begun)
            begun = b""
    assert not begun, begun
    return replies


def codes(replies: Sequence[bytes]) -> list[int]:
    return [int(reply[:3]) for reply in replies]
