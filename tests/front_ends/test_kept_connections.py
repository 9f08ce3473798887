"""A connection to the next hop that waits for the next client: when it is used as it is, and when it is asked first."""

import asyncio
from pathlib import Path

import pytest

from tests.parts import Client, Hop, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"


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
        (only_greets, 1),
        (leaves_an_envelope, 1),
        (leaves_an_envelope_after_a_mail, 1),
        (asks_for_a_user_after_a_mail, 1),
    ],
    ids=["delivers", "is refused", "greets", "leaves an envelope", "leaves one after a mail", "asks after a mail"],
)
async def test_only_after_a_mail_that_was_taken_it_is_used_unasked(tmp_path: Path, first: object, asked: int) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        if first is is_refused:
            hop.replies["DOT"] = b"550 5.7.1 no\r\n"
        client = await running.connect()
        await first(client)  # type: ignore[operator]
        await client.ask("QUIT")
        await asyncio.sleep(0.05)
        hop.replies.clear()
        await delivers(await running.connect())
        assert hop.received.count(b"RSET") == asked
        assert hop.connections == 1


async def test_after_a_moment_it_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.next_hops.smtp.FRESH_SECONDS", 0.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        for _ in range(2):
            client = await running.connect()
            await delivers(client)
            await client.ask("QUIT")
            await asyncio.sleep(0.05)
        assert hop.received.count(b"RSET") == 1


async def test_one_that_the_next_hop_said_more_on_is_not_used(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DOT"] = b"250 2.0.0 Ok\r\n421 4.3.2 leaving\r\n"
        client = await running.connect()
        await delivers(client)
        await client.ask("QUIT")
        await asyncio.sleep(0.05)
        hop.replies.clear()
        await delivers(await running.connect())
        assert hop.connections == 2
