"""Mail to feedback addresses: what is accepted, what is learnt, which reply, and that nothing is delivered."""

import asyncio
import contextlib
import ipaddress
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spamfilter.config.sections import Feedback, Limits
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.learning.marks import Author
from spamfilter.mail.message import parse
from spamfilter.stores import Entry, open_store
from tests.mail.test_attached_mails import PLAIN, multipart
from tests.support.made import mail
from tests.support.parts import KEYWORDS, Hop, Running, relaying
from tests.support.users import NOBODY as NOBODY_UID
from tests.support.users import connected

ANNA = "anna@example.org"
SPAM, HAM = "spam@example.org", "ham@example.org"
FEEDBACK = Feedback(spam_addresses=[SPAM], ham_addresses=[HAM])
CLIENT = "mail from localhost"
NOBODY = (ipaddress.ip_network("192.0.2.0/24"),)
ONE, TWO = mail(name="one"), mail("Grüße".encode().hex(), "another text", "two")
INLINE = f"From: {ANNA}\r\nTo: {SPAM}\r\nSubject: Fwd: hello\r\n\r\n> some text\r\n".encode()


def forward(*mails: bytes, boundary: bytes = b"=_b") -> bytes:
    """A feedback mail with these attached, as mail programs make it."""
    head = f"From: Anna <{ANNA}>\r\nTo: {SPAM}\r\nMessage-ID: <forward@example.org>\r\n".encode()
    return multipart(b"\r\nthis, please\r\n", *(PLAIN + one for one in mails), header=head, boundary=boundary)


def learnings(running: Running) -> list[Entry]:
    return running.store.learnings()


def learnt(running: Running) -> list[tuple[str, str, str]]:
    """Label, source and author of each active learning."""
    return [(entry.label, entry.source, entry.by) for entry in learnings(running)]


@contextlib.asynccontextmanager
async def both(tmp_path: Path, **options: object) -> AsyncIterator[tuple[Hop, Running]]:
    """A next hop and a relay in front of it."""
    options.setdefault("feedback", FEEDBACK)
    async with (
        Hop((*KEYWORDS, "XFORWARD NAME ADDR")) as hop,
        relaying(tmp_path, f"smtp://127.0.0.1:{hop.port}", **options) as running,  # type: ignore[arg-type]
    ):
        yield hop, running


def untouched(hop: Hop) -> bool:
    """Whether the next hop has heard no recipient and no mail."""
    return not hop.messages and not [line for line in hop.received if line[:4].upper() in (b"RCPT", b"DATA")]


# What is learnt


async def test_attached_mails_are_learnt_and_the_mail_goes_nowhere(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        assert await client.send(forward(ONE, TWO), ANNA, SPAM) == b"250 2.0.0 learnt 2 as spam\r\n"
        assert learnt(running) == [("spam", "address", CLIENT)] * 2
        assert {entry.digest for entry in learnings(running)} == {parse(one).digest() for one in (ONE, TWO)}
        assert running.journal() == []
        assert untouched(hop)
        assert hop.received[-1] == b"RSET"


async def test_a_repeat_changes_nothing_and_the_other_address_takes_back(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        client = await running.connect()
        await client.send(forward(ONE), ANNA, SPAM)
        again = await client.send(forward(ONE, TWO, TWO), ANNA, SPAM)
        assert again == b"250 2.0.0 learnt 1 as spam, 2 known before\r\n"
        assert await client.send(forward(ONE), ANNA, HAM) == b"250 2.0.0 learnt 1 as ham\r\n"
        assert sorted(learnt(running)) == [("ham", "address", CLIENT), ("spam", "address", CLIENT)]


async def test_a_mail_that_passed_is_learnt_as_it_was_judged(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.send(ONE)
        (entry,) = running.entries()
        assert (await client.send(forward(hop.messages[0] + b"footer of a list\r\n"), ANNA, SPAM)).startswith(b"250 ")
        assert [learning.digest for learning in learnings(running)] == [entry.digest]


@pytest.mark.parametrize("sender", [ANNA, "Anna@Example.org"])
async def test_the_author_is_the_authenticated_sender_in_lower_case(tmp_path: Path, sender: str) -> None:
    async with both(tmp_path, proven=True) as (_, running):
        await (await running.connect()).send(forward(ONE), sender, SPAM)
        assert learnt(running) == [("spam", "address", ANNA)]


@pytest.mark.parametrize(
    ("said", "author"),
    [
        (None, CLIENT),
        ("ADDR=127.0.0.5", CLIENT),
        ("ADDR=IPV6:::1", CLIENT),
        ("ADDR=IPv6:::1", CLIENT),
        ("ADDR=[UNAVAILABLE] SOURCE=LOCAL", CLIENT),
        ("ADDR=10.1.2.3", "mail from 10.1.2.3"),
        ("ADDR=IPV6:FE80:0::1%one", "mail from fe80::1"),
    ],
)
async def test_a_sender_that_is_not_authenticated_is_only_a_claim_so_the_client_is_the_author(
    tmp_path: Path, said: str | None, author: str
) -> None:
    trusted = [ipaddress.ip_network(network) for network in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "fe80::/10")]
    async with both(tmp_path, trusted=trusted) as (_, running):
        running.relay.mark_queue.settings = Feedback(marks_a_day=2)
        client = await running.connect()
        for number, code in enumerate((b"250 ", b"250 ", b"550 ")):
            await client.ask("EHLO c", *([f"XFORWARD {said}"] if said else []))
            await client.ask(f"MAIL FROM:<anna{number}@example.org>", f"RCPT TO:<{SPAM}>", "DATA")
            client.writer.write(forward(mail(name=str(number))) + b".\r\n")
            reply = await client.reply()
            assert reply.startswith(code)
        assert b"%s: 2 marks in 24 hours" % author.encode() in reply
        assert learnt(running) == [("spam", "address", author)] * 2


@pytest.mark.parametrize("said", [None, "ADDR=203.0.113.%d", "ADDR=10.1.2.%d", "ADDR=nonsense"])
async def test_on_a_port_for_authenticated_senders_sender_and_client_are_claims_so_the_peer_is_the_author(
    tmp_path: Path, said: str | None
) -> None:
    """Any process of this machine reaches that port."""
    async with both(tmp_path, submission=True) as (_, running):
        running.relay.mark_queue.settings = Feedback(marks_a_day=2)
        client = await running.connect()
        for number, code in enumerate((b"250 ", b"250 ", b"550 ")):
            await client.ask("EHLO c", *([f"XFORWARD {said.replace('%d', str(number))}"] if said else []))
            await client.ask(f"MAIL FROM:<anna{number}@example.org>", f"RCPT TO:<{SPAM}>", "DATA")
            client.writer.write(forward(mail(name=str(number))) + b".\r\n")
            assert (await client.reply()).startswith(code)
        assert learnt(running) == [("spam", "address", CLIENT)] * 2


async def test_a_process_that_is_not_the_mail_servers_is_turned_away_from_its_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with both(tmp_path, proven=True) as (hop, running):
        assert running.path is not None
        (client,) = await connected(NOBODY_UID, running.path)
        with client:
            loop = asyncio.get_running_loop()
            said = await loop.sock_recv(client, 1000)
            assert said == b"554 5.7.1 This socket is for the mail server only\r\n"
            assert await loop.sock_recv(client, 1000) == b""
        assert f"submission: uid {NOBODY_UID} is not the mail server (postfix); refused" in caplog.text
        assert not hop.received


async def test_the_mail_server_on_its_socket_may_name_its_client_whatever_is_trusted(tmp_path: Path) -> None:
    async with both(tmp_path, proven=True, trusted=NOBODY, proxy_protocol=True) as (hop, running):
        client = await running.connect()
        await client.ask("EHLO c", "XFORWARD ADDR=203.0.113.9")
        await client.ask(f"MAIL FROM:<{ANNA}>", "RCPT TO:<friend@example.net>", "DATA")
        client.writer.write(ONE + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert [entry.client for entry in running.entries()] == ["203.0.113.9"]
        assert len(hop.messages) == 1


async def test_marks_of_an_authenticated_sender_are_not_for_who_writes_their_address(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        await running.relay.mark_queue.mark_mail(ONE, "one", "ham", Author(ANNA, "address"))
        reply = await (await running.connect()).send(forward(ONE), ANNA, SPAM)
        assert reply.startswith(b"550 5.7.1 attached mail 1: learnt as ham by anna@example.org; only they")
        assert learnt(running) == [("ham", "address", ANNA)]


async def test_a_sender_of_other_letters_is_the_author_that_it_is_by_imap(tmp_path: Path) -> None:
    async with both(tmp_path, proven=True) as (_, running):
        await (await running.connect()).send(forward(ONE), "Grün@example.org", SPAM)
        await running.relay.mark_queue.mark_mail(ONE, "one", "ham", Author("grün@example.org", "imap"))
        assert learnt(running) == [("ham", "imap", "grün@example.org")]
        await (await running.connect()).send(forward(ONE), "grün@Example.org", SPAM)
        assert learnt(running) == [("spam", "address", "grün@example.org")]


async def test_a_sender_of_letters_that_nobody_sees_is_an_author_in_printable_ones(tmp_path: Path) -> None:
    async with both(tmp_path, proven=True) as (_, running):
        await (await running.connect()).send(forward(ONE), "\u202eann@example.org", SPAM)
        assert learnt(running) == [("spam", "address", "\\u202eann@example.org")]


@pytest.mark.parametrize(
    "written",
    [
        "SPAM@EXAMPLE.ORG", '"spam"@example.org', "@relay.example:spam@example.org", "s\\pam@example.org",
        "spam@example.org.",
    ],
)  # fmt: skip
async def test_an_address_is_known_however_it_is_written(tmp_path: Path, written: str) -> None:
    async with both(tmp_path) as (hop, running):
        assert (await (await running.connect()).send(forward(ONE), ANNA, written)).startswith(b"250 2.0.0 learnt 1 ")
        assert untouched(hop)


async def test_an_address_of_another_letter_is_another(tmp_path: Path) -> None:
    settings = Feedback(spam_addresses=["spamk@example.org"])
    async with both(tmp_path, feedback=settings) as (hop, running):
        reply = await (await running.connect()).send(forward(ONE), ANNA, "spam\u212a@example.org")
        assert reply.startswith(b"250 2.0.0 Ok: queued")
        assert len(hop.messages) == 1
        assert learnt(running) == []


async def test_a_resent_mail_is_learnt_itself(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.send(ONE)
        (entry,) = running.entries()
        resent = f"Resent-From: {ANNA}\r\nResent-To: {SPAM}\r\n".encode() + hop.messages[0]
        assert await client.send(resent, ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
        assert [learning.digest for learning in learnings(running)] == [entry.digest]
        assert len(running.journal()) == 1


async def test_a_redirected_copy_of_a_judged_mail_is_learnt_itself(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.send(ONE)
        (entry,) = running.entries()
        assert await client.send(hop.messages[0], ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
        assert [learning.digest for learning in learnings(running)] == [entry.digest]


async def test_what_is_attached_to_a_redirected_spam_is_not_learnt_for_it(tmp_path: Path) -> None:
    """Its sender has chosen that: somebody's good mail, for instance."""
    bait = b"Content-Type: application/octet-stream; name=minutes.eml\r\n\r\n"
    head = b"From: x@example.net\r\nTo: anna@example.org\r\nMessage-ID: <bait@example.net>\r\n"
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        for number, attached in enumerate((PLAIN, bait)):
            spam = multipart(b"\r\nbuy pills %d\r\n" % number, attached + TWO, header=head)
            await client.send(spam)
            entry = running.entries()[-1]
            assert await client.send(hop.messages[-1], ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
            assert learnings(running)[-1].digest == entry.digest


async def test_a_redirected_copy_may_come_before_the_journal_is_written(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.send(ONE)
        await client.envelope(ANNA, SPAM)
        await client.ask("DATA")
        client.writer.write(hop.messages[0] + b".\r\n")
        await client.writer.drain()
        await asyncio.sleep(0.2)
        running.relay.journal.write()
        assert await client.reply() == b"250 2.0.0 learnt 1 as spam\r\n"


async def test_a_senders_own_mail_is_never_learnt_though_it_was_judged_on_its_way_to_others(tmp_path: Path) -> None:
    own = f"From: {ANNA}\r\nTo: friend@example.net\r\nMessage-ID: <own@x>\r\n\r\nlook at this > buy\r\n".encode()
    async with both(tmp_path) as (_, running):
        client = await running.connect()
        for sent in (own, own.replace(b"friend@example.net", f"friend@example.net, {SPAM}".encode())):
            await client.send(sent, ANNA, "friend@example.net")
            running.relay.journal.write()
            assert (await client.send(sent, ANNA, SPAM)).startswith(b"550-5.6.0 ")
        assert learnt(running) == []


async def test_a_feedback_mail_that_is_attached_gives_way_to_what_it_has_attached(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        client = await running.connect()
        sent = forward(forward(ONE), TWO, boundary=b"=_outer")
        assert await client.send(sent, ANNA, SPAM) == b"250 2.0.0 learnt 2 as spam\r\n"
        assert {entry.digest for entry in learnings(running)} == {parse(one).digest() for one in (ONE, TWO)}


async def test_what_is_learnt_is_judged_with_at_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        client = await running.connect()
        await client.send(mail(name="before"))
        await client.send(forward(*(mail(name=f"spam{number}") for number in range(20))), ANNA, SPAM)
        await client.send(
            forward(*(mail("lunch", "at noon with soup", f"ham{number}") for number in range(20))), ANNA, HAM
        )
        await client.send(mail(name="after"))
        before, after = running.entries()
        assert after.score > before.score


async def test_what_was_written_to_a_feedback_address_is_never_learnt_wherever_its_other_copy_came_from(
    tmp_path: Path,
) -> None:
    own = f"From: {ANNA}\r\nTo: friend@example.net\r\nCc: {SPAM}\r\nMessage-ID: <own@x>\r\n\r\n> buy\r\n".encode()
    async with both(tmp_path) as (_, running):
        client = await running.connect()
        await client.ask("EHLO c", "XFORWARD ADDR=203.0.113.9", f"MAIL FROM:<{ANNA}>", "RCPT TO:<friend@example.net>")
        await client.ask("DATA")
        client.writer.write(own + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        running.relay.journal.write()
        assert (await client.send(own, ANNA, SPAM)).startswith(b"550-5.6.0 ")
        assert learnt(running) == []


# What is refused


async def test_a_stranger_is_refused_at_rcpt(tmp_path: Path) -> None:
    domains = frozenset(("example.org",))
    async with both(tmp_path, trusted=NOBODY, domains=domains) as (hop, running):
        client = await running.connect()
        for address in (SPAM, HAM, SPAM.upper(), '"spam"@example.org'):
            assert (await client.envelope(ANNA, address)).startswith(b"550 5.7.1 This address is for our own users")
            await client.ask("RSET")
        assert untouched(hop)
        await client.envelope(ANNA, SPAM)
        assert await client.ask("DATA") == b"554 5.5.1 No valid recipients\r\n"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ADDR=203.0.113.9", b"550"),
        ("ADDR=203.0.113.9 SOURCE=LOCAL", b"550"),
        ("ADDR=IPV6:2001:db8::1 NAME=localhost", b"550"),
        ("ADDR=[UNAVAILABLE]", b"550"),
        ("ADDR=[UNAVAILABLE] SOURCE=REMOTE", b"550"),
        ("NAME=mx.example.net HELO=127.0.0.1", b"550"),
        ("ADDR=nonsense", b"550"),
        ("ADDR=[UNAVAILABLE] SOURCE=LOCAL", b"250"),
        ("ADDR=127.0.0.5 SOURCE=LOCAL", b"250"),
        ("ADDR=127.0.0.5", b"250"),
    ],
)
async def test_it_is_the_client_that_counts_for_whom_a_trusted_one_speaks(
    tmp_path: Path, said: str, code: bytes
) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        replies = [await client.ask(line) for line in ("EHLO c", f"XFORWARD {said}", f"MAIL FROM:<{ANNA}>")]
        assert [reply[:3] for reply in replies] == [b"250"] * 3
        assert (await client.ask(f"RCPT TO:<{SPAM}>"))[:3] == code
        assert untouched(hop)


async def test_on_submission_everybody_may_teach(tmp_path: Path) -> None:
    async with both(tmp_path, submission=True) as (_, running):
        client = await running.connect()
        await client.ask("EHLO c", "XFORWARD ADDR=203.0.113.9")
        await client.ask(f"MAIL FROM:<{ANNA}>", f"RCPT TO:<{SPAM}>", "DATA")
        client.writer.write(forward(ONE) + b".\r\n")
        assert await client.reply() == b"250 2.0.0 learnt 1 as spam\r\n"


@pytest.mark.parametrize("sender", ["", "root", "a" * 243 + "@example.org"], ids=["empty", "no-domain", "long"])
async def test_a_sender_must_be_an_address(tmp_path: Path, sender: str) -> None:
    async with both(tmp_path) as (hop, running):
        reply = await (await running.connect()).envelope(sender, SPAM)
        assert reply == b"550 5.7.1 Feedback needs a sender, an address with its domain\r\n"
        assert untouched(hop)


@pytest.mark.parametrize(
    ("first", "second"),
    [(SPAM, "b@example.test"), ("b@example.test", SPAM), (SPAM, HAM), (HAM, SPAM)],
    ids=["other-second", "other-first", "ham-second", "spam-second"],
)
async def test_recipients_of_two_kinds_do_not_mix(tmp_path: Path, first: str, second: str) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        assert (await client.envelope(ANNA, first)).startswith(b"250 ")
        assert (await client.ask(f"RCPT TO:<{second}>")).startswith(b"452 4.5.3 ")
        assert (await client.ask(f"RCPT TO:<{first}>")).startswith(b"250 ")
        assert (await client.ask("DATA")).startswith(b"354 ")
        client.writer.write(forward(ONE) + b".\r\n")
        assert (await client.reply()).startswith(b"250 ")
        assert len(hop.messages) == (first == "b@example.test")
        assert len(learnt(running)) == (first != "b@example.test")


async def test_a_refused_recipient_of_another_kind_leaves_the_transaction_open(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        hop.replies["RCPT"] = b"550 5.1.1 no such user\r\n"
        client = await running.connect()
        assert (await client.envelope(ANNA, "nobody@example.test")).startswith(b"550 5.1.1 no such user")
        assert (await client.ask(f"RCPT TO:<{SPAM}>")).startswith(b"250 ")
        await client.ask("DATA")
        client.writer.write(forward(ONE) + b".\r\n")
        assert await client.reply() == b"250 2.0.0 learnt 1 as spam\r\n"


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        pytest.param(INLINE, b"550-5.6.0 No mail is attached", id="inline"),
        pytest.param(b"", b"550-5.6.0 No mail is attached", id="empty"),
        pytest.param(mail(), b"550-5.6.0 No mail is attached", id="a-mail-never-judged"),
        pytest.param(b"Resent-To: spam@example.org\r\n" + INLINE, b"550-5.6.0 No mail", id="own-mail-resent"),
        pytest.param(multipart(b"\r\n" + ONE), b"550-5.6.0 No mail is attached", id="part-without-header"),
        pytest.param(forward(b"\r\nonly a body"), b"550 5.7.1 attached mail 1: no mail", id="mail-without-header"),
        pytest.param(forward(*[ONE] * 10_000), b"550 5.6.0 more than 100 mails", id="many-mails"),
        pytest.param(multipart(*[b""] * 200_000), b"550 5.6.0 more than 2000 parts", id="many-parts"),
    ],
)
async def test_what_teaches_nothing_is_refused_with_a_sentence(tmp_path: Path, sent: bytes, reply: bytes) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        assert (await client.send(sent, ANNA, SPAM)).startswith(reply)
        assert learnt(running) == []
        assert running.journal() == []
        assert untouched(hop)
        assert (await client.send(forward(ONE), ANNA, SPAM)).startswith(b"250 ")  # and the session goes on


async def test_the_explanation_has_every_line_of_a_reply(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        lines = (await (await running.connect()).send(INLINE, ANNA, SPAM)).splitlines()
        assert [line[:10] for line in lines] == [*[b"550-5.6.0 "] * 3, b"550 5.6.0 "]
        assert b"forward as attachment" in b" ".join(lines)


async def test_size_and_lone_line_ends_are_limited_as_for_all_mail(tmp_path: Path) -> None:
    async with both(tmp_path, limits=Limits(message_size=65_536)) as (hop, running):
        client = await running.connect()
        large = forward(ONE + b"x" * 70_000 + b"\r\n")
        assert (await client.send(large, ANNA, SPAM)).startswith(b"552 5.3.4 ")
        assert (await client.send(forward(ONE + b"lone\nend\r\n"), ANNA, SPAM)).startswith(b"550 5.6.0 ")
        assert (await client.send(forward(ONE), ANNA, SPAM)).startswith(b"250 ")
        assert len(learnt(running)) == 1
        assert untouched(hop)


async def test_what_others_have_taught_is_theirs(tmp_path: Path) -> None:
    async with both(tmp_path, proven=True) as (_, running):
        client = await running.connect()
        await client.send(forward(ONE), "bob@example.org", HAM)
        reply = await client.send(forward(ONE), ANNA, SPAM)
        assert reply.startswith(b"550 5.7.1 attached mail 1: learnt as ham by bob@example.org; only they or the admin")
        reply = await client.send(forward(ONE, TWO), ANNA, SPAM)
        assert reply.startswith(b"250 2.0.0 learnt 1 as spam, 1 refused: attached mail 1: learnt as ham by bob@")
        reply = await client.send(forward(ONE, TWO), ANNA, SPAM)
        assert reply.startswith(b"250 2.0.0 learnt 0 as spam, 1 known before, 1 refused: ")
        assert sorted(learnt(running)) == [("ham", "address", "bob@example.org"), ("spam", "address", ANNA)]


async def test_a_days_share_is_kept(tmp_path: Path) -> None:
    async with both(tmp_path, proven=True) as (_, running):
        running.relay.mark_queue.settings = Feedback(marks_a_day=3)
        client = await running.connect()
        mails = [mail(name=str(number)) for number in range(5)]
        reply = await client.send(forward(*mails), ANNA, SPAM)
        assert reply.startswith(b"250 2.0.0 learnt 3 as spam, 2 refused: anna@example.org: 3 marks in 24 hours")
        assert (await client.send(forward(mails[4]), ANNA, SPAM)).startswith(b"550 5.7.1 anna@example.org: 3 marks")
        assert (await client.send(forward(mails[4]), "bob@example.org", SPAM)).startswith(b"250 ")


async def test_without_addresses_all_mail_goes_on(tmp_path: Path) -> None:
    async with both(tmp_path, feedback=Feedback()) as (hop, running):
        assert (await (await running.connect()).send(forward(ONE), ANNA, SPAM)).startswith(b"250 2.0.0 Ok: queued")
        assert len(hop.messages) == 1
        assert learnt(running) == []


# The dialogue


async def test_commands_may_be_pipelined(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        client.writer.write(
            f"EHLO c\r\nMAIL FROM:<{ANNA}>\r\nRCPT TO:<{SPAM}>\r\nRCPT TO:<b@example.test>\r\nDATA\r\n".encode()
        )
        assert [(await client.reply())[:3] for _ in range(5)] == [b"250", b"250", b"250", b"452", b"354"]
        client.writer.write(
            forward(ONE)
            + b".\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.test>\r\nDATA\r\n"
            + ONE
            + b".\r\nQUIT\r\n"
        )
        assert [(await client.reply())[:3] for _ in range(6)] == [b"250", b"250", b"250", b"354", b"250", b"221"]
        assert len(hop.messages) == 1
        assert len(learnt(running)) == 1


async def test_rset_forgets_what_the_recipients_were_for(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.envelope(ANNA, SPAM)
        assert (await client.ask("RSET")).startswith(b"250 ")
        assert (await client.ask("DATA")).startswith(b"503 ")
        assert (await client.send(forward(ONE), ANNA, "b@example.test")).startswith(b"250 2.0.0 Ok: queued")
        assert len(hop.messages) == 1
        assert learnt(running) == []


@pytest.mark.parametrize("line", ["LHLO c", "BDAT 10 LAST", f"EXPN <{SPAM}>"])
async def test_other_ways_of_sending_do_not_exist(tmp_path: Path, line: str) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.envelope(ANNA, SPAM)
        assert (await client.ask(line)).startswith((b"500 5.5.2 ", b"502 5.5.1 "))
        assert untouched(hop)


async def test_a_client_that_leaves_within_its_mail_teaches_nothing(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        await client.envelope(ANNA, SPAM)
        await client.ask("DATA")
        client.writer.write(forward(ONE))
        await client.writer.drain()
        client.close()
        await asyncio.sleep(0.1)
        assert learnt(running) == []
        assert untouched(hop)


async def test_where_the_next_hop_is_down_feedback_waits_at_the_client(tmp_path: Path) -> None:
    async with Hop() as hop:
        port = hop.port
    async with relaying(tmp_path, f"smtp://127.0.0.1:{port}", feedback=FEEDBACK) as running:
        client = await running.connect()
        await client.ask("EHLO c")
        client.writer.write(f"MAIL FROM:<{ANNA}>\r\nRCPT TO:<{SPAM}>\r\nDATA\r\n".encode())
        assert [(await client.reply())[:3] for _ in range(3)] == [b"451", b"451", b"451"]


async def test_a_next_hop_that_goes_down_after_mail_keeps_nothing_from_being_learnt(tmp_path: Path) -> None:
    async with both(tmp_path) as (hop, running):
        hop.replies["RSET"] = b"close"
        client = await running.connect()
        assert await client.send(forward(ONE), ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
        hop.replies.clear()
        assert (await client.send(ONE)).startswith(b"250 ")


async def test_a_busy_database_leaves_the_mail_with_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.stores.sql.connection.BUSY_SECONDS", 0.2)
    file = tmp_path / "spamfilter.db"
    with contextlib.closing(open_store(f"sqlite:///{file}", migrate=True)) as store:
        async with both(tmp_path, filter=Filter(store, Settings().voices())) as (hop, running):
            client = await running.connect()
            with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                reply = await client.send(forward(ONE, TWO), ANNA, SPAM)
                assert reply == b"451 4.3.0 This cannot be learnt now; try again later\r\n"
            assert await client.send(forward(ONE, TWO), ANNA, SPAM) == b"250 2.0.0 learnt 2 as spam\r\n"
            assert untouched(hop)


async def test_a_fault_leaves_the_mail_with_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path) as (hop, running):
        client = await running.connect()
        with monkeypatch.context() as patched:
            patched.setattr(running.relay, "mark_queue", None)
            reply = await client.send(forward(ONE), ANNA, SPAM)
        assert reply == b"451 4.3.0 Temporary fault; try again later\r\n"
        assert await client.send(forward(ONE), ANNA, SPAM) == b"250 2.0.0 learnt 1 as spam\r\n"
        assert untouched(hop)


async def test_learning_that_takes_too_long_goes_on_when_the_client_comes_again(tmp_path: Path) -> None:
    mails = [mail(name=str(number)) for number in range(100)]
    async with both(tmp_path, limits=Limits(final_seconds=0.001)) as (_, running):
        client = await running.connect()
        assert (await client.send(forward(*mails), ANNA, SPAM)).startswith(b"451 4.3.0 This cannot be learnt now")
        running.relay.limits = Limits()
        assert (await client.send(forward(*mails), ANNA, SPAM)).startswith(b"250 2.0.0 learnt ")
        assert len(learnt(running)) == 100


async def test_the_desk_is_one_for_all_ways(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, running):
        marked = await running.relay.mark_queue.mark_mail(ONE, "x", "spam", Author("bob", "imap"))
        assert marked.change.changed
        reply = await (await running.connect()).send(forward(ONE), ANNA, HAM)
        assert reply.startswith(b"550 5.7.1 attached mail 1: learnt as spam by bob; ")
