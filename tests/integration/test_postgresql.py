"""A relay on PostgreSQL: a small day there comes to the same figures as on SQLite, and it survives its server."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.stores import open_store
from tests.faults.account import Account
from tests.faults.client import mail_of
from tests.faults.daemon import Daemon
from tests.faults.databases import fill, small_disk
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.load.process import paused
from tests.support import postgresql
from tests.support.memory_store import url_of

TIMES = {"at", "since", "until", "id", "judge_us", "total_us", "seconds", "received", "date"}
"""Keys whose values are of a moment, and never the same twice."""


@pytest.fixture(scope="module")
def hop() -> Iterator[Hop]:
    with next_hop() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    """A server that a test may stop."""
    made = postgresql.Server(durable=True)
    yield made
    made.remove()


def said(relay: Daemon, *arguments: str, code: int = 0, input: str | None = None) -> str:
    done = relay.command(*arguments, input=input)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout.replace(str(relay.folder), "FOLDER")


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in TIMES}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def lines(text: str) -> list[Any]:
    return [timeless(json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def problems(url: str) -> list[str]:
    with contextlib.closing(open_store(url)) as store:
        return Filter(store, Settings().voices()).verify()


def day(kind: str, folder: Path, hop: Hop) -> dict[str, Any]:
    """What the commands say after a day of training, mail, marks, rules and a rebuild."""
    folder.mkdir()
    for label, body in (("ham", "Shall we meet for lunch"), ("spam", "Cheap pills and watches")):
        (folder / label).mkdir()
        for number in range(8):
            (folder / label / f"{number}.eml").write_bytes(mail_of(f"{label}{number}", f"{body} {number}?"))
    found: dict[str, Any] = {}
    with url_of(kind, folder) as url:
        relay = Daemon(folder, f"smtp://127.0.0.1:{hop.port}", store={"url": url})
        said(relay, "train", "--ham", str(folder / "ham"), "--spam", str(folder / "spam"))
        account = Account(hop)
        with relay.run():
            names = [f"day{number}" for number in range(4)]
            account.answers.update({name: [] for name in names})
            assert [account.send(relay.port, name).code for name in names] == [250] * 4
            wait_until(lambda: len(lines(said(relay, "search", "--json"))) >= 4, "the journal")
            for name in names[:2]:
                said(relay, "mark-spam", input=mail_of(name).decode())
            said(relay, "mark-ham", input=mail_of(names[0]).decode())
            said(relay, "forget", input=mail_of(names[1]).decode())
            said(relay, "block", "bad.example", "--note", "ünwanted")
            found["lists"] = timeless(lines(said(relay, "lists", "--json")))
            said(relay, "allow", "good.example")
            said(relay, "unlist", "2")
            examined = json.loads(said(relay, "doctor", "--json", "--verify"))["lines"]
            found["doctor"] = {line["check"]: line["status"] for line in examined}
            said(relay, "retrain")
            found["search"] = lines(said(relay, "search", "--recipient", "b@", "--subject", "MAIL", "--json"))
            found["judge"] = lines(said(relay, "judge", "--json", str(folder / "spam" / "1.eml")))
            found["word"] = said(relay, "word", "pills").splitlines()[0]
            stats = json.loads(said(relay, "stats", "--json"))
            found["stats"] = {key: timeless(stats[key]) for key in stats if key in ("learnt", "messages", "classes")}
            found["keys"] = sorted(stats)
            found["quarantine"] = said(relay, "quarantine", "list")
            wait_until(lambda: relay.learnt() == 8, "the relay to follow the ledger")
        assert problems(url) == []
    return found


def test_a_small_day_comes_to_the_same_figures_on_both_stores(tmp_path: Path, hop: Hop) -> None:
    on_sqlite = day("sqlite", tmp_path / "sqlite", hop)
    on_postgresql = day(postgresql.KIND, tmp_path / "postgresql", hop)
    assert len(on_sqlite["search"]) >= 4
    assert on_sqlite == on_postgresql


def follows(relay: Daemon, name: str) -> None:
    """Marks are learnt again, and the relay judges by them, without a restart."""
    before = relay.learnt()
    mark = mail_of(name, "cheap pills").decode()
    wait_until(lambda: relay.command("mark-spam", input=mark).returncode == 0, "a mark")
    wait_until(lambda: relay.learnt() == before + 1, "what was marked")


def test_a_server_that_crashes_and_comes_back(tmp_path: Path, hop: Hop, server: postgresql.Server) -> None:
    account = Account(hop)
    with server.database() as url:
        relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", store={"url": url})
        with relay.run():
            follows(relay, "before")
            learnt = relay.learnt()
            server.stop()
            try:
                assert [account.send(relay.port).code for _ in range(5)] == [250] * 5
                told = relay.command("mark-spam", input=mail_of("during", "cheap pills").decode())
                assert told.returncode == 75
                assert "cannot be reached" in told.stderr
                assert told.stderr.count("\n") == 1
                assert relay.learnt() == learnt
                assert "cannot be reached" in relay.command("doctor", "--json", "--no-canary").stdout
                wait_until(lambda: "judging with what was learnt before" in relay.log(), "the relay's complaint")
            finally:
                server.start()
            follows(relay, "after")
            wait_until(lambda: len(lines(said(relay, "search", "--json"))) == 5, "the journal of what passed")
        account.settle()
        assert problems(url) == []


def test_a_server_that_is_paused_is_given_up_and_used_again(
    tmp_path: Path, hop: Hop, server: postgresql.Server
) -> None:
    account = Account(hop)
    with server.database() as url:
        relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", store={"url": url})
        with relay.run():
            follows(relay, "before")
            with paused(server.process.pid):
                assert [account.send(relay.port).code for _ in range(3)] == [250] * 3
                told = relay.command("mark-spam", input=mail_of("during", "cheap pills").decode())
                assert told.returncode == 75
                assert re.fullmatch("spamfilter: postgresql://.*: cannot be reached: .*; try again\n", told.stderr)
                wait_until(lambda: "judging with what was learnt before" in relay.log(), "the relay's complaint", 60)
                assert account.send(relay.port).code == 250
            follows(relay, "after")
        account.settle()
        assert problems(url) == []


def test_a_full_disk_refuses_marks_and_mail_goes_on(tmp_path: Path, hop: Hop, server: postgresql.Server) -> None:
    account = Account(hop)
    user = server.folder.stat()
    with small_disk(server.folder / "disk", 32) as disk:
        os.chown(disk, user.st_uid, user.st_gid)
        server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        with server.database() as url:
            server.execute(f"ALTER DATABASE {postgresql.name_in(url)} SET TABLESPACE small")
            relay = Daemon(tmp_path, f"smtp://127.0.0.1:{hop.port}", store={"url": url})
            with relay.run():
                follows(relay, "before")
                filler = fill(disk)
                refused, learnt = "", relay.learnt()
                while not refused:  # the last pages of the tables have room for some
                    words = " ".join(f"word{learnt}x{number}" for number in range(800))
                    told = relay.command("mark-spam", input=mail_of(f"mark{learnt}", words).decode())
                    refused, learnt = told.stderr * (told.returncode != 0), learnt + (told.returncode == 0)
                assert "No space left on device" in refused
                assert (refused.count("\n"), "Traceback" in relay.log()) == (1, False)
                wait_until(lambda: relay.learnt() == learnt, "what was learnt, and no more")
                assert [account.send(relay.port).code for _ in range(3)] == [250] * 3
                filler.unlink()
                follows(relay, "after")
            account.settle()
            assert problems(url) == []
        server.execute("DROP TABLESPACE small")
