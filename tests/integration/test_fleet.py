"""Two relays on one PostgreSQL: what is marked at one counts at both, exactly once, whatever is killed."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import by_id
from spamfilter.stores import open_store
from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.support import postgresql


@pytest.fixture(scope="module")
def hop() -> Iterator[Hop]:
    with next_hop() as made:
        yield made


@pytest.fixture(scope="module")
def primary() -> Iterator[postgresql.Server]:
    made = postgresql.Server(durable=True)
    yield made
    made.remove()


def relays(folder: Path, hop: Hop, url: str) -> tuple[Daemon, Daemon]:
    """Two hosts: each has its own folders, ports and name, and the database in common."""
    one, other = (
        Daemon(folder / name, f"smtp://127.0.0.1:{hop.port}", store={"url": url}, relay={"hostname": name})
        for name in ("mx1.test", "mx2.test")
    )
    return one, other


def said(relay: Daemon, *arguments: str, input: str | None = None) -> str:
    done = relay.command(*arguments, input=input)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def learnt(relay: Daemon) -> tuple[int, int]:
    status = relay.ask({"command": "status"})["learnt"]
    return status["ham"], status["spam"]


def probe(relay: Daemon, hop: Hop) -> str:
    """The id of a mail that a relay has judged."""
    account = Account(hop)
    assert account.send(relay.port).code == 250
    account.settle()
    wait_until(lambda: len(rows(said(relay, "search", "--json"))) == 1, "the journal")
    return str(rows(said(relay, "search", "--json"))[0]["id"])


def mark(relay: Daemon, name: str, label: str | None) -> None:
    """Mark a mail by the relay, as a user does who tries again until it is heard."""
    mail = mail_of(name, f"cheap pills and watches, number {name}")

    def heard() -> bool:
        with contextlib.suppress(Exception):
            return "changed" in relay.ask({"command": "mark", "label": label, "name": name}, mail)
        return False

    wait_until(heard, f"the mark of {name}")


def agree(id: str, one: Daemon, other: Daemon, counts: tuple[int, int], url: str) -> None:
    """Both judge this mail by the same counts in memory, and those are the sum of the ledger."""
    wait_until(lambda: learnt(one) == learnt(other) == counts, f"both relays to know {counts}")
    with contextlib.closing(open_store(url)) as store:
        filter = Filter(store, Settings().voices())
        assert filter.verify() == []
        assert (filter.learnt["ham"], filter.learnt["spam"]) == counts
        score = filter.score(by_id(filter, id).reading)
        for relay in (one, other):
            answer = relay.ask({"command": "judge", "id": id})
            assert (answer["last"], answer["posterior"]) == (filter.last, score.posterior)


def test_marks_and_mail_of_two_hosts(tmp_path: Path, hop: Hop, primary: postgresql.Server) -> None:
    account = Account(hop)
    with primary.database() as url:
        one, other = relays(tmp_path, hop, url)
        with one.run(), other.run():
            for _ in range(3):
                assert account.send(one.port).code == 250
            assert account.send(other.port).code == 250
            wait_until(lambda: len(rows(said(one, "search", "--json"))) == 4, "the journal of both")
            found = rows(said(other, "search", "--host", "mx1.test", "--json"))
            id = found[0]["id"]
            assert [mail["host"] for mail in found] == ["mx1.test"] * 3
            assert [mail["host"] for mail in rows(said(one, "search", "--host", "mx2.test", "--json"))] == ["mx2.test"]

            # Mail of one host is found and marked by its id at the other, and each mark counts at both.
            for mail in found:
                said(other, "mark-spam", mail["id"])
            agree(id, one, other, (0, 3), url)
            assert "relay: mx1.test" in said(other, "show", found[0]["id"])
            said(one, "mark-ham", found[0]["id"])
            said(one, "forget", found[1]["id"])
            agree(id, one, other, (1, 1), url)
            said(one, "mark-spam", found[2]["id"])  # a repeat changes nothing
            agree(id, one, other, (1, 1), url)

            report = json.loads(said(one, "stats", "--since", "1d", "--json"))
            assert (report["messages"], report["host"], report["hosts"]) == (4, "", ["mx1.test", "mx2.test"])
            for host, number in (("mx1.test", 3), ("mx2.test", 1)):
                part = json.loads(said(other, "stats", "--since", "1d", "--host", host, "--json"))
                assert (part["messages"], part["host"], part["learnt"]) == (number, host, report["learnt"])
            assert said(one, "stats", "--host", "mx2.test").splitlines()[0].endswith(", mx2.test")
            wrong = one.command("stats", "--host", "mx9.test")
            assert (wrong.returncode, "known: mx1.test, mx2.test" in wrong.stderr) == (2, True)
            assert "all 2 hosts" in said(one, "stats", "--format", "html")
        account.settle()


def test_marks_on_both_hosts_through_kills_of_relays_and_backends(
    tmp_path: Path, hop: Hop, primary: postgresql.Server
) -> None:
    with primary.database() as url:
        one, other = relays(tmp_path, hop, url)
        with one.run(), other.run():
            id = probe(one, hop)
            for number in range(4):
                mark(one, f"a{number}", "spam")
                mark(other, f"b{number}", "spam")
            one.kill()
            mark(other, "b4", "spam")
            mark(other, "a0", "ham")  # of the other host
            one.start()
            mark(one, "b0", None)
            other.kill()
            mark(one, "a4", "spam")
            other.start()
            agree(id, one, other, (1, 8), url)

            # kill -9 of a backend makes PostgreSQL end all connections and recover from its log.
            [(backend,)] = primary.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'spamfilter' ORDER BY pid LIMIT 1"
            )
            os.kill(int(str(backend)), signal.SIGKILL)
            mark(one, "a5", "spam")
            mark(other, "b5", "spam")
            agree(id, one, other, (1, 10), url)


def test_a_promoted_standby_that_lacks_the_last_marks(tmp_path: Path, hop: Hop, primary: postgresql.Server) -> None:
    """Followers know more than the new primary ever had; new marks then get the ids of those that were lost."""
    with primary.database() as url:
        name = postgresql.name_in(url)
        standby = postgresql.Server(durable=True, primary=primary)
        try:
            hosts = f"{primary.folder},{standby.folder}"
            url = f"{url.partition('?')[0]}?host={hosts}&target_session_attrs=read-write"
            one, other = relays(tmp_path, hop, url)
            with one.run(), other.run():
                id = probe(one, hop)
                for number in range(4):
                    mark(one, f"kept{number}", "spam")
                agree(id, one, other, (0, 4), url)
                _caught_up(standby, name, 4)
                standby.fall_behind()
                for number in range(3):
                    mark(other, f"lost{number}", "spam")
                agree(id, one, other, (0, 7), url)
                primary.stop()
                standby.promote()
                for number in range(3):  # as many as were lost, so that their number tells nothing
                    mark(one, f"new{number}", "ham")
                agree(id, one, other, (3, 4), url)
        finally:
            standby.remove()
            primary.start()


def _caught_up(standby: postgresql.Server, database: str, entries: int) -> None:
    end = time.monotonic() + 30
    while standby.execute("SELECT count(*) FROM ledger", database) != [(entries,)]:
        assert time.monotonic() < end
        time.sleep(0.02)
