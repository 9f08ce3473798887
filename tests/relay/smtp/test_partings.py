"""How sessions end: quietly, whatever the client does at that moment."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.parts import Hop, relaying


async def test_a_client_that_says_quit_and_is_gone_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Like smtp-source: it closes the socket before it reads our 221."""
    caplog.set_level(logging.INFO)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        for _ in range(20):
            client = await running.connect()
            await client.ask("EHLO client.example")
            client.writer.write(b"QUIT\r\n")
            client.close()
            await asyncio.sleep(0.01)
        assert (await (await running.connect()).ask("NOOP")).startswith(b"250 ")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
