"""Automatic rules: from the received mail to what they learn."""

from pathlib import Path

import pytest

from spamfilter.config.sections import Feedback
from spamfilter.mail.message import parse
from tests.relay.smtp.test_feedback_addresses import (
    ANNA,
    CLIENT,
    FEEDBACK,
    HAM,
    ONE,
    TWO,
    both,
    forward,
    learnings,
    learnt,
)

LEARNT = [("ham", "automatic", "answered")]


async def test_mail_to_a_trap_teaches_itself_whatever_is_said_of_it(tmp_path: Path) -> None:
    settings = Feedback(automatic=["trap"], traps=["trap@example.org"])
    async with both(tmp_path, feedback=settings) as (hop, running):
        client = await running.connect()
        assert (await client.send(ONE, "b@example.net", "c@example.test", "Trap@example.org")).startswith(b"250 ")
        await client.send(TWO, "b@example.net", "c@example.test")
        await running.relay.automatic.idle()
        assert learnt(running) == [("spam", "automatic", "trap")]
        assert learnings(running)[0].digest == parse(ONE).digest()
        assert len(hop.messages) == 2


@pytest.mark.parametrize(
    ("said", "way", "expected"),
    [
        pytest.param("ADDR=203.0.113.9", {}, [], id="a-stranger"),
        pytest.param("ADDR=127.0.0.5", {}, [], id="a-trusted-client"),
        pytest.param(None, {}, [], id="nobody-named"),
        pytest.param("ADDR=[UNAVAILABLE] SOURCE=LOCAL", {}, [], id="unavailable"),
        pytest.param("HELO=c", {}, [], id="without-address"),
        pytest.param(None, {"submission": True}, [], id="any-process-on-a-port"),
        pytest.param(None, {"proven": True}, LEARNT, id="the-mail-server"),
        pytest.param("ADDR=203.0.113.9", {"proven": True}, LEARNT, id="the-mail-server-for-a-roaming-user"),
    ],
)
async def test_an_answer_that_is_surely_of_our_own_users_teaches_what_it_answers(
    tmp_path: Path, said: str | None, way: dict[str, bool], expected: list[tuple[str, str, str]]
) -> None:
    settings = Feedback(automatic=["answered"])
    async with both(tmp_path, feedback=settings, **way) as (_, running):
        client = await running.connect()
        await client.send(ONE, "b@example.net", ANNA)
        running.relay.journal.write()
        await client.ask(*([f"XFORWARD {said}"] if said else []), f"MAIL FROM:<{ANNA}>", "RCPT TO:<b@example.net>")
        await client.ask("DATA")
        client.writer.write(b"Message-ID: <re@x>\r\nIn-Reply-To: <one@example.org>\r\n\r\nfine\r\n.\r\n")
        assert (await client.reply()).startswith(b"250 ")
        await running.relay.automatic.idle()
        assert learnt(running) == expected
        assert [entry.digest for entry in learnings(running)] == [parse(ONE).digest()] * len(expected)


async def test_a_user_overrules_a_trap(tmp_path: Path) -> None:
    settings = FEEDBACK.model_copy(update={"automatic": ["trap"], "traps": ["trap@example.org"]})
    async with both(tmp_path, feedback=settings) as (_, running):
        client = await running.connect()
        await client.send(ONE, "b@example.net", "trap@example.org")
        await running.relay.automatic.idle()
        await client.send(forward(ONE), ANNA, HAM)
        await client.send(ONE, "b@example.net", "trap@example.org")
        await running.relay.automatic.idle()
        assert learnt(running) == [("ham", "address", CLIENT)]


async def test_without_rules_nothing_is_learnt_by_itself(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=Feedback(traps=["trap@example.org"])) as (_, running):
        client = await running.connect()
        await client.send(ONE, ANNA, "trap@example.org")
        running.relay.journal.write()
        await client.send(b"In-Reply-To: <one@example.org>\r\n\r\nfine\r\n", ANNA)
        await running.relay.automatic.idle()
        assert learnt(running) == []
