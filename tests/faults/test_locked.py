"""Another process holds the database, for seconds or for a minute: mail goes on, marks wait or are sent away."""

import contextlib
import sqlite3

from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon
from tests.faults.databases import ailing, await_journal, locked
from tests.faults.hop import Hop
from tests.integration.servers import wait_until

MINUTE = 60.0


def test_a_database_that_is_locked_for_seconds(hop: Hop, relay: Daemon, account: Account) -> None:
    with locked(relay.database, 2.5):
        assert [account.send(relay.port).code for _ in range(5)] == [250] * 5
        # A mark waits for it.
        answer = relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail_of("locked", "cheap pills"))
        assert answer["changed"]
    account.settle()
    await_journal(relay)
    assert relay.problems() == []


def test_a_database_that_is_locked_at_the_start(hop: Hop, relay: Daemon, account: Account) -> None:
    relay.stop()
    with locked(relay.database, 1.5):
        relay.start()
        assert account.send(relay.port).code == 250
    account.settle()


def test_a_database_that_is_locked_for_a_minute(hop: Hop, relay: Daemon, account: Account) -> None:
    """Six times as long as anybody waits for it. Mail passes; a mark is told to come again, as is a command."""
    before, mark = relay.learnt(), mail_of("patience", "cheap pills").decode()
    with locked(relay.database, MINUTE, throughout=True):
        assert [account.send(relay.port).code for _ in range(20)] == [250] * 20
        told = relay.command("mark-spam", input=mark)
        assert told.returncode == 75
        assert told.stderr.endswith("try again\n")
        assert told.stderr.count("\n") == 1
        wait_until(lambda: "entries are held in memory" in relay.log(), "the journal's complaint")
        assert "the last try failed" in ailing(relay)["journal"]
        assert account.send(relay.port).code == 250
        assert written(relay, account) == 0
        assert relay.learnt() == before
    account.send(relay.port)
    await_journal(relay)
    wait_until(lambda: "journal: written again; 0 entries were dropped" in relay.log(), "the all-clear")
    assert written(relay, account) == len(account.answers) == 22
    assert "journal" not in ailing(relay)
    assert relay.command("mark-spam", input=mark).returncode == 0
    wait_until(lambda: relay.learnt() == before + 1, "what was marked again")
    account.settle()
    assert relay.problems() == []


def written(relay: Daemon, account: Account) -> int:
    """How many mails of this account are in the journal."""
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        known = {row[0] for row in connection.execute("SELECT message_id FROM journal")}
    return sum(f"<{name}@example.org>" in known for name in account.answers)
