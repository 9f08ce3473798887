"""The LMTP client of the relay, against a next hop with scripted replies."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Reply, Timeouts, open_next_hop
from spamfilter.relay.next_hops.lmtp import NO_REPLY
from spamfilter.relay.next_hops.smtp import SmtpConversation
from tests.support.parts import KEYWORDS, Hop, relaying

QUICK = Timeouts(0.5, 0.5, 0.5)
NAMES = ("one", "two", "three")
OK = b"250 2.0.0 Ok: queued as 4711\r\n"


async def begun(hop: Hop) -> SmtpConversation:
    """A conversation with a transaction to three recipients."""
    conversation = await open_next_hop(f"lmtp://127.0.0.1:{hop.port}", "relay.test", None, QUICK).open()
    assert isinstance(conversation, SmtpConversation)
    for line in (b"MAIL FROM:<a@example.org>", *(b"RCPT TO:<%s@example.test>" % name.encode() for name in NAMES)):
        await conversation.command(line)
    return conversation


async def test_each_accepted_recipient_has_its_reply() -> None:
    async with Hop() as hop:
        hop.replies["RCPT TO:<one@example.test>"] = b"550 5.1.1 unknown\r\n"
        hop.replies["DOT TO:<three@example.test>"] = b"552-5.2.2 Mailbox\r\n552 5.2.2 full\r\n"
        conversation = await begun(hop)
        reply = await conversation.data([b"a: b\r\n\r\n"])
        assert [each.raw for each in reply.each] == [OK, b"552-5.2.2 Mailbox\r\n552 5.2.2 full\r\n"]
        assert reply.code == 552
        assert hop.received[0] == b"LHLO relay.test"
        # A second mail in the same conversation counts anew.
        del hop.replies["RCPT TO:<one@example.test>"]
        for line in (b"MAIL FROM:<a@example.org>", b"RCPT TO:<one@example.test>"):
            await conversation.command(line)
        assert [each.code for each in (await conversation.data([b"x\r\n"])).each] == [250]
        conversation.abort()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "reply", [b"close", b"hang", b"354 go on\r\n", b"what\r\n"], ids=lambda said: said[:4].decode()
)
async def test_replies_that_have_come_count_whatever_comes_after_them(reply: bytes) -> None:
    async with Hop() as hop:
        hop.replies["DOT TO:<two@example.test>"] = reply
        conversation = await begun(hop)
        replies = (await conversation.data([b"x\r\n"])).each
        assert [each.raw for each in replies] == [OK, NO_REPLY.raw, NO_REPLY.raw]
        assert conversation.closed


async def test_a_refusal_before_the_end_of_the_mail_is_of_the_first_recipient_alone() -> None:
    async with Hop() as hop:
        full = b"552 5.2.2 Mailbox full\r\n"
        hop.replies["DATA"] = b"354 go on\r\n" + full
        conversation = await begun(hop)
        replies = (await conversation.data([b"x" * 300_000, b"\r\n"])).each
        assert [each.raw for each in replies] == [full, NO_REPLY.raw, NO_REPLY.raw]
        assert conversation.closed
        await asyncio.sleep(0.02)
        assert hop.messages == []


@pytest.mark.parametrize("reply", [b"close", b"hang", b"354 go on\r\n"], ids=lambda said: said[:4].decode())
async def test_no_reply_at_all_is_a_failure_of_the_next_hop(reply: bytes) -> None:
    async with Hop() as hop:
        hop.replies["DOT"] = reply
        conversation = await begun(hop)
        with pytest.raises(NextHopError):
            await conversation.data([b"x\r\n"])
        conversation.abort()
        await asyncio.sleep(0.02)


async def test_a_next_hop_that_does_not_know_lhlo_is_named() -> None:
    async with Hop() as hop:
        hop.replies["LHLO"] = b"500 5.5.1 what\r\n"
        with pytest.raises(NextHopError, match=r"lmtp://127.0.0.1:\d+: LHLO was answered with 500 5.5.1 what"):
            await begun(hop)


async def test_a_socket_that_is_missing_or_not_listened_on_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    next_hop = open_next_hop(f"lmtp://{path}", "relay.test", None, QUICK)
    with pytest.raises(NextHopError, match=f"lmtp://{path}: .*No such file"):
        await next_hop.open()


@pytest.mark.parametrize(
    ("codes", "code"), [((250, 250), 250), ((250, 550), 550), ((550, 451, 452), 451), ((554, 550), 554)]
)
def test_one_reply_for_several_recipients_never_hides_a_failure(codes: tuple[int, ...], code: int) -> None:
    replies = [Reply.of(f"{each} x") for each in codes]
    together = Reply.together(replies)
    assert (together.code, [each.code for each in together.for_each(9)]) == (code, list(codes))
    assert replies[0].for_each(2) == (replies[0], replies[0])


async def test_an_smtp_client_sends_to_one_recipient_at_a_time(tmp_path: Path) -> None:
    """So that its one reply is that of its one recipient: nothing is lost, and nothing delivered twice."""
    async with Hop() as hop, relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}") as running:
        hop.replies["DOT TO:<two@example.test>"] = b"552 5.2.2 full\r\n"
        client = await running.connect()
        heard = {}
        left = [f"{name}@example.test" for name in NAMES]
        while left:
            lines = ["MAIL FROM:<a@example.org>", *(f"RCPT TO:<{name}>" for name in left), "DATA"]
            await client.ask("EHLO client.example")
            client.writer.write("".join(f"{line}\r\n" for line in lines).encode())
            replies = [await client.reply() for _ in lines]
            assert [reply[:9] for reply in replies[2:-1]] == [b"452 4.5.3"] * (len(left) - 1)
            heard[left.pop(0)] = (await client.ask("a: b\r\n\r\nx\r\n."))[:3]
        assert list(heard.values()) == [b"250", b"552", b"250"]
        assert [entry.recipients for entry in running.entries() if entry.reply.startswith("250")] == [
            ["one@example.test"], ["three@example.test"]
        ]  # fmt: skip
        assert len(hop.messages) == 3


async def test_a_size_goes_only_to_a_next_hop_that_announces_it(tmp_path: Path) -> None:
    keywords = tuple(word for word in KEYWORDS if not word.startswith("SIZE"))
    async with Hop(keywords) as hop, relaying(tmp_path, f"lmtp://127.0.0.1:{hop.port}") as running:
        client = await running.connect()
        assert b"SIZE" in await client.ask("EHLO client.example")
        await client.ask("MAIL FROM:<a@example.org> SIZE=100 BODY=8BITMIME RET=HDRS")
        assert hop.received[-1] == b"MAIL FROM:<a@example.org> BODY=8BITMIME RET=HDRS"
        with contextlib.suppress(ConnectionError):
            await client.ask("QUIT")
