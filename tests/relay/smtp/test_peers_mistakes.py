"""Defects of the proxies of other filters, each of which lost or duplicated mail."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from spamfilter.bayes import voices
from spamfilter.bayes.tokens import Tokens
from spamfilter.bayes.verdict import Policy
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import Message
from tests.support.memory_store import open_store
from tests.support.parts import Hop, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"


async def test_spambayes_a_fault_while_judging_neither_loses_nor_refuses_the_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(message: Message, families: Sequence[str]) -> Tokens:
        raise RuntimeError("made to fail")

    monkeypatch.setattr(voices, "tokenize", broken)
    policy = Policy(actions={"ham": "pass", "unsure": "reject", "spam": "reject"})
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=policy) as running:
        assert (await (await running.connect()).send(MAIL)).startswith(b"250 ")
        assert b"X-Spam-Status: No, score=0.500 class=unsure" in hop.messages[0]
        assert b"fault=RuntimeError" in hop.messages[0]
        assert hop.messages[0].endswith(MAIL)
        (entry,) = running.entries()
        assert f"{entry.id}: cannot be judged" in caplog.text


async def test_spambayes_a_refusal_of_the_next_hop_is_told_to_the_client(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DOT"] = b"554 5.6.0 We do not want this\r\n"
        assert await (await running.connect()).send(MAIL) == b"554 5.6.0 We do not want this\r\n"
        assert [entry.reply for entry in running.entries()] == ["554 5.6.0 We do not want this"]


async def test_spambayes_a_reject_uses_550_and_not_503(tmp_path: Path) -> None:
    filter = Filter(open_store("memory:"), Settings().voices())
    policy = Policy(reject_after=0, actions={"ham": "reject", "unsure": "reject", "spam": "reject"})
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=policy, filter=filter) as running,
    ):
        client = await running.connect()
        reply = await client.send(MAIL)
        (entry,) = running.entries()
        assert reply.startswith(b"550 5.7.1 ")
        assert entry.id.encode() in reply
        assert hop.messages == []
        assert hop.received[-1] == b"RSET"
        # The session goes on, and so does the next hop's.
        assert (await client.envelope()).startswith(b"250 ")
        assert hop.connections == 1


@pytest.mark.parametrize(
    "ending",
    [
        b"\n.\r\n",
        b"\r\n.\n",
        b"\n.\n",
        b"\r.\r",
        b"\r\n.\r",
        b"\r.\r\n",
        b"\n\n.\r\r\n",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
    ],
)
@pytest.mark.parametrize("normalise", [False, True], ids=["reject", "normalise"])
async def test_proxmox_only_cr_lf_dot_cr_lf_ends_a_message(tmp_path: Path, ending: bytes, normalise: bool) -> None:
    smuggled = b"MAIL FROM:<evil@example.org>\r\nRCPT TO:<b@example.test>\r\nDATA\r\nSubject: smuggled\r\n\r\nx\r\n"
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", normalise=normalise) as running:
        client = await running.connect()
        await client.envelope()
        await client.ask("DATA")
        client.writer.write(b"Subject: outer\r\n\r\nbefore" + ending + smuggled + b".\r\n")
        reply = await client.reply()
        lone = b"\0" not in ending
        assert reply[:3] == (b"550" if lone and not normalise else b"250")
        assert [line for line in hop.received if line.startswith(b"MAIL")] == [b"MAIL FROM:<a@example.org>"]
        for message in hop.messages:
            assert b"Subject: smuggled" in message
            assert message.count(b"\n") == message.count(b"\r\n") == message.count(b"\r")
            assert b"\r\n.\r\n" not in message
        assert (await client.ask("NOOP")).startswith(b"250 ")


async def test_proxmox_mixed_answers_never_make_a_second_delivery(tmp_path: Path) -> None:
    """One message has one reply: a next hop that took it for some recipients has refused the others at RCPT."""
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}") as running:
        hop.replies["RCPT TO:<full@example.test>"] = b"452 4.2.2 Mailbox full\r\n"
        client = await running.connect()
        assert (
            await client.ask("EHLO c", "MAIL FROM:<a@x>", "RCPT TO:<full@example.test>")
            == b"452 4.2.2 Mailbox full\r\n"
        )
        assert (await client.ask("RCPT TO:<b@example.test>")).startswith(b"250")
        await client.ask("DATA")
        client.writer.write(MAIL + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert len(hop.messages) == 1
