"""The counts that all processes of a relay share, when the one that writes them is killed amid many learnings."""

import contextlib
import os
import signal
import sqlite3
import threading

import pytest

from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.settings import Settings
from spamfilter.errors import TryAgain
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.service.control_socket.client import NoRelay
from spamfilter.stores import open_store
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.integration.processes import at_each_worker, hop, keeper, kill_one, relay, workers
from tests.integration.servers import wait_until

__all__ = ["hop", "relay"]

KILLS = 4
ASKED = "cheap pills at noon"
BATCH = 25
"""Learnings of a transaction, which the keeper finds together and applies one after the other."""


class Teacher:
    """Another process in effect: learns mails, and forgets every third, straight in the database."""

    def __init__(self, relay: Daemon) -> None:
        self._url = f"sqlite:///{relay.database}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._teach)
        self.learnt = 0

    def __enter__(self) -> "Teacher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _teach(self) -> None:
        with contextlib.closing(open_store(self._url)) as store:
            filter = Filter(store, Settings().voices(), whole=False)
            while not self._stopping.is_set():
                with filter.training() as training:
                    for _ in range(BATCH):
                        number = self.learnt
                        body = " ".join(f"word{number * 31 % 5000 + at}" for at in range(100))
                        each = filter.read(parse(mail_of(f"lesson{number}", body)))
                        training.learn(each, "spam" if number % 2 else "ham", "train")
                        if number % 3 == 0:
                            training.forget(each, "train")
                        self.learnt += 1


def last_of(relay: Daemon) -> int:
    """The last entry of the ledger that the relay judges by; 0 while no keeper answers."""
    with contextlib.suppress(NoRelay, TryAgain, OSError):
        return int(relay.ask({"command": "status"})["last"])
    return 0


def judged(relay: Daemon, client: Client, name: str, body: str) -> float:
    """The log-odds of a mail in the journal."""
    assert client.deliver(mail_of(name, body)).code == 250
    found: list[float] = []

    def is_written() -> bool:
        with contextlib.closing(sqlite3.connect(relay.database)) as database:
            query = "SELECT log_odds FROM journal WHERE message_id = ?"
            found[:] = [row[0] for row in database.execute(query, (f"<{name}@example.org>",))]
        return bool(found)

    wait_until(is_written, "the journal")
    return found[0]


def test_after_kills_amid_learnings_every_worker_judges_by_the_sum_of_the_ledger(relay: Daemon) -> None:
    with Teacher(relay) as teacher:
        for _ in range(KILLS):
            wanted = teacher.learnt + BATCH
            wait_until(lambda wanted=wanted: teacher.learnt >= wanted, "learnings")  # type: ignore[misc]
            wait_until(lambda: last_of(relay) > 0, "a keeper that follows")
            os.kill(killed := keeper(relay), signal.SIGKILL)
            wait_until(lambda killed=killed: keeper(relay) != killed, "the next keeper")  # type: ignore[misc]
        kill_one(relay)  # a new worker has no counts but these
    bodies = [" ".join(f"word{first + at}" for at in range(60)) for first in (0, 31, 2500, 5050)]
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        plain = Filter(store, Settings().voices())
        assert plain.verify() == []
        plain.adopt(plain.rebuilt(plain.last))
        wait_until(lambda: last_of(relay) == plain.last, "the rest of the ledger")
        with at_each_worker(relay) as clients:
            for number, body in enumerate(bodies):
                for each, client in enumerate(clients):
                    name = f"asked{number}-{each}"
                    expected = plain.score(plain.read(parse(mail_of(name, body)))).log_odds
                    assert judged(relay, client, name, body) == pytest.approx(expected, rel=1e-12)
    assert relay.log().count("the keeper, pid") == KILLS
    assert "cannot be judged" not in relay.log()


def test_workers_that_write_no_counts_change_over_after_a_rebuild(relay: Daemon) -> None:
    """Also to the likelihood of another [learn] section."""
    for number in range(6):
        mail = mail_of(f"lesson{number}", "cheap pills" if number % 2 else "lunch at noon")
        relay.ask({"command": "mark", "label": "spam" if number % 2 else "ham", "size": len(mail)}, mail)
    with relay.config.open("a") as file:
        file.write('\n[learn]\nlikelihood = "multinomial"\n')
    before = workers(relay)
    assert relay.command("retrain").returncode == 0
    rounds = 0
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store, at_each_worker(relay) as clients:
        plain = Filter(store, Learn(likelihood="multinomial").chosen())

        def judge_by_it() -> bool:
            nonlocal rounds
            rounds += 1
            mails = [(client, f"asked{rounds}-{each}") for each, client in enumerate(clients)]
            expected = [plain.score(plain.read(parse(mail_of(name, ASKED)))).log_odds for _, name in mails]
            return [judged(relay, *mail, ASKED) for mail in mails] == pytest.approx(expected, rel=1e-12)

        wait_until(judge_by_it, "the new counts in every worker")
    assert workers(relay) == before


def test_a_keeper_that_replaces_another_after_a_rebuild_knows_by_which_settings_it_judges(
    relay: Daemon,
) -> None:
    with Teacher(relay) as teacher:
        wait_until(lambda: teacher.learnt >= 2 * BATCH, "learnings")
    relay.config.write_text(relay.config.read_text() + '[learn]\nlikelihood = "bernoulli"\n')
    assert relay.command("retrain").returncode == 0
    wait_until(lambda: not relay.ask({"command": "status"})["changed"], "the rebuilt counts")
    os.kill(killed := keeper(relay), signal.SIGKILL)
    wait_until(lambda: keeper(relay) != killed, "the next keeper")
    assert relay.ask({"command": "status"})["changed"] == []
