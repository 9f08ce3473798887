"""docs/milter.md word for word with a real Postfix: each action, the relay away, no mail lost or doubled."""

import re
import signal
import smtplib
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from functools import partial
from pathlib import Path

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

PAGE = (Path(__file__).parents[2] / "docs" / "milter.md").read_text(encoding="utf-8")
MAILS, SESSIONS = 500, 20
TEACHES = "spam@bulk.test"
STRANGER = ("127.0.0.2", 0)


@dataclass
class Chain:
    """Client -> Postfix, which asks the relay -> sink."""

    postfix: Postfix
    relay: Relay
    sink: Sink
    settings: dict[str, dict[str, object]]

    def change(self, **verdict: object) -> None:
        """Change [verdict] of the running relay."""
        self.relay.configure(self.settings | {"verdict": verdict})

    def arrived(self, subject: str) -> list[bytes]:
        wait_until(lambda: self.postfix.queued() == 0, "an empty queue")
        return [mail.mail for mail in self.sink.received if mail.values("Subject") == [subject]]

    def journal(self, subject: str) -> list[tuple[str, str, str]]:
        """Action, client and reply."""

        def rows() -> list[tuple[str, str, str]]:
            with closing(sqlite3.connect(self.relay.state / "spamfilter.db")) as database:
                query = "SELECT action, client, reply FROM journal WHERE subject = ?"
                return database.execute(query, (subject,)).fetchall()

        wait_until(lambda: bool(rows()), f"the journal's entry of {subject!r}")
        return rows()

    def has_entries(self, subject: str, number: int) -> bool:
        return len(self.journal(subject)) == number


def settings_of_the_page(milter: str, back: int) -> dict[str, object]:
    """[relay] as the page has it, its ports exchanged."""
    text = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL).group(1)  # type: ignore[union-attr]
    text = text.replace("127.0.0.1:10027", milter).replace(":10026", f":{back}")
    found: dict[str, object] = tomllib.loads(text)["relay"]
    return found


@contextmanager
def connected(
    folder: Path, milter: int | Path, workers: int, trusted: str = "127.0.0.0/8", feedback: str = ""
) -> Iterator[Chain]:
    """feedback: the address for marks as spam."""
    back = free_port()
    address = f"unix:{milter}" if isinstance(milter, Path) else f"127.0.0.1:{milter}"
    own = settings_of_the_page(address, back) | {"workers": workers, "listen": ["127.0.0.1:0"]}
    own["trusted"] = [trusted]
    marks: dict[str, object] = {"spam_addresses": [feedback] if feedback else []}
    with (
        sink() as end,
        relay(folder / "relay", relay=own, verdict={"reject_after": 0}, feedback=marks) as filter,
        postfix(folder / "postfix", to=end.port, back=back, milter=milter) as server,
    ):
        assert f"listening on {address} for milter" in filter.log()
        yield Chain(server, filter, end, {"relay": own, "feedback": marks})


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with workshop() as folder, connected(folder, free_port(), workers=2) as made:
        yield made


def send(port: int, subject: str, *more: tuple[str, str], recipients: tuple[str, ...] = ("alice@example.test",)) -> str:
    """Send a mail; its reply."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "sender@example.org", ", ".join(recipients), subject
    for name, value in more:
        mail[name] = value
    mail.set_content("Good day,\n\nthe minutes are attached.\n")
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60, source_address=STRANGER) as client:
        client.ehlo()
        for reply in (client.mail("sender@example.org"), *map(client.rcpt, recipients)):
            if reply[0] != 250:
                return f"{reply[0]} {reply[1].decode()}"
        code, text = client.data(mail.as_bytes(policy=SMTP))
        return f"{code} {text.decode()}"


def test_doctor_and_check_config_name_the_milter(chain: Chain) -> None:
    (address,) = re.findall(r"listening on (\S+) for milter", chain.relay.log())
    checked = chain.relay.command("check-config").stdout
    assert f"{address} (milter)" in checked
    assert f"{address} speaks milter, version 6" in chain.relay.command("doctor", "--no-canary").stdout


def test_without_a_next_hop_mail_by_milter_goes_on_and_doctor_says_so(tmp_path: Path) -> None:
    gone, port = free_port(), free_port()
    wanted = {"milter": [f"127.0.0.1:{port}"], "next_hop": f"smtp://127.0.0.1:{gone}", "trusted": ["192.0.2.1/32"]}
    with relay(tmp_path / "relay", relay=wanted) as running:
        wait_until(lambda: "the next hop does not answer" in running.log(), "the look at the next hop")
        assert "until it does, mail by milter goes on; other clients hear 451" in running.log()
        said = running.command("doctor", "--no-canary").stdout
        assert "until then mail by milter goes on" in said
        assert f"127.0.0.1:{port} is open, and was not tried: this host is not in" in re.sub(r"\s+", " ", said)


def test_postfix_accepts_the_sample_without_a_warning() -> None:
    require("postfix", "postfix")
    require_root("`postfix check` looks at owners")
    assert re.findall(r"sample-config (config/postfix/\S+)", PAGE) == [
        f"config/postfix/milter/{name}.cf.fragment" for name in ("main", "master")
    ]
    with workshop() as folder:
        server = configure_postfix(
            folder / "postfix", proxy=None, content_filter=None, milter=10027, back=10026, to=10028,
            front_checks_users=True,
        )  # fmt: skip
        for program, *arguments in (("postfix", "check"), ("postconf", "-n"), ("postconf", "-M"), ("postconf", "-P")):
            done = server.run(program, *arguments)
            assert (done.returncode, done.stderr) == (0, ""), arguments
        assert "smtpd_milters = inet:127.0.0.1:10027\n" in server.run("postconf", "-n").stdout


def test_mail_passes_marked_and_forged_fields_are_gone(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="tag", subject_prefix="[SPAM]")
    forged = [("X-Spam-Flag", "NO"), ("x-spam-status", "No, score=0.000 " + "and so on " * 20), ("X-Spam-Flag", "NO")]
    reply = send(chain.postfix.front, "marked", *forged)
    assert reply.startswith("250 2.0.0 Ok: queued as ")
    (mail,) = chain.arrived("[SPAM] marked")
    head = mail.partition(b"\r\n\r\n")[0]
    assert head.lower().count(b"x-spam-flag") == 0
    assert head.lower().count(b"x-spam-status") == head.count(b"X-Spamfilter-Id: ") == 1
    assert head.index(b"X-Spam-Status: No, score=0.500 class=unsure") < head.index(b"X-Spamfilter-Id")
    assert mail.endswith(b"Good day,\r\n\r\nthe minutes are attached.\r\n")
    queue_id = reply.rpartition(" ")[2]
    assert chain.journal("marked") == [
        ("tag", "127.0.0.2", f"250 2.0.0 Ok: goes on in the mail server, queue id {queue_id}")
    ]


@pytest.mark.parametrize(
    "forged", [b"X-Spam-Status : No", b"X-Spam-Status\t: No", b"X-SPAM-Status:No\r\n\tmore\r\nX-Spam-Status : No"]
)
def test_forged_fields_in_odd_spellings_are_gone(chain: Chain, forged: bytes) -> None:
    chain.change(reject_after=0)
    subject = f"odd {len(forged)} {forged.count(9)}"
    with smtplib.SMTP("127.0.0.1", chain.postfix.front, "client.test", timeout=60) as client:
        text = b"%b\r\nSubject: %b\r\n%b\r\n\r\nhello\r\n" % (forged, subject.encode(), forged)
        client.sendmail("sender@example.org", ["alice@example.test"], text)
    (mail,) = chain.arrived(subject)
    assert mail.lower().count(b"x-spam-status") == 1
    assert b"score=0.500" in mail


def test_rejected_and_deferred_mail_stays_with_its_client(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="reject")
    reply = send(chain.postfix.front, "rejected")
    assert reply.startswith("550 5.7.1 Refused as spam; if it is not, tell the postmaster this id: ")
    assert chain.journal("rejected") == [("reject", "127.0.0.2", reply)]
    chain.change(reject_after=0, on_unsure="defer")
    assert send(chain.postfix.front, "deferred").startswith("451 4.7.1 Deferred; try again later")
    assert chain.arrived("rejected") == chain.arrived("deferred") == []


def test_quarantined_mail_is_kept_by_the_relay_and_delivered_when_it_is_released(chain: Chain) -> None:
    chain.change(reject_after=0, on_unsure="quarantine")
    assert send(chain.postfix.front, "kept", recipients=("alice@example.test", "bob@example.test")).startswith("250")
    wait_until(lambda: "milter-discard" in chain.postfix.log(), "the word of the process that writes the log")
    assert chain.arrived("kept") == []
    (id,) = re.findall(r"(\S+): client=.* action=quarantine ", chain.relay.log())
    assert id in chain.relay.command("quarantine", "list").stdout
    done = chain.relay.command("quarantine", "release", id)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: bool(chain.arrived("kept")), "the released mail")
    (mail,) = chain.arrived("kept")
    assert b"X-Spam-Status: No, released from quarantine" in mail
    assert id not in chain.relay.command("quarantine", "list").stdout


def test_of_many_mails_none_is_lost_and_none_doubled(chain: Chain) -> None:
    chain.change(reject_after=0)
    earlier = len(chain.sink.received)
    smtp_source(chain.postfix.front, MAILS, sessions=SESSIONS, length=2000, recipient="bulk@bulk.test", numbered=True)
    chain.sink.wait(earlier + MAILS, 120)
    wait_until(lambda: chain.postfix.queued() == 0, "an empty queue")
    mails = chain.sink.received[earlier:]
    recipients = Counter(recipient for mail in mails for recipient in mail.recipients)
    assert len(mails) == len(recipients) == MAILS
    assert len({mail.values("X-Spamfilter-Id")[0] for mail in mails}) == MAILS
    assert "warning: milter" not in chain.postfix.log()


def mark(port: int, sender: str) -> str:
    """Forward a mail to the address for spam; the reply."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, TEACHES, "look at this"
    mail.set_content("attached")
    attached = EmailMessage()
    attached["From"], attached["Subject"] = "shop@example.org", "pills"
    attached.set_content("Cheap pills without a prescription.\n")
    mail.add_attachment(attached)
    with smtplib.SMTP("127.0.0.1", port, "client.test", timeout=60, source_address=STRANGER) as client:
        client.ehlo()
        client.mail(sender)
        code, text = client.rcpt(TEACHES)
        if code == 250:
            code, text = client.data(mail.as_bytes(policy=SMTP))
        return f"{code} {text.decode()}"


def test_marks_by_mail_are_those_of_the_login_that_postfix_has_authenticated() -> None:
    """Postfix is told a default for the macro that names the login, as if each sender had logged in."""
    with workshop() as folder:
        path = folder / "milter.sock"
        with connected(folder, path, workers=1, trusted="127.0.0.1/32", feedback=TEACHES) as made:
            assert mark(made.postfix.front, "ann@example.test").startswith(
                "550 5.7.1 This address is for our own users"
            )
            made.postfix.run("postconf", "-e", "milter_macro_defaults=auth_authen=ann")
            made.postfix.run("postfix", "reload")
            wait_until(lambda: mark(made.postfix.front, "ann@example.test").startswith("250"), "a reloaded server")
            with closing(sqlite3.connect(made.relay.state / "spamfilter.db")) as database:
                assert database.execute("SELECT by FROM ledger").fetchall() == [("ann",)]
            made.change(on_unsure="reject", reject_after=0)
            assert send(made.postfix.front, "of our own").startswith("250")
            (passed,) = made.arrived("of our own")
            assert b"X-Spamfilter-Id: " in passed
            assert b"X-Spam-Status" not in passed
            assert made.arrived("look at this") == []


def test_by_a_socket_with_another_milter_before_it_and_while_the_relay_is_away() -> None:
    with workshop() as folder:
        path = folder / "milter.sock"
        with connected(folder, path, workers=1) as made:
            assert send(made.postfix.front, "by a socket").startswith("250")
            (mail,) = made.arrived("by a socket")
            assert b"X-Spam-Status: " in mail
            made.postfix.run("postconf", "-e", f"smtpd_milters=unix:{path}, unix:{path}")
            made.postfix.run("postfix", "reload")
            for number in range(10):  # a server from before the reload asks once
                subject = f"asked twice {number}"
                assert send(made.postfix.front, subject).startswith("250")
                with suppress(TimeoutError):
                    wait_until(partial(made.has_entries, subject, 2), "an entry of each", 3)
                    break
            assert made.has_entries(subject, 2)
            (mail,) = made.arrived(subject)
            assert mail.count(b"X-Spamfilter-Id: ") == 1  # the second has seen what the first has added
            made.relay.process.send_signal(signal.SIGSTOP)
            try:
                path.rename(folder / "elsewhere")
                assert send(made.postfix.front, "away").startswith("451 4.7.1")
                assert made.postfix.queued() == 0
                assert "milter_default_action = tempfail\n" in made.postfix.run("postconf", "-n").stdout
                made.postfix.run("postconf", "-e", f"smtpd_milters={{ unix:{path}, default_action=accept }}")
                made.postfix.run("postfix", "reload")
                wait_until(lambda: send(made.postfix.front, "accepted").startswith("250"), "an open door")
                assert any(b"X-Spam-Status" not in mail for mail in made.arrived("accepted"))
            finally:
                made.relay.process.send_signal(signal.SIGCONT)
