"""Kept connections to the next hop: when they are used at once, and when they are checked with RSET."""

import asyncio
from pathlib import Path

import pytest

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops.smtp import KEPT_CONNECTIONS, SmtpNextHop
from tests.support.certificates import client_context, server_context
from tests.support.parts import KEYWORDS, Client, Hop, Running, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"


@pytest.fixture(autouse=True)
def _moments_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a test may have to wait for its turn."""
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.FRESH_SECONDS", 60.0)


async def given_back(running: Running) -> None:
    """Wait until no session has a conversation: one that has said QUIT gives it back behind its last reply."""
    async with asyncio.timeout(20):
        while running.relay.conversations.used:
            await asyncio.sleep(0.01)


async def delivers(client: Client) -> None:
    assert (await client.send(MAIL)).startswith(b"250 ")


async def is_refused(client: Client) -> None:
    assert (await client.send(MAIL)).startswith(b"550 ")


async def only_greets(client: Client) -> None:
    await client.ask("EHLO c")


async def leaves_an_envelope(client: Client) -> None:
    await client.envelope()


async def leaves_an_envelope_after_a_mail(client: Client) -> None:
    await delivers(client)
    await client.ask("MAIL FROM:<a@example.org>")


async def asks_for_a_user_after_a_mail(client: Client) -> None:
    await delivers(client)
    await client.ask("VRFY bob")


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (delivers, 0),
        (is_refused, 1),
        (only_greets, 0),
        (leaves_an_envelope, 1),
        (leaves_an_envelope_after_a_mail, 1),
        (asks_for_a_user_after_a_mail, 1),
    ],
    ids=["delivers", "is refused", "greets", "leaves an envelope", "leaves one after a mail", "asks after a mail"],
)
async def test_only_where_no_envelope_can_be_left_it_is_used_unasked(tmp_path: Path, first: object, asked: int) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        if first is is_refused:
            hop.replies["DOT"] = b"550 5.7.1 no\r\n"
        client = await running.connect()
        await first(client)  # type: ignore[operator]
        await client.ask("QUIT")
        await given_back(running)
        hop.replies.clear()
        await delivers(await running.connect())
        assert hop.received.count(b"RSET") == asked
        assert hop.connections == 1


async def test_after_a_moment_it_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        for _ in range(2):
            client = await running.connect()
            await delivers(client)
            await client.ask("QUIT")
            await given_back(running)
            monkeypatch.setattr("spamfilter.relay.next_hops.smtp.FRESH_SECONDS", 0.0)
        assert hop.received.count(b"RSET") == 1


async def test_one_that_the_next_hop_said_more_on_is_not_used(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DOT"] = b"250 2.0.0 Ok\r\n421 4.3.2 leaving\r\n"
        client = await running.connect()
        await delivers(client)
        await client.ask("QUIT")
        await given_back(running)
        hop.replies.clear()
        await delivers(await running.connect())
        assert hop.connections == 2


@pytest.mark.parametrize("parting", [b"", b"421 4.7.0 one mail a connection\r\n"], ids=["hangs up", "says 421"])
@pytest.mark.parametrize("keywords", [b"250 hop\r\n", b"250-hop\r\n250 PIPELINING\r\n"], ids=["plain", "pipelining"])
async def test_a_next_hop_that_leaves_before_it_hears_the_next_mail_costs_no_client_a_451(
    tmp_path: Path, keywords: bytes, parting: bytes
) -> None:
    """It takes one mail a connection, and says so only to the next MAIL."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mails = 0
        writer.write(b"220 hop\r\n")
        while line := await reader.readline():
            verb = line[:4].upper()
            heard.append(verb)
            if verb == b"MAIL" and mails:
                writer.write(parting)
                break
            writer.write(keywords if verb == b"EHLO" else b"354 go on\r\n" if verb == b"DATA" else b"250 Ok\r\n")
            if verb == b"DATA":
                await reader.readuntil(b"\r\n.\r\n")
                mails += 1
                writer.write(b"250 taken\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with relaying(tmp_path, f"smtp://127.0.0.1:{port}") as running:
            for _ in range(4):
                client = await running.connect()
                await delivers(client)
                await client.ask("QUIT")
                await given_back(running)
        assert heard.count(b"DATA") == 4
        assert heard.count(b"MAIL") == 7
        assert b"RSET" not in heard


async def quits(hop: Hop) -> None:
    """The next hop has heard QUIT and then the end of the connection."""
    while hop.open:
        await asyncio.sleep(0.01)
    assert hop.received[-1] == b"QUIT"


async def test_one_whose_time_is_over_ends_with_quit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.KEPT_SECONDS", 0.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await delivers(client)
        await client.ask("QUIT")
        await asyncio.wait_for(quits(hop), 20)


async def test_one_too_many_ends_with_quit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.KEPT_CONNECTIONS", 0)
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.FRESH_SECONDS", 0.0)  # the time that it is kept for
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await leaves_an_envelope(client)
        await client.ask("QUIT")
        await asyncio.wait_for(quits(hop), 20)


@pytest.mark.parametrize("secure", [False, True], ids=["in the clear", "over TLS"])
async def test_at_the_end_of_the_relay_each_ends_with_quit(tmp_path: Path, secure: bool) -> None:
    async with Hop((*KEYWORDS, *(["STARTTLS"] if secure else []))) as hop:
        hop.tls = server_context(tmp_path)
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test", client_context(tmp_path) if secure else None)
        async with relaying(tmp_path, next_hop) as running:
            clients = [await running.connect() for _ in range(3)]
            for client in clients:
                await leaves_an_envelope(client)  # at the same time, so each has its own
            for client in clients:
                await client.ask("QUIT")
            while len(next_hop._kept) < len(clients):
                await asyncio.sleep(0.01)
            next_hop.close()
            await asyncio.wait_for(quits(hop), 20)
            assert hop.received.count(b"QUIT") == len(clients)


async def test_one_whose_next_hop_does_not_answer_to_quit_holds_up_nobody(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["QUIT"] = b"hang"
        client = await running.connect()
        await delivers(client)
        await client.ask("QUIT")
        running.relay.next_hop.close()
        await delivers(await running.connect())


async def test_no_quit_follows_on_commands_that_were_sent_in_advance(tmp_path: Path) -> None:
    """Who knows what the next hop makes of it before it has answered the others."""
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        conversation = await running.relay.next_hop.open()
        conversation.pipeline([b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.test>"])
        await conversation.command(b"MAIL FROM:<a@example.org>")
        conversation.release()
        running.relay.next_hop.close()
        while hop.open:
            await asyncio.sleep(0.01)
        assert b"QUIT" not in hop.received


async def test_a_next_hop_that_refuses_the_greeting_hears_quit() -> None:
    """RFC 5321 section 3.1: also behind a 554 it waits for QUIT."""
    async with Hop() as hop:
        hop.replies["CONNECT"] = b"554 5.7.1 not for you\r\n"
        with pytest.raises(NextHopError, match="not for you"):
            await SmtpNextHop("127.0.0.1", hop.port, "relay.test").open()
        await asyncio.wait_for(quits(hop), 20)


async def test_busy_clients_share_their_connections_and_few_are_kept_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = KEPT_CONNECTIONS + 10
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        clients = [await running.connect() for _ in range(number)]
        for seconds in (60.0, 60.0, 0.1):
            for client in clients:
                await client.envelope()
            monkeypatch.setattr("spamfilter.relay.next_hops.smtp.FRESH_SECONDS", seconds)
            for client in clients:
                await client.ask("DATA")
                client.writer.write(MAIL + b".\r\n")
                assert (await client.reply()).startswith(b"250 ")
        assert hop.connections == number
        while hop.open > KEPT_CONNECTIONS:
            await asyncio.sleep(0.01)
