"""Defects of aiosmtpd 1.4.6 that would damage real mail, and that the relay must not have."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from spamfilter.config.sections import Limits
from spamfilter.relay.smtp.dialogue import Dialogue
from tests.support.certificates import server_context
from tests.support.parts import Hop, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"


async def test_trap_1_parameters_of_mail_and_rcpt_reach_the_next_hop_as_they_came(tmp_path: Path) -> None:
    mail = "MAIL FROM:<a@example.org> BODY=8BITMIME RET=HDRS ENVID=QQ+2Babc MT-PRIORITY=3 AUTH=<> SIZE=100"
    rcpt = "RCPT TO:<b@example.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;Bob+2Btag@Example.test x-odd=Yes"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert (await client.ask("EHLO client.example", mail)).startswith(b"250 ")
        assert (await client.ask(rcpt)).startswith(b"250 ")
        assert mail.encode() in hop.received
        assert rcpt.encode() in hop.received


@pytest.mark.parametrize("path", ["<>", "<@relay.one,@relay.two:joe@example.org>", '<"odd> <local"@example.org>'])
async def test_trap_2_null_and_routed_reverse_paths_are_passed_on_unchanged(tmp_path: Path, path: str) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert (await client.ask("EHLO client.example", f"MAIL FROM:{path}")).startswith(b"250 ")
        assert f"MAIL FROM:{path}".encode() in hop.received
        await client.ask("RCPT TO:<b@example.test>", "DATA")
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert [entry.sender for entry in running.entries()] == [path[1:-1]]


async def test_trap_3_lines_longer_than_1001_bytes_pass(tmp_path: Path) -> None:
    mail = b"Subject: " + b"x" * 5000 + b"\r\n\r\n" + b"y" * 300_000 + b"\r\n"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert (await (await running.connect()).send(mail)).startswith(b"250 ")
        assert hop.messages[0].endswith(mail)


async def test_trap_4_an_exception_is_a_451_without_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        monkeypatch.setattr(running.relay, "quarantine_folder", None)
        monkeypatch.setattr(running.relay.judge, "policy", _Quarantining(running.relay.judge.policy))
        await client.ask("DATA")
        client.writer.write(MAIL + b".\r\n")
        reply = await client.reply()
        assert reply.startswith(b"451 4.3.0 ")
        assert b"NoneType" not in reply
        assert "the hand-over failed" in caplog.text
        assert hop.messages == []


class _Quarantining:
    """A policy that sends everything to a quarantine."""

    def __init__(self, policy: object) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)

    def decide(self, *arguments: object) -> tuple[str, str]:
        return "spam", "quarantine"


async def test_trap_5_the_idle_limit_does_not_cut_into_data_or_the_hand_over(tmp_path: Path) -> None:
    async def slowly() -> None:
        await asyncio.sleep(1.2)

    limits = Limits(idle_seconds=1.0, data_seconds=1.0)
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=limits) as running:
        hop.before_final = slowly
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        for line in MAIL.splitlines(keepends=True):  # 4 blocks: in all more than the idle limit
            client.writer.write(line)
            await asyncio.sleep(0.3)
        client.writer.write(b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert (await client.reply()).startswith(b"421 4.4.2 ")  # and then it counts again


@pytest.mark.parametrize("ending", ["half-close", "reset"])
async def test_trap_6_a_client_that_hangs_up_does_not_stop_the_hand_over(tmp_path: Path, ending: str) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await go_on.wait()

    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.before_final = wait
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        client.writer.write(MAIL + b".\r\n")
        await asyncio.wait_for(reached.wait(), 10)
        if ending == "half-close":
            client.writer.write_eof()
        else:
            client.writer.transport.abort()
        await asyncio.sleep(0.1)
        go_on.set()
        if ending == "half-close":
            assert (await client.reply()).startswith(b"250 ")
        for _ in range(100):
            if running.entries():
                break
            await asyncio.sleep(0.05)
        # The next hop has it, so the journal must know of it.
        assert [(entry.action, entry.reply[:3]) for entry in running.entries()] == [("pass", "250")]


async def test_trap_6_nothing_is_handed_on_for_a_client_that_hung_up_before_the_dot(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        client.writer.write(MAIL)
        await client.writer.drain()
        client.writer.transport.abort()
        await asyncio.sleep(0.3)
        assert hop.messages == []
        assert "DATA" not in [line.decode() for line in hop.received]


async def test_trap_7_long_commands_pass_on_every_connection(tmp_path: Path) -> None:
    rcpt = "RCPT TO:<b@example.test> ORCPT=rfc822;" + "x" * 1500 + "@example.test"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        first, second = await running.connect(), await running.connect()
        for client in (first, second, first):
            reply = await client.ask("EHLO client.example", "MAIL FROM:<a@example.org>", rcpt)
            assert reply.startswith(b"250 ")
        assert hop.received.count(rcpt.encode()) == 3


async def test_trap_7_a_command_without_end_is_refused_and_does_not_grow(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert (await client.ask("EHLO " + "x" * 200_000)).startswith(b"500 5.5.2 ")
        assert (await client.envelope()).startswith(b"250 ")


async def test_trap_8_a_reply_of_the_next_hop_that_is_not_ascii_comes_back_byte_for_byte(tmp_path: Path) -> None:
    refusal = b"550-5.1.1 Benutzer unbekannt: m\xc3\xbcller\r\n550 5.1.1 not UTF-8: \xfc\r\n"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["RCPT"] = refusal
        client = await running.connect()
        assert await client.ask("EHLO client.example", "MAIL FROM:<a@example.org> SMTPUTF8", "RCPT TO:<ü@x>") == refusal
        assert "RCPT TO:<ü@x>".encode() in hop.received


async def test_trap_9_a_large_message_is_taken_in_blocks_and_stays_whole(tmp_path: Path) -> None:
    mail = b"Subject: large\r\n\r\n" + b"".join(b".%d\r\n" % number for number in range(300_000))
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        assert (await (await running.connect()).send(mail)).startswith(b"250 ")
        assert hop.messages[0].replace(b"\r\n.", b"\r\n").endswith(mail)


async def test_trap_10_refused_recipients_are_refused_at_once_and_the_others_get_the_mail(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["RCPT TO:<nobody@example.test>"] = b"550 5.1.1 No such user here\r\n"
        client = await running.connect()
        reply = await client.ask("EHLO c", "MAIL FROM:<a@example.org>", "RCPT TO:<nobody@example.test>")
        assert reply == b"550 5.1.1 No such user here\r\n"
        assert (await client.ask("RCPT TO:<b@example.test>", "DATA")).startswith(b"354")
        client.writer.write(MAIL + b".\r\n")
        assert await client.reply() == b"250 2.0.0 Ok: queued as 4711\r\n"
        assert [entry.recipients for entry in running.entries()] == [["nobody@example.test"], ["b@example.test"]]


async def test_trap_10_the_loop_goes_on_while_the_next_hop_is_slow(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DOT"] = b"hang"
        slow = await running.connect()
        await slow.envelope()
        await slow.ask("DATA")
        slow.writer.write(MAIL + b".\r\n")
        await slow.writer.drain()
        await asyncio.sleep(0.1)
        assert (await (await running.connect()).ask("EHLO other")).startswith(b"250-relay.test")
        assert (await slow.reply()).startswith(b"451 4.4.2 ")


async def test_no_auth_is_offered_or_taken(tmp_path: Path) -> None:
    async with Hop((*("AUTH PLAIN",), "SIZE")) as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert b"AUTH" not in await client.ask("EHLO client.example")
        assert (await client.ask("AUTH PLAIN AGEAYg==")).startswith(b"500 ")


async def test_what_clients_send_is_not_logged_by_the_library(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", proxy_protocol=True) as running:
            client = await running.connect(greet=False)
            client.writer.write(b"PROXY UNKNOWN\r\n")
            await client.reply()
            await client.ask("EHLO client.example", "SECRET word", "AUTH PLAIN AGEAYg==")
            await client.send(MAIL)
            broken = await running.connect(greet=False)
            broken.writer.write(b"PROXY secret\r\n")
            with contextlib.suppress(ConnectionResetError):
                await broken.reply()
    assert len([line for line in caplog.messages if "class=" in line]) == 1
    assert {record.name.split(".")[0] for record in caplog.records} <= {"spamfilter", "asyncio"}
    assert "secret" not in caplog.text


async def test_unknown_commands_are_errors_as_others_and_no_more(tmp_path: Path) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", limits=Limits(errors=8)) as running,
    ):
        client = await running.connect()
        await client.ask("EHLO client.example")
        for line in ("WHAT", "help", "BDAT 1", "\N{GREEK SMALL LETTER ALPHA}", "", "X" * 1999, "NOOP" * 600, "AUTH"):
            assert (await client.ask(line)).startswith(b"500 5.5.2 "), line
        assert (await client.ask("NOOP")).startswith(b"250 ")
        assert (await client.ask("WHAT")).startswith(b"421 ")


async def test_a_word_that_no_command_has_is_not_kept(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.ask("EHLO client.example", "WHAT")
        assert not Dialogue.command_size_limits


async def test_an_exception_of_the_front_end_itself_is_a_451_without_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        await client.envelope()
        monkeypatch.setattr(Dialogue, "coming", None)
        assert await client.ask("RCPT TO:<c@example.test>") == b"451 4.3.0 Temporary fault; try again later\r\n"
        assert running.relay.metrics.value("faults", "session") == 1
        assert (await client.ask("DATA")).startswith(b"451 ")  # what comes behind it hears no worse


@pytest.mark.parametrize("ending", ["half-close", "reset", "no TLS"])
async def test_a_client_that_leaves_in_the_handshake_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", tls=server_context(tmp_path)) as running,
    ):
        client = await running.connect()
        assert (await client.ask("EHLO client.example", "STARTTLS")).startswith(b"220 ")
        if ending == "half-close":
            client.writer.write_eof()
        elif ending == "reset":
            client.writer.transport.abort()
        else:
            client.writer.write(b"EHLO client.example\r\n")
        for _ in range(200):
            if not running.relay.metrics.value("connections"):
                break
            await asyncio.sleep(0.02)
        assert running.relay.metrics.value("connections") == 0
        assert running.relay.metrics.value("faults", "session") == 0
