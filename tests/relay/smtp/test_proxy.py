"""The relay as a transparent proxy: keywords, replies, XFORWARD, faults of the next hop, limits."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Limits
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from tests.relay.smtp.test_kept_connections import given_back
from tests.support.memory_store import open_store
from tests.support.parts import KEYWORDS, Hop, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
NOBODY = (ipaddress.ip_network("192.0.2.0/24"),)


def announced(reply: bytes) -> set[str]:
    return {line[4:].split(" ")[0] for line in reply.decode().splitlines()[1:]}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (KEYWORDS, {"8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES", "PIPELINING", "SIZE", "XFORWARD"}),
        (("SIZE",), {"PIPELINING", "SIZE", "XFORWARD"}),
        (("CHUNKING", "BINARYMIME", "AUTH LOGIN", "8BITMIME"), {"8BITMIME", "PIPELINING", "SIZE", "XFORWARD"}),
    ],
    ids=["all", "few", "foreign"],
)
async def test_keywords_are_ours_cut_with_the_next_hops(
    tmp_path: Path, theirs: tuple[str, ...], ours: set[str]
) -> None:
    async with Hop(theirs) as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert announced(await (await running.connect()).ask("EHLO client.example")) == ours


async def test_the_smaller_size_is_announced(tmp_path: Path) -> None:
    async with Hop(("SIZE 100000",)) as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert b"SIZE 100000\r\n" in await (await running.connect()).ask("EHLO client.example")


async def test_a_next_hop_that_knows_no_ehlo_gets_helo(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["EHLO"] = b"502 5.5.1 what?\r\n"
        assert (await (await running.connect()).send(MAIL)).startswith(b"250 ")
        assert b"HELO relay.test" in hop.received


async def test_several_messages_of_one_connection_share_the_next_hops(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        for number in range(3):
            assert (await client.send(b"Subject: %d\r\n\r\nx\r\n" % number)).startswith(b"250 ")
        await client.ask("QUIT")
        await given_back(running)
        assert (await (await running.connect()).send(MAIL)).startswith(b"250 ")
        assert hop.connections == 1
        assert [b"Subject: %d" % number in message for number, message in enumerate(hop.messages[:3])] == [True] * 3


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.FRESH_SECONDS", 0.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.send(MAIL)
        await client.ask("QUIT")
        hop.replies["RSET"] = b"421 4.4.2 idle too long\r\n"
        assert (await (await running.connect()).send(MAIL)).startswith(b"250 ")
        assert hop.connections == 2


async def test_pipelined_commands_are_answered_in_order(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["RCPT TO:<no@example.test>"] = b"550 5.1.1 no\r\n"
        client = await running.connect()
        client.writer.write(
            b"EHLO c\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<no@example.test>\r\nRCPT TO:<b@example.test>\r\nDATA\r\n"
        )
        replies = [(await client.reply())[:3] for _ in range(5)]
        assert replies == [b"250", b"250", b"550", b"250", b"354"]
        client.writer.write(MAIL + b".\r\nMAIL FROM:<>\r\nRSET\r\nQUIT\r\n")
        assert [(await client.reply())[:3] for _ in range(5)] == [b"250", b"250", b"250", b"221", b""]


async def test_bytes_of_a_message_may_come_one_at_a_time(tmp_path: Path) -> None:
    on_the_wire = b"Subject: x\r\n\r\n...\r\n..a\r\nend.\r\n"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        for byte in on_the_wire + b".\r\n":
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.reply()).startswith(b"250 ")
        assert hop.messages[0].endswith(b"\r\n" + on_the_wire)


async def test_an_empty_message_passes(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert (await (await running.connect()).send(b"")).startswith(b"250 ")
        assert hop.messages[0].startswith(b"X-Spam-Status: No, ")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    # Fields with our names are taken out, since they would be forged verdicts.
    header=st.binary(max_size=200)
    .filter(lambda raw: b"x-spam" not in raw.lower())
    .map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"\r\n")),
    body=st.binary(max_size=2000).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"\r\n.")),
)
def test_what_goes_in_comes_out_byte_for_byte_but_for_our_headers(tmp_path: Path, header: bytes, body: bytes) -> None:
    mail = b"Subject: x\r\n" + header + b"\r\n\r\n" + body + b"\r\n"

    async def run() -> bytes:
        async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
            assert (await (await running.connect()).send(mail)).startswith(b"250 ")
            return hop.messages[0]

    arrived = asyncio.run(run())
    if arrived.startswith(b"."):
        arrived = arrived[1:]
    ours, _, rest = arrived.replace(b"\r\n.", b"\r\n").partition(b"Subject: x\r\n")
    assert b"Subject: x\r\n" + rest == mail
    assert [line.partition(b":")[0] for line in ours.splitlines()] == [b"X-Spam-Status", b"X-Spamfilter-Id"]


FAULTS = {
    "closes at MAIL": ({"MAIL": b"close"}, b"451 4.4.1 "),
    "garbage at MAIL": ({"MAIL": b"hello, dear\r\n"}, b"451 4.4.1 "),
    "endless reply": ({"MAIL": b"250-more\r\n" * 500}, b"451 4.4.1 "),
    "hangs at RCPT": ({"RCPT": b"hang"}, b"451 4.4.1 "),
    "refuses DATA": ({"DATA": b"554 5.5.1 no valid recipients\r\n"}, b"554 5.5.1 no valid recipients"),
    "defers DATA": ({"DATA": b"451 4.3.0 queue full\r\n"}, b"451 4.3.0 queue full"),
    "takes DATA oddly": ({"DATA": b"250 what now\r\n"}, b"451 4.4.2 "),
    "closes at DATA": ({"DATA": b"close"}, b"451 4.4.2 "),
    "closes after the dot": ({"DOT": b"close"}, b"451 4.4.2 "),
    "hangs after the dot": ({"DOT": b"hang"}, b"451 4.4.2 "),
    "garbage after the dot": ({"DOT": b"\xff\xfe\r\n"}, b"451 4.4.2 "),
    "421 at MAIL": ({"MAIL": b"421 4.3.2 going down\r\n"}, b"421 4.3.2 going down"),
    "several lines": ({"DOT": b"452-4.3.1 disk\r\n452 4.3.1 full\r\n"}, b"452-4.3.1 disk\r\n452 4.3.1 full\r\n"),
    "refuses to greet": ({"CONNECT": b"554 5.3.2 no\r\n"}, b"451 4.4.1 "),
}


@pytest.mark.parametrize(("replies", "expected"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_of_the_next_hop_leaves_the_mail_with_the_client(
    tmp_path: Path, replies: dict[str, bytes], expected: bytes
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies.update(replies)
        client = await running.connect()
        seen = []
        for line in ("EHLO c", "MAIL FROM:<a@x.example>", "RCPT TO:<b@example.test>", "DATA"):
            seen.append(await client.ask(line))
            if seen[-1].startswith(b"354"):
                client.writer.write(MAIL + b".\r\n")
                seen.append(await client.reply())
            if not seen[-1]:
                break
        assert any(reply.startswith(expected) for reply in seen), seen
        # Nothing temporary has become permanent, and nothing was accepted at the end.
        final = [reply[:1] for reply in seen if reply]
        assert b"5" not in final or expected.startswith(b"5")
        assert seen[-1][:3] != b"250"
        if not expected.startswith(b"421"):
            # The session can be used again once the next hop is well.
            hop.replies.clear()
            await client.ask("RSET")
            assert (await client.send(MAIL)).startswith(b"250 ")


async def test_a_next_hop_that_is_down_lets_the_greeting_succeed_and_defers_the_mail(tmp_path: Path) -> None:
    async with Hop() as hop:
        port = hop.port
    async with relaying(tmp_path, f"smtp://127.0.0.1:{port}") as running:
        client = await running.connect()
        assert (await client.ask("EHLO c")).startswith(b"250-relay.test")
        assert (await client.ask("XFORWARD ADDR=192.0.2.7")).startswith(b"250 ")
        client.writer.write(b"MAIL FROM:<a@x>\r\nRCPT TO:<b@y>\r\nDATA\r\n")
        assert [(await client.reply())[:3] for _ in range(3)] == [b"451", b"451", b"451"]


async def test_a_keep_alive_reaches_the_next_hop_while_a_client_sends_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.keep_alive.KEEP_ALIVE_SECONDS", 0.1)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        async with asyncio.timeout(20):
            while hop.received.count(b"NOOP") < 2:
                await asyncio.sleep(0.01)
        client.writer.write(MAIL + b".\r\n")
        assert await client.reply() == b"250 2.0.0 Ok: queued as 4711\r\n"


@pytest.mark.parametrize("fault", [b"close", b"hang", b"250 fine\r\n"])
async def test_a_client_that_stalls_is_not_read_as_commands_whatever_the_next_hop_does_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: bytes
) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.keep_alive.KEEP_ALIVE_SECONDS", 0.1)
    limits = Limits(data_seconds=0.5)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        hop.replies["NOOP"] = fault
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        client.writer.write(b"Subject: x\r\n")
        assert (await client.reply()).startswith(b"421 4.4.2 ")
        client.writer.write(b"MAIL FROM:<evil@body>\r\n")
        assert await client.reply() == b""
        assert b"MAIL FROM:<evil@body>" not in hop.received


async def test_a_next_hop_that_dies_while_a_client_sends_slowly_leaves_the_mail_with_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.keep_alive.KEEP_ALIVE_SECONDS", 0.1)
    limits = Limits(message_size=65536)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        hop.replies["NOOP"] = b"close"
        client = await running.connect()
        for mail, code in ((MAIL, b"451"), (b"x" * 70_000 + b"\r\n", b"552")):
            await client.envelope()
            await client.ask("DATA")
            async with asyncio.timeout(20):
                while hop.open:
                    await asyncio.sleep(0.01)
            client.writer.write(mail + b".\r\n")
            assert (await client.reply())[:3] == code
        hop.replies.clear()
        assert (await client.send(MAIL)).startswith(b"250 ")


async def test_the_idle_limit_does_not_cut_into_a_command_that_the_next_hop_answers_late(tmp_path: Path) -> None:
    limits = Limits(idle_seconds=1.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        hop.delays["RCPT"] = 1.5
        client = await running.connect()
        assert (await client.envelope()).startswith(b"250 ")


async def test_a_client_that_leaves_while_a_kept_connection_is_checked_leaks_nothing(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        first = await running.connect()
        await first.ask("EHLO c", "MAIL FROM:<a@x>", "QUIT")
        await given_back(running)
        hop.delays["RSET"] = 0.5
        second = await running.connect()
        await second.ask("EHLO c")
        second.writer.write(b"MAIL FROM:<a@x>\r\n")
        async with asyncio.timeout(20):
            while b"RSET" not in hop.received:
                await asyncio.sleep(0.01)
        # A reset, not an end of input, so that the session is cancelled amid the check.
        second.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        second.writer.transport.abort()
        async with asyncio.timeout(20):
            while hop.open:
                await asyncio.sleep(0.01)


async def test_a_greeting_in_utf_8_is_passed_on(tmp_path: Path) -> None:
    async with (
        Hop((*KEYWORDS, "XFORWARD NAME ADDR HELO")) as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running,
    ):
        client = await running.connect()
        assert (await client.ask("EHLO \N{LATIN SMALL LETTER U WITH DIAERESIS}", "MAIL FROM:<a@x>")).startswith(b"250 ")
        assert any(b"HELO=+C3+BC" in line for line in hop.received)


class StrictHop(Hop):
    """As a real mail server: a second MAIL within a transaction is an error, and stays one until RSET."""

    async def _answer(self, writer: asyncio.StreamWriter, name: str, usual: bytes) -> bool:
        verb = name.split(" ")[0].upper()
        if verb == "MAIL" and self.replies.get("MAIL") is None:
            usual = b"503 5.5.1 nested MAIL\r\n" if getattr(writer, "open_envelope", False) else usual
            writer.open_envelope = True  # type: ignore[attr-defined]
        if (verb == "RSET" and "RSET" not in self.replies) or name == "DOT":
            writer.open_envelope = False  # type: ignore[attr-defined]
        return await super()._answer(writer, name, usual)


@pytest.mark.parametrize("refusal", [b"451 4.7.1 greylisted\r\n", b"554 5.5.1 no\r\n"])
async def test_a_refused_data_leaves_no_open_envelope_at_the_next_hop(tmp_path: Path, refusal: bytes) -> None:
    async with StrictHop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DATA"] = refusal
        client = await running.connect()
        assert await client.send(MAIL) == refusal
        hop.replies.clear()
        assert (await client.ask("MAIL FROM:<a@x>")).startswith(b"250 ")


async def test_a_next_hop_that_refuses_rset_leaves_no_open_envelope(tmp_path: Path) -> None:
    async with StrictHop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["RSET"] = b"451 not now\r\n"
        client = await running.connect()
        await client.envelope()
        assert (await client.ask("RSET")).startswith(b"250 ")
        hop.replies.clear()
        assert (await client.ask("MAIL FROM:<a@x>")).startswith(b"250 ")
        assert hop.connections == 2


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ({"MAIL": b"450 4.1.8 no such domain yet\r\n"}, [b"450", b"450", b"450"]),
        ({"RCPT": b"450 4.2.1 greylisted\r\n"}, [b"250", b"450", b"451"]),
        ({"RCPT": b"550 5.1.1 no\r\n"}, [b"250", b"550", b"554"]),
        ({"MAIL": b"354 odd\r\n"}, [b"451", b"451", b"451"]),
        ({"RCPT": b"250-a\r\n550 b\r\n"}, [b"250", b"451", b"451"]),
    ],
    ids=["MAIL put off", "RCPT put off", "RCPT refused", "3xx", "two codes"],
)
async def test_what_is_pipelined_behind_a_temporary_refusal_hears_no_permanent_one(
    tmp_path: Path, replies: dict[str, bytes], expected: list[bytes]
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies.update(replies)
        client = await running.connect()
        await client.ask("EHLO c")
        client.writer.write(b"MAIL FROM:<a@x>\r\nRCPT TO:<b@y>\r\nDATA\r\n")
        assert [(await client.reply())[:3] for _ in range(3)] == expected


async def test_clients_that_never_read_do_not_keep_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spamfilter.relay.smtp.client.LINGER_SECONDS", 0.2)
    limits = Limits(connections=3, idle_seconds=2.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        deaf = []
        for _ in range(3):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", running.port))
            deaf.append(sock)
        for sock in deaf:
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(sock, b"NOOP\r\n" * 500_000), 0.5)
        async with asyncio.timeout(60):  # of all that they have sent, replies are made first
            while running.relay.metrics.value("connections"):
                await asyncio.sleep(0.01)
        client = await running.connect()
        assert (await client.send(MAIL)).startswith(b"250 ")
        for sock in deaf:
            sock.close()


async def test_kept_connections_that_hang_are_given_up_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spamfilter.relay.next_hops.smtp.CHECK_SECONDS", 0.2)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        clients = [await running.connect() for _ in range(5)]
        for client in clients:
            await client.ask("EHLO c", "MAIL FROM:<a@x>")
        for client in clients:
            await client.ask("QUIT")
        await given_back(running)
        hop.replies["RSET"] = b"hang"
        assert (await (await running.connect()).ask("EHLO c", "MAIL FROM:<a@x>")).startswith(b"250 ")
        assert hop.received.count(b"RSET") == 1
        assert hop.connections == 6


# XFORWARD


async def test_xforward_is_passed_on_to_a_next_hop_that_wants_it(tmp_path: Path) -> None:
    async with (
        Hop((*KEYWORDS, "XFORWARD NAME ADDR PROTO HELO SOURCE")) as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running,
    ):
        client = await running.connect()
        await client.ask(
            "EHLO c", "XFORWARD NAME=mx.example.org ADDR=192.0.2.7", "XFORWARD HELO=a+20b PORT=25 PROTO=ESMTP"
        )
        await client.ask("MAIL FROM:<a@x>")
        assert b"XFORWARD NAME=mx.example.org ADDR=192.0.2.7 PROTO=ESMTP HELO=a+20b" in hop.received
        await client.ask("RCPT TO:<b@example.test>", "DATA")
        client.writer.write(MAIL + b".\r\n")
        await client.reply()
        assert [entry.client for entry in running.entries()] == ["192.0.2.7"]
        # After the transaction the next one is the client's own again.
        await client.ask("MAIL FROM:<a@x>")
        assert any(line.startswith(b"XFORWARD ") and b"ADDR=127.0.0.1" in line for line in hop.received)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("XFORWARD ADDR=1.2.3.4", b"250"),
        ("XFORWARD addr=[UNAVAILABLE] name=[TEMPUNAVAIL]", b"250"),
        ("XFORWARD ADDR=IPV6:2001:db8::1", b"250"),
        ("XFORWARD", b"501"),
        ("XFORWARD ADDR", b"501"),
        ("XFORWARD EVIL=1", b"501"),
        ("XFORWARD NAME=" + "x" * 300, b"250"),
        ("XFORWARD NAME=a+0D+0ARCPT", b"250"),
    ],
)
async def test_xforward_syntax(tmp_path: Path, command: str, code: bytes) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert (await client.ask("EHLO c", command))[:3] == code
        assert (await client.ask("MAIL FROM:<a@x>", "XFORWARD ADDR=1.2.3.4"))[:3] == b"503"


async def test_xforward_values_are_made_harmless_and_keep_their_bytes(tmp_path: Path) -> None:
    async with (
        Hop((*KEYWORDS, "XFORWARD NAME ADDR HELO")) as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running,
    ):
        client = await running.connect()
        await client.ask("EHLO c", b"XFORWARD NAME=a+C3+A9+0D+0A ADDR=\xff HELO=" + b"x" * 300, "MAIL FROM:<a@x>")
        (line,) = [line for line in hop.received if line.startswith(b"XFORWARD ")]
        assert line == b"XFORWARD NAME=a+C3+A9?? ADDR=+EF+BF+BD HELO=" + b"x" * 255
        await client.ask("RCPT TO:<b@example.test>", "DATA")
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == ["\ufffd"]


@pytest.mark.parametrize(
    ("recipient", "code"),
    [
        ("bob@example.test", b"250"),
        ("Bob@EXAMPLE.test", b"250"),
        ("bob@elsewhere.test", b"554"),
        ("bob", b"554"),
        ("bob@example.test.evil", b"554"),
        ("@example.test:bob@elsewhere.test", b"554"),
        ("victim%elsewhere.test@example.test", b"554"),
        ("elsewhere.test!victim@example.test", b"554"),
        ('"victim@elsewhere.test"@example.test', b"554"),
        ("victim@elsewhere.test@example.test", b"554"),
        ("@elsewhere.test,@example.test:victim@example.test", b"554"),
        ("@elsewhere.test:victim@example.test", b"554"),
        ("Postmaster", b"250"),
        ("bob+tag@example.test", b"250"),
        ("bob@b\u00fccher.test", b"250"),
        ("bob@xn--BCHER-kva.test", b"250"),
        ("bob@bucher.test", b"554"),
    ],
)
async def test_strangers_may_only_send_to_our_domains(tmp_path: Path, recipient: str, code: bytes) -> None:
    domains = frozenset({"example.test", "xn--bcher-kva.test"})
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", trusted=NOBODY, domains=domains) as running,
    ):
        client = await running.connect()
        assert (await client.ask("EHLO c", "MAIL FROM:<a@x>", f"RCPT TO:<{recipient}>"))[:3] == code


# Verdicts


def trained() -> Filter:
    """A filter that knows pills from lunch."""
    filter = Filter(open_store("memory:"), Settings().voices())
    for number in range(5):
        filter.learn(filter.read(parse(b"Subject: pills %d\n\ncheap pills now" % number)), "spam", "cli")
        filter.learn(filter.read(parse(b"Subject: lunch %d\n\nshall we eat" % number)), "ham", "cli")
    return filter


SPAM = b"Subject: pills\r\n\r\ncheap pills now\r\n"


@pytest.mark.parametrize(
    ("action", "code", "delivered", "quarantined"),
    [
        ("pass", b"250", 1, 0),
        ("tag", b"250", 1, 0),
        ("reject", b"550", 0, 0),
        ("quarantine", b"250", 0, 1),
        ("defer", b"451", 0, 0),
    ],
)
async def test_each_action_does_what_it_says(
    tmp_path: Path, action: str, code: bytes, delivered: int, quarantined: int
) -> None:
    policy = Policy(
        spam=0.6,
        unsure=0.5,
        reject=0,
        reject_after=5,
        actions={"ham": "pass", "unsure": "pass", "spam": action},  # type: ignore[dict-item]
    )
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=policy, filter=trained()) as running,
    ):
        client = await running.connect()
        assert (await client.send(SPAM))[:3] == code
        assert len(hop.messages) == delivered
        kept = list((tmp_path / "quarantine" / "new").iterdir())
        assert len(kept) == quarantined
        for file in kept:
            assert file.read_bytes().startswith(
                b"X-Spamfilter-Sender: <a@example.org>\nX-Spamfilter-Recipients: <b@example.test>\nX-Spam-Flag: YES\n"
            )
        (entry,) = running.entries()
        assert (entry.class_, entry.action) == ("spam", action)
        assert (await client.send(b"Subject: lunch\r\n\r\nshall we eat\r\n")).startswith(b"250 ")


async def test_a_reject_needs_enough_learnt_of_both_classes(tmp_path: Path) -> None:
    policy = Policy(spam=0.6, reject=0.6, reject_after=6, subject_prefix="[SPAM]")
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=policy, filter=trained()) as running,
    ):
        assert (await (await running.connect()).send(SPAM)).startswith(b"250 ")
        assert b"X-Spam-Flag: YES\r\n" in hop.messages[0]
        assert b"Subject: [SPAM] pills\r\n" in hop.messages[0]
        assert running.journal() == ["tag"]


# Limits


@pytest.mark.parametrize(
    ("mail", "defects"), [(MAIL, "-"), (b"no header\r\n" + MAIL, "not-a-field")], ids=["sound", "malformed"]
)
async def test_the_log_names_the_defects_of_a_mail_or_a_dash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mail: bytes, defects: str
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        with caplog.at_level(logging.INFO):
            await (await running.connect()).send(mail)
    assert f" defects={defects} reply=250 " in caplog.text


@pytest.mark.parametrize(("size", "code"), [(65536, b"250"), (65537, b"552"), (1_000_000, b"552")])
async def test_a_message_that_is_too_large_is_refused_after_its_end(tmp_path: Path, size: int, code: bytes) -> None:
    mail = b"x" * (size - 2) + b"\r\n"
    limits = Limits(message_size=65536)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        client = await running.connect()
        assert (await client.send(mail))[:3] == code
        assert (await client.send(MAIL)).startswith(b"250 ")


async def test_what_the_next_hop_says_is_no_error_of_the_client(tmp_path: Path) -> None:
    """A next hop may answer each of a hundred recipients with 501; only the client's own errors are counted."""
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=Limits(errors=3)) as running:
        hop.replies |= {"MAIL FROM:<bad@x>": b"501 5.1.7 no\r\n", "RCPT TO:<bad@x>": b"504 5.5.4 no\r\n"}
        hop.replies |= {"VRFY": b"502 5.5.1 no\r\n", "DOT": b"503-5.5.1 no\r\n503 5.5.1 no\r\n"}
        client = await running.connect()
        for _ in range(3):
            assert (await client.ask("EHLO c", "VRFY bob"))[:3] == b"502"
            assert (await client.ask("MAIL FROM:<bad@x>"))[:3] == b"501"
            assert (await client.ask("MAIL FROM:<a@x>", "RCPT TO:<bad@x>"))[:3] == b"504"
            assert (await client.ask("RSET"))[:3] == b"250"
            assert (await client.send(MAIL))[:3] == b"503"
        assert [(await client.ask("RCPT"))[:3] for _ in range(4)] == [b"503", b"503", b"503", b"421"]


async def test_refused_recipients_and_messages_are_no_errors_of_the_session(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=Limits(errors=1)) as running:
        hop.replies["RCPT TO:<no@x>"] = b"550 5.1.1 no\r\n"
        hop.replies["DOT"] = b"550 5.7.1 no\r\n"
        client = await running.connect()
        for _ in range(3):
            await client.ask("EHLO c", "MAIL FROM:<a@x>", "RCPT TO:<no@x>", "RSET")
            assert (await client.send(MAIL))[:3] == b"550"


SHAPES = {
    "MAIL garbage": (["EHLO c", "MAIL TO:<a@x>"], b"501"),
    "RCPT garbage": (["EHLO c", "MAIL FROM:<a@x>", "RCPT <b@y>"], b"501"),
    "a path as long as may be": (["EHLO c", f"MAIL FROM:<{'a' * 510}@x>", f"RCPT TO:<{'b' * 510}@y>"], b"250"),
    "a longer sender": (["EHLO c", f"MAIL FROM:<{'a' * 511}@x>"], b"501"),
    "a longer recipient": (["EHLO c", "MAIL FROM:<a@x>", f"RCPT TO:<{'b' * 511}@y>"], b"501"),
    "a longer recipient of other letters": (["EHLO c", "MAIL FROM:<a@x>", f"RCPT TO:<{'é' * 256}@y>"], b"501"),
    "control characters": (["EHLO c", b"MAIL FROM:<a@x\0>"], b"501"),
    "a lone CR": (["EHLO c", b"MAIL FROM:<a@x>\rRCPT TO:<evil@x>"], b"501"),
    "EHLO without name": (["EHLO"], b"501"),
    "HELO": (["HELO c"], b"250"),
    "NOOP with words": (["NOOP really"], b"250"),
    "empty line": ([""], b"500"),
    "VRFY": (["EHLO c", "VRFY bob"], b"252"),
    "VRFY without a user": (["EHLO c", "VRFY"], b"501"),
    "EXPN": (["EHLO c", "EXPN list"], b"502"),
    "ETRN": (["EHLO c", "etrn example.test"], b"502"),
    "EHLO with a name that is not UTF-8": ([b"EHLO \xfc.example"], b"501"),
    "HELO with a name that is not UTF-8": ([b"HELO \xff"], b"501"),
    "EHLO with a name in UTF-8": (["EHLO \N{LATIN SMALL LETTER U WITH DIAERESIS}.example"], b"250"),
    "STARTTLS without a certificate": (["EHLO c", "STARTTLS"], b"502"),
    "lower case": (["ehlo c", "mail from:<a@x>", "rcpt to:<b@y>"], b"250"),
}


@pytest.mark.parametrize(("lines", "code"), SHAPES.values(), ids=SHAPES.keys())
async def test_commands_in_each_shape(tmp_path: Path, lines: list[bytes | str], code: bytes) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["VRFY"] = b"252 2.0.0 perhaps\r\n"
        assert (await (await running.connect()).ask(*lines))[:3] == code


async def test_a_lone_lf_ends_a_command_as_in_postfix_and_never_a_mail(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        client.writer.write(b"EHLO c\nMAIL FROM:<a@x>\nRCPT TO:<b@y>\nDATA\n" + MAIL + b"\n.\n\r\n.\r\n")
        assert [(await client.reply())[:3] for _ in range(5)] == [b"250", b"250", b"250", b"354", b"550"]
        assert hop.received[-3:] == [b"MAIL FROM:<a@x>", b"RCPT TO:<b@y>", b"RSET"]


async def test_vrfy_puts_no_other_connection_in_the_place_of_one_that_has_heard_the_envelope(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        for task in hop._tasks:
            task.cancel()
        await asyncio.sleep(0.05)
        assert (await client.ask("VRFY bob")).startswith(b"451 ")
        assert (await client.ask("RCPT TO:<c@y>")).startswith(b"451 ")
        assert (await client.ask("DATA")).startswith(b"451 ")
        assert hop.connections == 1


async def test_a_new_ehlo_or_rset_ends_the_transaction_at_the_next_hop_too(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        await client.ask("EHLO again")
        assert hop.received[-1] == b"RSET"
        assert (await client.envelope()).startswith(b"250 ")
        hop.replies["RSET"] = b"250 2.0.0 reset, says the next hop\r\n"
        assert await client.ask("RSET") == b"250 2.0.0 reset, says the next hop\r\n"
        assert (await client.ask("RCPT TO:<b@y>")).startswith(b"503 ")


@pytest.mark.parametrize("action", ["tag", "reject", "quarantine", "defer"])
async def test_what_authenticated_senders_send_passes_whatever_the_verdict(tmp_path: Path, action: str) -> None:
    policy = Policy(spam=0.6, unsure=0.5, reject=0, reject_after=5, actions={"spam": action})  # type: ignore[dict-item]
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=policy, filter=trained(), submission=True) as running,
    ):
        assert (await (await running.connect()).send(SPAM)).startswith(b"250 ")
        (entry,) = running.entries()
        assert (entry.class_, entry.action) == ("spam", "pass")
        assert hop.messages == [b"X-Spamfilter-Id: %s\r\n" % entry.id.encode() + SPAM]
