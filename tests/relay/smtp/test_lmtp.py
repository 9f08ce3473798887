"""The LMTP front end: each recipient has its own verdict, its own reply and its own entry in the journal."""

import asyncio
import errno
import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from spamfilter.bayes.verdict import Policy
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.sections import Feedback, Limits
from spamfilter.learning.filter import Filter
from spamfilter.relay.next_hops import Maildir
from spamfilter.relay.sender_lists.decision import Lists
from spamfilter.relay.verdicts import MOST_GROUPS
from spamfilter.stores import Rule
from tests.support.memory_store import MemoryStore
from tests.support.parts import Client, Hop, relaying

NAMES = ("one@example.test", "two@example.test", "three@example.test")
GTUBE = b"Subject: test\r\n\r\nXJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X\r\n"
MAIL = b"Subject: hello\r\n\r\nIs this spam?\r\n"
ACTIONS = {"ham": "pass", "unsure": "pass"}


def policy(name: str, on_spam: str) -> Policy:
    return Policy(name=name, table=name, reject=0, reject_after=0, actions={**ACTIONS, "spam": on_spam})  # type: ignore[dict-item]


POLICIES = {name: policy(name, action) for name, action in zip(NAMES, ("reject", "quarantine", "tag"), strict=True)}


async def replies(client: Client, mail: bytes, *names: str) -> list[bytes]:
    """The replies after the dot, one for each recipient."""
    return [await client.send(mail, "a@example.org", *names), *[await client.reply() for _ in names[1:]]]


def to(message: bytes) -> bytes:
    """A field of the header of a message at the next hop."""
    return next(line for line in message.split(b"\r\n") if line.startswith(b"X-Spam-Status"))


@pytest.mark.parametrize("next_hop", ["smtp", "lmtp"])
async def test_three_recipients_with_three_policies(tmp_path: Path, next_hop: str) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"{next_hop}://127.0.0.1:{hop.port}", door="lmtp", policies=POLICIES) as running,
    ):
        client = await running.connect()
        heard = await replies(client, GTUBE, *NAMES)
        assert [reply[:9] for reply in heard] == [b"550 5.7.1", b"250 2.0.0", b"250 2.0.0"]
        entries = running.entries()
        assert {(entry.action, *entry.recipients, entry.reply[:3]) for entry in entries} == {
            ("reject", NAMES[0], "550"), ("quarantine", NAMES[1], "250"), ("tag", NAMES[2], "250")
        }  # fmt: skip
        assert len({entry.id for entry in entries}) == 3
        (message,) = hop.messages
        assert b"policy=three@example.test" in to(message)
        assert [line for line in hop.received if line.startswith(b"RCPT")][3:] == [b"RCPT TO:<three@example.test>"]
        assert len(list((tmp_path / "quarantine" / "new").iterdir())) == 1
        # The session goes on.
        assert [reply[:3] for reply in await replies(client, MAIL, *NAMES[:2])] == [b"250", b"250"]


async def test_recipients_of_one_table_share_a_verdict_and_a_mail(tmp_path: Path) -> None:
    """Its header names none of them: one may be a blind copy."""
    policies = {name: replace(policy(name, "tag"), table=NAMES[0]) for name in NAMES[:2]}
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies) as running,
    ):
        client = await running.connect()
        await replies(client, GTUBE, *NAMES)
        await replies(client, GTUBE, NAMES[1])
        assert [entry.recipients for entry in running.entries()] == [[*NAMES[:2]], [NAMES[2]], [NAMES[1]]]
        named = [to(message).decode().partition(" learnt=0/0")[2] for message in hop.messages]
        assert named == ["", "", f" policy={NAMES[1]}"]


async def test_verdicts_for_which_the_client_would_wait_too_long_are_deferred(tmp_path: Path) -> None:
    """Else it would give up, and send the mail again to those who have it."""
    names = [f"user{at}@example.test" for at in range(5)]
    policies = {name: policy(name, "tag") for name in names}
    limits = Limits(final_seconds=1, connect_seconds=1, command_seconds=1)
    async with (
        Hop() as hop,
        relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies, limits=limits) as running,
    ):
        hop.delays["DOT"] = 0.7
        client = await running.connect()
        heard = [reply[:3] for reply in await replies(client, GTUBE, *names)]
        assert heard == [b"250"] * (taken := len(hop.messages)) + [b"451"] * (5 - taken)
        assert taken in (1, 2)
        assert [entry.reply[:3] for entry in running.entries()] == [code.decode() for code in heard]


async def test_each_recipient_has_the_prefix_of_its_own_policy(tmp_path: Path) -> None:
    prefixes = dict(zip(NAMES, ("[ONE]", "", "[THREE]"), strict=True))
    policies = {name: replace(policy(name, "tag"), subject_prefix=prefix) for name, prefix in prefixes.items()}
    everybodys = replace(policy("", "tag"), subject_prefix="[ALL]")
    async with (
        Hop() as hop,
        relaying(
            tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", policy=everybodys, policies=policies
        ) as running,
    ):
        client = await running.connect()
        await replies(client, GTUBE, *NAMES, "four@example.test")
        subjects = [re.search(rb"Subject: (\S+)", message)[1] for message in hop.messages]  # type: ignore[index]
    assert sorted(subjects) == sorted([b"[ONE]", b"test", b"[THREE]", b"[ALL]"])


async def test_one_policy_is_one_transaction(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp") as running:
        client = await running.connect()
        assert [reply[:3] for reply in await replies(client, MAIL, *NAMES)] == [b"250"] * 3
        assert [entry.recipients for entry in running.entries()] == [list(NAMES)]
        assert (len(hop.messages), hop.received.count(b"RSET")) == (1, 0)


@pytest.mark.parametrize(("number", "mails"), [(MOST_GROUPS, MOST_GROUPS), (MOST_GROUPS + 1, 1)])
async def test_a_mail_for_more_groups_than_can_have_verdicts_belongs_to_none(
    tmp_path: Path, number: int, mails: int
) -> None:
    names = [f"user{at}@example.test" for at in range(number)]
    filter = Filter(MemoryStore(), Learn(groups="mailbox").chosen())
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", filter=filter) as running,
    ):
        client = await running.connect()
        assert [reply[:3] for reply in await replies(client, MAIL, *names)] == [b"250"] * number
        assert (len(hop.messages), len(running.entries())) == (mails, mails)
        assert sorted(name for entry in running.entries() for name in entry.recipients) == sorted(names)


@pytest.mark.parametrize("policies", [{}, POLICIES], ids=["one policy", "three policies"])
async def test_a_recipient_that_the_next_hop_refuses_after_the_dot_has_an_entry_of_its_own(
    tmp_path: Path, policies: dict[str, Policy]
) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies) as running,
    ):
        hop.replies["DOT TO:<one@example.test>"] = b"552 5.2.2 full\r\n"
        hop.replies["DOT TO:<two@example.test>"] = b"421 4.3.2 closing\r\n"
        client = await running.connect()
        heard = await replies(client, MAIL, *NAMES)
        assert [reply[:9] for reply in heard] == [b"552 5.2.2", b"451 4.3.2", b"250 2.0.0"]
        entries = {entry.recipients[0]: entry for entry in running.entries()}
        assert {name: entry.reply[:3] for name, entry in entries.items()} == dict(
            zip(NAMES, ("552", "421", "250"), strict=True)
        )
        assert entries[NAMES[2]].id.encode() in hop.messages[-1]
        metrics = running.relay.metrics
        assert [metrics.value("final_replies", code) for code in ("2xx", "4xx", "5xx")] == [1, 0, 0]
        assert metrics.value("message_bytes") == len(MAIL)


async def test_recipients_that_have_the_mail_share_an_entry_though_each_is_named_in_its_reply(tmp_path: Path) -> None:
    """As by Dovecot and Cyrus. The id in the header is that of all, and one mark corrects one verdict."""
    async with Hop() as hop, relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp") as running:
        for name in NAMES[:2]:
            hop.replies[f"DOT TO:<{name}>"] = f"250 2.0.0 <{name}> vUu3Lz Saved\r\n".encode()
        hop.replies[f"DOT TO:<{NAMES[2]}>"] = f"452 4.2.2 <{NAMES[2]}> Mailbox is full\r\n".encode()
        client = await running.connect()
        heard = await replies(client, MAIL, *NAMES)
        assert [name.encode() in reply for name, reply in zip(NAMES, heard, strict=True)] == [True] * 3
        taken, deferred = running.entries()
        assert (taken.recipients, taken.reply) == ([*NAMES[:2]], f"250 2.0.0 <{NAMES[0]}> vUu3Lz Saved")
        assert (deferred.recipients, deferred.reply[:3]) == ([NAMES[2]], "452")
        assert taken.id.encode() in hop.messages[-1]
        assert running.relay.metrics.value("messages", "unsure", "pass") == 2


async def test_a_rule_on_the_sender_for_one_recipient_holds_for_that_alone(tmp_path: Path) -> None:
    lists = Lists([Rule("block", "a@example.org", NAMES[1])])
    async with (
        Hop() as hop,
        relaying(
            tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", lists=lists, policy=policy("", "reject")
        ) as running,
    ):
        client = await running.connect()
        assert [reply[:3] for reply in await replies(client, MAIL, *NAMES)] == [b"250", b"550", b"250"]
        assert [entry.recipients for entry in running.entries()] == [[NAMES[0], NAMES[2]], [NAMES[1]]]


async def test_a_next_hop_that_dies_between_two_verdicts_defers_only_what_it_has_not(tmp_path: Path) -> None:
    policies = {name: policy(name, "tag") for name in NAMES}
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies) as running,
    ):

        async def second() -> None:
            if len(hop.messages) == 2:
                hop.replies["DOT"] = b"close"

        hop.before_final = second
        client = await running.connect()
        heard = await replies(client, MAIL, *NAMES)
        assert [reply[:9] for reply in heard] == [b"250 2.0.0", b"451 4.4.2", b"451 4.4.2"]


async def test_a_quarantine_that_cannot_be_written_defers_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Maildir, "write", full)
    policies = {name: policy(name, action) for name, action in zip(NAMES, ("quarantine", "tag", "pass"), strict=True)}
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies) as running,
    ):
        client = await running.connect()
        assert [reply[:3] for reply in await replies(client, GTUBE, *NAMES)] == [b"451", b"250", b"250"]
        assert running.relay.metrics.value("faults", "hand_over") == 1
        assert (len(hop.messages), hop.connections) == (2, 1)


async def test_a_recipient_that_is_refused_the_second_time_hears_that(tmp_path: Path) -> None:
    policies = {name: policy(name, "tag") for name in NAMES}
    async with (
        Hop() as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp", policies=policies) as running,
    ):
        client = await running.connect()
        await client.envelope("a@example.org", *NAMES)
        hop.replies["RCPT TO:<two@example.test>"] = b"451 4.2.1 greylisted\r\n"
        await client.ask("DATA")
        client.writer.write(MAIL + b".\r\n")
        heard = [await client.reply() for _ in NAMES]
        assert [reply[:9] for reply in heard] == [b"250 2.0.0", b"451 4.2.1", b"250 2.0.0"]
        assert len(hop.messages) == 2


@pytest.mark.parametrize("mail", [b"a: b\r\n\r\nlone\rCR\r\n", b"x" * 70_000 + b"\r\n"], ids=["lone CR", "too large"])
async def test_a_mail_that_is_refused_whole_is_refused_once_for_each_recipient(tmp_path: Path, mail: bytes) -> None:
    limits = Limits(message_size=65_536)
    async with (
        Hop() as hop,
        relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp", limits=limits) as running,
    ):
        hop.replies["RCPT TO:<two@example.test>"] = b"550 5.1.1 unknown\r\n"
        client = await running.connect()
        await client.envelope("a@example.org", *NAMES)
        assert (await client.ask("DATA"))[:3] == b"354"
        client.writer.write(mail + b".\r\n")
        heard = [await client.reply(), await client.reply()]
        assert heard[0][:2] == b"55"
        assert heard[0] == heard[1]
        assert (await client.ask("NOOP"))[:3] == b"250"
        assert hop.messages == []


async def test_commands_of_smtp_are_none_of_lmtp(tmp_path: Path) -> None:
    async with Hop() as hop, relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", door="lmtp") as running:
        client = await running.connect()
        assert (await client.ask("MAIL FROM:<a@example.org>"))[:14] == b"503 5.5.1 Say "
        assert b"PIPELINING" in await client.ask("LHLO client.example")
        assert [(await client.ask(f"{verb} client.example"))[:3] for verb in ("EHLO", "HELO")] == [b"500"] * 2
        assert (await client.ask("MAIL FROM:<a@example.org>", "DATA"))[:3] == b"554"


async def test_a_client_on_a_socket_is_one_of_this_host_and_proves_no_sender(tmp_path: Path) -> None:
    async with (
        Hop() as hop,
        relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp", path=True) as running,
    ):
        client = await running.connect()
        assert (await replies(client, MAIL, NAMES[0]))[0][:3] == b"250"
        (entry,) = running.entries()
        assert entry.client == "127.0.0.1"
        assert b"X-Spam-Status" in hop.messages[0]
        await asyncio.sleep(0)


async def test_a_mark_by_mail_is_answered_for_each_of_its_addresses_and_not_beside_others(tmp_path: Path) -> None:
    feedback = Feedback(spam_addresses=["spam@example.test", "junk@example.test"])
    resent = b"Resent-To: spam@example.test\r\nFrom: x@offers.example\r\nSubject: pills\r\n\r\nbuy\r\n"
    async with (
        Hop() as hop,
        relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}", door="lmtp", feedback=feedback) as running,
    ):
        client = await running.connect()
        heard = await replies(client, resent, "spam@example.test", "junk@example.test")
        assert [reply[:27] for reply in heard] == [b"250 2.0.0 learnt 1 as spam\r"] * 2
        assert (await client.envelope("a@example.org", NAMES[0], "spam@example.test"))[:9] == b"452 4.5.3"
        assert hop.messages == []
