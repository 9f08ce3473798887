"""Strangers who take what all clients share, and sit on it: connections, conversations with the next hop, memory.

Guarantee: trusted clients keep a reserve of each, and one address gets a share, so other strangers are served, too.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from spamfilter.config.sections import Limits
from spamfilter.relay.limits.budget import CONVERSATIONS, CONVERSATIONS_EACH
from spamfilter.relay.next_hops.next_hop import Timeouts
from tests.support.doors import DOORS, RELAYING
from tests.support.parts import KEYWORDS, Client, Hop, Running, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
FRIEND = "127.0.0.9"
PATIENCE = 20.0
pytestmark = pytest.mark.parametrize("door", RELAYING)
POSTFIX = 100
"""Processes of a Postfix, and so connections that it serves at a time, by its default."""


class Place:
    """A relay that trusts FRIEND alone, in front of a next hop."""

    def __init__(self, running: Running, hop: Hop) -> None:
        self.running = running
        self.hello = f"{DOORS[running.door].client.hello} client.test"
        self.relay = running.relay
        self.hop = hop

    async def connect(self, address: str = "127.0.0.2") -> Client:
        """A client with this address, greeted or not."""
        connection = await asyncio.open_connection("127.0.0.1", self.running.port, local_addr=(address, 0))
        client = Client(*connection, DOORS[self.running.door].client.hello)
        self.running.clients.append(client)
        await client.reply()
        return client

    async def many(self, number: int, addresses: Sequence[str], *lines: str) -> list[Client]:
        """So many clients of each address, each after these lines."""
        clients = [await self.connect(address) for address in addresses for _ in range(number)]
        await asyncio.gather(*(client.ask(*lines) for client in clients))
        return clients

    async def delivers(self, *addresses: str) -> None:
        """Clients with these addresses deliver a mail."""
        for address in addresses:
            client = await self.connect(address)
            assert (await client.send(MAIL)).startswith(b"250 ")
            await client.ask("QUIT")


@asynccontextmanager
async def place(
    folder: Path, door: str, limits: Limits | None = None, *, normalise: bool = False
) -> AsyncIterator[Place]:
    networks = (ip_network(f"{FRIEND}/32"),)
    async with (
        Hop() as hop,
        relaying(
            folder,
            DOORS[door].at(hop.port),
            door=door,
            limits=limits,
            timeouts=Timeouts(),  # as shipped: these tests are about numbers, and a busy machine greets late
            trusted=networks,
            domains=frozenset({"example.test"}),
            normalise=normalise,
        ) as running,
    ):
        yield Place(running, hop)


async def within(work: Awaitable[bytes]) -> bytes:
    return await asyncio.wait_for(work, PATIENCE)


async def test_clients_that_only_greet_take_no_connection_of_the_next_hop(tmp_path: Path, door: str) -> None:
    """Two addresses with fifty idle clients each took all hundred processes of a Postfix, and all mail heard 451."""
    async with place(tmp_path, door) as there:
        clients = await there.many(POSTFIX // 2, ("127.0.0.2", "127.0.0.3"), there.hello)
        assert there.hop.connections == 1
        await there.delivers("127.0.0.4", FRIEND)
        assert (there.hop.connections, len(there.hop.messages)) == (1, 2)
        assert (await clients[0].ask("NOOP")).startswith(b"250 ")


async def test_clients_between_two_mails_hold_no_connection_of_the_next_hop(tmp_path: Path, door: str) -> None:
    async with place(tmp_path, door) as there:
        for number in range(20):
            client = await there.connect(FRIEND if number % 2 else "127.0.0.2")
            assert (await client.send(MAIL)).startswith(b"250 ")
            assert (await client.ask("MAIL FROM:<a@example.org>", "RSET")).startswith(b"250 ")
            assert (await client.ask("VRFY b")).startswith(b"25")
        assert there.hop.connections == 1
        assert there.relay.conversations.used == 0


async def test_a_next_hop_that_does_not_answer_is_asked_for_its_keywords_once(tmp_path: Path, door: str) -> None:
    """Thirty clients that greet at once made thirty connections to a next hop that was busy already."""
    async with place(tmp_path, door) as there:
        there.hop.delays["CONNECT"] = 0.3
        await there.many(15, ("127.0.0.2", "127.0.0.3"), there.hello)
        assert there.hop.connections == 1


async def test_an_address_that_sits_in_transactions_leaves_conversations_to_others(tmp_path: Path, door: str) -> None:
    """Forty-nine transactions of one address that never go on take ten conversations; the others hear 451."""
    async with place(tmp_path, door, Limits(connect_seconds=0.3)) as there:
        await there.many(49, ("127.0.0.2",), there.hello, "MAIL FROM:<a@example.org>")
        assert there.hop.open == there.relay.conversations.used == CONVERSATIONS_EACH
        late = await there.connect()
        assert (await late.ask(there.hello, "MAIL FROM:<a@example.org>")).startswith(b"451 4.3.2 Too many ")
        assert (await late.ask("RCPT TO:<b@example.test>")).startswith(b"451 ")
        await there.delivers("127.0.0.3", FRIEND)
        assert there.relay.metrics.value("limits_hit", "connect_seconds") == 40


async def test_strangers_that_sit_in_transactions_leave_half_of_postfix_to_trusted_clients(
    tmp_path: Path, door: str
) -> None:
    """Seventy-two transactions of six addresses that never go on take fifty of a hundred conversations."""
    addresses = [f"127.0.0.{number}" for number in range(20, 26)]
    async with place(tmp_path, door, Limits(connect_seconds=0.3)) as there:
        await there.many(12, addresses, there.hello, "MAIL FROM:<a@example.org>")
        assert there.hop.open == CONVERSATIONS
        friends = await there.many(30, (FRIEND,), there.hello, "MAIL FROM:<a@example.org>")
        assert there.hop.open == CONVERSATIONS + len(friends) < POSTFIX
        await there.delivers(FRIEND)


async def test_a_stranger_waits_for_a_conversation_that_another_gives_back(tmp_path: Path, door: str) -> None:
    """A burst of mail hears no 451."""
    async with place(tmp_path, door) as there:
        first, *others = await there.many(CONVERSATIONS_EACH, ("127.0.0.2",), there.hello, "MAIL FROM:<a@example.org>")
        late = await there.connect()
        waiting = asyncio.ensure_future(late.ask(there.hello, "MAIL FROM:<late@example.org>"))
        for client in (first, *others):
            assert (await client.ask("RCPT TO:<b@example.test>")).startswith(b"250 ")
        assert not waiting.done()
        await first.ask("QUIT")
        assert (await within(waiting)).startswith(b"250 ")
        assert there.relay.conversations.used == CONVERSATIONS_EACH


async def test_a_conversation_counts_until_its_mail_is_delivered_though_the_client_is_gone(
    tmp_path: Path, door: str
) -> None:
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    async with place(tmp_path, door) as there:
        there.hop.before_final = wait
        client = await there.connect()
        await client.ask(there.hello, "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>", "DATA")
        client.writer.write(MAIL + b".\r\n")
        while not there.hop.messages:
            await asyncio.sleep(0.01)
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
        while sum(there.relay.shared.connections.all):
            await asyncio.sleep(0.01)
        assert there.relay.conversations.used == 1
        go_on.set()
        while there.relay.conversations.used:
            await asyncio.sleep(0.01)
        assert there.relay.memory.used == 0


async def test_idle_strangers_leave_connections_to_trusted_clients(tmp_path: Path, door: str) -> None:
    """Two thousand idle strangers filled `connections`, and trusted clients heard 421; here two hundred do."""
    async with place(tmp_path, door, Limits(connections=100)) as there:
        strangers = [await there.connect(f"127.0.0.{20 + number % 5}") for number in range(200)]
        assert there.relay.metrics.value("limits_hit", "connections") == 110
        await there.delivers(*[FRIEND] * 5)
        assert len([client for client in strangers if not client.reader.at_eof()]) >= 90


async def begun(there: Place, address: str, size: int) -> Client:
    """A client that has sent a mail of this size but for its end."""
    client = await there.connect(address)
    for line in (there.hello, "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>"):
        assert (await client.ask(line)).startswith(b"250")
    assert (await client.ask("DATA")).startswith(b"354")
    client.writer.write(MAIL + (b"y" * 62 + b"\r\n") * (size // 64))
    await client.writer.drain()
    return client


@pytest.mark.parametrize("other", ["127.0.0.3", FRIEND])
async def test_unfinished_mails_of_one_address_leave_memory_to_others(tmp_path: Path, other: str, door: str) -> None:
    """Nine unfinished mails of one stranger filled `memory_megabytes`, and all other mail heard 452 for an hour."""
    limits = Limits(memory_megabytes=16, message_size=2_500_000)
    async with place(tmp_path, door, limits) as there:
        clients = [await begun(there, "127.0.0.2", 2_000_000) for _ in range(9)]
        assert there.relay.memory.used <= 2_500_000
        mail = MAIL + (b"z" * 62 + b"\r\n") * 30_000
        client = await there.connect(other)
        assert (await client.ask(there.hello, f"MAIL FROM:<a@example.org> SIZE={len(mail)}")).startswith(b"250 ")
        assert (await client.send(mail)).startswith(b"250 ")
        answers = []
        for late in clients:
            late.writer.write(b".\r\n")
            answers.append((await late.reply())[:3])
        assert sorted(answers) == [b"250", *[b"452"] * 8]
        assert there.relay.memory.used == 0


async def test_unfinished_mails_of_many_addresses_leave_memory_to_trusted_clients(tmp_path: Path, door: str) -> None:
    async with place(tmp_path, door, Limits(memory_megabytes=16, message_size=2_500_000)) as there:
        for number in range(5):
            await begun(there, f"127.0.0.{20 + number}", 2_300_000)
        while there.relay.memory.used < 5 * 2_290_000:  # the last blocks may be on their way
            await asyncio.sleep(0.01)
        late = await there.connect("127.0.0.40")
        assert (await late.ask(there.hello, "MAIL FROM:<a@example.org> SIZE=2400000")).startswith(b"452 ")
        friend = await there.connect(FRIEND)
        assert (await friend.ask(there.hello, "MAIL FROM:<a@example.org> SIZE=2400000")).startswith(b"250 ")


async def test_a_stranger_whom_a_trusted_client_names_has_a_share_of_memory(tmp_path: Path, door: str) -> None:
    """Behind a mail server that names its clients they are told apart as well."""
    async with place(tmp_path, door, Limits(memory_megabytes=16, message_size=2_500_000)) as there:
        for size in (2_000_000, 2_000_000):
            client = await there.connect(FRIEND)
            await client.ask(there.hello, "XFORWARD ADDR=192.0.2.7", "MAIL FROM:<a@x>", "RCPT TO:<b@x>", "DATA")
            client.writer.write(MAIL + b"y" * size)
            await client.writer.drain()
        for name, code in (("192.0.2.7", b"452 "), ("192.0.2.8", b"250 "), ("no:address", b"250 ")):
            client = await there.connect(FRIEND)
            command = "MAIL FROM:<a@x> SIZE=2000000"
            assert (await client.ask(there.hello, f"XFORWARD ADDR={name}", command)).startswith(code)


async def test_a_mail_that_comes_by_a_line_now_and_then_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    """A line of seventy bytes every twenty seconds kept a mail of any size for `transaction_seconds`, an hour."""
    monkeypatch.setattr("spamfilter.relay.smtp.incoming.PACE_SECONDS", 1.0)
    async with place(tmp_path, door) as there:
        client = await begun(there, "127.0.0.2", 1_000_000)
        heard = asyncio.ensure_future(client.reply())
        while not heard.done():
            client.writer.write(b"a line\r\n")
            await asyncio.sleep(0.1)
        assert heard.result() == b"421 4.4.2 Timeout in DATA; closing connection\r\n"
        while there.relay.memory.used:
            await asyncio.sleep(0.01)
        assert there.relay.metrics.value("limits_hit", "data_seconds") == 1
    assert there.hop.messages == []


async def test_a_slow_line_brings_its_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str) -> None:
    monkeypatch.setattr("spamfilter.relay.smtp.incoming.PACE_SECONDS", 0.5)
    async with place(tmp_path, door) as there:
        client = await begun(there, "127.0.0.2", 0)
        for _ in range(20):
            client.writer.write(b"a line of a mail from a line that is as slow as a modem of once\r\n" * 4)
            await asyncio.sleep(0.1)
        client.writer.write(b".\r\n")
        assert (await client.reply()).startswith(b"250 ")


@pytest.mark.parametrize(
    ("lines", "memory", "code"),
    [(40_000, 1, b"250"), (60_000, 1, b"552"), (40_000, 0, b"452")],
    ids=["fits", "too large", "no memory"],
)
async def test_a_mail_whose_line_ends_are_repaired_is_counted_as_large_as_it_is_then(
    tmp_path: Path, lines: int, memory: int, code: bytes, door: str
) -> None:
    """A mail of LFs doubles, and the second half was not counted."""
    used: list[int] = []
    limits = Limits(memory_megabytes=1, message_size=100_000)
    async with place(tmp_path, door, limits, normalise=True) as there:

        async def look() -> None:
            used.append(there.relay.memory.used)

        there.hop.before_final = look
        if not memory:
            assert there.relay.memory.take(1_000_000 - 70_000)
        client = await there.connect(FRIEND)
        mail = MAIL + b"\n" * lines + b"\r\n"
        assert (await client.send(mail))[:3] == code
        assert used == ([len(MAIL) + 2 * lines + 2] if code == b"250" else [])
        assert there.relay.memory.used == (0 if memory else 1_000_000 - 70_000)


@pytest.mark.parametrize(
    ("gone", "command"),
    [
        ("8BITMIME", "MAIL FROM:<a@x> BODY=8BITMIME"),
        ("SMTPUTF8", "MAIL FROM:<\xe4@x> SMTPUTF8"),
        ("DSN", "MAIL FROM:<a@x> RET=HDRS"),
    ],
)
async def test_what_the_next_hop_no_longer_supports_is_deferred(
    tmp_path: Path, gone: str, command: str, door: str
) -> None:
    """The keywords of EHLO are those of an earlier connection; the next EHLO has the new ones.

    The next hop would refuse the mail for good.
    """
    async with place(tmp_path, door) as there:
        client = await there.connect()
        assert gone.split()[0].encode() in await client.ask(there.hello)
        there.hop.keywords = tuple(keyword for keyword in KEYWORDS if keyword != gone)
        there.hop.replies[command] = b"555 5.5.4 Unsupported option\r\n"
        there.relay.next_hop.close()  # closes the kept one
        assert (await client.ask(command))[:3] == b"451"
        assert gone.split()[0].encode() not in (await client.ask(there.hello)).replace(b"SIZE 52428800", b"")
        assert there.hop.connections == 2
        assert (await client.ask("MAIL FROM:<a@x>"))[:3] == b"250"
