"""What a next hop says reaches the client as one well-formed reply for each command, or as a 451 of ours."""

import re
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from spamfilter.relay.next_hops import Timeouts
from spamfilter.relay.next_hops.connection import Connection
from spamfilter.relay.next_hops.smtp import SmtpNextHop
from spamfilter.reports.rendering import to_json
from spamfilter.system.escaping import harmless
from tests.hostile.chain_smtp import replies_in
from tests.support.certificates import client_context, server_context
from tests.support.doors import DOORS, RELAYING
from tests.support.parts import KEYWORDS, Hop, Running, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
VERBATIM = {
    "many lines": b"550-5.7.1 " + b"x" * 1000 + b"\r\n",
    "an escape sequence": b"550 5.7.1 \x1b[2J\x1b]0;evil\x07\r\n",
    "8 bits": b"550 5.7.1 \xff\xfe\x9b2J\r\n",
    "bidirectional override": "550 5.7.1 \u202elive\u2069\r\n".encode(),
    "line separators of Unicode": "550 5.7.1 a\u2028250 b\x85250 c\r\n".encode(),
    "no text": b"550\r\n",
    "no text in several lines": b"550-\r\n550 \r\n",
}
"""These are SMTP, and go on byte for byte: the client is a mail server and no terminal."""
VERBATIM["many lines"] = b"".join([VERBATIM["many lines"]] * 99) + b"550 end\r\n"
MENDED = {
    "CR inside": (b"550 5.7.1 no\r250 yes\r\n", b"550 5.7.1 no?250 yes\r\n"),
    "NUL inside": (b"550 5.7.1 no\0pe\r\n", b"550 5.7.1 no?pe\r\n"),
    "ended by LF": (b"550 5.7.1 no\n", b"550 5.7.1 no\r\n"),
    "ended by CR CR LF": (b"550 5.7.1 no\r\r\n", b"550 5.7.1 no?\r\n"),
    "an LF inside a line": (b"550-5.7.1 no\n550 really\r\n", b"550-5.7.1 no\r\n550 really\r\n"),
}
BROKEN = {
    "a line of 100 kB": b"550 " + b"x" * 100_000 + b"\r\n",
    "a line without end": b"550 " + b"x" * 100_000,
    "a thousand lines": b"550-more\r\n" * 1000 + b"550 end\r\n",
    "two codes": b"550-no\r\n250 yes\r\n",
    "two codes divided by LF": b"550-no\n250 yes\r\n",
    "no digits": b"yes, of course\r\n",
    "a letter in the code": b"25O ok\r\n",
    "digits of Unicode": "\N{ARABIC-INDIC DIGIT TWO}50 ok\r\n".encode(),
    "four digits": b"2500 ok\r\n",
    "a code below 200": b"199 wait\r\n",
    "a code above 599": b"999 no\r\n",
    "tab behind the code": b"550\tno\r\n",
    "only a line end": b"\r\n",
    "only an LF": b"\n",
    "a blank before the code": b" 550 no\r\n",
    "NUL before the code": b"\0550 no\r\n",
    "HTTP": b"HTTP/1.1 200 OK\r\n\r\n",
}
"""No SMTP: nobody can know what was meant, so the client keeps its mail."""
STAGES = ("MAIL", "RCPT", "DATA", "DOT")
each_door = pytest.mark.parametrize("door", RELAYING)


def relay(folder: Path, door: str, hop: Hop, **settings: Any) -> AbstractAsyncContextManager[Running]:
    return relaying(folder, DOORS[door].at(hop.port), door=door, **settings)


async def dialogue(running: Running) -> list[bytes]:
    """The replies to a whole transaction, checked byte by byte."""
    client = await running.connect()
    raw = b""
    hello = f"{client.hello} c".encode()
    for line in (hello, b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.test>", b"DATA", b"NOOP", b"QUIT"):
        client.writer.write(line + b"\r\n")
        raw += (reply := await client.reply())
        if line == b"DATA" and reply.startswith(b"354"):
            client.writer.write(MAIL + b".\r\n")
            raw += await client.reply()
    assert await client.reader.read() == b""
    return replies_in(raw)


async def answers(folder: Path, door: str, stage: str, reply: bytes, caplog: pytest.LogCaptureFixture) -> list[bytes]:
    """What the client hears at this stage and after it, where the next hop says this there."""
    caplog.set_level("DEBUG")
    timeouts = Timeouts(1, 1, 1)
    async with Hop() as hop, relay(folder, door, hop, timeouts=timeouts) as running:
        hop.replies[stage] = reply
        heard = await dialogue(running)
        for entry in running.entries():
            assert harmless(entry.reply).isprintable()
            assert to_json({"reply": entry.reply}).isascii()
    for record in caplog.records:
        if record.name.startswith("spamfilter"):
            assert record.exc_info is None, record
            assert record.getMessage().isascii(), record
            assert record.getMessage().isprintable(), record
    assert heard[-2:] == [b"250 2.0.0 Ok\r\n", b"221 2.0.0 Bye\r\n"]
    # EHLO, the stages, a second reply to DATA where it was 354.
    assert len(heard) == 6 + (heard[3][:3] == b"354")
    place = {"MAIL": 1, "RCPT": 2, "DATA": 4, "DOT": 4}[stage]
    return heard[place:-2]


@each_door
@pytest.mark.parametrize("reply", VERBATIM)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_reply_goes_on_byte_for_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stage: str, reply: str, door: str
) -> None:
    assert (await answers(tmp_path, door, stage, VERBATIM[reply], caplog))[0] == VERBATIM[reply]


@each_door
@pytest.mark.parametrize("reply", MENDED)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_byte_that_would_divide_a_reply_is_taken_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stage: str, reply: str, door: str
) -> None:
    said, expected = MENDED[reply]
    assert (await answers(tmp_path, door, stage, said, caplog))[0] == expected


@each_door
@pytest.mark.parametrize("reply", BROKEN)
@pytest.mark.parametrize("stage", STAGES)
async def test_what_is_no_reply_leaves_the_mail_with_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stage: str, reply: str, door: str
) -> None:
    heard = await answers(tmp_path, door, stage, BROKEN[reply], caplog)
    assert heard[0].startswith(b"451 4.4.")
    assert all(other[:3] == b"451" for other in heard)


@each_door
@pytest.mark.parametrize("extra", [b"550 5.7.1 evil\r\n", b"354 go on\r\n", b"250 ok\r\n", b"451 later\r\n", b"evil\n"])
@pytest.mark.parametrize("stage", ["MAIL", "RCPT"])
async def test_a_reply_that_nobody_has_asked_for_answers_nothing(
    tmp_path: Path, stage: str, extra: bytes, door: str
) -> None:
    """Neither is the mail refused for good by it, nor sent to a next hop that waits for commands."""
    async with Hop() as hop, relay(tmp_path, door, hop) as running:
        hop.replies[stage] = b"250 ok\r\n" + extra
        replies = await dialogue(running)
        assert [reply[:3] for reply in replies[3:-2]][-1] == b"451" or replies[2][:1] in (b"4", b"5")
        assert hop.messages == []
        assert not [line for line in hop.received if line.startswith((b"From", b"Subject", b"X-Spam"))]
        hop.replies.clear()
        again = await dialogue(running)
        assert [reply[:3] for reply in again[1:]] == [b"250", b"250", b"354", b"250", b"250", b"221"]


@each_door
@pytest.mark.parametrize(
    "keywords",
    [
        ("SIZE -1", "8BITMIME"),
        ("SIZE 99999999999999999999999999",),
        ("SIZE \u0661",),
        ("SIZE 10 20", "PIPELINING"),
        ("XFORWARD ADDR\x0b250 STARTTLS",),
        ("\x1b[2J", "evil", "AUTH PLAIN", "CHUNKING", "BINARYMIME", "XCLIENT NAME"),
        ("8BITMIME\x0c250-DSN",),
    ],
    ids=["negative size", "huge size", "other digits", "two sizes", "a hidden line", "foreign", "a form feed"],
)
async def test_nothing_that_a_next_hop_offers_is_repeated(tmp_path: Path, keywords: tuple[str, ...], door: str) -> None:
    async with Hop(keywords) as hop, relay(tmp_path, door, hop) as running:
        client = await running.connect()
        reply = await client.ask(f"{client.hello} c")
        lines = [line[4:] for line in reply.decode("ascii").split("\r\n")[1:-1]]
        known = r"8BITMIME|SMTPUTF8|DSN|ENHANCEDSTATUSCODES|PIPELINING|SIZE [0-9]{1,9}|XFORWARD [A-Z ]+"
        assert [line for line in lines if not re.fullmatch(known, line)] == []


async def test_what_comes_in_the_clear_just_before_the_handshake_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the 220 to STARTTLS, and too late to be seen before the handshake begins."""
    tls = server_context(tmp_path)
    secure = Connection.secure

    async def late(connection: Connection, context: ssl.SSLContext, **options: Any) -> None:
        connection.received(b"250-evil\r\n250 SIZE 77777\r\n")
        await secure(connection, context, **options)

    monkeypatch.setattr(Connection, "secure", late)
    async with Hop((*KEYWORDS, "STARTTLS")) as hop:
        hop.tls = tls
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test", client_context(tmp_path))
        async with relaying(tmp_path, next_hop) as running:
            client = await running.connect()
            assert b"77777" not in await client.ask("EHLO c")
            assert (await client.ask("MAIL FROM:<a@example.org>"))[:3] == b"451"
        assert not [line for line in hop.received if line.startswith(b"MAIL")]
