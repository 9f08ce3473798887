"""kill -9 and SIGTERM at every phase of a message, of a learning, of a batch of the journal, of a migration."""

import contextlib
import itertools
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.config import Settings
from spamfilter.errors import TryAgain
from spamfilter.filter import Filter
from spamfilter.message import parse
from spamfilter.stores import open_store
from spamfilter.stores.migrating import migrate
from spamfilter.stores.schema import HEAD
from tests.faults.account import Account
from tests.faults.client import Answer, Client, deliver, mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Hold
from tests.faults.hop import Hop
from tests.integration.servers import wait_until
from tests.real import require

BEFORE_THE_DOT = {"MAIL": "before MAIL", "DATA": "after RCPT", "BODY": "after DATA", "MIDDLE": "in the mail"}
"""Stages of `deliver`, and what they are called here."""
SIGNALS = [signal.SIGKILL, signal.SIGTERM]


def await_draining(server: Daemon) -> None:
    wait_until(lambda: "stopping: running transactions finish" in server.log(), "the end to begin")


@pytest.mark.parametrize("stage", BEFORE_THE_DOT, ids=BEFORE_THE_DOT.values())
def test_kill_9_before_the_dot_leaves_the_message_with_the_client(
    hop: Hop, relay: Daemon, account: Account, stage: str
) -> None:
    name = account.name()

    def kill(now: str) -> None:
        if now == stage:
            relay.kill()

    with Client(relay.port) as client:
        answer = deliver(client, mail_of(name), before=kill)
    assert account.note(name, answer).code is None
    relay.start()
    account.finish(relay.port)


@pytest.mark.parametrize("stage", BEFORE_THE_DOT, ids=BEFORE_THE_DOT.values())
def test_sigterm_lets_a_transaction_finish_and_turns_a_new_one_away(
    hop: Hop, relay: Daemon, account: Account, stage: str
) -> None:
    name = account.name()

    def terminate(now: str) -> None:
        if now == stage:
            relay.process.send_signal(signal.SIGTERM)
            await_draining(relay)

    with Client(relay.port) as client:
        answer = account.note(name, deliver(client, mail_of(name), before=terminate))
        assert answer.code == (421 if stage == "MAIL" else 250)
        if answer.code == 250:
            assert client.reply().code == 421
    assert relay.ended() == 0
    relay.start()
    account.finish(relay.port)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("said", [False, True], ids=["while the next hop thinks", "between its 250 and ours"])
def test_a_signal_after_the_dot(hop: Hop, relay: Daemon, account: Account, number: signal.Signals, said: bool) -> None:
    hop.faults["DOT"] = hold = Hold()
    killed = number == signal.SIGKILL
    name = account.name(doubtful=killed)
    with Client(relay.port) as client:

        def meanwhile(now: str) -> None:
            if now != "ANSWER":
                return
            assert hold.reached.wait(20)
            relay.process.send_signal(signal.SIGSTOP)  # what the next hop says cannot be passed on
            if said:
                hold.release.set()
                wait_until(lambda: bool(hop.copies(name)), "the next hop to take the message")
            relay.process.send_signal(number)
            relay.process.send_signal(signal.SIGCONT)
            if killed:
                relay.ended()
            else:
                await_draining(relay)
            hold.release.set()

        answer = account.note(name, deliver(client, mail_of(name), before=meanwhile))
    assert answer.code == (None if killed else 250)
    assert relay.ended() == (-signal.SIGKILL if killed else 0)
    wait_until(lambda: bool(hop.copies(name)), "the next hop to take the message")
    hop.heal()
    relay.start()
    account.finish(relay.port)


def test_a_next_hop_that_thinks_longer_than_the_drain_time_does_not_keep_the_relay_from_ending(
    hop: Hop, tmp_path: Path, account: Account
) -> None:
    hop.faults["DOT"] = hold = Hold()
    limits = {"drain_seconds": 0.5, "final_seconds": 20.0}
    with daemon(tmp_path / "relay", hop, limits=limits) as relay:
        name = account.name(doubtful=True)
        with Client(relay.port) as client:

            def terminate(now: str) -> None:
                if now == "ANSWER":
                    assert hold.reached.wait(20)
                    relay.process.send_signal(signal.SIGTERM)

            answer = account.note(name, deliver(client, mail_of(name), before=terminate))
        assert answer.code in (None, 421, 451)
        assert relay.ended() == 0
        assert "Traceback" not in relay.log()
        hop.heal()
        relay.start()
        account.finish(relay.port)


# In the middle of writing


@contextlib.contextmanager
def struck(relay: Daemon, call: str, when: int, number: signal.Signals) -> Iterator[None]:
    """Send a signal to a running relay at the nth such system call of one of its threads."""
    command = [require("strace", "strace"), *_inject(call, when, number), "-p", str(relay.process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        try:
            yield
        finally:
            tracer.kill()  # it would wait for ever for a leader of threads that is dead


def _inject(call: str, when: int, number: signal.Signals) -> list[str]:
    return ["-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal={number.name}:when={when}"]


STRIKES = [
    pytest.param("pwrite64", 1, signal.SIGKILL, id="kill -9 at the first page"),
    pytest.param("pwrite64", 4, signal.SIGKILL, id="kill -9 amid the pages"),
    pytest.param("fdatasync", 1, signal.SIGKILL, id="kill -9 before the sync"),
    pytest.param("pwrite64", 4, signal.SIGTERM, id="SIGTERM amid the pages"),
]


@pytest.mark.parametrize(("call", "when", "number"), STRIKES)
def test_a_signal_during_a_learn_leaves_no_half_of_it(
    hop: Hop, relay: Daemon, account: Account, call: str, when: int, number: signal.Signals
) -> None:
    before = learnings(relay.database)
    mail = mail_of(account_name := f"learn-{call}-{when}-{number.name}", "words " + account_name)
    answer = None
    with struck(relay, call, when, number), contextlib.suppress(TryAgain):
        answer = relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail)
    assert relay.ended() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert relay.problems() == []
    learnt = learnings(relay.database) - before
    assert learnt in ((1,) if answer else (0, 1))
    relay.start()
    again = relay.ask({"command": "mark", "label": "spam", "name": "x"}, mail)
    assert again["changed"] == (learnt == 0)
    assert relay.problems() == []
    assert learnings(relay.database) == before + 1
    assert account.send(relay.port).code == 250
    account.settle()


def learnings(database: Path) -> int:
    return count(database, "ledger WHERE undoes IS NULL")


def count(database: Path, what: str) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


@pytest.mark.parametrize(("call", "when", "number"), STRIKES)
def test_a_signal_during_a_batch_of_the_journal_loses_no_mail(
    hop: Hop, relay: Daemon, account: Account, call: str, when: int, number: signal.Signals
) -> None:
    # The expiry at the start is over: what the thread writes from here on is a batch.
    assert account.send(relay.port).code == 250
    wait_until(lambda: set(relay.ids()) <= journalled(relay.database), "the journal")
    before = count(relay.database, "journal")
    with struck(relay, call, when, number):
        # Until the strike; a batch is written twice a second.
        codes = list(
            itertools.takewhile(lambda code: code == 250, (account.send(relay.port).code for _ in range(5000)))
        )
        account.doubt_last()
    assert relay.ended() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert codes
    assert relay.problems() == []
    written = count(relay.database, "journal") - before
    if number == signal.SIGTERM:
        assert written == len(codes)
    else:
        assert written <= len(codes)
    relay.start()
    account.finish(relay.port)


def journalled(database: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {str(row[0]) for row in connection.execute("SELECT id FROM journal")}


@pytest.mark.parametrize(
    ("call", "when", "number"), [*STRIKES, pytest.param("fdatasync", 3, signal.SIGKILL, id="kill -9 after the sync")]
)
def test_a_signal_during_a_migration_leaves_the_old_schema_or_the_new(
    hop: Hop, tmp_path: Path, account: Account, call: str, when: int, number: signal.Signals
) -> None:
    relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}")
    url = f"sqlite:///{relay.database}"
    with contextlib.closing(open_store(url)) as store:
        filter = Filter(store, Settings().voices())
        filter.learn(filter.read(parse(mail_of("taught", "cheap pills"))), "spam", "cli")
    migrate(url, "0001")
    relay.launch(require("strace", "strace"), *_inject(call, when, number))
    assert relay.ended() == -number
    with contextlib.closing(sqlite3.connect(relay.database)) as connection:
        revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    assert revision in ("0001", HEAD)
    with relay.run():
        assert account.send(relay.port).code == 250
        account.settle()
    assert relay.problems() == []
    assert learnings(relay.database) == 1


def test_nothing_at_all_is_promised_without_a_250(hop: Hop, relay: Daemon, account: Account) -> None:
    """The account itself: it must see a message that is lost, doubled, or there after a refusal."""
    assert account.send(relay.port).code == 250
    name = next(iter(account.answers))
    account.settle()
    hop.kept.append(hop.copies(name)[0])
    with pytest.raises(AssertionError, match=r"heard \[250\], the next hop has 2"):
        account.settle()
    hop.kept[:] = [kept for kept in hop.kept if kept.name != name]
    with pytest.raises(AssertionError, match=r"heard \[250\], the next hop has 0"):
        account.settle()
    account.answers.clear()
    refused = account.name()
    sent = account.send(relay.port, refused)
    account.answers[refused] = [Answer(550, recipients=sent.recipients)]
    with pytest.raises(AssertionError, match=r"heard \[550\], the next hop has 1"):
        account.settle()
