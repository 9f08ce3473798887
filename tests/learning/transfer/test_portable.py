"""Export and import of what a database has learnt: equal counts and scores, or an error that names the line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spamfilter.bayes.labels import CANARY
from spamfilter.bayes.model import Score
from spamfilter.config.settings import Settings
from spamfilter.errors import StoreBusy
from spamfilter.learning.filter import Filter
from spamfilter.learning.transfer import portable
from spamfilter.learning.transfer.imports import Import
from spamfilter.mail.message import parse
from tests.learning.transfer.test_imports import counts
from tests.support.made import mail
from tests.support.shell import Shell

DUMP = Path(__file__).parent / "dumps" / "spambayes.csv"


def use(monkeypatch: pytest.MonkeyPatch, user: Shell) -> Shell:
    user.folder.mkdir(exist_ok=True)
    monkeypatch.setenv("STATE_DIRECTORY", str(user.folder))
    return user


def scores(user: Shell) -> list[Score]:
    with user.store() as store:
        filter = Filter(store, Settings().voices(), whole=False)
        some = (mail("Offer", f"cheap words number{at} of a meeting", f"new{at}") for at in range(6))
        return [filter.score(filter.read(parse(one))) for one in some]


@pytest.fixture
def old(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A database that has learnt, changed and forgotten mails, and imported a dump."""
    user = use(monkeypatch, Shell(shell.folder / "old"))
    for at in range(6):
        file = user.write(f"{at}.eml", mail(f"Offer {at}", f"cheap words number{at} of {at % 3}", f"mail{at}"))
        user.done("mark-spam" if at % 2 else "mark-ham", file)
    user.done("mark-spam", user.folder / "0.eml")
    user.done("forget", user.folder / "1.eml")
    user.done("import", DUMP)
    return user


def test_a_ledger_goes_into_a_new_database_whole(shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    user = use(monkeypatch, old)
    before, said = counts(user), scores(user)
    file = shell.folder / "whole.jsonl"
    user.done("export", file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists already" in user.fails("export", file)
    assert user.done("export", "-").encode() == file.read_bytes()
    other = use(monkeypatch, Shell(shell.folder / "other"))
    assert "has all that the export has, " in other.done("import", "-", stdin=file.read_bytes())
    assert counts(other) == before
    assert scores(other) == said
    assert other.learnt()[1] == []
    for one in (user, other):  # and what was learnt can be undone there as here
        use(monkeypatch, one)
        one.done("forget", user.folder / "2.eml")
        one.done("forget", next(line.split()[0] for line in one.done("import", "--list").splitlines()))
    assert counts(other) == counts(user) != before
    assert "has learnt already" in other.fails("import", file)


@pytest.mark.parametrize("counts_only", [False, True], ids=["whole", "counts-only"])
def test_a_database_that_only_doctor_has_probed_is_new(
    shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch, counts_only: bool
) -> None:
    user = use(monkeypatch, old)
    before, said = counts(user), scores(user)
    lines = user.done("export", "-", *["--counts-only"] * counts_only)
    other = use(monkeypatch, Shell(shell.folder / "other"))
    with other.store() as store:
        filter = Filter(store, Settings().voices())
        probe = filter.read(parse(mail("probe")))
        filter.learn(probe, "spam", CANARY, "doctor")
        filter.forget(probe, CANARY, "doctor")
    other.done("import", "-", stdin=lines.encode())
    assert (counts(other), scores(other)) == (before, said)
    assert other.learnt()[1] == []


def test_a_ledger_in_which_an_import_was_taken_back_and_the_counts_rebuilt_goes_whole(
    shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = use(monkeypatch, old)
    user.done("forget", next(line.split()[0] for line in user.done("import", "--list").splitlines()))
    assert user.run("retrain").exit_code == 0
    lines, said = user.done("export", "-"), scores(user)
    other = use(monkeypatch, Shell(shell.folder / "other"))
    assert "has all that the export has, " in other.done("import", "-", stdin=lines.encode())
    assert scores(other) == said
    assert other.learnt()[1] == []


def test_an_export_across_a_rebuilding_has_no_end(old: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    user = use(monkeypatch, old)
    with user.store() as store:
        filter = Filter(store, Settings().voices())
        assert filter.learnt["ham"]
        lines = portable.export(filter, False)
        next(lines)
        assert user.run("retrain").exit_code == 0
        with pytest.raises(StoreBusy, match=r"its counts were rebuilt, .*; export again"):
            list(lines)


def test_an_export_that_is_interrupted_leaves_nothing(old: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[str]:
        yield "{}"
        raise KeyboardInterrupt

    user = use(monkeypatch, old)
    before = set(user.folder.iterdir())
    monkeypatch.setattr(portable, "export", interrupted)
    assert user.run("export", user.folder / "half.jsonl").exit_code != 0
    assert set(user.folder.iterdir()) == before


def test_an_export_is_in_utf_8_on_any_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    user = use(monkeypatch, shell)
    user.done("mark-spam", stdin="From: a@example.org\nSubject: Grüße\n\nąęż\n".encode())
    program = [sys.executable, "-m", "spamfilter", "export", "-"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(program, cwd=user.folder, env=latin, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "ąęż" in done.stdout.decode()
    assert done.stdout.decode() == user.done("export", "-")


def test_counts_alone_go_anywhere_and_are_one_import(shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    user = use(monkeypatch, old)
    before, said = counts(user), scores(user)
    file = shell.folder / "counts.jsonl"
    user.done("export", "--counts-only", file)
    assert b"digest" not in file.read_bytes()
    other = use(monkeypatch, Shell(shell.folder / "other"))
    assert "import-1" in other.done("import", file)
    assert counts(other) == before
    assert scores(other) == said
    assert other.learnt()[1] == []
    other.done("mark-spam", user.folder / "2.eml")
    other.done("forget", "import-1")
    assert other.learnt() == ({"ham": 0, "spam": 1}, [])


def test_a_mark_that_is_learnt_while_counts_are_read_is_calibrated_as_one_before_them(
    shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = use(monkeypatch, old)
    file = shell.folder / "counts.jsonl"
    user.done("export", "--counts-only", file)
    said = []
    read = portable.Export.counts
    for name in ("before", "meanwhile"):
        other = use(monkeypatch, Shell(shell.folder / name))

        def marked_and_read(*arguments: Any, other: Shell = other, name: str = name) -> Import:
            if name == "meanwhile":
                other.done("mark-spam", user.folder / "2.eml")
            return read(*arguments)

        if name == "before":
            other.done("mark-spam", user.folder / "2.eml")
        monkeypatch.setattr(portable.Export, "counts", marked_and_read)
        other.done("import", file)
        said.append(scores(other))
    assert said[0] == said[1]


def test_a_wrong_export_is_named_by_line_and_nothing_is_learnt(
    shell: Shell, old: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = use(monkeypatch, old)
    written = {}
    for kind in ("ledger", "counts"):
        file = shell.folder / kind
        user.done("export", *(["--counts-only"] if kind == "counts" else []), file)
        written[kind] = file.read_bytes().splitlines()
    first, second, *_ = written["ledger"]
    rules = first.replace(b'"soft"', b'"multinomial"')
    newer = first.replace(b'"spamfilter_export":1', b'"spamfilter_export":2')
    entry = json.loads(second)

    def with_first(entry: dict[str, object]) -> list[bytes]:
        return [first, json.dumps(entry).encode(), *written["ledger"][2:]]

    no_entry = ":2: is no entry of a ledger"
    too_deep = "Stack overflow" if sys.version_info >= (3, 14) else "maximum recursion"
    wrong = {
        f"{no_entry} (ValueError('added or": with_first({**entry, "label": "import"}),
        f"{no_entry} (ValueError('1000": with_first({**entry, "calibrated": [10**400]}),
        f"{no_entry} (ValueError('True": with_first({**entry, "id": True}),
        f"{no_entry} (OverflowError": with_first({**entry, "at": "0001-01-01T00:00:00+23:59"}),
        f"{no_entry} (UnicodeEncodeError": with_first({**entry, "by": "\ud800x"}),
        ":3: has the id 1": [first, second, second, *written["ledger"][2:]],
        ":1: imported voices [['a']]": [
            json.dumps({**json.loads(first), "imported": [["a"]]}).encode(),
            *written["ledger"][1:],
        ],
        ":1: lacks the totals": [
            json.dumps({**json.loads(written["counts"][0]), "calibration": [10**400, *[0] * 7]}).encode(),
            *written["counts"][1:],
        ],
        ":1: lacks the totals of an export of counts (ZeroDivisionError": [
            json.dumps({**json.loads(written["counts"][0]), "calibration": [*[0] * 4, 100, *[0] * 3]}).encode(),
            *written["counts"][1:],
        ],
        ":1: lacks the totals of an export of counts (ValueError(\"voice 'x y'\"))": [
            written["counts"][0].replace(b'"messages":{', b'"messages":{"x y":{"ham":1,"spam":1},'),
            *written["counts"][1:],
        ],
        "is not the last line": written["ledger"][:-1],
        "lines are missing": [*written["counts"][:2], *written["counts"][3:]],
        ":2: is no JSON": [first, b"{", *written["ledger"][2:]],
        f":2: is no JSON ({too_deep}": [first, b"[" * 100_000, *written["ledger"][2:]],
        ":2: is no entry of a ledger": [first, b"{}", *written["ledger"][2:]],
        ":2: undoes entry 7": [first, json.dumps({**entry, "undoes": 7}).encode(), *written["ledger"][2:]],
        "expected an export of format 1": [newer, *written["ledger"][1:]],
        "was learnt with voices": [rules, *written["ledger"][1:]],
        ":3: is no count of a word": [*written["counts"][:2], b'{"voice":"fields"}', *written["counts"][3:]],
        "follows the last line": [*written["counts"], written["counts"][1]],
    }
    other = use(monkeypatch, Shell(shell.folder / "other"))
    for said, lines in wrong.items():
        error = other.fails("import", other.write("file", b"\n".join(lines) + b"\n"))
        assert said in error, (said, error)
        assert str(other.folder / "file") in error
    assert other.learnt() == ({"ham": 0, "spam": 0}, [])


def test_nothing_learnt_is_nothing_to_export(shell: Shell) -> None:
    assert "no database yet" in shell.fails("export", "file")
    shell.done("block", "192.0.2.1")
    assert "nothing to export" in shell.fails("export", "file")
