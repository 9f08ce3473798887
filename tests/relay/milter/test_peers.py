"""What goes wrong by milter: limits, peers that break the protocol or may not connect, and faults of our own."""

import asyncio
import ipaddress
import struct
from pathlib import Path

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Feedback, Limits
from spamfilter.relay.front_ends import FrontEnds
from spamfilter.relay.next_hops.maildir import unwrapped
from spamfilter.relay.quarantine.quarantine import Quarantine
from spamfilter.service.listening import bound
from spamfilter.stores import UNJUDGED
from tests.support.mail_server import MAIL, MailServer, milter
from tests.support.users import NOBODY, connected_as


def always(action: str) -> Policy:
    return Policy(actions={"ham": action, "unsure": action, "spam": action}, reject_after=0)  # type: ignore[dict-item]


BOTH = ("<b@example.test>", "<c@example.test>")


async def test_a_large_mail_is_rejected_as_by_the_proxy(tmp_path: Path) -> None:
    async with milter(tmp_path, limits=Limits(message_size=70_000)) as running:
        server = await MailServer.connect(running)
        outcome = await server.send(MAIL + b"x" * 70_000, recipients=BOTH)
        assert outcome.reply.startswith("552 5.3.4")
        assert running.relay.metrics.value("limits_hit", "message_size") == 1
        assert [(entry.class_, entry.reply[:9]) for entry in running.entries()] == [(UNJUDGED, "552 5.3.4")]
        assert running.relay.memory.used == 0
        assert (await server.send(MAIL)).reply == ""


@pytest.mark.parametrize("spam_addresses", [["spam@example.test"], []], ids=["asked", "not asked"])
async def test_recipients_are_limited_where_the_mail_server_asks_for_each(
    tmp_path: Path, spam_addresses: list[str]
) -> None:
    """At the end of the mail it is too late: all of it would be deferred, again and again."""
    feedback = Feedback(spam_addresses=spam_addresses)
    async with milter(tmp_path, limits=Limits(recipients=1), feedback=feedback) as running:
        outcome = await (await MailServer.connect(running)).send(MAIL, recipients=BOTH)
        assert outcome.reply == ""
        assert [reply[:9] for reply in outcome.refused.values()] == ["452 4.5.3"] * len(spam_addresses)


async def test_without_memory_mail_is_deferred_and_all_of_it_is_given_back(tmp_path: Path) -> None:
    async with milter(tmp_path) as running:
        running.relay.memory.bound(300_000, 300_000)
        server, other = [await MailServer.connect(running) for _ in range(2)]
        await other.step(b"M", b"<a@example.org>\0")
        await other.step(b"R", b"<b@example.test>\0")
        await other.step(b"B", b"x" * 150_000)
        while not running.relay.memory.used:
            await asyncio.sleep(0.01)
        outcome = await server.send(MAIL + b"x" * 150_000)
        assert outcome.reply.startswith("452 4.3.1")
        other.close()
        while running.relay.memory.used:
            await asyncio.sleep(0.01)
        assert (await server.send(MAIL + b"x" * 150_000)).reply == ""


async def test_lone_line_ends_are_judged_and_kept_repaired(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("quarantine")) as running:
        server = await MailServer.connect(running)
        assert (await server.send(MAIL + b"a\rb\nc\r\n")).dropped
        (kept,) = Quarantine(tmp_path / "quarantine").mails()
        assert unwrapped(kept.path.read_bytes())[0].endswith(b"hello\r\na b\r\nc\r\n")


async def test_a_mail_server_that_hangs_up_while_it_waits_keeps_its_mail(tmp_path: Path) -> None:
    async with milter(tmp_path, policy=always("quarantine")) as running:
        server = await MailServer.connect(running)
        for command, data in ((b"M", b"<a@b>\0"), (b"R", b"<c@d>\0"), (b"L", b"Subject\0 x\0"), (b"B", b"text\r\n")):
            server.put(command, data)
        await server.writer.drain()
        server.close()
        while running.relay.shared.connections.all[0]:
            await asyncio.sleep(0.01)
        assert running.entries() == []
        assert running.relay.memory.used == 0


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack(">I", 0), id="no-command"),
        pytest.param(b"EHLO mail.example.org\r\n", id="smtp"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(struct.pack(">I", 6) + b"M<a@b>", id="before-the-negotiation"),
        pytest.param(struct.pack(">I", 5) + b"O\0\0\0\6", id="short-negotiation"),
        pytest.param(struct.pack(">I", 13) + b"O" + struct.pack(">III", 1, 0x1FF, 0), id="old-version"),
        pytest.param(struct.pack(">I", 13) + b"O" + struct.pack(">III", 6, 0, 0), id="nothing-may-be-changed"),
    ],
)
async def test_what_is_no_milter_is_disconnected(tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with milter(tmp_path) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert "breaks the milter protocol" in caplog.text
        assert (await (await MailServer.connect(running)).send(MAIL)).reply == ""


@pytest.mark.parametrize(
    ("command", "data"),
    [
        pytest.param(b"E", b"", id="end-of-nothing"),
        pytest.param(b"R", b"<b@c>\0", id="recipient-without-sender"),
        pytest.param(b"L", b"Subject\0 x\0", id="field-without-sender"),
        pytest.param(b"B", b"x", id="text-without-sender"),
        pytest.param(b"M", b"<a@b>", id="no-end"),
        pytest.param(b"Z", b"", id="unknown"),
        pytest.param(b"D", b"", id="macros-for-nothing"),
        pytest.param(b"C", b"x", id="client-without-address"),
    ],
)
async def test_a_wrong_order_is_disconnected(tmp_path: Path, command: bytes, data: bytes) -> None:
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        server.put(command, data)
        assert await server.packet() == (b"", b"")
        assert running.relay.metrics.value("faults", "session") == 0


async def test_only_mail_servers_connect_to_a_port(tmp_path: Path) -> None:
    async with milter(tmp_path, trusted=(ipaddress.ip_network("192.0.2.0/24"),)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_only_the_mail_server_of_this_host_connects_to_a_socket(tmp_path: Path) -> None:
    async with milter(tmp_path, proven=True) as running:
        assert (await (await MailServer.connect(running)).send(MAIL)).reply == ""
        assert running.path is not None
        (client,) = await asyncio.to_thread(connected_as, NOBODY, running.path)
        reader, writer = await asyncio.open_connection(sock=client)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert running.relay.metrics.value("sessions") == 1


async def test_over_the_limit_of_connections_a_mail_server_is_disconnected(tmp_path: Path) -> None:
    async with milter(tmp_path, limits=Limits().model_copy(update={"connections": 1})) as running:
        server = await MailServer.connect(running)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert running.relay.metrics.value("connections") == 1
        assert (await server.send(MAIL)).reply == ""


async def test_at_the_end_a_running_mail_is_answered_and_idle_connections_are_closed(tmp_path: Path) -> None:
    async with milter(tmp_path) as running:
        front_ends = FrontEnds(running.relay)
        (sock,) = bound("relay.milter", "127.0.0.1:0")
        await front_ends.start("milter", [sock])
        running.port = sock.getsockname()[1]
        idle, busy = [await MailServer.connect(running) for _ in range(2)]
        await busy.step(b"M", b"<a@example.org>\0")
        await busy.step(b"R", b"<b@example.test>\0")
        await busy.writer.drain()
        await asyncio.sleep(0.05)
        ending = asyncio.create_task(front_ends.drain())
        assert await idle.packet() == (b"", b"")
        busy.put(b"B", b"text\r\n")
        busy.put(b"E")
        busy.put(b"M", b"<another@example.org>\0")
        assert [(await busy.packet())[0] for _ in range(3)] == [b"i", b"i", b"c"]
        await ending
        assert await busy.packet() == (b"", b"")
        assert running.journal() == ["pass"]


async def test_a_connection_that_is_silent_in_a_text_is_ended(tmp_path: Path) -> None:
    async with milter(tmp_path, limits=Limits().model_copy(update={"data_seconds": 0.1})) as running:
        server = await MailServer.connect(running)
        await server.step(b"M", b"<a@example.org>\0")
        await server.step(b"B", b"x")
        assert await server.packet() == (b"", b"")
        assert running.relay.metrics.value("limits_hit", "data_seconds") == 1
        assert running.relay.memory.used == 0


async def test_a_fault_of_ours_defers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with milter(tmp_path) as running:
        server = await MailServer.connect(running)
        with monkeypatch.context() as patch:
            patch.setattr("spamfilter.relay.milter.session.hand_over", None)
            assert (await server.send(MAIL)).reply.startswith("451 4.3.0")
        assert (await server.send(MAIL)).reply == ""
        assert running.relay.metrics.value("faults", "session") == 1


async def test_a_mail_that_cannot_be_judged_passes_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with milter(tmp_path) as running:
        monkeypatch.setattr("spamfilter.relay.judging.parse", None)
        outcome = await (await MailServer.connect(running)).send(MAIL)
        assert "fault=TypeError" in outcome.values("X-Spam-Status")[0]
