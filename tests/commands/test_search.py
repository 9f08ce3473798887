"""`spamfilter search` on a database with some mail."""

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spamfilter.cli import main
from spamfilter.stores import open_store
from tests.project.test_docs import documented
from tests.support.made import NOON, journal_entry

MAILS: dict[str, dict[str, object]] = {
    "1": {"recipients": ["Anna@Example.org"], "subject": "Lunch", "at": NOON - timedelta(days=1)},
    "2": {"recipients": ["bob@example.org"], "client": "2001:db8::1", "class_": "spam", "score": 0.99, "action": "tag"},
    "3": {"sender": "", "reply": "451 4.7.1 try later", "subject": "\x1b[2Jlong" + 100 * " word", "at": NOON},
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / "store.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.write_journal([journal_entry(**{"id": id * 26, **facts}) for id, facts in MAILS.items()])
    return path


def run(database: Path, *arguments: str) -> Result:
    environment = {"SPAMFILTER_STORE__URL": f"sqlite:///{database}", "SPAMFILTER_CONFIG": "", "COLUMNS": None}
    return CliRunner(env=environment).invoke(main, ["search", *arguments])


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        pytest.param("", "321", id="all"),
        pytest.param("--recipient anna@example.org", "1", id="recipient"),
        pytest.param("--recipient @example.org> --class spam", "2", id="two-conditions"),
        pytest.param("--sender <>", "3", id="no-sender"),
        pytest.param("--client 2001:DB8:0::1", "2", id="ipv6"),
        pytest.param("--reply 4", "3", id="reply"),
        pytest.param("--action tag --least 0.9", "2", id="action-and-score"),
        pytest.param("--since 2026-03-01", "32", id="since"),
        pytest.param("--until 2026-02-28", "1", id="until-the-end-of-a-day"),
        pytest.param("--until 2026-02-28T12:00", "", id="until-a-time"),
        pytest.param("--until yesterday", "321", id="until-yesterday"),
        pytest.param("--since 36h --until 2026-02-28", "1", id="a-span-until-a-date"),
        pytest.param("--hour 12 --subject lun", "1", id="hour-and-subject"),
        pytest.param("--message-id one@example.org", "321", id="message-id"),
        pytest.param("--subject %", "", id="no-pattern"),
    ],
)
def test_the_same_is_found_as_text_and_as_json(database: Path, arguments: str, ids: str) -> None:
    done = run(database, *arguments.split())
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "".join(line[0] for line in lines[:-1:4]) == ids
    assert lines[-1] == f"{len(ids)} message{'' if len(ids) == 1 else 's'} found"
    assert all(line.isprintable() for line in lines)
    assert "\x1b" not in done.stdout
    found = [json.loads(line) for line in run(database, *arguments.split(), "--json").stdout.splitlines()]
    assert "".join(one["id"][0] for one in found) == ids
    assert all(one.keys() == documented("search --json") for one in found)


def test_what_the_limit_leaves_out_is_said(database: Path) -> None:
    lines = run(database, "--limit", "1").stdout.splitlines()
    assert (lines[0][:26], lines[-1]) == ("3" * 26, "3 messages found, the latest 1 shown; --limit shows more")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--since tomorrow", "--since 'tomorrow': neither a span"),
        ("--until 2026-02-30", "--until '2026-02-30': neither a span"),
        ("--since 2026-03-01 --until 2026-02-28", "--since '2026-03-01': lies behind the end"),
        ("--hour 24", "0<=x<=23"),
        ("--class good", "'good' is not one of 'ham', 'unsure', 'spam'"),
    ],
)
def test_a_wrong_condition_is_named(database: Path, arguments: str, words: str) -> None:
    done = run(database, *arguments.split())
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
