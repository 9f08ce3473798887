"""The SMTP client of the relay against a next hop with scripted replies."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from spamfilter.errors import NextHopError
from spamfilter.relay.next_hops import Timeouts
from spamfilter.relay.next_hops.smtp import SmtpNextHop
from tests.support.certificates import client_context, server_context
from tests.support.parts import KEYWORDS, Hop

QUICK = Timeouts(0.5, 0.5, 0.5)


async def test_a_reply_comes_back_byte_for_byte() -> None:
    reply = b"250-first  line \r\n250-\r\n250 \xfc last\r\n"
    async with Hop() as hop:
        hop.replies["VRFY"] = reply
        conversation = await SmtpNextHop("127.0.0.1", hop.port, "relay.test").open()
        assert (await conversation.command(b"VRFY x")).raw == reply
        conversation.abort()
        await asyncio.sleep(0.02)


async def test_dots_are_doubled_and_a_missing_line_end_is_added_at_the_end() -> None:
    async with Hop() as hop:
        conversation = await SmtpNextHop("127.0.0.1", hop.port, "relay.test").open()
        reply = await conversation.data([b".a\r\n", memoryview(b".\r\n..\r\nend")])
        assert reply.raw == b"250 2.0.0 Ok: queued as 4711\r\n"
        assert hop.messages == [b"..a\r\n..\r\n...\r\nend\r\n"]
        conversation.abort()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "reply",
    [b"\r\n", b"25\r\n", b"250_ok\r\n", b"2500 ok\r\n", b"999 no\r\n", b"250 " + b"x" * 9000 + b"\r\n", b"\x00\r\n"],
)
async def test_what_is_not_smtp_is_an_error_of_the_next_hop(reply: bytes) -> None:
    async with Hop() as hop:
        conversation = await SmtpNextHop("127.0.0.1", hop.port, "relay.test", timeouts=QUICK).open()
        hop.replies["NOOP"] = reply
        with pytest.raises(NextHopError, match=f"smtp://127.0.0.1:{hop.port}"):
            await conversation.command(b"NOOP")
        conversation.abort()
        await asyncio.sleep(0.02)


async def test_a_lone_line_break_in_a_reply_does_not_reach_the_client() -> None:
    async with Hop() as hop:
        conversation = await SmtpNextHop("127.0.0.1", hop.port, "relay.test").open()
        hop.replies["NOOP"] = b"250 a\rb\0c\n"
        assert (await conversation.command(b"NOOP")).raw == b"250 a?b?c\r\n"
        conversation.abort()
        await asyncio.sleep(0.02)


async def test_a_lone_line_break_before_the_end_of_the_message_is_not_waited_on() -> None:
    async with Hop() as hop:
        conversation = await SmtpNextHop("127.0.0.1", hop.port, "relay.test", timeouts=QUICK).open()
        hop.replies["DATA"] = b"354 go on\r\n\n"
        with pytest.raises(NextHopError, match="not SMTP"):
            await conversation.data([b"x\r\n"])
        conversation.abort()
        await asyncio.sleep(0.02)


async def test_a_port_that_nobody_listens_on_is_an_error_of_the_next_hop() -> None:
    async with Hop() as hop:
        port = hop.port
    with pytest.raises(NextHopError, match=rf"^smtp://127\.0\.0\.1:{port}: Connection refused$"):
        await SmtpNextHop("127.0.0.1", port, "relay.test").open()


async def test_a_name_that_is_not_found_is_an_error_of_the_next_hop() -> None:
    with pytest.raises(NextHopError, match=r"^smtp://nowhere\.invalid:25: [^\[(]+$"):
        await SmtpNextHop("nowhere.invalid", 25, "relay.test").open()


async def test_a_next_hop_that_says_nothing_is_given_up() -> None:
    async with Hop() as hop:
        hop.replies["CONNECT"] = b"hang"
        with pytest.raises(NextHopError, match="no greeting"):
            await SmtpNextHop("127.0.0.1", hop.port, "relay.test", timeouts=QUICK).open()
        await asyncio.sleep(0.02)


async def test_starttls_is_demanded_and_the_certificate_checked(tmp_path: Path) -> None:
    async with Hop((*KEYWORDS, "STARTTLS")) as hop:
        hop.tls = server_context(tmp_path)
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test", client_context(tmp_path))
        conversation = await next_hop.open()
        assert (await conversation.data([b"Subject: x\r\n\r\n"])).code == 250
        assert hop.received == [b"EHLO relay.test", b"STARTTLS", b"EHLO relay.test", b"DATA"]
        conversation.abort()
        with pytest.raises(NextHopError, match="certificate verify failed"):
            await SmtpNextHop("127.0.0.1", hop.port, "relay.test", ssl.create_default_context()).open()
        await asyncio.sleep(0.05)


async def test_what_is_injected_behind_the_reply_to_starttls_breaks_the_conversation(tmp_path: Path) -> None:
    server_context(tmp_path)
    async with Hop((*KEYWORDS, "STARTTLS")) as hop:
        hop.replies["STARTTLS"] = b"220 go\r\n250-evil\r\n250 XFORWARD NAME\r\n"
        with pytest.raises(NextHopError, match="sent more than its reply to STARTTLS"):
            await SmtpNextHop("127.0.0.1", hop.port, "relay.test", client_context(tmp_path)).open()
        await asyncio.sleep(0.02)


async def test_a_next_hop_that_stops_reading_is_cut_off_and_gets_no_more_of_the_mail() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in (b"220 hop\r\n", b"250 hop\r\n", b"354 go on\r\n"):
            writer.write(reply)
            if reply[:3] != b"354":
                await reader.readline()
        await asyncio.sleep(1)  # and reads nothing meanwhile
        received = b""
        with contextlib.suppress(ConnectionError):
            received = await reader.read(-1)
        assert not received.endswith(b"\r\n.\r\n")
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        conversation = await SmtpNextHop("127.0.0.1", port, "relay.test", timeouts=QUICK).open()
        with pytest.raises(NextHopError, match="no reply to the message"):
            await conversation.data([b"x" * 30_000_000])
        conversation.abort()
        await asyncio.wait_for(closed.wait(), 10)


async def test_a_next_hop_without_the_demanded_starttls_gets_no_mail(tmp_path: Path) -> None:
    server_context(tmp_path)
    async with Hop() as hop:
        with pytest.raises(NextHopError, match="STARTTLS"):
            await SmtpNextHop("127.0.0.1", hop.port, "relay.test", client_context(tmp_path)).open()
        await asyncio.sleep(0.02)


async def test_what_a_next_hop_says_before_it_hangs_up_in_the_middle_is_passed_on() -> None:
    """A server that has heard enough may answer and close while we still write."""
    mail = b"x" * 20_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hop\r\n")
        await reader.readline()
        writer.write(b"250 hop\r\n")
        await reader.readline()
        writer.write(b"354 go on\r\n")
        await reader.readexactly(1000)
        writer.write(b"552 5.3.4 too large for me\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        conversation = await SmtpNextHop("127.0.0.1", port, "relay.test").open()
        try:
            reply = await conversation.data([mail])
            assert reply.raw == b"552 5.3.4 too large for me\r\n"
        except NextHopError:
            pass  # the kernel may drop the reply with the connection; then it is a 451, and nothing is lost
        conversation.abort()
        await asyncio.sleep(0.02)
