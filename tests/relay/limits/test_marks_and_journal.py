"""Marks, connections of users and waiting journal entries beyond their limits."""

import contextlib
import re
import signal
import smtplib
import sqlite3
from pathlib import Path

import pytest

from spamfilter.errors import Refused
from spamfilter.learning.automatic_rules import MOST_WAITING
from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.hop import next_hop
from tests.integration.servers import wait_until, workshop
from tests.relay.limits.scraping import Scraper, assert_hit
from tests.support.real import require_root
from tests.support.users import connected_as

BACKLOG = 5


def test_the_backlog_of_the_journal(tmp_path: Path) -> None:
    scraper = Scraper()
    limits = {"journal_backlog": BACKLOG}
    with next_hop() as hop, daemon(tmp_path, hop, limits=limits, metrics=scraper.settings) as relay:
        account = Account(hop)
        assert account.send(relay.port).code == 250
        wait_until(lambda: scraper.value("journal_written_total") == 1, "the journal")
        with contextlib.closing(sqlite3.connect(relay.database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(3 * BACKLOG):
                assert account.send(relay.port).code == 250  # mail does not wait for it
            wait_until(lambda: scraper.value("faults_total", "journal") > 0, "a failure to write")
            assert_hit(relay, scraper, "journal_backlog")
            assert scraper.value("journal_waiting") <= BACKLOG
            other.execute("ROLLBACK")
        wait_until(lambda: scraper.value("journal_waiting") == 0, "the journal")
        account.settle()
        dropped = scraper.value("journal_dropped_total")
        assert dropped >= 3 * BACKLOG - 2 * BACKLOG
        assert scraper.hits("journal_backlog") == dropped
        wait_until(lambda: scraper.value("journal_written_total") + dropped == 1 + 3 * BACKLOG, "all to be counted")
        wait_until(lambda: sum(told(relay)) == dropped, "the sum in the log")
        assert relay.ask({"command": "status"})["limits_hit"]["journal_backlog"] == dropped


def told(relay: Daemon) -> list[int]:
    """How many entries were dropped, as each worker says once it writes again."""
    return [int(number) for number in re.findall(r"written again; (\d+) entries were dropped", relay.log())]


def mark(relay: Daemon, name: str, by: str) -> bool:
    mail = mail_of(name)
    request: dict[str, object] = {"command": "mark", "label": "spam", "by": by, "size": len(mail)}
    return bool(relay.ask(request, mail)["changed"])


def test_marks_a_day_and_the_limits_that_change_at_sighup(tmp_path: Path) -> None:
    scraper = Scraper()
    share = {"marks_a_day": 2}
    with next_hop() as hop, daemon(tmp_path, hop, metrics=scraper.settings, feedback=share) as relay:
        assert [mark(relay, name, "ann@example.org") for name in ("one", "two")] == [True, True]
        with pytest.raises(Refused, match="2 marks in 24 hours"):
            mark(relay, "three", "ann@example.org")
        assert_hit(relay, scraper, "marks_a_day")
        relay.config.write_text(relay.config.read_text().replace("marks_a_day = 2", "marks_a_day = 3"))
        relay.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in relay.log(), "the new limits")
        assert mark(relay, "three", "ann@example.org")


def test_mail_that_waits_for_a_rule(tmp_path: Path) -> None:
    """The mail passes, and the administrator sees that it was not learnt."""
    scraper = Scraper()
    rule = {"automatic": ["trap"], "traps": ["trap@example.test"]}
    with next_hop() as hop, daemon(tmp_path, hop, metrics=scraper.settings, feedback=rule) as relay:
        with contextlib.closing(sqlite3.connect(relay.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with smtplib.SMTP("127.0.0.1", relay.port, "client.test", timeout=60) as client:
                for number in range(MOST_WAITING + 10):  # one is being learnt, or some if the lock lasts
                    client.sendmail("a@example.org", ["trap@example.test"], mail_of(f"mail{number}"))
            assert_hit(relay, scraper, "automatic")
            other.execute("ROLLBACK")
        assert re.search(
            r"limit automatic: 1000 mails wait for \[feedback\] automatic; \w{26} is not learnt", relay.log()
        )
        assert relay.ask({"command": "status"})["limits_hit"]["automatic"] >= 1


def test_connections_of_one_user_to_the_feedback_socket() -> None:
    require_root("to connect as others")
    scraper = Scraper()
    with workshop() as folder, next_hop() as hop, daemon(folder, hop, metrics=scraper.settings) as relay:
        relay.state.chmod(0o711)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(one) for one in connected_as(41_000, relay.state / "feedback.sock", 12)]
            for client in clients:
                client.settimeout(30)
                with contextlib.suppress(BrokenPipeError):  # a rejected client hears it before it has sent everything
                    client.sendall(b'{"command": "x"}\n')
            said = [client.recv(1000) for client in clients]
        assert sum(b"too many connections" in answer for answer in said) == 2
        assert_hit(relay, scraper, "feedback_connections_per_user")
        assert scraper.hits("feedback_connections_per_user") == 2
