"""The transactions of a proxy without a client's connection: arguments in, replies out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path

import pytest

from spamfilter.config.sections import Limits
from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Conversation, NextHop, Reply
from spamfilter.relay.session import Dropped, HasRoom, Session
from tests.support.parts import Hop as Server
from tests.support.parts import Running, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
FOREIGN = "192.0.2.7"


class Hop(NextHop):
    """Takes notes of the commands it hears. replies: verb -> its reply, b'' where the connection breaks."""

    def __init__(self, **replies: bytes) -> None:
        self.replies = replies
        self.said: list[bytes] = []
        self.pipelined: list[bytes] = []
        self.messages: list[bytes] = []
        self.released = self.aborted = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def keywords(self) -> Mapping[str, str]:
        return Talk.keywords

    async def open(self) -> Conversation:
        if self.replies.get("CONNECT") == b"":
            raise NextHopError("gone", "unreachable")
        return Talk(self)

    def close(self) -> None:
        pass

    @property
    def where(self) -> str:
        return "a hop of values"


class Talk(Conversation):
    keywords: Mapping[str, str] = {"SIZE": "5000", "DSN": "", "XFORWARD": "ADDR"}

    def __init__(self, hop: Hop) -> None:
        self.hop = hop

    async def command(self, line: bytes) -> Reply:
        self.hop.said.append(line)
        reply = self.hop.replies.get(line.split(b" ")[0].decode(), b"250 2.0.0 Ok")
        if not reply:
            raise NextHopError("broke off", "closed")
        return Reply.of(*reply.split(b"\r\n"))

    def pipeline(self, lines: Iterable[bytes]) -> None:
        self.hop.pipelined = list(lines)

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        await self.hop.go_on.wait()
        self.hop.messages.append(b"".join(parts))
        return Reply.of("250 2.0.0 kept")

    async def forget(self) -> None:
        self.hop.said.append(b"RSET")

    def release(self) -> None:
        self.hop.released += 1

    def abort(self) -> None:
        self.hop.aborted += 1


@asynccontextmanager
async def session(
    folder: Path, hop: Hop, peer: str = "127.0.0.1", limits: Limits | None = None
) -> AsyncIterator[tuple[Session, Running]]:
    async with relaying(folder, hop, limits=limits, domains=frozenset({"example.test"})) as running:
        yield Session(running.relay, peer), running


def receiving(mail: bytes = MAIL) -> Callable[[HasRoom], Awaitable[bytes]]:
    async def receive(has_room: HasRoom) -> bytes:
        assert has_room(len(mail))
        return mail

    return receive


async def begin(one: Session, recipient: str = "b@example.test") -> None:
    assert (await one.ehlo("client.test")).code == 250
    assert (await one.mail("FROM:<a@example.org>")).code == 250
    assert (await one.rcpt(f"TO:<{recipient}>")).code == 250


async def test_a_mail_goes_on_as_it_came(tmp_path: Path) -> None:
    hop = Hop()
    async with session(tmp_path, hop) as (one, running):
        assert (await one.ehlo("client.test", offers_tls=True)).raw.split(b"\r\n")[:-2] == [
            b"250-relay.test", b"250-DSN", b"250-PIPELINING", b"250-SIZE 5000", b"250-STARTTLS",
        ]  # fmt: skip
        assert (await one.xforward("ADDR=192.0.2.9 PROTO=ESMTP")).code == 250
        assert (await one.mail("FROM:<a@example.org> RET=HDRS ENVID=QQ+2B")).code == 250
        assert (await one.rcpt("TO:<b@example.test> NOTIFY=NEVER")).code == 250
        assert (await one.data(receiving())).raw == b"250 2.0.0 kept\r\n"
        assert hop.messages[0].endswith(MAIL)
        assert hop.said == [
            b"XFORWARD ADDR=192.0.2.9",
            b"MAIL FROM:<a@example.org> RET=HDRS ENVID=QQ+2B",
            b"RCPT TO:<b@example.test> NOTIFY=NEVER",
        ]
        assert [entry.client for entry in running.entries()] == ["192.0.2.9"]
        one.close()
    assert (hop.released, hop.aborted) == (1, 0)


@pytest.mark.parametrize("supported", [True, False])
async def test_keywords_of_a_next_hop_that_was_never_reached_are_supposed(tmp_path: Path, supported: bool) -> None:
    """For want of SMTPUTF8 a client would return a mail for good that only has to wait."""

    class Away(Hop):
        async def keywords(self) -> Mapping[str, str]:
            raise NextHopError("gone", "unreachable")

        async def open(self) -> Conversation:
            talk = Talk(self)
            talk.keywords = {"8BITMIME": "", "DSN": "", **({"SMTPUTF8": ""} if supported else {})}
            return talk

    hop = Away()
    async with session(tmp_path, hop) as (one, _):
        assert b"250-SMTPUTF8\r\n" in (await one.ehlo("client.test")).raw
        assert (await one.mail("FROM:<j\xf6rg@example.org> SMTPUTF8")).code == (250 if supported else 451)
        assert (await one.rcpt("TO:<b@example.test>")).code == (250 if supported else 451)
        assert [line[:4] for line in hop.said] == ([b"MAIL", b"RCPT"] if supported else [])
        await one.helo("client.test")
        assert (await one.mail("FROM:<a@example.org>")).code == 250
        one.close()


async def test_a_next_hop_that_was_replaced_by_one_that_supports_less_defers_the_mail(tmp_path: Path) -> None:
    """A client that has heard of DSN in EHLO would return its mail for good, as the new server does not know ORCPT."""
    async with Server() as server:
        next_hop = f"smtp://127.0.0.1:{server.port}"
        async with relaying(tmp_path, next_hop) as running:
            first, second, third = [await running.connect() for _ in range(3)]
            assert b"250-DSN\r\n" in await first.ask("EHLO client.example")
            assert b"250-DSN\r\n" in await second.ask("EHLO client.example")
            running.relay.next_hop.close()  # its kept connection ends, as at a restart of the server
            server.keywords = ("PIPELINING", "SIZE 10240000", "8BITMIME", "SMTPUTF8")
            server.replies["RCPT TO:<b@example.test> ORCPT=rfc822;b@example.test"] = b"555 5.5.4 Unknown parameter\r\n"
            assert (await first.ask("MAIL FROM:<a@example.org> RET=HDRS")).startswith(b"451")
            for recipient, heard in (("", b"250 250 354"), (" ORCPT=rfc822;b@example.test", b"250 451 451")):
                lines = ["MAIL FROM:<a@example.org> BODY=8BITMIME", f"RCPT TO:<b@example.test>{recipient}", "DATA"]
                second.writer.write("\r\n".join([*lines, ""]).encode())
                assert b" ".join([(await second.reply())[:3] for _ in lines]) == heard
                if heard.endswith(b"354"):
                    assert (await second.ask(".")).startswith(b"250")
            assert b"DSN" not in await third.ask("EHLO client.example")
            assert (await third.send(MAIL)).startswith(b"250")


async def test_a_reply_of_the_next_hop_comes_back_as_it_is(tmp_path: Path) -> None:
    hop = Hop(RCPT=b"550-5.1.1 nobody\r\n550 5.1.1 of that name")
    async with session(tmp_path, hop) as (one, _):
        await one.ehlo("client.test")
        await one.mail("FROM:<>")
        assert (await one.rcpt("TO:<b@example.test>")).raw == b"550-5.1.1 nobody\r\n550 5.1.1 of that name\r\n"
        assert (await one.data(receiving())).code == 554
        assert (await one.vrfy("b")).code == 250
        assert (await one.rset()).code == 250
    assert hop.messages == []


@pytest.mark.parametrize("verb", ["CONNECT", "MAIL", "RCPT", "VRFY"])
async def test_a_next_hop_that_fails_is_a_451_and_so_is_what_comes_behind(tmp_path: Path, verb: str) -> None:
    async with session(tmp_path, Hop(**{verb: b""})) as (one, running):
        assert (await one.ehlo("client.test")).code == 250  # it must succeed all the same
        codes = [(await one.mail("FROM:<a@example.org>")).code, (await one.rcpt("TO:<b@example.test>")).code]
        codes += [(await one.vrfy("b")).code] if verb == "VRFY" else []
        codes.append((await one.data(receiving())).code)
        first = codes.index(451)
        assert set(codes[:first]) <= {250}
        assert set(codes[first:]) == {451}
        assert running.relay.metrics.value("faults", "session") == 0


async def test_an_exception_of_ours_is_a_451_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with session(tmp_path, Hop()) as (one, running):
        await one.ehlo("client.test")
        monkeypatch.setattr("spamfilter.relay.session.mail.path_of", None)
        assert (await one.mail("FROM:<a@example.org>")).raw == b"451 4.3.0 Temporary fault; try again later\r\n"
        assert running.relay.metrics.value("faults", "session") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(Dropped("message_size"), 552), (Dropped("memory_megabytes"), 452), (MemoryError(), 421)]
)
async def test_a_mail_that_is_not_kept_is_forgotten_by_the_next_hop(
    tmp_path: Path, error: Exception, code: int
) -> None:
    async def receive(has_room: HasRoom) -> bytes:
        raise error

    hop = Hop()
    async with session(tmp_path, hop) as (one, running):
        await begin(one)
        assert (await one.data(receive)).code == code
        assert one.transaction is None
        assert running.relay.memory.used == 0
        assert hop.said[-1] == b"RSET" or hop.aborted == 1
    assert hop.messages == []


async def test_a_client_that_is_gone_within_its_mail_takes_the_envelope_along(tmp_path: Path) -> None:
    async def receive(has_room: HasRoom) -> bytes:
        assert has_room(1000)
        raise EOFError

    hop = Hop()
    async with session(tmp_path, hop) as (one, running):
        await begin(one)
        with pytest.raises(EOFError):
            await one.data(receive)
        assert (hop.aborted, running.relay.memory.used) == (1, 0)
    assert hop.messages == []


async def test_a_hand_over_outlives_its_client_and_so_does_its_memory(tmp_path: Path) -> None:
    hop = Hop()
    hop.go_on.clear()
    async with session(tmp_path, hop) as (one, running):
        await begin(one)
        client = asyncio.ensure_future(one.data(receiving()))
        while not running.relay.background_tasks:
            await asyncio.sleep(0)
        client.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client
        one.close()
        assert running.relay.memory.used == len(MAIL)
        hop.go_on.set()
        await asyncio.gather(*running.relay.background_tasks)
        assert running.relay.memory.used == 0
        assert running.journal() == ["pass"]
    assert (len(hop.messages), hop.released, hop.aborted) == (1, 1, 0)


@pytest.mark.parametrize("error", [MemoryError, asyncio.CancelledError])
async def test_a_hand_over_that_breaks_leaves_no_envelope_at_the_next_hop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("spamfilter.relay.session.mail.hand_over", broken)
    hop = Hop()
    async with session(tmp_path, hop) as (one, running):
        await begin(one)
        with suppress(error):  # a fault of ours is answered with 451
            await one.data(receiving())
        assert (hop.aborted, hop.released, running.relay.memory.used) == (1, 0, 0)


async def test_recipients_that_wait_are_foreseen_up_to_the_first_that_may_not_go_on(tmp_path: Path) -> None:
    hop = Hop()
    coming = [
        b"RCPT TO:<c@example.test>",
        b"rcpt TO:<d@example.test> ",
        b"RCPT TO:<e\0@x>",
        b"RCPT TO:<f@example.test>",
    ]
    async with session(tmp_path, hop) as (one, _):
        await one.ehlo("client.test")
        await one.mail("FROM:<a@example.org>", coming)
    assert hop.pipelined[-3:] == [
        b"MAIL FROM:<a@example.org>", b"RCPT TO:<c@example.test>", b"RCPT TO:<d@example.test>",
    ]  # fmt: skip


async def test_the_limits_of_a_transaction(tmp_path: Path) -> None:
    limits = Limits(message_size=65_536, recipients=1)
    async with session(tmp_path, Hop(), limits=limits) as (one, running):
        await one.ehlo("client.test")
        assert (await one.mail("FROM:<a@example.org> SIZE=65537")).code == 552
        assert (await one.mail("FROM:<a@example.org> SIZE=65536")).code == 250
        await begin(one)
        assert (await one.rcpt("TO:<c@example.test>")).code == 452
        assert running.relay.memory.take(running.relay.memory.most)
        assert (await one.data(receiving())).code == 452
        assert one.transaction is None


async def test_a_stranger_sends_to_our_domains_and_speaks_for_nobody(tmp_path: Path) -> None:
    hop = Hop()
    async with session(tmp_path, hop, FOREIGN) as (one, running):
        assert b"XFORWARD" not in (await one.ehlo("client.test")).raw
        assert (await one.xforward("ADDR=127.0.0.1")).code == 550
        assert (await one.vrfy("b")).code == 252
        assert hop.said == []
        await one.mail("FROM:<a@example.org>")
        assert (await one.rcpt("TO:<b@elsewhere.test>")).code == 554
        assert (await one.rcpt("TO:<b@example.test>")).code == 250
        running.relay.trusted = (ip_network("192.0.2.0/24"),)
        assert (await one.rcpt("TO:<b@elsewhere.test>")).code == 250  # trust may change while the session lasts


async def test_commands_out_of_order(tmp_path: Path) -> None:
    async with session(tmp_path, Hop()) as (one, _):
        assert (await one.mail("FROM:<a@example.org>")).code == 503
        await begin(one)
        assert (await one.mail("FROM:<a@example.org>")).code == 503
        assert (await one.xforward("ADDR=192.0.2.9")).code == 503
        assert (await one.restart()).code == 250
        assert (await one.mail("FROM:<a@example.org>")).code == 503
        assert (await one.rcpt("TO:<b@example.test>")).code == 503
        assert (await one.data(receiving())).code == 503
