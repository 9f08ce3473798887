"""Probes are judged and journalled, and not delivered."""

from pathlib import Path

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.mail.message import parse
from tests.relay.smtp.test_feedback_addresses import ANNA, NOBODY, ONE, SPAM, TWO, both, learnt, untouched

CANARY = "canary-4711@spamfilter.invalid"


async def test_a_canary_is_judged_and_journalled_and_goes_no_further(tmp_path: Path) -> None:
    rejecting = Policy(
        spam=0.0, unsure=0.0, reject_after=0, actions={"ham": "reject", "unsure": "reject", "spam": "reject"}
    )
    async with both(tmp_path, policy=rejecting) as (hop, running):
        running.relay.canaries.add(CANARY)
        client = await running.connect()
        reply = await client.send(ONE, ANNA, CANARY.upper())
        (entry,) = running.entries()
        assert reply == f"250 2.0.0 Ok: canary {entry.id}\r\n".encode()
        assert (entry.action, entry.reply, entry.digest) == ("pass", reply.decode().strip(), parse(ONE).digest())
        assert untouched(hop)
        assert learnt(running) == []
        assert running.relay.canaries == set()


async def test_a_canary_is_good_for_one_mail(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        running.relay.canaries.add(CANARY)
        first, second = await running.connect(), await running.connect()
        assert (await second.envelope(ANNA, CANARY)).startswith(b"250 ")
        assert (await first.send(ONE, ANNA, CANARY)).startswith(b"250 ")
        await second.ask("DATA")
        second.writer.write(TWO + b".\r\n")
        assert (await second.reply()).startswith(b"550 5.7.1 This address was used already")
        assert len(running.entries()) == 1
        hop.replies["RCPT"] = b"550 5.1.1 no such user\r\n"
        assert (await first.envelope(ANNA, CANARY)).startswith(b"550 5.1.1 no such user")


async def test_a_canary_may_come_from_nobody(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        running.relay.canaries.add(CANARY)
        assert b"canary" in await (await running.connect()).send(ONE, "", CANARY)


@pytest.mark.parametrize("said", ["ADDR=203.0.113.9", None], ids=["xforward", "peer"])
async def test_a_canary_is_for_whoever_knows_its_address(tmp_path: Path, said: str | None) -> None:
    options = {} if said else {"trusted": NOBODY, "domains": frozenset()}
    async with both(tmp_path, **options) as (hop, running):
        running.relay.canaries.add(CANARY)
        client = await running.connect()
        await client.ask("EHLO c", *([f"XFORWARD {said}"] if said else []))
        await client.ask(f"MAIL FROM:<{ANNA}>", f"RCPT TO:<{CANARY}>", "DATA")
        client.writer.write(ONE + b".\r\n")
        assert (await client.reply()).startswith(b"250 2.0.0 Ok: canary ")
        assert len(running.entries()) == 1
        assert untouched(hop)
        assert running.relay.canaries == set()


async def test_a_canary_and_others_do_not_mix(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        running.relay.canaries.add(CANARY)
        client = await running.connect()
        for other in (SPAM, "b@example.test"):
            assert (await client.envelope(ANNA, other, CANARY)).startswith(b"452 4.5.3 ")
            await client.ask("RSET")
            assert (await client.envelope(ANNA, CANARY, other)).startswith(b"452 4.5.3 ")
            await client.ask("RSET")
        assert running.relay.canaries == {CANARY}
