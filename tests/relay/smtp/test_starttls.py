"""STARTTLS of clients: offered with a certificate; input in clear text before it is dropped."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from tests.support.certificates import client_context, server_context
from tests.support.parts import Client, Hop, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"


async def secured(client: Client, folder: Path, injected: bytes = b"") -> None:
    client.writer.write(b"STARTTLS\r\n" + injected)
    assert (await client.reply()).startswith(b"220 ")
    await client.writer.start_tls(client_context(folder), server_hostname="127.0.0.1")


async def test_mail_over_starttls_passes_and_the_offer_is_not_repeated(tmp_path: Path) -> None:
    tls = server_context(tmp_path)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", tls=tls) as running:
        client = await running.connect()
        assert b"STARTTLS" in await client.ask("EHLO c")
        await secured(client, tmp_path)
        assert (await client.ask("MAIL FROM:<a@x>")).startswith(b"503 ")  # the greeting counts no more
        assert b"STARTTLS" not in await client.ask("EHLO c")
        assert (await client.send(MAIL)).startswith(b"250 ")
        assert (await client.ask("STARTTLS")).startswith(b"502 ")


async def test_commands_sent_in_the_clear_behind_starttls_are_dropped(tmp_path: Path) -> None:
    tls = server_context(tmp_path)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", tls=tls) as running:
        client = await running.connect()
        await client.ask("EHLO c")
        # Plaintext where a handshake is due breaks the handshake or is dropped; it is not obeyed.
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(secured(client, tmp_path, b"EHLO evil\r\nMAIL FROM:<evil@x>\r\n"), 5)
        assert not [line for line in hop.received if line.startswith(b"MAIL")]


async def test_a_client_that_breaks_off_the_handshake_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = server_context(tmp_path)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", tls=tls) as running:
        client = await running.connect()
        await client.ask("EHLO c", "STARTTLS")
        client.writer.write(b"this is no handshake\r\n")
        await asyncio.sleep(0.2)
        client.writer.transport.abort()
        await asyncio.sleep(0.2)
        assert (await (await running.connect()).send(MAIL)).startswith(b"250 ")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR and record.exc_info] == []
