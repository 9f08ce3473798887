"""The report as a mail through a real next hop, past the relay that it is about."""

import email
import email.policy
import json
from email.message import EmailMessage
from pathlib import Path

from tests.faults.account import Account
from tests.faults.daemon import Daemon, daemon
from tests.faults.databases import await_journal
from tests.faults.fault import Say
from tests.faults.hop import Hop, next_hop

ADMIN, OTHER = "admin@example.org", "postmaster@example.org"


def sent(relay: Daemon, hop: Hop, *arguments: str) -> EmailMessage:
    """Send a report; the mail that each of its recipients has."""
    before = len(hop.kept)
    done = relay.command("stats", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    mail, *others = hop.kept[before:]
    found = email.message_from_bytes(mail.mail, policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    assert mail.sender == "spamfilter@relay.test"
    assert {other.mail for other in others} <= {mail.mail}
    assert ", ".join(each for mail in hop.kept[before:] for each in mail.recipients) == found["To"]
    return found


def test_a_report_goes_to_the_next_hop_and_into_no_journal(tmp_path: Path) -> None:
    settings = {"mail_to": [ADMIN]}
    with next_hop() as hop, daemon(tmp_path, hop, report=settings) as relay:
        account = Account(hop)
        for _ in range(3):
            assert account.send(relay.port).code == 250
        await_journal(relay)
        mail = sent(relay, hop, "--mail-to", ADMIN, "--mail-to", OTHER)
        assert mail["To"] == f"{ADMIN}, {OTHER}"
        assert mail["Auto-Submitted"] == "auto-generated"
        assert "relay.test" in mail["Subject"]
        plain, page = mail.get_body(("plain",)), mail.get_body(("html",))
        assert plain is not None
        assert page is not None
        assert "Mail        3 messages" in plain.get_content()
        assert "<b>3</b> messages" in page.get_content()
        assert sent(relay, hop, "--mail", "--since", "24h")["To"] == ADMIN
        assert json.loads(relay.command("stats", "--json").stdout)["messages"] == 3
        account.settle()


def test_a_report_that_is_not_taken_says_so_and_may_be_tried_again(tmp_path: Path) -> None:
    with next_hop() as hop, daemon(tmp_path, hop) as relay:
        for stage, code, exit_code in (("RCPT", 550, 1), ("DOT", 451, 75)):
            hop.faults = {stage: Say(f"{code} not this one\r\n".encode())}
            done = relay.command("stats", "--mail-to", ADMIN)
            assert done.returncode == exit_code
            assert f"says {code} not this one" in done.stderr
            assert "Traceback" not in done.stderr
        hop.heal()
        assert hop.kept == []
        for wrong in ("admin", "a b@example.org", "a@example.org>", "a@example.org\r\nDATA"):
            done = relay.command("stats", "--mail-to", wrong)
            assert (done.returncode, "not an address" in done.stderr) == (2, True)
        done = relay.command("stats", "--mail-to", ADMIN, "--json")
        assert (done.returncode, "leave --format and --json out" in done.stderr) == (2, True)
        assert hop.kept == []


def test_one_recipient_whom_the_next_hop_rejects_takes_it_from_nobody_else(tmp_path: Path) -> None:
    with next_hop() as hop, daemon(tmp_path, hop) as relay:
        for code in (550, 451):
            hop.faults = {f"RCPT TO:<{ADMIN}>": Say(f"{code} not this one\r\n".encode())}
            done = relay.command("stats", "--mail-to", ADMIN, "--mail-to", OTHER)
            assert (done.returncode, done.stdout) == (1, f"sent to {OTHER}\n")
            assert f"{ADMIN}: the report was not sent: " in done.stderr
            assert f"says {code} not this one" in done.stderr
            assert [mail.recipients for mail in hop.kept] == [(OTHER,)]
            hop.kept.clear()


def test_without_anybody_to_mail_to_it_is_printed(tmp_path: Path) -> None:
    with next_hop() as hop, daemon(tmp_path, hop) as relay:
        assert relay.command("stats", "--mail").stdout.startswith("spamfilter report, ")
        page = relay.command("stats", "--format", "html").stdout
        assert page.startswith("<!doctype html>")
        assert hop.kept == []
