"""The answer to a feedback mail: its text and recipient, and that a failure to send it changes nothing."""

import asyncio
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from spamfilter.bayes.labels import BULK
from spamfilter.mail.message import parse
from tests.relay.smtp.test_feedback_addresses import ANNA, FEEDBACK, HAM, INLINE, ONE, SPAM, TWO, both, forward, learnt
from tests.support.made import mail
from tests.support.parts import Hop

ANSWERING = FEEDBACK.model_copy(update={"answer": True})


async def answered(hop: Hop, number: int = 1) -> bytes:
    """The answer, once it has come."""
    for _ in range(1000):
        if len(hop.messages) >= number:
            return hop.messages[number - 1]
        await asyncio.sleep(0.01)
    raise AssertionError("no answer has come")


async def test_an_answer_says_what_was_learnt(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING, proven=True) as (hop, running):
        client = await running.connect()
        judged = mail("=?utf-8?q?Gr=C3=BC=C3=9Fe=0D=0ABcc=3A_x=40y?=", name="judged")
        await client.send(judged)
        (entry,) = running.entries()
        await client.send(forward(TWO), "bob@example.org", HAM)
        await answered(hop, 2)
        sent = forward(hop.messages[0], mail("x" * 300, name="new"), TWO)
        await client.send(sent, ANNA, SPAM)
        raw = await answered(hop, 3)
        message = message_from_bytes(raw, policy=policy.default)
        assert hop.received[hop.received.index(b"RCPT TO:<anna@example.org>") - 1] == b"MAIL FROM:<>"
        assert (message["from"], message["to"]) == (SPAM, ANNA)
        assert message["subject"] == "Spam filter: learnt 2 as spam, 1 refused"
        assert message["auto-submitted"] == "auto-replied"
        assert message["in-reply-to"] == message["references"] == "<forward@example.org>"
        assert message["message-id"].endswith("@relay.test>")
        assert "bcc" not in message
        assert raw.isascii()
        lines = message.get_content().splitlines()
        assert lines[0] == "Your mail to the spam filter: learnt 2 as spam, 1 refused."
        assert lines[2:4] == ["1. Grüße  Bcc: x@y", f"   id {entry.id}"]
        assert lines[4].startswith("   learnt as spam; score 0.")
        assert lines[6] == "2. " + "x" * 80
        assert lines[9].startswith("3. 4772")
        assert lines[10].startswith("   not learnt: attached mail 3: learnt as ham by bob@example.org")
        assert len(running.journal()) == 1


async def test_an_answer_tells_what_was_known_and_what_was_taken_back(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        client = await running.connect()
        texts = []
        for number, address in enumerate((SPAM, SPAM, HAM), 1):
            await client.send(forward(ONE), ANNA, address)
            texts.append(message_from_bytes(await answered(hop, number), policy=policy.default).get_content())
        assert "   learnt as spam; score 0." in texts[0]
        assert "   already learnt as spam; score 0." in texts[1]
        assert "   learnt as not spam (was spam, which is taken back); score 0." in texts[2]


async def test_what_was_trained_so_is_known_though_the_mark_is_now_the_users(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        filter = running.relay.judge.filter
        filter.learn(filter.read(parse(ONE)), "ham", BULK, "root")
        reply = await (await running.connect()).send(forward(ONE), ANNA, HAM)
        assert reply == b"250 2.0.0 learnt 0 as ham, 1 known before\r\n"
        message = message_from_bytes(await answered(hop), policy=policy.default)
        assert message["subject"] == "Spam filter: learnt 0 as not spam, 1 known before"
        assert "   already learnt as not spam; score 0." in message.get_content()
        assert [one.source for one in filter.store.learnings()] == ["address"]


async def test_an_answer_is_in_the_language_of_the_users(tmp_path: Path) -> None:
    german = ANSWERING.model_copy(update={"language": "de"})
    async with both(tmp_path, feedback=german) as (hop, running):
        client = await running.connect()
        for number, address in enumerate((SPAM, SPAM, HAM), 1):
            await client.send(forward(ONE), ANNA, address)
            raw = await answered(hop, number)
            message = message_from_bytes(raw, policy=policy.default)
            told = {
                1: ("1 als Spam gelernt", "als Spam gelernt; Wert 0."),
                2: ("0 als Spam gelernt, 1 schon bekannt", "schon als Spam gelernt; Wert 0."),
                3: ("1 als „kein Spam“ gelernt", "als „kein Spam“ gelernt (war Spam, das ist zurückgenommen); Wert 0."),
            }[number]
            assert raw.isascii()
            assert message["subject"] == f"Spamfilter: {told[0]}"
            assert message.get_content().splitlines()[0] == f"Ihre Mail an den Spamfilter: {told[0]}."
            assert told[1] in message.get_content()


async def test_a_message_id_that_is_none_is_not_quoted(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        sent = forward(ONE).replace(b"<forward@example.org>", b"<for ward\x01>")
        await (await running.connect()).send(sent, ANNA, SPAM)
        assert b"In-Reply-To" not in await answered(hop)


async def test_a_route_of_other_letters_is_left_out_of_the_answer(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        await (await running.connect()).send(forward(ONE), ANNA, f"@grün.example:{SPAM}")
        assert f"From: <{SPAM}>\r\n".encode() in await answered(hop)


async def test_a_sender_of_other_letters_is_answered_with_smtputf8(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        await (await running.connect()).send(forward(ONE), "grün@example.org", SPAM)
        assert "To: <grün@example.org>\r\n".encode() in await answered(hop)
        assert b"MAIL FROM:<> SMTPUTF8" in hop.received


@pytest.mark.parametrize(
    "replies",
    [{"RCPT": b"550 5.1.1 no\r\n"}, {"DATA": b"close"}, {"DOT": b"452 4.3.1 full\r\n"}, {"MAIL FROM:<>": b"hang"}],
    ids=["refused", "closed", "full", "hanging"],
)
async def test_an_answer_that_cannot_be_sent_changes_nothing(
    tmp_path: Path, replies: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        hop.replies.update(replies)
        client = await running.connect()
        assert await client.send(forward(ONE), ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
        for _ in range(1000):
            if "the answer to" in caplog.text:
                break
            await asyncio.sleep(0.01)
        assert "the answer to b'anna@example.org' was not sent" in caplog.text
        hop.replies.clear()
        assert (await client.send(ONE)).startswith(b"250 ")
        assert len(learnt(running)) == 1


async def test_nothing_is_answered_where_nothing_is_learnt(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=ANSWERING) as (hop, running):
        client = await running.connect()
        await client.send(INLINE, ANNA, SPAM)
        await client.send(forward(ONE), ANNA, SPAM)
        await answered(hop)
        assert len(hop.messages) == 1
