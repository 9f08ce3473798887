"""The keywords of a next hop: one question for all, asked again after a while, and old answers where none comes."""

import asyncio

import pytest

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Reply
from spamfilter.relay.next_hops.keywords import Keywords, keywords_of
from spamfilter.relay.next_hops.smtp import SmtpNextHop
from tests.support.parts import KEYWORDS, Hop


def test_keywords_of_a_reply() -> None:
    reply = Reply.of("250-hop.test", "250-size 1000", "250-DSN", "250 AUTH  A B")
    assert keywords_of(reply) == {"SIZE": "1000", "DSN": "", "AUTH": " A B"}


async def test_they_are_asked_for_once_by_all_and_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hop() as hop:
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test")
        hop.delays["EHLO"] = 0.1
        for found in await asyncio.gather(*(next_hop.keywords() for _ in range(20))):
            assert set(found) == {"HELP", *(keyword.split()[0] for keyword in KEYWORDS)}
        assert hop.connections == 1
        hop.keywords = ("DSN",)
        assert len(await next_hop.keywords()) > 2
        monkeypatch.setattr("spamfilter.relay.next_hops.keywords.FRESH_SECONDS", 0.0)
        assert set(await next_hop.keywords()) == {"DSN", "HELP"}
        assert hop.connections == 2
        next_hop.close()


async def test_a_connection_that_carries_mail_teaches_them_too() -> None:
    async with Hop() as hop:
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test")
        (await next_hop.open()).abort()
        assert "DSN" in await next_hop.keywords()
        assert hop.connections == 1


async def test_those_that_are_known_stay_where_the_next_hop_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SMTPUTF8, say, a client would return for good what waits for a next hop that is down for a minute."""

    async def fails() -> SmtpNextHop:
        raise NextHopError("gone", "unreachable")

    monkeypatch.setattr("spamfilter.relay.next_hops.keywords.FRESH_SECONDS", 0.0)
    keywords = Keywords(fails)  # type: ignore[arg-type]
    with pytest.raises(NextHopError):
        await keywords.known()
    keywords.learn({"SMTPUTF8": ""})
    assert await keywords.known() == {"SMTPUTF8": ""}
