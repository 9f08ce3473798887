"""More of everything than anybody needs, from a mail server by milter: memory stays bounded, others are served."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import next_hop
from tests.hostile.bounded import BESIDE, MEGABYTE, MESSAGE_SIZE, bounded, served
from tests.support.doors import DOORS
from tests.support.mail_server import CLIENT, PIECE, MailServer, Outcome

RECIPIENTS = 1000
"""The default of this limit."""
COPIES = 4
"""Of the largest mail, which may be in memory at once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    # One process, of which the memory is looked at.
    with (
        next_hop() as hop,
        daemon(tmp_path_factory.mktemp("sizes"), hop, door=DOORS["milter"], relay={"workers": 1}) as running,
    ):
        with running.connect() as client:
            assert client.deliver(mail_of("warm-up")).code == 250
        yield running


@asynccontextmanager
async def mail_server(port: int, recipients: int = 1) -> AsyncIterator[MailServer]:
    """A mail server that has named a sender and recipients."""
    server = MailServer(*await asyncio.open_connection("127.0.0.1", port))
    await server.agree()
    await server.step(b"C", CLIENT)
    await server.step(b"M", b"<a@example.org>\0")
    for _ in range(recipients):
        await server.step(b"R", b"<b@example.test>\0")
        await server.writer.drain()
    yield server
    server.close()


async def sent(server: Daemon, command: bytes, data: bytes, times: int) -> Outcome:
    """What becomes of a mail with so many of these fields or pieces; somebody else is served in the middle of it."""
    outcome = Outcome()
    async with mail_server(server.port) as client:
        await client.send_header([(b"Subject", b" mail")])
        for number in range(times):
            await client.step(command, data)
            await client.writer.drain()
            if number == times // 2:
                await asyncio.to_thread(served, server)
        await client.end(outcome)
    return outcome


FIELD = b"X-Filler\0 0123456789 0123456789 0123456789 0123456789 0123\0"
PARTS = {
    "fields": (b"L", FIELD, len(FIELD) + 1),
    "fields of a megabyte": (b"L", b"X-Filler\0" + b"x" * (MEGABYTE - 20) + b"\0", MEGABYTE),
    "pieces of text": (b"B", b"0123456789abc\r\n" * (PIECE // 15), PIECE),
    "pieces of a line": (b"B", b"x" * PIECE, PIECE),
    "short pieces": (b"B", b"x" * 1000, 1000),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_mail_of_50_megabytes_goes_on(server: Daemon, name: str) -> None:
    command, data, size = PARTS[name]
    with bounded(server, COPIES * MESSAGE_SIZE):
        outcome = asyncio.run(sent(server, command, data, 49 * MEGABYTE // size))
    assert (outcome.reply, outcome.dropped) == ("", False)
    assert outcome.values("X-Spamfilter-Id")


@pytest.mark.parametrize("name", PARTS)
def test_a_mail_that_is_too_large_is_dropped_as_it_comes(server: Daemon, name: str) -> None:
    command, data, size = PARTS[name]
    with bounded(server, 2 * MESSAGE_SIZE):
        outcome = asyncio.run(sent(server, command, data, 120 * MEGABYTE // size))
    assert outcome.reply.startswith("552 5.3.4 ")


def test_many_recipients_take_little_memory(server: Daemon) -> None:
    """None is refused, since by milter nobody waits for the answer to one: the mail server has a limit of its own."""

    async def many() -> Outcome:
        outcome = Outcome()
        async with mail_server(server.port, 100 * RECIPIENTS) as client:
            await client.send_text(b"hi\r\n")
            await client.end(outcome)
        return outcome

    with bounded(server, BESIDE):
        assert asyncio.run(many()).reply == ""


def test_macros_for_any_command_are_not_kept(server: Daemon) -> None:
    async def send() -> None:
        async with mail_server(server.port) as client:
            for command in range(256):
                client.put(b"D", bytes([command]) + b"x\0" + b"x" * (MEGABYTE - 20) + b"\0")
                await client.writer.drain()

    with bounded(server, BESIDE):
        asyncio.run(send())


@pytest.mark.parametrize("length", [2**20 + 2, 2**31, 2**32 - 1])
def test_a_packet_that_is_too_long_ends_the_connection_before_it_comes(server: Daemon, length: int) -> None:
    async def send() -> tuple[bytes, bytes]:
        async with mail_server(server.port) as client:
            client.writer.write(struct.pack(">I", length) + b"B")
            return await client.packet()

    with bounded(server, BESIDE):
        assert asyncio.run(send()) == (b"", b"")
