"""kill -9 and SIGTERM in the middle of writing: a learning, a batch of journal or training, a migration, a Maildir."""

import contextlib
import itertools
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.config.settings import Settings
from spamfilter.errors import TryAgain
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from spamfilter.stores.migration import migrate
from spamfilter.stores.schema import HEAD
from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.databases import await_rest
from tests.faults.hop import Hop, MaildirHop
from tests.support.real import require


@pytest.fixture(scope="module")
def one_relay(one_hop: Hop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A relay that is one process, of which a tracer sees all."""
    with daemon(tmp_path_factory.mktemp("relay"), one_hop, relay={"workers": 1}) as server:
        yield server


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


TRAINED = 130
"""Mails of a training."""
RELAYED = "journal WHERE reply LIKE '250%'"
"""Not what a relay that is stopping puts off, which is in the journal, too."""
STRIKES = [
    pytest.param("pwrite64", 1, signal.SIGKILL, id="kill -9 at the first page"),
    pytest.param("pwrite64", 4, signal.SIGKILL, id="kill -9 amid the pages"),
    pytest.param("fdatasync", 1, signal.SIGKILL, id="kill -9 before the sync"),
    pytest.param("pwrite64", 4, signal.SIGTERM, id="SIGTERM amid the pages"),
]


@pytest.mark.parametrize(
    ("call", "when", "number"),
    [*STRIKES, pytest.param("pwrite64", 14, signal.SIGKILL, id="kill -9 at the last pages")],
)
def test_a_signal_during_a_learn_leaves_no_half_of_it(
    hop: Hop, relay: Daemon, account: Account, call: str, when: int, number: signal.Signals
) -> None:
    await_rest(relay)  # or the strike would be at one of its own writes, before the mark has come
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
    # What is written from here on is a batch.
    assert account.send(relay.port).code == 250
    await_rest(relay)
    before = count(relay.database, RELAYED)
    with struck(relay, call, when, number):
        # Until the strike; a batch is written twice a second.
        codes = list(
            itertools.takewhile(lambda code: code == 250, (account.send(relay.port).code for _ in range(5000)))
        )
        account.doubt_last()
    assert relay.ended() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert relay.problems() == []
    written = count(relay.database, RELAYED) - before
    if number == signal.SIGTERM:
        assert written == len(codes)
    else:
        # A batch may hold a message whose 250 was still on its way to the client.
        assert written <= len(codes) + 1
    relay.start()
    account.finish(relay.port)


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


@pytest.mark.parametrize(("call", "when"), [("pwrite64", 20), ("fdatasync", 2)])
def test_kill_9_during_a_training_loses_no_batch_that_was_done(
    hop: Hop, relay: Daemon, account: Account, tmp_path: Path, call: str, when: int
) -> None:
    """Beside a relay, whose mail goes on; the next training goes on where the killed one was."""
    before = learnt(relay)
    for label in ("ham", "spam"):
        (tmp_path / label).mkdir()
        for number in range(TRAINED // 2):
            mail = mail_of(f"{label}-{number}-{tmp_path.name}", f"{label} {number} {tmp_path.name}")
            (tmp_path / label / f"{number}.eml").write_bytes(mail)
    arguments = ["train", "--ham", str(tmp_path / "ham"), "--spam", str(tmp_path / "spam")]
    killed = subprocess.run(
        [
            *(require("strace", "strace"), *_inject(call, when, signal.SIGKILL)),
            *(sys.executable, "-m", "spamfilter", *arguments),
        ],
        env=relay.environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert account.send(relay.port).code == 250
    assert relay.problems() == []
    again = relay.command(*arguments)
    assert again.returncode == 0, again.stderr
    assert learnt(relay) - before == TRAINED
    assert relay.problems() == []
    account.settle()


def learnt(relay: Daemon) -> int:
    """How many messages the database says are learnt."""
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        return sum(Filter(store, Settings().voices()).learnt.values())


@pytest.mark.parametrize(("call", "taken"), [("fsync", False), ("rename", False), ("fsync", True)])
def test_kill_9_while_a_maildir_is_written_leaves_no_half_mail(tmp_path: Path, call: str, taken: bool) -> None:
    """The file is synced, then named, then its folder is synced: before that nobody hears 250."""
    require("strace", "strace")  # before anything runs
    maildir = tmp_path / "mail"
    account = Account(MaildirHop(maildir))
    relay = Daemon(tmp_path / "relay", f"maildir:{maildir}", relay={"workers": 1})
    relay.start()
    with struck(relay, call, 2 if taken else 1, signal.SIGKILL):
        assert account.send(relay.port, doubtful=taken).code is None
    assert relay.ended() == -signal.SIGKILL
    with relay.run():
        account.finish(relay.port)
    (name,) = account.answers
    ends = mail_of(name).partition(b"\r\n\r\n")[2]
    assert all(kept.mail.endswith(ends) for kept in account.hop.kept)
