"""What is not SMTP, or comes before the greeting, ends the session before it can deliver or teach."""

import ipaddress
import re
from pathlib import Path

import pytest

from spamfilter.config.sections import Feedback
from tests.support.parts import Hop, Running, relaying

NOBODY = (ipaddress.ip_network("192.0.2.0/24"),)
SPAM = "spam@relay.test"
DIALOGUE = (
    b"EHLO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.test>\r\nDATA\r\nSubject: x\r\n\r\nx\r\n.\r\nQUIT\r\n"
)
FORM = b"Host: relay.test:25\r\nContent-Type: text/plain\r\nContent-Length: 200\r\n\r\n"


async def heard(running: Running, sent: bytes, *, greet: bool = True) -> list[bytes]:
    """The codes of the replies behind the greeting, up to the end of the connection."""
    client = await running.connect(greet=greet)
    client.writer.write(sent)
    return re.findall(rb"(?m)^(\d+) ", await client.reader.read())


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"get", b"CONNECT"])
async def test_a_form_that_a_browser_sends_here_delivers_and_teaches_nothing(tmp_path: Path, method: bytes) -> None:
    feedback = Feedback(spam_addresses=[SPAM])
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", feedback=feedback) as running:
        for lines in (DIALOGUE, DIALOGUE.replace(b"b@example.test", SPAM.encode())):
            assert await heard(running, method + b" / HTTP/1.1\r\n" + FORM + lines) == [b"421"]
            assert await heard(running, method + b" / HTTP/1.1\r\n" + lines) == [b"421"]
        assert hop.received == []
        assert running.entries() == []
        assert running.store.learnings() == []


@pytest.mark.parametrize(
    "lines",
    [b"WHAT\r\nWHAT\r\n", b"\r\n\r\n", b"\x16\x03\x01\n\xff\n", b"NOOP\r\nWHAT\r\nNOOP\r\n" + b"x" * 3000 + b"\r\n"],
    ids=["no commands", "empty", "TLS", "among others"],
)
async def test_two_lines_before_ehlo_that_are_no_commands_end_the_session(tmp_path: Path, lines: bytes) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        replies = await heard(running, lines + DIALOGUE)
        assert [code for code in replies if code != b"250"] == [b"500", b"421"]
        assert hop.received == []


@pytest.mark.parametrize("first", [b"WHAT\r\n", b"HELP\r\n"])
async def test_one_such_line_is_forgiven_and_so_are_those_behind_ehlo(tmp_path: Path, first: bytes) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        replies = await heard(running, first + DIALOGUE.replace(b"MAIL", b"POST / HTTP/1.1\r\nWHAT\r\nWHAT\r\nMAIL"))
        assert replies == [b"500", b"250", b"500", b"500", b"500", b"250", b"250", b"354", b"250", b"221"]
        assert len(hop.messages) == 1


async def test_a_stranger_who_talks_before_the_greeting_is_not_heard(tmp_path: Path) -> None:
    domains = frozenset({"example.test"})
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", trusted=NOBODY, domains=domains) as running,
    ):
        assert await heard(running, DIALOGUE, greet=False) == [b"421"]
        assert hop.received == []
        assert running.relay.metrics.value("connections") == 0
        assert (await heard(running, DIALOGUE))[-2:] == [b"250", b"221"]


async def test_a_trusted_client_may_talk_before_the_greeting(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        replies = await heard(running, DIALOGUE, greet=False)
        assert replies == [b"220", b"250", b"250", b"250", b"354", b"250", b"221"]
