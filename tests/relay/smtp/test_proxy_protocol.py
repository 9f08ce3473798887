"""The PROXY protocol: a trusted proxy names the real client; other clients are not believed."""

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from spamfilter.config.sections import Limits
from tests.support.parts import Client, Hop, Running, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
REAL, PORT = "192.0.2.7", 4711
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def version_1(address: str = REAL) -> bytes:
    family, here = ("TCP6", "2001:db8::1") if ":" in address else ("TCP4", "127.0.0.1")
    return f"PROXY {family} {address} {here} {PORT} 25\r\n".encode()


def version_2(address: str = REAL, command: int = 1) -> bytes:
    family, here = (0x21, "2001:db8::1") if ":" in address else (0x11, "127.0.0.1")
    ends = ip_address(address).packed + ip_address(here).packed + struct.pack("!HH", PORT, 25)
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack("!H", len(ends)) + ends


@asynccontextmanager
async def behind_a_proxy(
    folder: Path, *, trusted: str = "127.0.0.0/8", limits: Limits | None = None
) -> AsyncIterator[tuple[Running, Hop]]:
    async with (
        Hop(("XFORWARD ADDR PORT",)) as hop,
        relaying(
            folder,
            f"smtp://127.0.0.1:{hop.port}",
            trusted=[ip_network(trusted)],
            domains=frozenset({"example.test"}),
            limits=limits,
            proxy_protocol=True,
        ) as running,
    ):
        yield running, hop


async def proxied(running: Running, header: bytes) -> Client:
    client = await running.connect(greet=False)
    client.writer.write(header)
    return client


@pytest.mark.parametrize("address", [REAL, "2001:db8::7"])
@pytest.mark.parametrize("header", [version_1, version_2])
async def test_the_client_that_the_header_names_is_the_client(
    tmp_path: Path, header: Callable[[str], bytes], address: str
) -> None:
    async with behind_a_proxy(tmp_path) as (running, hop):
        client = await proxied(running, header(address))
        assert (await client.reply()).startswith(b"220 ")
        assert b"XFORWARD" not in await client.ask("EHLO client.example")  # the proxy is trusted, and the client is not
        assert (await client.ask("MAIL FROM:<a@example.org>", "RCPT TO:<b@elsewhere.test>")).startswith(b"554 ")
        client.writer.write(b"RCPT TO:<b@example.test>\r\nDATA\r\n")
        assert [(await client.reply())[:3] for _ in range(2)] == [b"250", b"354"]
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == [address] * 2  # the refused recipient, and the mail
        shown = f"IPV6:{address}" if ":" in address else address
        assert f"XFORWARD ADDR={shown} PORT={PORT}".encode() in hop.received


@pytest.mark.parametrize("header", [version_1, version_2])
async def test_a_client_of_the_proxy_that_is_trusted_itself(tmp_path: Path, header: Callable[[str], bytes]) -> None:
    async with behind_a_proxy(tmp_path) as (running, _):
        client = await proxied(running, header("127.0.0.9") + b"EHLO client.example\r\n")  # all in one piece
        assert (await client.reply()).startswith(b"220 ")
        assert b"XFORWARD" in await client.reply()


@pytest.mark.parametrize("header", [version_1, version_2])
async def test_a_client_of_the_proxy_that_is_not_trusted_waits_for_the_greeting(
    tmp_path: Path, header: Callable[[str], bytes]
) -> None:
    async with behind_a_proxy(tmp_path) as (running, hop):
        client = await proxied(running, header(REAL) + b"EHLO client.example\r\n")
        assert (await client.reply()).startswith(b"421 4.7.0 Input before the greeting")
        assert hop.received == []


async def test_an_ipv4_address_that_is_written_as_one_of_ipv6_is_that_of_ipv4(tmp_path: Path) -> None:
    async with behind_a_proxy(tmp_path) as (running, _):
        client = await proxied(running, version_2(f"::ffff:{REAL}"))
        await client.reply()
        assert (await client.send(MAIL)).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == [REAL]
        assert running.relay.metrics.value("sessions") == 1


async def test_limits_are_those_of_the_client_and_not_of_the_proxy(tmp_path: Path) -> None:
    async with behind_a_proxy(tmp_path, limits=Limits(connections_per_client=1)) as (running, _):
        greetings = [
            await (await proxied(running, version_2(address))).reply() for address in (REAL, REAL, "192.0.2.8")
        ]
        assert [greeting[:3] for greeting in greetings] == [b"220", b"421", b"220"]


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", version_2(command=0)], ids=["unknown", "local"])
async def test_a_proxy_that_speaks_for_itself_is_the_client(tmp_path: Path, header: bytes) -> None:
    async with behind_a_proxy(tmp_path) as (running, _):
        client = await proxied(running, header)
        assert (await client.reply()).startswith(b"220 ")
        assert (await client.send(MAIL)).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == ["127.0.0.1"]


@pytest.mark.parametrize("header", [version_1, version_2])
async def test_the_header_of_an_untrusted_client_is_input_before_the_greeting(
    tmp_path: Path, header: Callable[[], bytes]
) -> None:
    async with behind_a_proxy(tmp_path, trusted="192.0.2.0/24") as (running, _):
        client = await proxied(running, header())
        assert (await client.reply()).startswith(b"421 4.7.0 Input before the greeting")


async def test_an_untrusted_client_is_served_as_itself_and_its_header_is_unknown(tmp_path: Path) -> None:
    async with behind_a_proxy(tmp_path, trusted="192.0.2.0/24") as (running, _):
        client = await running.connect()
        assert (await client.ask(version_1().rstrip())).startswith(b"500 ")
        assert (await client.send(MAIL)).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == ["127.0.0.1"]


async def test_the_second_version_s_header_ends_the_session_of_an_untrusted_client(tmp_path: Path) -> None:
    """Two of its lines are no commands; then it has QUIT in it, for servers that do not know it."""
    async with behind_a_proxy(tmp_path, trusted="192.0.2.0/24") as (running, _):
        client = await running.connect()
        client.writer.write(version_2())
        heard = (await client.reader.read()).split(b"\r\n")
        assert [line[:3] for line in heard] == [b"500", b"421", b""]


@pytest.mark.parametrize(
    "header",
    [
        b"EHLO client.example\r\n",
        b"PROXY TCP4 not.an.address 127.0.0.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 1\r\n",
        b"PROXY TCP4 2001:db8::7 127.0.0.1 1 2\r\n",
        SIGNATURE + b"\x31\x11\0\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\0\x02" + bytes(2),
        b"PRO",
    ],
    ids=["none", "no address", "no port", "two families", "another version", "cut short", "half a word"],
)
async def test_a_broken_header_ends_the_connection_without_a_greeting(tmp_path: Path, header: bytes) -> None:
    async with behind_a_proxy(tmp_path) as (running, hop):
        client = await proxied(running, header)
        client.writer.write_eof()
        with suppress(ConnectionResetError):
            assert await client.reply() == b""
        good = await proxied(running, version_1())
        assert (await good.reply()).startswith(b"220 ")
        assert hop.received == []


async def test_a_header_that_does_not_come_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spamfilter.relay.smtp.client.PROXY_SECONDS", 0.1)
    async with behind_a_proxy(tmp_path) as (running, _):
        client = await running.connect(greet=False)
        with suppress(ConnectionResetError):
            assert await client.reply() == b""
        assert running.relay.metrics.value("sessions") == 1
        assert running.relay.limit_log.metrics.value("limits_hit", "tls_seconds") == 0
    assert "127.0.0.1: no PROXY header in 0.1 seconds; closing connection" in caplog.text


async def test_without_the_setting_a_header_is_an_unknown_command(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert (await client.ask(version_1().rstrip())).startswith(b"500 ")


def test_the_headers_here_are_those_of_the_specification() -> None:
    """2.2 of proxy-protocol.txt: 16 bytes, then the addresses."""
    assert version_2()[:16] == SIGNATURE + b"\x21\x11\x00\x0c"
    assert version_2()[16:20] == socket.inet_aton(REAL)
