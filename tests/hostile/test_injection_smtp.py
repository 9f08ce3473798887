"""What a client says reaches the next hop as one line of the command it belongs to, or not at all."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spamfilter.relay.session.xforward import ATTRIBUTES, MAX_COMMAND
from spamfilter.relay.session.xforward import commands as xforward_lines
from tests.support.certificates import client_context, server_context
from tests.support.doors import DOORS, RELAYING
from tests.support.parts import KEYWORDS, Hop, Running, relaying

WANTED = (*KEYWORDS, "XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE")
MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
each_door = pytest.mark.parametrize("door", RELAYING)
XFORWARD = re.compile(rb"XFORWARD(?: [A-Z]+=(?:[!-*,-<>-~]|\+[0-9A-F]{2})*)+")


@asynccontextmanager
async def place(folder: Path, door: str, **settings: Any) -> AsyncIterator[tuple[Running, Hop]]:
    """A relay with this door, and a next hop that wants to know all about the client."""
    async with Hop(WANTED) as hop, relaying(folder, DOORS[door].at(hop.port), door=door, **settings) as running:
        yield running, hop


# STARTTLS


@each_door
@pytest.mark.parametrize(
    "injected",
    [b"EHLO evil\r\nMAIL FROM:<evil@example.org>\r\n", b"XFORWARD ADDR=10.0.0.1\r\n", b"MAIL FROM:<evil@", b"\r\n" * 9],
    ids=["commands", "a name", "half a command", "empty lines"],
)
async def test_what_was_pipelined_behind_starttls_is_nobodys_inside_tls(
    tmp_path: Path, injected: bytes, door: str
) -> None:
    """CVE-2011-0411: what was sent in the clear is dropped, though the handshake succeeds."""
    async with place(tmp_path, door, tls=server_context(tmp_path)) as (running, hop):
        hello = f"{DOORS[door].client.hello} c".encode()
        replies = await asyncio.to_thread(over_tls, running.port, tmp_path, hello, injected)
        assert [reply[:3] for reply in replies] == [b"250", b"250", b"250", b"354", b"250", b"221"]
        assert [line for line in hop.received if b"evil" in line or b"10.0.0.1" in line] == []
        assert [entry.client for entry in running.entries()] == ["127.0.0.1"]


def over_tls(port: int, folder: Path, hello: bytes, injected: bytes) -> list[bytes]:
    """Replies to a transaction over TLS; `injected` goes in one packet with STARTTLS, after XFORWARD in the clear."""
    context = client_context(folder)
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        plain.settimeout(20)
        plain.recv(512)
        plain.sendall(hello + b"\r\n")
        plain.recv(4096)
        plain.sendall(b"XFORWARD ADDR=10.0.0.1\r\n")
        plain.recv(512)
        plain.sendall(b"STARTTLS\r\n" + injected)
        assert plain.recv(512).startswith(b"220 ")
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client, client.makefile("rb") as lines:
            replies = []
            dialogue = (
                hello,
                b"MAIL FROM:<a@example.org>",
                b"RCPT TO:<b@example.test>",
                b"DATA",
                MAIL + b".",
                b"QUIT",
            )
            for line in dialogue:
                client.sendall(line + b"\r\n")
                while (reply := lines.readline())[3:4] == b"-":
                    pass
                replies.append(reply)
            assert lines.read() == b""
    return replies


# HELO, EHLO and LHLO

NAMES = {
    "a CR": b"client\rMAIL FROM:<evil@example.org>",
    "NUL": b"client\0evil",
    "an escape sequence": b"\x1b[2J\x1b]0;evil\x07",
    "C1 control characters": "client\x9b2J".encode(),
    "8 bits": b"\xff\xfeclient",
    "bidirectional override": "\u202etneilc\u2066".encode(),
    "line separators": "client\u2028evil\u2029evil\x85evil".encode(),
    "blanks": b"client evil evil=evil",
    "xtext": b"client+0D+0AMAIL",
    "equals": b"client NAME=evil ADDR=10.0.0.1",
    "many letters": "\N{GRINNING FACE}".encode() * 400,
    "many bytes": b"\xff" * 1900,
    "more than a command": b"x" * 3000,
    "long and then a command": "\N{GRINNING FACE}".encode() * 170 + b"RSET",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("door", "verb"), [("smtp", b"EHLO"), ("smtp", b"HELO"), ("lmtp", b"LHLO")])
async def test_a_greeting_says_nothing_to_the_next_hop_but_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, verb: bytes, name: str, door: str
) -> None:
    caplog.set_level("DEBUG")
    async with place(tmp_path, door) as (running, hop):
        client = await running.connect()
        reply = await client.ask(verb + b" " + NAMES[name])
        if reply[:3] == b"250":
            assert b"evil" not in reply
        else:
            assert reply[:3] in (b"500", b"501")
            await client.ask(f"{client.hello} client.example")
        assert (await client.ask("MAIL FROM:<a@example.org>"))[:3] == b"250"
        assert (await client.ask("QUIT"))[:3] == b"221"
    assert_only(hop, b"MAIL FROM:<a@example.org>")
    assert_clean(caplog)


def assert_only(hop: Hop, *commands: bytes) -> None:
    """The next hop heard these commands, and a well-formed XFORWARD, and EHLO, LHLO, RSET, QUIT of ours only."""
    others = [line for line in hop.received if line not in (b"EHLO relay.test", b"LHLO relay.test", b"RSET", b"QUIT")]
    told = [line for line in others if line.startswith(b"XFORWARD")]
    assert [line for line in others if line not in told] == list(commands)
    names = re.findall(rb" ([A-Z]+)=", b"".join(told))
    assert len(names) == len(set(names)), told
    for line in told:
        assert XFORWARD.fullmatch(line), line
        assert len(line) + 2 <= MAX_COMMAND, len(line)


def assert_clean(caplog: pytest.LogCaptureFixture) -> None:
    """Each record is one line of printable ASCII."""
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("spamfilter")]
    assert [text for text in messages if not (text.isascii() and text.isprintable())] == []


# XFORWARD

VALUES = {
    "line ends in xtext": b"ADDR=10.0.0.1+0D+0AMAIL+20FROM:<evil@example.org>",
    "a small hexadecimal digit": b"NAME=a+0d+0aMAIL",
    "NUL in xtext": b"NAME=a+00b",
    "quotes": b"NAME=\"a\"'b'`c`",
    "blanks in xtext": b"NAME=a+20ADDR=10.0.0.1 HELO=+20+20+09",
    "equals in a value": b"NAME=a=b=ADDR",
    "Unicode": "NAME=m\u00fcller HELO=\u202eevil".encode(),
    "Unicode line ends": "NAME=a\u2028b\x85c".encode(),
    "no UTF-8": b"NAME=\xff\xfe HELO=+FF+FE",
    "a value that is too long": b"HELO=" + b"x" * 1000,
    "a value that is too long in xtext": b"HELO=" + b"+E2+98+BA" * 100,
    "everything too long": b" ".join(name.encode() + b"=" + b"+FF" * 80 for name in ATTRIBUTES),
    "duplicates": b"NAME=a NAME=b NAME=c ADDR=10.0.0.1 ADDR=10.0.0.2",
    "an escape sequence in xtext": b"NAME=+1B[2J IDENT=+9B2J+7F",
    "empty values": b"NAME= HELO=",
    "an unknown attribute": b"EVIL=1",
    "another letter": "\N{LATIN SMALL LETTER LONG S}OURCE=LOCAL".encode(),
    "no attribute": b"evil",
    "a CR": b"NAME=a\rMAIL",
}


@each_door
@pytest.mark.parametrize("value", VALUES)
async def test_xforward_values_stay_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: str, door: str
) -> None:
    caplog.set_level("DEBUG")
    async with place(tmp_path, door) as (running, hop):
        client = await running.connect()
        await client.ask(f"{client.hello} c")
        reply = await client.ask(b"XFORWARD " + VALUES[value])
        assert reply[:3] == (
            b"501" if value in ("an unknown attribute", "another letter", "no attribute", "a CR") else b"250"
        )
        assert (await client.ask("MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>", "DATA"))[:3] == b"354"
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply())[:3] == b"250"
        (entry,) = running.entries()
        assert entry.client.isprintable() or value == "Unicode line ends"
    assert_only(hop, b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.test>", b"DATA")
    assert_clean(caplog)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("letter", ["x", "=", "\xff", "\u20ac", "\N{GRINNING FACE}", "\udcff"])
def test_no_attribute_makes_a_line_that_the_next_hop_would_cut(attribute: str, letter: str) -> None:
    for length in (0, 1, 40, 41, 42, 43, 84, 125, 126, 127, 164, 165, 166, 167, 255):
        attributes = {"NAME": "n", attribute: letter * length, "SOURCE": "LOCAL"}
        lines = list(xforward_lines(attributes, " ".join(ATTRIBUTES)))
        assert all(len(line) + 2 <= MAX_COMMAND and b"=" in line for line in lines)
        assert all(XFORWARD.fullmatch(line) for line in lines)


# Parameters and addresses

LINES = {
    "line ends in ORCPT": "RCPT TO:<b@example.test> ORCPT=rfc822;a+0D+0ARCPT+20TO:<evil@example.org>",
    "percent codes": "RCPT TO:<b@example.test> ORCPT=rfc822;a%0D%0ARCPT%20TO:<evil@example.org>",
    "line ends in ENVID": "MAIL FROM:<a@example.org> ENVID=x+0D+0AQUIT RET=HDRS",
    "AUTH": "MAIL FROM:<a@example.org> AUTH=evil+3Devil+0D+0A",
    "AUTH for nobody": "MAIL FROM:<a@example.org> AUTH=<>",
    "an unknown parameter": "MAIL FROM:<a@example.org> X-EVIL=1 2=3 ==",
    "negative SIZE": "MAIL FROM:<a@example.org> SIZE=-1",
    "SIZE that is no number": "MAIL FROM:<a@example.org> SIZE=abc",
    "SIZE in other digits": "MAIL FROM:<a@example.org> SIZE=\N{ARABIC-INDIC DIGIT NINE}",
    "SIZE beyond all numbers": "MAIL FROM:<a@example.org> SIZE=" + "9" * 1500,
    "no SIZE": "MAIL FROM:<a@example.org> SIZE=",
    "a bracket in quotes": 'RCPT TO:<"a> RCPT TO:<evil"@example.test>',
    "escaped quotes": 'RCPT TO:<"a\\"> SIZE=1 <"@example.test>',
    "a source route": "RCPT TO:<@one.test,@two.test:b@example.test>",
    "UTF-8 without SMTPUTF8": "RCPT TO:<\u202em\u00fcller@example.test>",
    "an address literal": "MAIL FROM:<a@[IPv6:::1]>",
    "a C1 control character": "MAIL FROM:<a\x9b2J@example.org>",
}
"""What means no harm to us goes on as it came: the next hop knows its parameters, and its addresses."""
REFUSED = {
    "CR in quotes": b'RCPT TO:<"a\rRCPT TO:<evil@example.org>"@example.test>',
    "LF in quotes": b'RCPT TO:<"a\nRCPT TO:<evil@example.org>"@example.test>',
    "NUL in quotes": b'RCPT TO:<"a\0b"@example.test>',
    "escape in quotes": b'MAIL FROM:<"\x1b[2J"@example.org>',
    "backspace": b"MAIL FROM:<a\b\b\b@example.org>",
    "delete": b"MAIL FROM:<a\x7f@example.org>",
    "tab before a parameter": b"MAIL FROM:<a@example.org>\tSIZE=1",
    "SIZE beyond ours": b"MAIL FROM:<a@example.org> SIZE=99999999999999999999",
    "more than a command": b"MAIL FROM:<a@example.org> " + b"X=1 " * 1000,
    "open quotes": b'MAIL FROM:<"a@example.org>',
    "quotes upon quotes": b"MAIL FROM:<" + b'"' * 1901 + b">",
}


@each_door
@pytest.mark.parametrize("name", LINES)
async def test_a_command_goes_on_as_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, door: str
) -> None:
    caplog.set_level("DEBUG")
    line = LINES[name]
    async with place(tmp_path, door) as (running, hop):
        client = await running.connect()
        mail, rcpt = "MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>"
        mail, rcpt = (line, rcpt) if line.startswith("MAIL") else (mail, line)
        assert (await client.ask(f"{client.hello} c", mail, rcpt, "DATA"))[:3] == b"354"
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply())[:3] == b"250"
        (entry,) = running.entries()
        assert len(entry.recipients) == 1
    assert_only(hop, mail.encode(), rcpt.encode(), b"DATA")
    assert_clean(caplog)


@each_door
@pytest.mark.parametrize("name", REFUSED)
async def test_a_command_that_is_none_is_not_passed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, door: str
) -> None:
    caplog.set_level("DEBUG")
    line = REFUSED[name]
    async with place(tmp_path, door) as (running, hop):
        client = await running.connect()
        await client.ask(f"{client.hello} c", *(["MAIL FROM:<a@example.org>"] if line.startswith(b"RCPT") else []))
        before = list(hop.received)
        client.writer.write(line + b"\r\n")
        first = await client.reply()
        # A line that an LF divides is two.
        replies = [first, await client.reply()] if b"\n" in line else [first]
        assert {reply[:2] for reply in replies} <= {b"50", b"55"}, replies
        assert await client.ask("NOOP") == b"250 2.0.0 Ok\r\n"
        assert hop.received == before
    assert_clean(caplog)
