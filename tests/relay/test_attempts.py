"""Mail that never comes to its text is in the journal, once for each message, with what its client heard."""

from pathlib import Path

import pytest

from spamfilter.config.sections import Limits
from spamfilter.relay.session import Dropped, Session
from spamfilter.stores import UNJUDGED
from tests.relay.test_session import Hop, begin, receiving, session
from tests.support.parts import Running


def kept(running: Running) -> list[tuple[str, str, list[str], str]]:
    """Action, sender, recipients and the code of the reply of each unjudged entry."""
    unjudged = (entry for entry in running.entries() if entry.class_ == UNJUDGED)
    return [(one.action, one.sender, list(one.recipients), one.reply[:3]) for one in unjudged]


async def attempt(one: Session, *recipients: str) -> None:
    """As a client does that pipelines."""
    await one.ehlo("client.test")
    await one.mail("FROM:<a@example.org>")
    for recipient in recipients:
        await one.rcpt(f"TO:<{recipient}>")
    await one.data(receiving())
    await one.rset()


@pytest.mark.parametrize("verb", ["CONNECT", "MAIL", "RCPT"])
async def test_a_next_hop_that_is_away_is_one_entry_of_each_message(tmp_path: Path, verb: str) -> None:
    async with session(tmp_path, Hop(**{verb: b""})) as (one, running):
        await attempt(one, "b@example.test", "c@example.test")
        await attempt(one, "d@example.test")
        one.close()
        assert kept(running) == [
            ("defer", "a@example.org", ["b@example.test", "c@example.test"], "451"),
            ("defer", "a@example.org", ["d@example.test"], "451"),
        ]
        metrics = running.relay.metrics
        assert [metrics.value("final_replies", code) for code in ("2xx", "4xx", "5xx")] == [0, 2, 0]
        assert sum(metrics.value("next_hop_failures", kind) for kind in ("unreachable", "closed")) == 2


@pytest.mark.parametrize(("reply", "action"), [("450 4.2.0 greylisted", "defer"), ("550 5.1.1 nobody", "reject")])
async def test_a_refused_recipient_is_an_entry(tmp_path: Path, reply: str, action: str) -> None:
    async with session(tmp_path, Hop(RCPT=reply.encode())) as (one, running):
        await attempt(one, "b@example.test")
        assert kept(running) == [(action, "a@example.org", ["b@example.test"], reply[:3])]
        assert running.relay.metrics.value("final_replies", f"{reply[0]}xx") == 1


async def test_of_a_mail_for_several_only_the_refused_recipients_are_an_entry_beside_it(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await begin(one)
        assert (await one.rcpt("TO:<x@elsewhere.test>")).code == 250  # a trusted client
        one._relay.trusted = ()
        assert (await one.rcpt("TO:<y@elsewhere.test>")).code == 554
        assert (await one.data(receiving())).code == 250
        one.close()
        assert kept(running) == [("reject", "a@example.org", ["y@elsewhere.test"], "554")]
        assert [entry.recipients for entry in running.entries() if entry.class_ != UNJUDGED] == [
            ["b@example.test", "x@elsewhere.test"]
        ]
        assert [running.relay.metrics.value("final_replies", code) for code in ("2xx", "5xx")] == [1, 0]


async def test_behind_a_mail_that_we_refuse_all_hears_the_same(tmp_path: Path) -> None:
    async with session(tmp_path, Hop(MAIL=b"450 4.1.8 later"), limits=Limits(message_size=65_536)) as (one, _):
        await one.ehlo("client.test")
        for argument, code in (("FROM:<a@example.org>", 450), ("FROM:<b@example.org> SIZE=70000", 552)):
            assert (await one.mail(argument)).code == code
            assert (await one.rcpt("TO:<b@example.test>")).code == code
            assert (await one.data(receiving())).code == code


class OneByOne(Hop):
    replies_for_each = True


async def test_a_recipient_that_gets_the_mail_by_itself_at_once_is_no_entry(tmp_path: Path) -> None:
    async with session(tmp_path, OneByOne()) as (one, running):
        await begin(one)
        assert (await one.rcpt("TO:<c@example.test>")).raw.startswith(b"452 4.5.3 One recipient at a time")
        assert (await one.data(receiving())).code == 250
        one.close()
        assert kept(running) == []
    async with session(tmp_path / "one", Hop(), limits=Limits(recipients=1)) as (one, running):
        await begin(one)
        assert (await one.rcpt("TO:<c@example.test>")).raw.startswith(b"452 4.5.3 Too many recipients")
        assert running.relay.metrics.value("limits_hit", "recipients") == 1


async def test_a_mail_that_is_too_large_is_an_entry_whenever_that_is_seen(tmp_path: Path) -> None:
    async def receive(has_room: object) -> bytes:
        raise Dropped("message_size")

    async with session(tmp_path, Hop(), limits=Limits(message_size=65_536)) as (one, running):
        await one.ehlo("client.test")
        assert (await one.mail("FROM:<a@example.org> SIZE=70000")).code == 552
        await begin(one)
        assert (await one.data(receive)).code == 552
        assert kept(running) == [
            ("reject", "a@example.org", [], "552"),
            ("reject", "a@example.org", ["b@example.test"], "552"),
        ]


async def test_a_client_that_says_nothing_wrong_and_goes_leaves_no_entry(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await begin(one)
        await one.rset()
        await one.ehlo("client.test")
        assert (await one.rcpt("TO:<b@example.test>")).code == 503
        one.close()
        assert running.entries() == []


async def test_what_one_attempt_heard_is_not_said_of_another(tmp_path: Path) -> None:
    async with session(tmp_path, Hop(), limits=Limits(message_size=65_536)) as (one, running):
        await one.ehlo("client.test")
        assert (await one.mail("FROM:<a@example.org> SIZE=70000")).code == 552
        assert (await one.mail("FROM:<b@example.org")).code == 501
        assert (await one.rcpt("TO:<b@example.test>")).code == 503
        one.close()
        assert kept(running) == [("reject", "a@example.org", [], "552")]


async def test_commands_out_of_order_are_no_refusal_of_the_mail(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await one.ehlo("client.test")
        await one.mail("FROM:<a@example.org>")
        assert (await one.mail("FROM:<a@example.org>")).code == 503
        assert (await one.data(receiving())).code == 554
        assert (await one.rcpt("TO:<b@example.test>")).code == 250
        assert (await one.data(receiving())).code == 250
        one.close()
        assert kept(running) == []


async def test_of_several_recipients_each_kind_of_reply_is_an_entry_and_accepted_ones_are_in_none(
    tmp_path: Path,
) -> None:
    hop = Hop()
    async with session(tmp_path, hop) as (one, running):
        await begin(one)
        hop.replies["RCPT"] = b"451 4.2.0 later"
        await one.rcpt("TO:<later@example.test>")
        await one.rcpt("TO:<again@example.test>")
        hop.replies["RCPT"] = b"550 5.1.1 nobody"
        await one.rcpt("TO:<nobody@example.test>")
        hop.replies["RCPT"] = b"250 2.1.5 Ok"
        await one.rcpt("TO:<again@example.test>")
        one.close()
        assert kept(running) == [
            ("defer", "a@example.org", ["later@example.test"], "451"),
            ("reject", "a@example.org", ["nobody@example.test"], "550"),
        ]
        assert running.relay.metrics.value("final_replies", "5xx") == 0  # it was the client that gave up


async def test_a_relay_that_leaves_is_an_entry(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await one.ehlo("client.test")
        running.relay.draining = True
        assert (await one.mail("FROM:<a@example.org>")).code == 421
        one.close()
        assert kept(running) == [("defer", "a@example.org", [], "421")]


async def test_what_a_client_may_say_can_be_written(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await one.ehlo("client.test")
        await one.mail(f"FROM:<{chr(0xDCFF)}@example.org> SIZE={'9' * 20}")
        one.close()
        (entry,) = running.entries()
        assert (entry.sender, entry.size) == ("\ufffd@example.org", 2**62)
        assert running.relay.journal.faults == 0
