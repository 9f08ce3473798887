"""Marks by mail, as docs/postfix.md connects them: users submit through a real Postfix, a real relay learns."""

import json
import smtplib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from typing import Any

import pytest

from spamfilter.system.packaged_files import shipped
from tests.integration.servers import Postfix, Relay, Sink, free_port, postfix, relay, sink, wait_until, workshop
from tests.support.users import NOBODY, connected_as

USER = "alice@example.test"


@dataclass(frozen=True)
class Chain:
    """Users -> Postfix -> the relay's socket for authenticated senders -> back Postfix -> sink."""

    postfix: Postfix
    relay: Relay
    sink: Sink

    def delivered(self, subject: str) -> bytes:
        """The mail of this subject as it reached the sink."""

        def there() -> bool:
            return any(mail.values("Subject") == [subject] for mail in self.sink.received)

        wait_until(there, f"a mail {subject!r}")
        return next(mail.mail for mail in self.sink.received if mail.values("Subject") == [subject])

    def authors(self) -> set[str]:
        """Whose marks the ledger has."""
        with closing(sqlite3.connect(self.relay.state / "spamfilter.db")) as database:
            return {str(by) for (by,) in database.execute("SELECT by FROM ledger WHERE source = 'address'")}

    def judged(self, mail: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.relay.command("judge", "--json", input=mail.decode()).stdout)
        return found


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with workshop() as folder, sink() as end:
        back = free_port()
        feedback = {"spam_addresses": ["spam@example.test"], "ham_addresses": ["ham@example.test"], "answer": True}
        path = folder / "relay" / "submission.sock"
        settings = {"next_hop": f"smtp://127.0.0.1:{back}", "submission": [f"unix:{path}", "127.0.0.1:0"]}
        with relay(folder / "relay", relay=settings, feedback=feedback) as filter:
            wait_until(lambda: len(filter.ports) == 2 and f"listening on unix:{path}" in filter.log(), "all sockets")
            with postfix(folder / "postfix", to=end.port, back=back, proxy=path, front_checks_users=False) as server:
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
    assert "-o smtpd_proxy_filter=unix:/run/spamfilter/submission.sock" in sample


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
    assert chain.authors() == {USER}
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


def test_no_other_process_marks_in_the_name_of_a_user(chain: Chain) -> None:
    """On the socket it hears 554; on a port, whatever it claims, its marks are those of this machine."""
    (client,) = connected_as(NOBODY, chain.relay.folder / "submission.sock")
    with client, client.makefile("rb") as lines:
        assert lines.readline().startswith(b"554 5.7.1 ")
        assert lines.readline() == b""
    send(chain.relay.ports[1], forwarded(offer(5).as_bytes()), "spam@example.test")
    assert chain.authors() - {USER} == {"mail from localhost"}  # the user may have marked before


def test_doctor_hears_the_socket_greet(chain: Chain) -> None:
    found = chain.relay.command("doctor", "--json").stdout
    assert f"unix:{chain.relay.folder / 'submission.sock'} greets with 220 " in found
