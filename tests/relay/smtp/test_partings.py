"""How sessions end: quietly, whatever the client does at that moment."""

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from spamfilter.relay.smtp.dialogue import Dialogue
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


def without_memory(*arguments: object) -> NoReturn:
    raise MemoryError


@pytest.mark.parametrize(
    "place", ["asyncio.StreamReader.feed_data", "asyncio.StreamReader.readuntil"], ids=["as it comes", "as it is read"]
)
async def test_a_client_whose_command_has_no_room_hears_421(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        raw = socket.create_connection(("127.0.0.1", running.port), timeout=20)  # which reads no stream of asyncio's
        with raw, raw.makefile("rb") as replies:
            assert (await asyncio.to_thread(replies.readline)).startswith(b"220 ")
            monkeypatch.setattr(place, without_memory)
            raw.sendall(b"NOOP\r\nNOOP\r\n")
            heard = (await asyncio.to_thread(replies.read)).split(b"\r\n")
            monkeypatch.undo()
        # The first may have been waited for before.
        assert heard[heard[0].startswith(b"250 ") :] == [b"421 4.3.0 Temporary fault; closing connection", b""]
        assert running.relay.metrics.value("faults", "session") == 1


class _Exhausted:
    """A socket that has no memory to receive anything but what goes to memory that is there."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return without_memory if name == "recv" else getattr(self._sock, name)


async def test_input_goes_to_memory_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the connection would be cut without a reply when there is none."""
    sessions: list[Dialogue] = []
    serve = Dialogue.serve

    async def served(self: Dialogue) -> None:
        sessions.append(self)
        await serve(self)

    monkeypatch.setattr(Dialogue, "serve", served)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        link: Any = sessions[0].link
        link._sock = _Exhausted(link._sock)
        assert (await client.send(b"Subject: x\r\n\r\nx\r\n")).startswith(b"250 ")
