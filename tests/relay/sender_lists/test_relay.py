"""A relay that obeys its lists, from the envelope to the next hop and the journal."""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.config.sender_rules import rule
from spamfilter.relay.sender_lists.decision import Lists
from tests.relay.test_judging import trained
from tests.support.made import mail
from tests.support.parts import Hop, Running, relaying

REFUSING = Policy(spam=0.6, reject=0.6, reject_after=1)
SPAM, HAM = mail("cheap pills", "buy now", "new"), mail("our lunch", "see you", "new")
PROVED = b"Authentication-Results: mx.test; dmarc=pass header.from=example.org\r\n"


@asynccontextmanager
async def listing(
    folder: Path, *rules: str, trusted: bool = True, submission: bool = False
) -> AsyncIterator[tuple[Hop, Running]]:
    networks = (ipaddress.ip_network("127.0.0.0/8"),) if trusted else ()
    async with (
        Hop() as hop,
        relaying(
            folder, f"smtp://127.0.0.1:{hop.port}", filter=trained(), policy=REFUSING, trusted=networks,
            domains=frozenset(("example.test",)), submission=submission,
        ) as running,
    ):  # fmt: skip
        running.relay.lists = Lists(
            [rule("allow" if text[0] == "+" else "block", text[1:]) for text in rules], {"mx.test"}
        )
        yield hop, running


def status(hop: Hop) -> str:
    (sent,) = hop.messages
    return next(line for line in sent.decode().split("\r\n") if line.startswith("X-Spam-Status: "))


async def test_a_blocked_sender_is_treated_as_spam_and_every_place_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with listing(tmp_path, "-example.org") as (hop, running):
        client = await running.connect()
        assert (await client.send(HAM)).startswith(b"250 ")
        assert b"X-Spam-Flag: YES\r\n" in hop.messages[0]
        assert " class=ham " in status(hop)
        assert status(hop).endswith(" blocked=example.org rule=config")
        (entry,) = running.entries()
        assert (entry.class_, entry.action, entry.listed) == ("ham", "tag", "blocked=example.org rule=config")
        assert running.relay.metrics.value("rules_met", "blocked") == 1
        assert any("listed=blocked=example.org,rule=config " in str(record.getMessage()) for record in caplog.records)


async def test_a_blocked_sender_is_refused_where_spam_is(tmp_path: Path) -> None:
    async with listing(tmp_path, "-example.org") as (hop, running):
        running.relay.judge.policy = Policy(actions={"ham": "pass", "unsure": "pass", "spam": "reject"})
        client = await running.connect()
        reply = await client.send(HAM)
        assert reply.startswith(b"550 5.7.1 Sender blocked")
        assert running.entries()[0].id.encode() in reply
        assert hop.messages == []


async def test_an_allowed_and_proved_sender_passes_untagged(tmp_path: Path) -> None:
    async with listing(tmp_path, "+example.org") as (hop, running):
        client = await running.connect()
        assert (await client.send(PROVED + SPAM)).startswith(b"250 ")
        assert b"X-Spam-Flag" not in hop.messages[0]
        assert status(hop).startswith("X-Spam-Status: No, ")
        assert status(hop).endswith(" allowed=example.org proof=dmarc rule=config")
        assert [(entry.class_, entry.action) for entry in running.entries()] == [("spam", "pass")]
        assert running.relay.metrics.value("rules_met", "allowed") == 1


@pytest.mark.parametrize(
    ("header", "trusted"),
    [
        pytest.param(b"", True, id="nothing-proves-it"),
        pytest.param(PROVED.replace(b"mx.test", b"mx.evil"), True, id="by-another-server"),
        pytest.param(PROVED, False, id="forged-by-a-stranger"),
    ],
)
async def test_an_allowed_sender_that_is_not_proved_is_judged_like_any_other(
    tmp_path: Path, header: bytes, trusted: bool
) -> None:
    async with listing(tmp_path, "+example.org", trusted=trusted) as (hop, running):
        client = await running.connect()
        assert (await client.send(header + SPAM)).startswith(b"550 5.7.1 Refused as spam")
        assert hop.messages == []
        assert [entry.listed for entry in running.entries()] == ["allowed=example.org proof=none rule=config"]
        assert running.relay.metrics.value("rules_met", "unproved") == 1


async def test_whom_a_recipient_allows_the_others_do_not_read_if_it_is_not_proved(tmp_path: Path) -> None:
    async with listing(tmp_path, "+example.org for b@example.test") as (hop, running):
        client = await running.connect()
        assert (await client.send(HAM, "a@example.org", "b@example.test", "c@example.test")).startswith(b"250 ")
        assert "allowed" not in status(hop)
        hop.messages.clear()
        assert (await client.send(HAM, "a@example.org", "b@example.test")).startswith(b"250 ")
        assert status(hop).endswith(" allowed=example.org proof=none rule=config")
        said = "allowed=example.org proof=none for-all=no rule=config"
        assert [entry.listed for entry in running.entries()] == [said, said.replace(" for-all=no", "")]


async def test_the_client_that_xforward_names_is_looked_up(tmp_path: Path) -> None:
    async with listing(tmp_path, "+203.0.113.0/24") as (hop, running):
        client = await running.connect()
        assert (await client.send(SPAM)).startswith(b"550 ")
        await client.ask("EHLO mx", "XFORWARD ADDR=203.0.113.9")
        await client.ask("MAIL FROM:<a@example.org>", "RCPT TO:<b@example.test>", "DATA")
        client.writer.write(SPAM + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert status(hop).endswith(" allowed=203.0.113.0/24 proof=client rule=config")


async def test_no_mail_is_lost_because_another_recipient_blocks_its_sender(tmp_path: Path) -> None:
    async with listing(tmp_path, "-example.org for b@example.test") as (hop, running):
        running.relay.judge.policy = Policy(actions={"ham": "pass", "unsure": "pass", "spam": "reject"})
        client = await running.connect()
        assert (await client.send(HAM, "a@example.org", "b@example.test", "c@example.test")).startswith(b"250 ")
        assert "blocked" not in status(hop)  # the others read it, too
        assert running.entries()[0].listed == "blocked=example.org for-all=no rule=config"
        assert (await client.send(HAM, "a@example.org", "B@example.test")).startswith(b"550 ")


async def test_authenticated_senders_pass_whatever_the_lists_say(tmp_path: Path) -> None:
    async with listing(tmp_path, "-example.org", submission=True) as (hop, running):
        client = await running.connect()
        assert (await client.send(HAM)).startswith(b"250 ")
        assert b"X-Spam-" not in hop.messages[0].replace(b"X-Spamfilter-Id", b"")
        assert [entry.listed for entry in running.entries()] == [""]


async def test_a_fault_of_the_lists_loses_no_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listing(tmp_path, "-example.org") as (hop, running):
        monkeypatch.setattr(Lists, "uses", lambda *_: 1 / 0)
        client = await running.connect()
        assert (await client.send(HAM)).startswith(b"250 ")
        assert len(hop.messages) == 1
