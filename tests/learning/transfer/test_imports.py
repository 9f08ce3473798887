"""Imports: dumps that the real filters have made, judged by at once, and taken back exactly."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spamfilter.bayes.imported.voices import without_imported
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import IMPORTED_VOICES, Filter
from spamfilter.learning.transaction import Reading
from spamfilter.learning.transfer.dumps import read_dump
from spamfilter.learning.transfer.imports import announce
from spamfilter.mail.message import parse
from spamfilter.stores import Learning
from tests.learning import test_undoing
from tests.support import other_filters
from tests.support.made import mail
from tests.support.memory_store import MemoryStore
from tests.support.other_filters import WORDS, Mails, mails
from tests.support.shell import Shell

DUMPS = Path(__file__).parent / "dumps"


def counts(shell: Shell) -> dict[str, list[tuple[object, ...]]]:
    """All counts that are not zero, and the totals."""
    found = test_undoing.counts(shell)
    found["vocabularies"] = [row for row in found["vocabularies"] if row[2]]
    return found


def new(label: str) -> bytes:
    """A mail like those of a class, which nobody has learnt."""
    subject, body = WORDS[label]  # type: ignore[index]  # a label
    return mail(subject, f"{body} today", f"new {label}").replace(b"\r\n", b"\n")


def spambayes(folder: Path, given: Mails) -> bytes:
    """What sb_dbexpimp 1.1b3 has written after learning `mails()`; it needs Python 2, so its dump is kept here."""
    return (DUMPS / "spambayes.csv").read_bytes()


@pytest.mark.parametrize("dumped", [other_filters.bogofilter, other_filters.spamassassin, spambayes])
def test_a_dump_of_another_filter_is_judged_by_and_forgotten_whole(
    shell: Shell, dumped: Callable[[Path, Mails], bytes]
) -> None:
    shell.write("mine.eml", mail("Minutes", "our own minutes of the club", "mine"))
    shell.done("mark-ham", "mine.eml")
    before = counts(shell)
    folder = shell.folder / "other"
    folder.mkdir()
    file = shell.write("dump", dumped(folder, mails()))
    said = json.loads(shell.done("import", file, "--json"))
    assert (said["filter"], said["ham"], said["spam"], said["new"]) == (dumped.__name__, 8, 8, True)
    for label in ("ham", "spam"):
        judged = json.loads(shell.done("judge", "--json", shell.write("new.eml", new(label))))
        assert judged["class"] == label
    assert shell.learnt() == ({"ham": 9, "spam": 8}, [])
    assert f"{said['id']}: this file is imported already" in shell.done("import", file)
    shell.write("-", b"what has this name is not standard input")
    piped = shell.done("import", "-", stdin=file.read_bytes())
    assert f"{said['id']}: this file is imported already" in piped
    brought = f"{said['words']} words of {dumped.__name__}, 8 ham, 8 spam"
    assert brought in shell.done("import", "--list")
    assert f"{said['words']} words of {dumped.__name__}"[:18] in shell.done("stats")
    assert "8 ham and 8 spam" in shell.done("forget", said["id"])
    assert counts(shell) == before
    assert shell.learnt()[1] == []
    assert "forgotten already" in shell.fails("forget", said["id"])


def test_bogofilter_and_its_import_say_the_same(shell: Shell) -> None:
    folder = shell.folder / "other"
    folder.mkdir()
    shell.done("import", shell.write("dump", other_filters.bogofilter(folder, mails())))
    with shell.store() as store:
        filter = Filter(store, Settings().voices(), whole=False)
        for label in ("ham", "spam"):
            theirs, ours = (
                other_filters.bogofilter_says(folder, new(label)),
                filter.score(filter.read(parse(new(label)))),
            )
            assert (theirs >= 0.99, theirs <= 0.45) == (ours.posterior >= 0.9, ours.posterior < 0.5)
        score = filter.score(filter.read(parse(new("spam"))))
        assert score.voices["bogofilter"].heard == score.log_odds


def test_an_imported_voice_learns_nothing_and_falls_silent(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spamfilter.bayes.imported.voices.FADES", 4)
    shell.done("import", shell.write("dump.csv", spambayes(shell.folder, mails())))
    heard = []
    with shell.store() as store:
        filter = Filter(store, Settings().voices())
        vocabulary = filter.loaded().counts["spambayes"].vocabulary
        for at in range(5):
            reading = filter.read(parse(mail("Minutes", f"words{at}", f"later{at}")))
            heard.append(filter.score(reading).voices.get("spambayes") is not None)
            filter.learn(reading, ("ham", "spam")[at % 2], "cli")
        assert heard == [True, True, True, True, False]
        assert filter.loaded().counts["spambayes"].vocabulary == vocabulary
        assert "spambayes" not in store.entries_after(1)[0].tokens


def test_mail_that_was_read_before_an_import_has_one_score_however_the_counts_are_read(shell: Shell) -> None:
    shell.done("import", shell.write("dump.csv", spambayes(shell.folder, mails())))
    with shell.store() as store:
        held = Filter(store, Settings().voices())
        for number in range(5):
            held.learn(held.read(parse(mail("Minutes", f"pills{number} now", f"s{number}"))), "spam", "cli")
        read = held.read(parse(mail("Minutes", "pills1 now", "new")))
        before = Reading(read.digest, without_imported(read.tokens))
        assert held.score(before).few_ham > 0
        assert Filter(store, Settings().voices(), whole=False).score(before) == held.score(before)


def test_retraining_keeps_an_import(shell: Shell) -> None:
    shell.done("import", shell.write("dump.csv", spambayes(shell.folder, mails())))
    shell.write("mine.eml", mail("Minutes", "our own minutes of the club", "mine"))
    shell.done("mark-ham", "mine.eml")
    shell.run("retrain")
    assert shell.learnt() == ({"ham": 9, "spam": 8}, [])
    before = counts(shell)
    shell.done("forget", "import-1")
    assert counts(shell) != before
    assert shell.learnt() == ({"ham": 1, "spam": 0}, [])


def test_forgetting_all_of_an_author_forgets_their_imports(shell: Shell) -> None:
    with shell.store():
        before = counts(shell)
    shell.done("import", shell.write("dump.csv", spambayes(shell.folder, mails())))
    author = json.loads(shell.done("import", "--list", "--json"))["by"]
    assert "1 forgotten" in shell.done("forget", "--by", author, "--yes")
    assert counts(shell) == before


def test_of_an_import_that_was_rebuilt_after_it_was_forgotten_nothing_is_learnt_again(shell: Shell) -> None:
    shell.done("import", shell.write("dump.csv", spambayes(shell.folder, mails())))
    author = json.loads(shell.done("import", "--list", "--json"))["by"]
    imported = counts(shell)
    since = datetime.now(UTC).isoformat()
    shell.done("forget", "import-1")
    undone = shell.done("forget", "--by", author, "--since", since, "--yes")
    assert "1 forgotten, 1 of them learnt again as before" in undone
    assert counts(shell) == imported
    shell.done("forget", "--by", author, "--yes")
    without, since = counts(shell), datetime.now(UTC).isoformat()
    shell.run("retrain")
    assert "has no marks that count" in shell.done("forget", "--by", author, "--since", since, "--yes")
    assert counts(shell) == without


def test_word_lists_of_bogofilter_one_after_the_other_are_summed(shell: Shell) -> None:
    one, two = b".MSG_COUNT 5 8 20260101\nword 4 1 20260101\n", b".MSG_COUNT 2 2 20260101\nword 2 1 20260101\n"
    dump = read_dump(shell.write("both.txt", one + two))
    assert (dump.messages, dump.counts) == ({"ham": 10, "spam": 7}, {"ham": {b"word": 2}, "spam": {b"word": 6}})


WRONG = {
    "empty": (b"", "is empty"),
    "no dump": (b"hello\n", ":1: begins no dump"),
    "a line of bogofilter": (b".MSG_COUNT 1 1 20260101\nword 1\n", ":2: expected 'word spam ham date'"),
    "bogofilter without totals": (b"word 1 2 20260101\n", "has no line .MSG_COUNT"),
    "one class alone": (b".MSG_COUNT 0 5 20260101\nword 0 1 20260101\n", "has learnt no spam"),
    "a count too large": (b".MSG_COUNT 1 1\nword %d 1\n" % 2**70, ":2: the spam count is"),
    "a count of five thousand digits": (b".MSG_COUNT 1 1\nword 1 %s\n" % (b"1" * 5000), ":2: the ham count is"),
    "a line of SpamAssassin": (b"v\t3\tdb_version\nv\t1\tnum_spam\nt\t1\tx\n", ":3: expected a line of `sa-learn"),
    "SpamAssassin cut off": (b"v\t3\tdb_version\nv\t1\tnum_spam\n", "has no num_spam and num_nonspam"),
    "a line of SpamBayes": (b"1,1\nword,1\n", ":2: expected 'word,ham,spam'"),
    "a count of SpamBayes": (b'1,1\n"a ""b""",1,x\n', ":2: the spam count is 'x'"),
    "compressed": (b"\x1f\x8b\x08\0", "is compressed by gzip; unpack it first"),
    "a database": (b"SQLite format 3\0", "is a database of SQLite, and no dump; `bogoutil -d wordlist.db`"),
    "a database of bogofilter": (
        bytes(4) + b"\1" + bytes(7) + b"b1\5\0\t\0\0\0\0\x10\0\0",
        "is a database of Berkeley DB, and no dump; `bogoutil -d wordlist.db` writes one of bogofilter, `sa-learn",
    ),
    "a database of SpamAssassin": (bytes(12) + b"\0\6\x15\x61" + bytes(9), "is a database of Berkeley DB, and no"),
    "rspamd": (b"REDIS0009\xfa\tredis-ver\x056.0.16", "hashes of pairs of words"),
}


def test_of_two_imports_at_once_both_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    learning = store.learning

    def after_another() -> AbstractContextManager[Learning]:
        monkeypatch.setattr(store, "learning", learning)
        announce(store, frozenset(("spambayes",)))
        return learning()

    monkeypatch.setattr(store, "learning", after_another)
    announce(store, frozenset(("bogofilter",)))
    assert store.get_setting(IMPORTED_VOICES) == ["spambayes", "bogofilter"]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_is_named_and_nothing_is_learnt(shell: Shell, wrong: str) -> None:
    content, said = WRONG[wrong]
    error = shell.fails("import", shell.write("dump", content))
    assert f"{shell.folder}/dump" in error
    assert said in error
    assert "othing was learnt" in error
    assert shell.learnt() == ({"ham": 0, "spam": 0}, [])


def test_what_is_wrong_on_standard_input_is_named_so(shell: Shell) -> None:
    assert "standard input:1: begins no dump" in shell.fails("import", "-", stdin=b"hello\n")


def test_a_missing_file_is_named(shell: Shell) -> None:
    assert "nowhere: No such file" in shell.fails("import", "nowhere")


def test_one_command_forgets_several_imports_whatever_becomes_of_one(shell: Shell) -> None:
    with shell.store():
        before = counts(shell)
    for number in (1, 2):
        dump = f".MSG_COUNT 5 8 20260101\nword{number} 4 1 20260101\n".encode()
        shell.done("import", shell.write(f"{number}.txt", dump))
    result = shell.run("forget", "import-9", "import-1", "import-2")
    assert (result.exit_code, result.stdout.count(": forgotten, ")) == (2, 2)
    assert "import-9: no import of this number" in result.stderr
    assert counts(shell) == before


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("mine.eml",), "import-1 is an import: forget imports and messages by one command each"),
        (("--since", "7d"), "--since and --yes go with --by NAME and no message"),
        (("--yes",), "--since and --yes go with --by NAME and no message"),
    ],
    ids=["message", "since", "yes"],
)
def test_what_does_not_go_with_an_import_forgets_nothing(shell: Shell, more: tuple[str, ...], sentence: str) -> None:
    shell.done("import", shell.write("dump.txt", b".MSG_COUNT 5 8 20260101\nword 4 1 20260101\n"))
    shell.write("mine.eml", mail("Minutes", "our own minutes of the club", "mine"))
    result = shell.run("forget", "import-1", *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert shell.done("import", "--list").startswith("import-1 ")
