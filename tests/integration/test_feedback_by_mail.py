"""Marks by mail, as docs/postfix.md connects them: users submit through a real Postfix, a real relay learns."""

import json
import smtplib
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from typing import Any

import pytest

from spamfilter.system.packaged_files import shipped
from tests.integration.servers import Postfix, Relay, Sink, free_port, postfix, relay, sink, wait_until, workshop

USER = "alice@example.test"


@dataclass(frozen=True)
class Chain:
    """Users -> Postfix -> the relay's port for authenticated senders -> back Postfix -> sink."""

    postfix: Postfix
    relay: Relay
    sink: Sink

    def delivered(self, subject: str) -> bytes:
        """The mail of this subject as it reached the sink."""

        def there() -> bool:
            return any(mail.values("Subject") == [subject] for mail in self.sink.received)

        wait_until(there, f"a mail {subject!r}")
        return next(mail.mail for mail in self.sink.received if mail.values("Subject") == [subject])

    def judged(self, mail: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.relay.command("judge", "--json", input=mail.decode()).stdout)
        return found


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with workshop() as folder, sink() as end:
        back = free_port()
        feedback = {"spam_addresses": ["spam@example.test"], "ham_addresses": ["ham@example.test"], "answer": True}
        settings = {"next_hop": f"smtp://127.0.0.1:{back}", "submission": ["127.0.0.1:0"]}
        with relay(folder / "relay", relay=settings, feedback=feedback) as filter:
            wait_until(lambda: len(filter.ports) == 2, "both ports")
            with postfix(
                folder / "postfix", to=end.port, back=back, proxy=filter.ports[1], front_checks_users=False
            ) as server:
                yield Chain(server, filter, end)


def send(port: int, mail: EmailMessage | MIMEMultipart, recipient: str, sender: str = USER) -> None:
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60) as client:
        client.send_message(mail, from_addr=sender, to_addrs=[recipient])


def offer(number: int) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", USER, f"offer {number}"
    mail["Message-ID"] = f"<offer-{number}@example.org>"
    mail.set_content(f"Cheap pills, number {number}, without a prescription.\nOrder before midnight.\n")
    return mail


def forwarded(*mails: bytes) -> MIMEMultipart:
    outer = MIMEMultipart()
    outer["From"], outer["To"], outer["Subject"] = USER, "spam@example.test", "look at this"
    for mail in mails:
        outer.attach(MIMEMessage(message_from_bytes(mail)))
    return outer


def test_what_the_page_calls_the_sample_is_what_is_shipped() -> None:
    sample = shipped("config/postfix/submission/master.cf.fragment").read_text()
    assert "-o smtpd_proxy_filter=127.0.0.1:10027" in sample


def test_a_mail_forwarded_to_the_address_is_learnt_and_taken_back_by_the_other_one(chain: Chain) -> None:
    send(chain.relay.port, offer(1), USER, "shop@example.org")
    first = chain.delivered("offer 1")
    before = chain.judged(offer(2).as_bytes())
    send(chain.postfix.front, forwarded(first), "spam@example.test")
    wait_until(
        lambda: chain.judged(offer(2).as_bytes())["log_odds"] > before["log_odds"], "the next such mail is worse"
    )
    assert not [mail for mail in chain.sink.received if mail.values("Subject") == ["look at this"]]
    wait_until(
        lambda: any(mail.recipients == [USER] and b"learnt" in mail.mail for mail in chain.sink.received),
        "an answer",
    )
    send(chain.relay.port, offer(3), USER, "shop@example.org")
    assert message_from_bytes(chain.delivered("offer 3"))["X-Spamfilter-Id"]
    assert chain.relay.command("forget", "--json", input=first.decode()).returncode == 0
    assert chain.judged(offer(2).as_bytes()) == before


def test_a_mail_forwarded_inline_is_refused_with_an_explanation(chain: Chain) -> None:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = USER, "Fwd: offer 1"
    mail.set_content("-------- Forwarded message --------\nSubject: offer 1\n\nCheap pills\n")
    with pytest.raises(smtplib.SMTPDataError, match="attach") as refusal:
        send(chain.postfix.front, mail, "spam@example.test")
    assert refusal.value.smtp_code == 550


def test_what_users_send_goes_on_unmarked(chain: Chain) -> None:
    mail = offer(4)
    send(chain.postfix.front, mail, "bob@example.test")
    arrived = message_from_bytes(chain.delivered("offer 4"))
    assert arrived["X-Spamfilter-Id"]
    assert arrived["X-Spam-Status"] is None
