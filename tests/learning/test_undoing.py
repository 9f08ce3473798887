"""Undoing all that one author has taught: shown first, exact, and continued after an interruption."""

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from spamfilter.bayes.labels import COUNTERPART, Label
from spamfilter.commands import command
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.learning import mark_lookup, marks, undoing
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import Store
from spamfilter.stores.sql import connection as sql_connection
from spamfilter.system.moments import moment_text
from tests.project.test_docs import documented
from tests.support.made import NOON, journal_entry, mail
from tests.support.shell import Shell

NOW = datetime.now(UTC)
MALLORY = marks.Author("mallory", "imap")
TABLES = ("words", "classes", "vocabularies", "tallies")


def teach(
    shell: Shell, by: str, label: Label, *names: str, source: str = "cli", at: datetime = NOW, whole: bool = False
) -> None:
    """Somebody teaches mails of these names."""
    with shell.store() as store:
        filter = Filter(store, Settings().voices(), whole=whole)
        for name in names:
            reading = filter.read(parse(mail(subject=f"of {name}", body=f"words of {name}", name=name)))
            filter.learn(reading, label, source, by, at)


def counts(shell: Shell) -> dict[str, list[tuple[object, ...]]]:
    """All counts that are not zero, and the totals."""
    found = {table: sorted(shell.rows(table)) for table in TABLES}
    found["classes"] = [row for row in found["classes"] if row[3:] != (0, 0)]
    with shell.store() as store:
        state = store.state({})
        found["totals"] = [(dict(state.learnt), state.calibration)]
    return found


def active(shell: Shell) -> Iterator[tuple[str, Label]]:
    with shell.store() as store:
        yield from ((entry.by, entry.message_label) for entry in store.learnings())


def test_it_is_shown_and_nothing_is_done_without_yes(shell: Shell) -> None:
    teach(shell, "mallory", "spam", "a", "b", source="imap", at=NOW - timedelta(days=2))
    teach(shell, "mallory", "ham", "c", at=NOW - timedelta(days=1))
    teach(shell, "ann", "spam", "d")
    teach(shell, COUNTERPART, "ham", "e", source=COUNTERPART, at=NOW - timedelta(days=2))
    teach(shell, COUNTERPART, "ham", "f", source=COUNTERPART, at=NOW)
    before = shell.rows("ledger")
    first, last = (moment_text(NOW - timedelta(days=days)) for days in (2, 1))
    assert shell.done("forget", "--by", "mallory").splitlines() == [
        f"mallory has 3 marks that count, from {first} to {last}",
        "  cli        ham          1",
        "  imap       spam         2",
        "  counterparts of these, learnt as ham: 1",
        "nothing is undone yet; add --yes to undo it",
    ]
    assert shell.rows("ledger") == before


@pytest.mark.parametrize("many", [500, 1], ids=["words-of-each", "all-counts"])
def test_it_is_undone_exactly_as_if_the_author_had_never_spoken(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(undoing, "MANY", many)
    monkeypatch.setattr(undoing, "BATCH", 2)
    teach(shell, "ann", "spam", "a", "b")
    teach(shell, "ann", "ham", "c")
    before = counts(shell)
    teach(shell, "mallory", "ham", "e", "f", "g")
    teach(shell, "mallory", "spam", "h", "i")
    assert counts(shell) != before
    assert shell.done("forget", "--by", "mallory", "--yes").splitlines()[-1] == "5 forgotten"
    assert counts(shell) == before
    assert shell.learnt() == ({"ham": 1, "spam": 2}, [])
    assert set(active(shell)) == {("ann", "spam"), ("ann", "ham")}
    assert shell.done("forget", "--by", "mallory", "--yes") == "mallory has no marks that count\n"
    with shell.store() as store:
        undoings = [entry for entry in store.entries_after(0) if entry.undoes]
    assert {(entry.source, entry.by) for entry in undoings} == {("cli", command.user())}


def test_an_address_is_found_however_it_is_written(shell: Shell) -> None:
    teach(shell, "ann@example.org", "spam", "a")
    teach(shell, "Bob@Example.org", "spam", "b")
    teach(shell, "bob@example.org", "spam", "c")
    for name, number in (("Ann@EXAMPLE.org", 1), ("Bob@Example.org", 2)):
        assert shell.done("forget", "--by", name, "--yes").splitlines()[-1] == f"{number} forgotten"


@pytest.mark.parametrize(
    "since",
    ["30h", "2d", "1w", f"{NOW - timedelta(days=2):%Y-%m-%dT%H:%M:%S}", f"{NOW - timedelta(days=2):%Y-%m-%d}"],
    ids=["30h", "2d", "1w", "a time", "a date"],  # the same in every process that runs a part of the tests
)
def test_only_what_was_taught_since_then_goes(shell: Shell, since: str) -> None:
    teach(shell, "mallory", "spam", "old", at=NOW - timedelta(days=9))
    teach(shell, "mallory", "spam", "new", at=NOW - timedelta(days=1))
    assert shell.done("forget", "--by", "mallory", "--since", since, "--yes").splitlines()[-1] == "1 forgotten"
    with shell.store() as store:
        (left,) = store.learnings()
    assert left.at < NOW - timedelta(days=8)
    assert shell.learnt() == ({"ham": 0, "spam": 1}, [])


def test_what_it_had_taken_from_another_is_not_learnt_at_all(shell: Shell) -> None:
    teach(shell, "ann", "spam", "a")
    teach(shell, "mallory", "ham", "a")
    shell.done("forget", "--by", "mallory", "--yes")
    assert shell.learnt() == ({"ham": 0, "spam": 0}, [])
    assert shell.rows("words") == []
    assert "are then not learnt at all" in re.sub(r"\s+", " ", shell.done("forget", "--help"))


def test_what_it_had_taken_from_sorted_mail_or_a_rule_is_learnt_again(shell: Shell) -> None:
    teach(shell, "ann", "spam", "z")
    teach(shell, "sorted", "ham", "a", "b", source="train")
    teach(shell, "trap", "spam", "c", source="automatic")
    before = counts(shell)
    with shell.store() as store:
        filter = Filter(store, Settings().voices(), whole=False)
        labels: dict[str, Label | None] = {"a": "spam", "b": "ham", "c": None}
        for name, label in labels.items():
            sent = mail(subject=f"of {name}", body=f"words of {name}", name=name)
            marks.mark(filter, mark_lookup.Subject(name, "", filter.read(parse(sent))), label, MALLORY, Feedback())
    lines = shell.done("forget", "--by", "mallory", "--yes").splitlines()
    assert lines[0].startswith("mallory has 3 marks that count, from ")
    assert lines[1:] == [
        "  imap       ham          1",
        "  imap       spam         1",
        "  imap       taken back        1",
        "  will be learnt again: 2 as ham",
        "  will be learnt again: 1 as spam",
        "3 forgotten, 3 of them learnt again as before",
    ]
    assert counts(shell) == before
    assert sorted(active(shell)) == [("ann", "spam"), ("sorted", "ham"), ("sorted", "ham"), ("trap", "spam")]
    assert shell.learnt() == ({"ham": 2, "spam": 2}, [])


def test_what_was_taken_back_is_listed_without_a_label(shell: Shell) -> None:
    teach(shell, "sorted", "ham", "a", source="train")
    with shell.store() as store:
        filter = Filter(store, Settings().voices(), whole=False)
        sent = mail(subject="of a", body="words of a", name="a")
        marks.mark(filter, mark_lookup.Subject("a", "", filter.read(parse(sent))), None, MALLORY, Feedback())
    (shown,) = (json.loads(line) for line in shell.done("forget", "--by", "mallory", "--json").splitlines())
    assert (shown["label"], shown["before"], shown["undone"]) == (None, "ham", False)


def test_what_bulk_training_has_reinforced_goes_too(shell: Shell) -> None:
    teach(shell, "ann", "spam", "a")
    before = counts(shell)
    for label, words in (("spam", "pills"), ("ham", "lunch")):
        for number in range(4):
            shell.write(f"{label}/{number}.eml", mail(subject=f"{words} {number}", body=words, name=f"{label}{number}"))
    shell.done("train", "--spam", shell.folder / "spam", "--ham", shell.folder / "ham")
    shell.done("forget", "--by", command.user(), "--yes")
    assert counts(shell) == before
    assert shell.learnt() == ({"ham": 0, "spam": 1}, [])


def test_a_source_that_is_named_is_undone_alone(shell: Shell) -> None:
    teach(shell, "mallory", "spam", "a", source="imap")
    teach(shell, "mallory", "ham", "b", source="cli")
    said = shell.done("forget", "--by", "mallory", "--source", "imap", "--yes")
    assert "mallory has 1 mark that counts, from" in said
    assert [*active(shell)] == [("mallory", "ham")]


def test_a_file_whose_name_begins_as_an_import_is_a_file(shell: Shell) -> None:
    shell.write("import-old.eml", mail())
    shell.done("mark-spam", "import-old.eml")
    shell.done("forget", "import-old.eml")
    assert shell.learnt()[0] == {"ham": 0, "spam": 0}


def test_each_learning_is_listed_for_scripts(shell: Shell) -> None:
    teach(shell, "mallory", "spam", "known", source="imap", at=NOON)
    teach(shell, "mallory", "ham", "unknown", at=NOON + timedelta(hours=1))
    teach(shell, COUNTERPART, "ham", "beside", source=COUNTERPART, at=NOON)
    with shell.store() as store:
        digest = store.learnings()[0].digest
        store.write_journal([journal_entry(id="01KAH3V5E8M6Q2T0J9Z4R7X1CN", digest=digest, subject="grün")])
    shown = [json.loads(line) for line in shell.done("forget", "--by", "mallory", "--json").splitlines()]
    assert shown[0] == {
        "at": "2026-03-01T12:00:00+00:00",
        "label": "spam",
        "source": "imap",
        "by": "mallory",
        "id": "01KAH3V5E8M6Q2T0J9Z4R7X1CN",
        "subject": "grün",
        "before": None,
        "undone": False,
        "counterparts": 1,
    }
    assert (shown[1]["id"], shown[1]["subject"], shown[1]["undone"], shown[1]["counterparts"]) == ("", "", False, 0)
    assert set(shown[0]) == documented("forget --by --json")
    done = [json.loads(line) for line in shell.done("forget", "--by", "mallory", "--yes", "--json").splitlines()]
    assert done == [{**each, "undone": True} for each in shown]
    assert shell.done("forget", "--by", "mallory", "--json") == ""


def test_an_undoing_that_was_stopped_is_gone_on_with(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "BATCH", 2)
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.1)
    teach(shell, "ann", "spam", "z")
    before = counts(shell)
    teach(shell, "mallory", "ham", "a", "b", "c", "d", "e")
    undo = undoing.undo
    holder = sqlite3.connect(shell.folder / "spamfilter.db", isolation_level=None)

    def until_the_second(filter: Filter, taught: list[undoing.Taught], source: str, by: str, undone: object) -> None:
        done: list[set[int]] = []

        def told(ids: set[int]) -> None:
            assert callable(undone)
            undone(ids)
            done.append(ids)
            if len(done) == 2:
                holder.execute("BEGIN IMMEDIATE")

        undo(filter, taught, source, by, told)

    with monkeypatch.context() as held:
        held.setattr(undoing, "undo", until_the_second)
        result = shell.run("forget", "--by", "mallory", "--yes")
    holder.execute("ROLLBACK")
    holder.close()
    assert result.exit_code == 75
    assert result.stderr.endswith("try again; 4 of 5 are forgotten; run the same command again for the rest\n")
    assert shell.learnt() == ({"ham": 1, "spam": 1}, [])
    assert "1 forgotten" in shell.done("forget", "--by", "mallory", "--yes")
    assert counts(shell) == before


def test_marks_of_one_source_leave_what_the_same_author_has_trained(shell: Shell) -> None:
    teach(shell, "root", "ham", "a", "b", source="train")
    before = counts(shell)
    teach(shell, "root", "spam", "a")
    said = shell.done("forget", "--by", "root", "--source", "cli", "--yes")
    assert said.splitlines()[-1] == "1 forgotten, 1 of them learnt again as before"
    assert counts(shell) == before
    none = shell.done("forget", "--by", "root", "--source", "cli", "--since", "2026-01-02")
    assert none.startswith("root has no marks that count, of the source cli, since 2026-01-02 00:00")


def test_what_was_changed_since_it_was_shown_is_left_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(shell, "mallory", "ham", "a", "b")
    look = undoing.taught_by

    def and_then_ann(store: Store, by: str, since: datetime | None, source: str | None = None) -> list[undoing.Taught]:
        found = look(store, by, since, source)
        teach(shell, "ann", "spam", "a")
        return found

    monkeypatch.setattr(undoing, "taught_by", and_then_ann)
    said = shell.done("forget", "--by", "mallory", "--yes")
    assert said.splitlines()[-1] == "1 forgotten; 1 were changed by others meanwhile"
    assert list(active(shell)) == [("ann", "spam")]
    assert shell.learnt() == ({"ham": 0, "spam": 1}, [])


def test_a_batch_that_cannot_be_undone_is_not_undone_in_part(shell: Shell) -> None:
    teach(shell, "mallory", "ham", "a", "b")
    before = shell.rows("ledger")
    connection = sqlite3.connect(shell.folder / "spamfilter.db")
    with connection:
        connection.execute("DELETE FROM words WHERE word = 'subject:b'")
    connection.close()
    result = shell.run("forget", "--by", "mallory", "--yes")
    assert result.exit_code == 2
    assert result.stderr.endswith("; 0 of 2 are forgotten; run the same command again for the rest\n")
    assert shell.rows("ledger") == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        pytest.param(("--since", "7d"), "--since and --yes go with --by NAME", id="since-without-by"),
        pytest.param(("--yes",), "--since and --yes go with --by NAME", id="yes-without-by"),
        pytest.param(("--by", "x", "--yes", "-"), "--since and --yes go with --by NAME", id="yes-with-a-message"),
        pytest.param(("--by", "x", "--since", "soon"), "--since 'soon': neither a span (24h", id="since-when"),
        pytest.param(("--by", "x", "--since", "2999-01-01"), "'2999-01-01': lies in the future", id="future"),
    ],
)
def test_what_does_not_go_together_is_refused(shell: Shell, words: tuple[str, ...], complaint: str) -> None:
    result = shell.run("forget", *words, stdin=mail())
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert shell.learnt() == ({"ham": 0, "spam": 0}, [])


def test_with_a_message_by_still_says_whose_mark_it_is(shell: Shell) -> None:
    shell.done("mark-spam", "--by", "ann", stdin=mail())
    assert "forgotten as spam" in shell.done("forget", "--by", "ann", "-", stdin=mail())
    assert shell.learnt() == ({"ham": 0, "spam": 0}, [])
