"""The Postfix samples with a real Postfix around a real relay: nothing lost, nothing doubled, nothing hidden."""

import smtplib
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage

import pytest

from tests.integration.servers import (
    Postfix,
    Relay,
    Sink,
    configure_postfix,
    free_port,
    postfix,
    relay,
    sink,
    smtp_source,
    wait_until,
    workshop,
)
from tests.support.real import require, require_root

MAILS = 3_000
"""Enough that every process of Postfix is replaced (max_use is 100), and less than half a minute."""
SESSIONS = 20
"""At once: as many as the sample's front server takes."""
STRANGER = ("127.0.0.2", 0)
"""A client whose address differs from Postfix's own, and that is not in mynetworks."""


@dataclass(frozen=True)
class Chain:
    """Client -> front Postfix -> relay -> back Postfix -> sink."""

    postfix: Postfix
    relay: Relay
    sink: Sink

    def settle(self) -> None:
        """Wait until all that was accepted has reached the sink."""
        wait_until(lambda: self.postfix.queued() == 0, "an empty queue")


@pytest.fixture(scope="module")
def before_queue() -> Iterator[Chain]:
    """The front server asks nobody about recipients, so that the one behind the relay must."""
    with workshop() as folder, sink() as end:
        back = free_port()
        with (
            relay(
                folder / "relay", relay={"next_hop": f"smtp://127.0.0.1:{back}"}, lists={"block": ["::1/128"]}
            ) as filter,
            postfix(
                folder / "postfix",
                to=end.port,
                back=back,
                proxy=filter.port,
                front_checks_users=False,
                settings="inet_protocols = all\ninet_interfaces = 127.0.0.1, ::1\n",
            ) as server,
        ):
            yield Chain(server, filter, end)


@pytest.fixture(scope="module")
def after_queue() -> Iterator[Chain]:
    """The relay calls itself as Postfix does, as it would on one host: that must not look like a loop."""
    with workshop() as folder, sink() as end:
        back = free_port()
        settings = {
            "next_hop": f"smtp://127.0.0.1:{back}",
            "mode": "after-queue",
            "hostname": "mail.test",
            "bare_newlines": "normalise",
        }
        with (
            relay(folder / "relay", relay=settings) as filter,
            postfix(folder / "postfix", to=end.port, back=back, content_filter=filter.port) as server,
        ):
            yield Chain(server, filter, end)


def send(
    port: int,
    subject: str,
    recipients: tuple[str, ...] = ("alice@example.test",),
    client: tuple[str, int] = STRANGER,
) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "sender@example.org", ", ".join(recipients), subject
    mail["Message-ID"] = f"<{subject.replace(' ', '-')}@example.org>"
    mail.set_content("Good day,\n\nthe minutes are attached.\n")
    server = "::1" if ":" in client[0] else "127.0.0.1"
    with smtplib.SMTP(server, port, "client.test", timeout=60, source_address=client) as connection:
        connection.send_message(mail, to_addrs=recipients)


def arrived(chain: Chain, subject: str) -> list[str]:
    """The statuses of the mails with that subject that reached the sink."""
    chain.settle()
    mails = [mail for mail in chain.sink.received if mail.values("Subject") == [subject]]
    assert all(len(mail.values("X-Spam-Status")) == len(mail.values("X-Spamfilter-Id")) == 1 for mail in mails)
    return [mail.values("X-Spam-Status")[0] for mail in mails]


@pytest.mark.parametrize("layout", ["before-queue", "after-queue"])
def test_postfix_accepts_the_samples_without_a_warning(layout: str) -> None:
    require("postfix", "postfix")
    require_root("`postfix check` looks at owners")
    with workshop() as folder:
        ports = {"proxy": 10025, "content_filter": None} if layout == "before-queue" else {}
        server = configure_postfix(
            folder / "postfix",
            **({"proxy": None, "content_filter": 10025} | ports),
            back=10026,
            to=10027,
            front_checks_users=True,
            settings="",
        )
        for program, *arguments in (("postfix", "check"), ("postconf", "-n"), ("postconf", "-M"), ("postconf", "-P")):
            done = server.run(program, *arguments)
            assert (done.returncode, done.stderr) == (0, ""), arguments
        assert server.log() == ""
        assert "smtpd_forbid_bare_newline_exclusions =\n" in server.run("postconf", "-P").stdout


def test_before_the_queue_mail_arrives_marked_and_once(before_queue: Chain) -> None:
    send(before_queue.postfix.front, "before the queue")
    assert arrived(before_queue, "before the queue") == [
        "No, score=0.500 class=unsure threshold=0.900 learnt=0/0 known=0.00"
    ]


@pytest.mark.parametrize(
    ("address", "status"),
    [pytest.param("127.0.0.2", "No, score=0.500", id="ipv4"), pytest.param("::1", "Yes, score=0.500", id="ipv6")],
)
def test_a_client_behind_postfix_is_known_by_its_address(before_queue: Chain, address: str, status: str) -> None:
    """Of IPv6 Postfix writes "IPv6:" before it, with a small v."""
    subject = f"from {address.replace(':', '-')}"
    send(before_queue.postfix.front, subject, client=(address, 0))
    assert [found[: len(status)] for found in arrived(before_queue, subject)] == [status]
    assert f" client={address} " in before_queue.relay.log()


def test_an_unknown_user_is_refused_at_rcpt_in_the_words_of_the_next_hop(before_queue: Chain) -> None:
    back = refusal(before_queue.postfix.back, "nobody@example.test")
    assert back[0] == 550
    assert b"5.1.1 <nobody@example.test>: Recipient address rejected" in back[1]
    assert refusal(before_queue.postfix.front, "nobody@example.test") == back


def refusal(port: int, recipient: str) -> tuple[int, bytes]:
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60, source_address=STRANGER) as client:
        client.ehlo()
        assert client.mail("sender@example.org")[0] == 250
        return client.rcpt(recipient)


def test_one_refused_recipient_keeps_no_mail_from_the_other(before_queue: Chain) -> None:
    send(before_queue.postfix.front, "one of two", ("alice@example.test", "nobody@example.test"))
    assert len(arrived(before_queue, "one of two")) == 1


def test_before_the_queue_the_address_of_the_client_survives(before_queue: Chain) -> None:
    send(before_queue.postfix.front, "whose address")
    assert len(arrived(before_queue, "whose address")) == 1
    said = "client=unknown[127.0.0.1], orig_client=unknown[127.0.0.2]"
    wait_until(lambda: said in before_queue.postfix.log(), "the client in the log, which a process of its own writes")


def test_before_the_queue_a_missing_relay_is_451_and_the_client_keeps_the_mail() -> None:
    with (
        workshop() as folder,
        sink() as end,
        postfix(folder / "postfix", to=end.port, back=free_port(), proxy=free_port()) as server,
    ):
        with pytest.raises(smtplib.SMTPException) as refused:
            send(server.front, "nobody there")
        assert "451" in str(refused.value)
        assert server.queued() == 0


def test_after_the_queue_mail_arrives_marked_and_once(after_queue: Chain) -> None:
    send(after_queue.postfix.front, "after the queue", ("alice@example.test", "bob@example.test"))
    wait_until(lambda: bool(arrived(after_queue, "after the queue")), "the mail at the sink")
    assert arrived(after_queue, "after the queue") == [
        "No, score=0.500 class=unsure threshold=0.900 learnt=0/0 known=0.00"
    ]
    wait_until(lambda: "orig_client=unknown[127.0.0.2]" in after_queue.postfix.log(), "the client in the log")


def test_after_the_queue_unknown_users_are_refused_before_the_queue(after_queue: Chain) -> None:
    assert refusal(after_queue.postfix.front, "nobody@example.test")[0] == 550


def test_of_thousands_of_mails_none_is_lost_and_none_doubled(before_queue: Chain) -> None:
    earlier = len(before_queue.sink.received)
    smtp_source(
        before_queue.postfix.front, MAILS, sessions=SESSIONS, length=200, recipient="bulk@bulk.test", numbered=True
    )
    before_queue.sink.wait(earlier + MAILS, 300)
    before_queue.settle()
    mails = before_queue.sink.received[earlier:]
    recipients = Counter(recipient for mail in mails for recipient in mail.recipients)
    assert len(mails) == len(recipients) == MAILS
    assert set(recipients.values()) == {1}
    assert len({mail.values("X-Spamfilter-Id")[0] for mail in mails}) == MAILS


HIDDEN_ENDS = {
    "LF . LF": b"\n.\n",
    "LF . CR LF": b"\n.\r\n",
    "CR LF . LF": b"\r\n.\n",
    "CR . CR": b"\r.\r",
    "CR LF . CR": b"\r\n.\r",
    "CR . CR LF": b"\r.\r\n",
    "LF . CR CR LF": b"\n.\r\r\n",
}
"""What some server takes for the end of mail, and RFC 5321 does not (CVE-2023-51764, -51765, -51766)."""


@pytest.mark.parametrize("name", HIDDEN_ENDS)
@pytest.mark.parametrize("entrance", ["front", "relay", "back"])
def test_mail_hidden_in_mail_stays_text(before_queue: Chain, entrance: str, name: str) -> None:
    ports = {
        "front": before_queue.postfix.front,
        "relay": before_queue.relay.port,
        "back": before_queue.postfix.back,
    }
    subject = f"{entrance} {name}"
    reply = smuggle(ports[entrance], subject, HIDDEN_ENDS[name])
    send(before_queue.postfix.front, f"after {subject}")
    assert len(arrived(before_queue, f"after {subject}")) == 1
    assert not [mail for mail in before_queue.sink.received if "MAIL FROM:<hidden@" in " ".join(mail.commands)]
    whole = [mail for mail in before_queue.sink.received if mail.values("Subject") == [subject]]
    assert len(whole) == (1 if reply.startswith(b"250") else 0)
    assert all(b"hidden@example.org" in mail.mail for mail in whole)


def smuggle(port: int, subject: str, end: bytes) -> bytes:
    """Send one mail that has another one's commands behind a false end, and return the reply to the true one."""
    first = f"From: sender@example.org\r\nSubject: {subject}\r\n\r\nhello".encode()
    hidden = b"MAIL FROM:<hidden@example.org>\r\nRCPT TO:<bob@example.test>\r\nDATA\r\nSubject: hidden\r\n\r\nspam"
    with socket.create_connection(("127.0.0.1", port), 60, STRANGER) as client, client.makefile("rb") as replies:

        def say(line: bytes) -> bytes:
            client.sendall(line + b"\r\n")
            return answer()

        def answer() -> bytes:
            while (line := replies.readline())[3:4] == b"-":
                pass
            return line

        answer()
        for line in (b"EHLO client.test", b"MAIL FROM:<sender@example.org>", b"RCPT TO:<alice@example.test>"):
            assert say(line).startswith(b"250")
        assert say(b"DATA").startswith(b"354")
        client.sendall(first + end + hidden + b"\r\n.\r\n")
        return answer()
