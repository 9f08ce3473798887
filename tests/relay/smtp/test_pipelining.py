"""Pipelining (RFC 2920): commands in one group are sent on in one group, and each gets its own reply."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spamfilter.config.sections import Feedback, Limits
from tests.support.parts import Client, relaying

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
GROUP = (b"MAIL FROM:<a@example.org>", b"RCPT TO:<b@example.test>", b"RCPT TO:<c@example.test>", b"RCPT TO:<d@x.test>")


class Groups:
    """A next hop that answers when nothing more comes; groups: the commands that it found together.

    replies: command -> what it says instead of 250; "close" hangs up.
    """

    def __init__(self, keywords: str, replies: Mapping[bytes, bytes]) -> None:
        self.keywords = keywords
        self.replies = replies
        self.groups: list[list[bytes]] = []
        self.messages: list[bytes] = []
        self.port = 0
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(b"220 hop\r\n")
        try:
            while block := await reader.read(65_536):
                await asyncio.sleep(0.05)  # whatever is sent in one go is here by then
                block += await _rest(reader)
                if block == b"EHLO relay.test\r\n":
                    lines = ["250-hop", *(f"250-{word}" for word in self.keywords.split("; ")), "250 HELP", ""]
                    writer.write("\r\n".join(lines).encode())
                elif block == b"DATA\r\n":
                    writer.write(b"354 go on\r\n")
                    self.messages.append(await reader.readuntil(b"\r\n.\r\n"))
                    writer.write(b"250 2.0.0 Ok: queued\r\n")
                else:
                    self.groups.append(block.splitlines())
                    for line in block.splitlines():
                        reply = self.replies.get(line, b"250 2.0.0 " + line)
                        if reply == b"close":
                            return
                        writer.write(reply + b"\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(65_536), 0.01)
    except TimeoutError:
        return b""


@asynccontextmanager
async def hop(keywords: str = "PIPELINING", replies: Mapping[bytes, bytes] | None = None) -> AsyncIterator[Groups]:
    made = Groups(keywords, replies or {})
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
        await asyncio.sleep(0.05)


async def together(client: Client, *lines: bytes) -> list[bytes]:
    """Send all of them at once; the replies."""
    await client.ask("EHLO client.example")
    client.writer.write(b"".join(line + b"\r\n" for line in lines))
    return [await client.reply() for _ in lines]


async def finished(client: Client) -> bytes:
    client.writer.write(MAIL + b".\r\n")
    return await client.reply()


async def test_a_group_goes_on_as_one_and_each_recipient_has_its_own_reply(tmp_path: Path) -> None:
    async with (
        hop(replies={GROUP[2]: b"550 5.1.1 nobody"}) as next_hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running,
    ):
        client = await running.connect()
        *replies, go_on = await together(client, *GROUP, b"DATA")
        ours = [b"250 2.0.0 " + line + b"\r\n" for line in GROUP]
        ours[2] = b"550 5.1.1 nobody\r\n"
        assert replies == ours
        assert go_on[:3] == b"354"
        assert (await finished(client)).startswith(b"250 ")
        assert next_hop.groups == [list(GROUP)]
        assert [entry.recipients for entry in running.entries()] == [["c@example.test"], ["b@example.test", "d@x.test"]]


async def test_recipients_that_come_in_a_group_behind_mail_go_on_as_one(tmp_path: Path) -> None:
    async with hop() as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running:
        client = await running.connect()
        await client.ask("EHLO client.example", GROUP[0])
        client.writer.write(b"\r\n".join([*GROUP[1:], b"NOOP", b""]))
        assert [(await client.reply())[:3] for _ in range(4)] == [b"250"] * 4
        assert next_hop.groups == [[GROUP[0]], list(GROUP[1:])]


async def test_what_is_told_of_the_client_goes_with_mail(tmp_path: Path) -> None:
    async with (
        hop("PIPELINING; XFORWARD NAME ADDR") as next_hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running,
    ):
        assert (await (await running.connect()).ask("EHLO c", GROUP[0])).startswith(b"250 ")
        assert next_hop.groups == [[b"XFORWARD NAME=[UNAVAILABLE] ADDR=127.0.0.1", GROUP[0]]]


async def test_a_next_hop_without_pipelining_hears_one_command_at_a_time(tmp_path: Path) -> None:
    async with hop("8BITMIME") as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running:
        client = await running.connect()
        await together(client, *GROUP, b"DATA")
        assert (await finished(client)).startswith(b"250 ")
        assert next_hop.groups == [[line] for line in GROUP]


@pytest.mark.parametrize("refusal", [b"550 5.7.1 go away", b"450 4.1.8 not now"], ids=["5xx", "4xx"])
async def test_behind_a_sender_that_is_refused_all_hears_the_same_and_the_next_one_is_well(
    tmp_path: Path, refusal: bytes
) -> None:
    """And none of it is an error of the client's, however many recipients it has named."""
    more = b"RCPT TO:<more@example.test>"
    replies = dict.fromkeys((*GROUP, more), b"503 5.5.1 MAIL first") | {GROUP[0]: refusal}
    async with hop(replies=replies) as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running:
        client = await running.connect()
        heard = await together(client, *GROUP, *[more] * 40, b"DATA")
        assert heard == [refusal + b"\r\n"] * (len(GROUP) + 41)
        next_hop.replies = {}
        again = [await client.ask(line) for line in GROUP]
        assert again == [b"250 2.0.0 " + line + b"\r\n" for line in GROUP]
        assert next_hop.connections == 1


async def test_a_recipient_that_was_taken_without_its_sender_gets_no_later_mail(tmp_path: Path) -> None:
    """The next hop has one more than the client may believe in: that envelope must not be used."""
    async with (
        hop(replies={GROUP[0]: b"550 5.7.1 go away"}) as next_hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running,
    ):
        client = await running.connect()
        await together(client, *GROUP)
        next_hop.replies = {}
        assert (await client.ask("MAIL FROM:<other@example.org>"))[:3] == b"250"
        assert next_hop.connections == 2


async def test_a_recipient_over_the_limit_is_not_sent_ahead(tmp_path: Path) -> None:
    limits = Limits(recipients=2)
    async with hop() as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}", limits=limits) as running:
        client = await running.connect()
        replies = await together(client, *GROUP, b"DATA")
        assert [reply[:3] for reply in replies] == [b"250", b"250", b"250", b"452", b"354"]
        assert (await finished(client)).startswith(b"250 ")
        assert next_hop.groups == [list(GROUP[:3])]


@pytest.mark.parametrize(
    "line",
    [b"RCPT TO:<spam@relay.test>", b"RCPT TO:<e@elsewhere.test>", b"RCPT TO:<\x01@example.test>", b"RCPT bad", b"RSET"],
    ids=["a feedback address", "not ours", "a control character", "no recipient", "another command"],
)
async def test_nothing_is_sent_ahead_that_may_not_go_on(tmp_path: Path, line: bytes) -> None:
    async with (
        hop() as next_hop,
        relaying(
            tmp_path,
            f"smtp://127.0.0.1:{next_hop.port}",
            trusted=(),
            domains=frozenset({"example.test"}),
            feedback=Feedback(spam_addresses=["spam@relay.test"]),
        ) as running,
    ):
        await together(await running.connect(), GROUP[0], GROUP[1], line, GROUP[2])
        assert next_hop.groups[0] == [GROUP[0], GROUP[1]]


async def test_a_next_hop_that_leaves_in_the_midst_of_a_group_is_heard_to_its_end(tmp_path: Path) -> None:
    replies = {GROUP[2]: b"421 4.3.2 shutting down", GROUP[3]: b"close"}
    async with hop(replies=replies) as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}") as running:
        first, second, third = await together(await running.connect(), *GROUP[:3])
        assert (first[:3], second[:3]) == (b"250", b"250")
        assert third == b"421 4.3.2 shutting down\r\n"


async def test_a_client_that_leaves_in_the_midst_of_a_group_leaves_no_recipients_behind(tmp_path: Path) -> None:
    """The connection goes to the next client; what was sent ahead and never asked for must not be in its envelope."""
    limits = Limits().model_copy(update={"commands": 3})
    async with hop() as next_hop, relaying(tmp_path, f"smtp://127.0.0.1:{next_hop.port}", limits=limits) as running:
        replies = await together(await running.connect(), *GROUP)
        assert [reply[:3] for reply in replies] == [b"250", b"250", b"421", b""]
        other = await running.connect()
        await other.ask("EHLO c", "MAIL FROM:<x@example.org>", "RCPT TO:<y@example.test>")
        assert next_hop.connections == 2
