"""Policies of recipients before the queue: one verdict for all, the mildest, whose header names no recipient."""

from pathlib import Path

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.stores import Rule
from tests.relay.smtp.test_lmtp import GTUBE, MAIL, policy, to
from tests.support.parts import Hop, relaying

POLICIES = {
    "strict.test": policy("strict.test", "reject"),
    "kept.test": policy("kept.test", "quarantine"),
    "boss@strict.test": policy("boss@strict.test", "tag"),
}
USUAL = policy("", "defer")


@pytest.mark.parametrize(
    ("recipients", "action", "named"),
    [
        (["a@strict.test"], "reject", []),
        (["a@strict.test", "b@sub.strict.test"], "reject", []),
        (["A@Strict.test", "c@kept.test"], "quarantine", []),
        (["boss@strict.test"], "tag", [" policy=boss@strict.test"]),
        (["a@strict.test", "boss@strict.test", "c@kept.test"], "tag", [""]),
        (["x@example.test"], "defer", []),
        (["a@strict.test", "x@example.test"], "defer", []),
    ],
    ids=["domain", "sub-domain", "two domains", "address", "blind copy", "nobody's", "one and nobody's"],
)
async def test_one_verdict_for_all_recipients_is_the_mildest(
    tmp_path: Path, recipients: list[str], action: str, named: list[str]
) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=USUAL, policies=POLICIES) as running,
    ):
        client = await running.connect()
        reply = await client.send(GTUBE, "a@example.org", *recipients)
        assert reply[:3] == {"reject": b"550", "defer": b"451"}.get(action, b"250")
        (entry,) = running.entries()
        assert (entry.action, entry.recipients) == (action, recipients)
        headers = [to(message).decode() for message in hop.messages]
        assert [header.partition(" learnt=0/0")[2].partition("\r\n")[0] for header in headers] == named


async def test_thresholds_of_a_recipient_make_another_class(tmp_path: Path) -> None:
    policies = {"a@example.test": Policy(name="a@example.test", table="a@example.test", spam=0.9, unsure=0.4, reject=0)}
    usual = Policy(spam=1.0, unsure=1.0, reject=0)
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=usual, policies=policies) as running,
    ):
        client = await running.connect()
        for name in ("a@example.test", "b@example.test"):
            await client.send(MAIL, "a@example.org", name)  # nothing is learnt, so its score is 0.5
        assert [entry.class_ for entry in running.entries()] == ["unsure", "ham"]
        assert [b" threshold=0.900 " in to(hop.messages[0]), b" threshold=1.000 " in to(hop.messages[1])] == [True] * 2


async def test_a_rule_for_one_recipient_and_the_policy_of_another_meet_in_the_mildest(tmp_path: Path) -> None:
    lists = Lists([Rule("block", "a@example.org", "x@example.test")])
    usual = policy("", "reject")
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policy=usual, policies=POLICIES, lists=lists) as running,
    ):
        client = await running.connect()
        assert (await client.send(MAIL, "a@example.org", "x@example.test"))[:3] == b"550"
        assert (await client.send(MAIL, "a@example.org", "x@example.test", "c@kept.test"))[:3] == b"250"
        assert [entry.action for entry in running.entries()] == ["reject", "pass"]


async def test_the_rule_of_one_recipient_is_not_told_to_one_with_another_policy(tmp_path: Path) -> None:
    policies = {name: policy(name, "tag") for name in ("a@example.test", "b@example.test")}
    lists = Lists([Rule("block", "a@example.org", "a@example.test")])
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", policies=policies, lists=lists) as running,
    ):
        client = await running.connect()
        assert (await client.send(GTUBE, "a@example.org", *policies))[:3] == b"250"
        assert [named in to(hop.messages[0]) for named in (b"policy=", b"blocked=")] == [False] * 2
        assert running.entries()[0].listed == "blocked=a@example.org for-all=no rule=config"
