"""`judge --explain`, as a user sees it and as a program reads it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from spamfilter.bayes.counts import Growth
from spamfilter.bayes.labels import LABELS
from spamfilter.cli import main
from spamfilter.learning import provenance
from spamfilter.stores import Entry, Store, open_store
from spamfilter.stores.sql import SqlStore
from spamfilter.system import paths
from tests.project.test_docs import documented
from tests.stores.test_sql import locked
from tests.support.made import NOON, journal_entry, mail

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    return tmp_path


def run(*words: object, stdin: bytes = b"") -> str:
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def teach() -> bytes:
    """Three mails of each class, learnt; returns one like the spam, which is the last of them."""
    body = " ".join(f"offer{number}" for number in range(20))
    for number in range(3):
        run("mark-ham", "--by", "bob", stdin=mail("lunch", "bread and butter", f"ham{number}"))
        run("mark-spam", "--by", "ann", stdin=mail("cheap pills", body, f"spam{number}"))
    return mail("cheap pills", body, "spam2")


def test_the_text_tells_where_a_verdict_comes_from(folder: Path) -> None:
    path = folder / "x.eml"
    path.write_bytes(teach())
    first, sentence, adds, legend, *lines = run("judge", "--explain", "--all", path).splitlines()
    assert sentence.startswith("  for spam speak ")
    assert legend.startswith("  ^: words that follow each other in the header")
    lines = [first, *lines]
    assert lines[0].startswith(f"{path}: spam, score 0.99")
    number = r"[+-]\d\.\d\d"
    voices = ", ".join(f"{voice} {number}" for voice in ("fields", "phrases", "body"))
    assert re.fullmatch(rf"  by weight: {voices}, besides words {number} = \+\d+\.\d\d; calibrated, 0.99.*", adds)
    *parts, total = (float(found) for found in re.findall(r"[+-]\d+\.\d\d", adds))
    assert total == pytest.approx(sum(parts), abs=0.021)
    assert lines[1].split() == ["token", "voice", "ham", "spam", "log-odds", "learnt", "from"]
    assert all(line.endswith("  #6 #4 #2") for line in lines[2:10])
    assert lines[27].endswith("more words had less influence")
    assert lines[28] == "  learnt from, the latest first"
    assert re.fullmatch(r"  #6 +\d{4}-\d\d-\d\d \d\d:\d\d\+00:00  spam  cli by ann +- +cheap pills", lines[29])
    assert lines[33] == "  what would change the verdict"
    expected = (
        r"unsure below a score of 0\.900: log-odds \+\d\.\d\d would have to fall by \d\.\d\d",
        r"without its \d+ loudest tokens for spam: unsure, score 0\.8\d\d; that is .*offer.*\.\.\.",
        r"marked as ham: \w+, score 0\.\d\d\d",
        r"marked as spam: the counts stay, as spam it is learnt already",
        r"without learning #6 \(this message itself\): spam, score 0\.\d\d\d",
        r"without learning #4 \(it taught \d+ of the loudest tokens\): spam, score 0\.\d\d\d",
        r"without learning #2 \(it taught \d+ of the loudest tokens\): spam, score 0\.\d\d\d",
    )
    assert len(lines[34:]) == len(expected)
    for line, pattern in zip(lines[34:], expected, strict=True):
        assert re.fullmatch("    " + pattern, line)
    assert max(len(line) for line in lines[1:]) <= 100
    assert run("judge", "--explain", "--all", stdin=path.read_bytes()).splitlines()[1:] == [
        sentence,
        adds,
        legend,
        *lines[1:],
    ]


def test_a_word_of_as_much_ham_as_spam_says_nothing_and_was_learnt_all_the_same(folder: Path) -> None:
    run("mark-ham", stdin=mail("lunch", "evenly bread", "ham"))
    run("mark-spam", stdin=mail("pills", "evenly cheap", "spam"))
    found = run("word", "evenly")
    assert found.startswith("evenly, of 1 ham and 1 spam learnt\n")
    assert "  evenly says nothing in fields: 1 in ham, 1 in spam\n" in found
    assert {"fields"} <= {item["voice"] for item in json.loads(run("word", "--json", "evenly"))["evidence"]}


def test_a_word_is_told_by_its_counts_and_the_mails_that_taught_it(folder: Path) -> None:
    teach()
    known, unknown = run("word", "OFFER3"), run("word", "nothing\x1b[31m")
    assert known.startswith("OFFER3, of 3 ham and 3 spam learnt\n")
    assert re.search(r"^  offer3 +body +0 +[\d.]+ +\+\d\.\d{3}  #6 #4 #2$", known, re.MULTILINE)
    assert "  #6 " in known.partition("learnt from, the latest first")[2]
    assert unknown == "nothing\\x1b[31m: never learnt\n"
    assert "  subject:pills " in run("word", "pills")
    assert "  subject:pills " in run("word", "subject:pills")
    said = json.loads(run("word", "--json", "offer3"))
    assert said.keys() == documented("word --json")
    assert {item["ham"] for item in said["evidence"] if item["token"] == "offer3"} == {0}


def test_a_word_of_a_script_without_spaces_is_found_by_its_characters(folder: Path) -> None:
    run("mark-spam", stdin="Subject: 关于十二月的发货计划\n\n发货计划\n".encode())
    known = run("word", "发货")
    assert known.startswith("发货, of 0 ham and 1 spam learnt\n")
    assert {"发", "货", "subject:发 货"} <= {line.split("  ")[1].strip() for line in known.splitlines() if "  " in line}


def test_the_part_of_the_text_that_decided_is_named(folder: Path) -> None:
    def words(kind: str, number: int) -> str:
        return " ".join(f"{kind}{each}" for each in range(number))

    for number in range(6):
        run("mark-ham", stdin=mail("hello", words("lunch", 200), f"ham{number}"))
        run("mark-spam", stdin=mail("hello", words("offer", 200), f"spam{number}"))
    hidden = mail("hello", f"{words('lunch', 150)}\r\n{words('offer', 90)}", "hidden")
    assert "\n  by the end of its text, which the rest would hide\n" in run("judge", "--explain", stdin=hidden)
    assert json.loads(run("judge", "--json", stdin=hidden))["passage"] == "end"


def test_words_that_are_not_written_as_they_look_are_shown_as_written(folder: Path) -> None:
    run("mark-spam", stdin=mail("offer", "cheap viagra"))
    disguised = mail("hello", "v?agra", "2").replace(b"?", "\u0456".encode())
    told = run("judge", "--explain", stdin=disguised)
    assert "  viagra is written v\\u0456agra\n" in told
    assert "  viagra " in told.partition("is written")[0]  # by its counts
    assert json.loads(run("judge", "--json", "--explain", stdin=disguised))["written"] == {"viagra": "v\u0456agra"}


def test_of_what_is_left_out_the_explanation_says_how_much(folder: Path) -> None:
    run("mark-spam", stdin=mail("offer", "cheap viagra"))
    disguised = mail("offer", "v?agra v?lla v?sit v?ola v?deo v?rus v?tal v?ctor v?king v?ewer v?olet", "2")
    told = run("judge", "--explain", stdin=disguised.replace(b"?", "\u0456".encode()))
    assert (told.count(" is written "), "\n  and 1 more\n" in told) == (10, True)


def test_what_nothing_is_known_of_is_explained_too(folder: Path) -> None:
    run("migrate")
    assert run("judge", "--explain", stdin=mail()).splitlines()[1:5] == [
        "  knows 0 % of its words: up to 1.5 of the log-odds are in doubt, which changes nothing",
        "  what would change the verdict",
        "    ham below a score of 0.500, whatever is in doubt: log-odds +0.00 would have to fall by 0.75",
        "    without all its tokens for spam, or all for ham: still unsure",
    ]


def test_a_bounded_search_is_told_in_the_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        run("mark-spam", stdin=mail("cheap", "pills", f"{number}"))
    monkeypatch.setattr(provenance, "LOOKED_AT", 2)
    text = run("judge", "--explain", stdin=mail("cheap", "pills", "x"))
    assert "  older learnings than the last 2 were not looked at\n" in text


def test_nothing_of_a_mail_reaches_the_terminal_but_letters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_VERDICT__SPAM", "0.7")
    evil = "\x1b]0;gr\u00fcn\x07\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 200
    tokens = {"fields": {f"{evil}{number}".encode(): 1 for number in range(9)}}
    ids = [f"{ID[:-1]}{number}" for number in range(4)]
    entries = [journal_entry(id=id, digest=id[-16:].encode(), subject=evil, tokens=tokens) for id in ids]
    with_store(folder, lambda store: store.write_journal(entries))
    monkeypatch.setattr("spamfilter.bayes.doubt.AMPLE_HAM", 0.1)
    run("mark-ham", stdin=mail())
    for id in ids:
        run("mark-spam", "--by", evil, id)
    text = run("judge", "--explain", ids[0])
    assert all(id in text for id in ids[1:])
    assert re.search(r"loudest tokens? for spam: .* that is \\x1b\]0;gr\u00fcn\\x07", text)
    assert text.replace("\n", "").isprintable()
    assert max(len(line) for line in text.splitlines()[1:]) <= 100


def with_store(folder: Path, work: Callable[[Store], object]) -> None:
    store = open_store(f"sqlite:///{folder}/spamfilter.db")
    try:
        work(store)
    finally:
        store.close()


def test_large_counts_stay_within_the_columns(folder: Path) -> None:
    words = {f"word{n}".encode() * 9: 1 for n in range(30)}

    def fill(store: Store) -> None:
        with store.learning() as learning:
            tokens = {"fields": words}
            entry = Entry("spam", {"fields": 8}, (0, 0, 0, 0), tokens, NOON, b"0" * 16, "cli", "")
            for number in range(3):
                learning.append(replace(entry, digest=b"%016d" % number))
            learning.change("fields", "spam", dict.fromkeys(words, 8_888_888 * 8), 3, Growth(30))
        store.write_journal([journal_entry(id=ID, tokens=tokens)])

    with_store(folder, fill)
    lines = run("judge", "--explain", ID).splitlines()
    assert "  little ham is learnt, so " in lines[2]
    assert " 8888888 " in lines[4]
    assert lines[4].endswith("  #3 #2 #1 ...")
    assert max(len(line) for line in lines[1:]) <= 100


EXPLAINED = {
    "trainings",
    "looked_at",
    "cut_short",
    "learnt",
    "distances",
    "without",
    "marked",
    "forgotten",
    "written",
    "listed",
    "loudest",
    "policy",
    "reasons",
}


def test_the_json_is_as_described(folder: Path) -> None:
    judged = teach()
    plain = json.loads(run("judge", "--json", stdin=judged))
    full = json.loads(run("judge", "--json", "--explain", stdin=judged))
    assert full.keys() | {"id"} == documented("judge --json")
    assert full.keys() - plain.keys() == EXPLAINED
    assert plain["evidence"] == []
    loud = [item for item in full["evidence"] if "trainings" in item]
    quiet = [item for item in full["evidence"] if "trainings" not in item]
    assert {tuple(item) for item in loud} == {("token", "voice", "ham", "spam", "weight", "read", "trainings", "more")}
    assert {tuple(item) for item in quiet} == {("token", "voice", "ham", "spam", "weight", "read")}
    assert sorted(item["read"] for item in loud) == [False] * provenance.OTHERS + [True] * len(
        loud[provenance.OTHERS :]
    )
    ids = {id for item in loud for id in item["trainings"]}
    assert ids <= {item["training"] for item in full["trainings"]} <= {*range(1, 7)}
    assert set(full["trainings"][0]) == {"training", "at", "label", "source", "by", "id", "subject"}
    assert set(full["distances"][0]) == {"class", "threshold", "log_odds"}
    assert set(full["without"][0]) == {"tokens", "posterior", "class"}
    assert full["marked"].keys() == set(LABELS)
    assert {key for after in full["marked"].values() for key in after} == {"posterior", "class"}
    assert set(full["forgotten"][0]) == {"training", "itself", "tokens", "posterior", "class"}
    described = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = described.split("## judge --json\n")[1].split("\n## ")[0]
    parts = {key for name in ("trainings", "distances", "without", "forgotten") for key in full[name][0]} | {*loud[0]}
    assert [key for key in parts if f"`{key}`" not in section] == []


def test_nothing_of_it_runs_unless_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("mark-spam", stdin=mail())

    def asked(*words: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(SqlStore, "holders", asked)
    monkeypatch.setattr(SqlStore, "active", asked)
    assert run("judge", stdin=mail("x", "y", "z")).count("\n") == 1
    result = CliRunner().invoke(main, ["judge", "--explain"], input=mail())
    assert isinstance(result.exception, AssertionError)


def test_it_waits_for_nobody_who_writes(folder: Path) -> None:
    run("mark-spam", stdin=mail())
    with locked(folder / "spamfilter.db"):
        assert "learnt from" in run("judge", "--explain", stdin=mail())
