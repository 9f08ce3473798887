"""The commands, called like by a user, on a real database."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

import pytest

from spamfilter import __version__, commands
from spamfilter.bayes.voices import everybodys
from spamfilter.commands.command import moment
from spamfilter.commands.judge import FEW
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk import training as bulk_training
from spamfilter.learning.bulk.labelled_mail import find_piles
from spamfilter.learning.filter import Filter
from spamfilter.mail import mailboxes, tagging
from spamfilter.mail.message import GTUBE, parse
from spamfilter.stores.migration import migrate
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql import connection as sql_connection
from spamfilter.system import screen
from spamfilter.system.ids import new_id
from spamfilter.system.packaged_files import samples, shipped
from tests.support.made import NOON, journal_entry, mail
from tests.support.parts import Hop
from tests.support.real import missing, require, require_root
from tests.support.shell import Shell

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"
COMMANDS = sorted(commands.COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(shell: Shell, name: str) -> None:
    text = shell.done(name, "--help")
    assert re.search(rf"Example: spamfilter (--config \S+ )?{name}\b", text)
    assert shell.done(name, "-h") == text


def test_the_commands_and_the_version_are_listed(shell: Shell) -> None:
    text = shell.done("--help")
    assert all(name in text for name in COMMANDS)
    assert shell.done("--version").startswith(f"spamfilter {__version__}, Python 3.")


def test_a_message_is_marked_by_its_id(shell: Shell) -> None:
    with shell.store() as store:
        message = parse(mail())
        tokens = {"fields": {b"as": 1, b"judged": 1}}
        store.write_journal([journal_entry(id=ID, digest=message.digest(), tokens=tokens)])
    assert shell.done("mark-spam", ID).startswith(f"{ID}: learnt as spam; score 0.500 -> 0.52")
    assert [row[1:3] for row in shell.rows("words")] == [("fields", "as"), ("fields", "judged")]
    for typed in (ID.lower(), "OL" + ID[2:], "oI" + ID[2:]):
        assert shell.done("mark-spam", typed) == f"{ID}: already learnt as spam; nothing changed\n"
    assert shell.learnt() == ({"ham": 0, "spam": 1}, [])


def test_a_mark_without_a_relay_names_the_database_it_goes_into(shell: Shell) -> None:
    for command in ("mark-spam", "mark-ham", "forget"):
        result = shell.run(command, shell.write("x.eml", mail()), shell.write("y.eml", mail(name="y")))
        where = f"no relay at {shell.folder}/feedback.sock; the marks go into {shell.folder}/spamfilter.db\n"
        assert (result.exit_code, result.stderr) == (0, where)
    assert "no relay" not in shell.fails("mark-spam", "none.eml")


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"], ids=["crlf", "lf"])
def test_a_message_is_marked_by_its_file(shell: Shell, line_end: bytes) -> None:
    path = shell.write("x.eml", mail().replace(b"\r\n", line_end))
    assert shell.done("mark-spam", path).startswith(f"{path}: learnt as spam; score 0.500 -> ")
    assert shell.learnt() == ({"ham": 0, "spam": 1}, [])


def test_the_messages_of_a_maildir_are_marked_one_by_one(shell: Shell) -> None:
    for number, place in enumerate(("cur/1:2,S", "cur/2:2,", "new/3", "tmp/4")):
        shell.write(f"box/{place}", mail(name=f"m{number}"))
    assert shell.done("mark-ham", shell.folder / "box").count(": learnt as ham; ") == 3
    assert shell.learnt() == ({"ham": 3, "spam": 0}, [])


def test_as_ham_a_maildir_is_marked_without_its_junk_and_its_trash(shell: Shell) -> None:
    for number, place in enumerate(
        ("new/1", ".Friends/cur/2:2,", ".Junk/cur/3:2,", ".Junk.2024/cur/4:2,", ".Trash/new/5")
    ):
        shell.write(f"box/{place}", mail(name=f"m{number}"))
        (shell.folder / "box" / place).parent.with_name("new").mkdir(exist_ok=True)
        (shell.folder / "box" / place).parent.with_name("cur").mkdir(exist_ok=True)
    result = shell.run("mark-ham", shell.folder / "box")
    assert (result.exit_code, result.stdout.count(": learnt as ham; ")) == (0, 2)
    assert result.stderr.count(": left out of the ham, as its name says ") == 3
    assert shell.done("mark-spam", shell.folder / "box" / ".Junk").count(": learnt as spam; ") == 1
    assert shell.learnt() == ({"ham": 2, "spam": 1}, [])


def test_mails_are_no_folders_whatever_stands_in_their_names(shell: Shell) -> None:
    shell.write("box/cur/1700000.M1P2.spam.example.org:2,S", mail(name="1"))
    (shell.folder / "box" / "new").mkdir()
    shell.write("saved/sent.eml", mail(name="2"))
    shell.write("saved/Junk.mbox", b"From x\n" + mail(name="3"))
    result = shell.run("mark-ham", shell.folder / "box", shell.folder / "saved")
    assert (result.exit_code, result.stdout.count(": learnt as ham; ")) == (0, 2)
    assert result.stderr.count("left out of the ham") == 1


def test_a_mark_that_is_refused_keeps_no_other_from_being_made(shell: Shell) -> None:
    files = [shell.write(f"box/{number}.eml", mail(name=str(number))) for number in range(3)]
    shell.done("mark-ham", "--by", "bob", files[1])
    result = shell.run("mark-spam", "--by", "ann", shell.folder / "box", shell.write("empty.eml", b""))
    refusal = f"spamfilter: {files[1]}: learnt as ham by bob; only they or the administrator can change that"
    assert (result.exit_code, result.stdout.count(": learnt as spam; ")) == (2, 2)
    assert result.stderr.splitlines()[1:] == [refusal, f"spamfilter: {shell.folder / 'empty.eml'}: no mail in it"]
    again = shell.run("mark-spam", "--by", "ann", files[1])
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (1, refusal)
    wrong = shell.run("mark-spam", "--by", "ann", files[1], "none.eml")
    assert (wrong.exit_code, wrong.stderr.splitlines()[-2]) == (2, refusal)
    assert shell.learnt() == ({"ham": 1, "spam": 2}, [])


@pytest.mark.parametrize("folder", ["Trash", "INBOX/Deleted Items", "Papierkorb/2026", "INBOX.Junk.2026", "Sent"])
def test_a_mail_that_was_moved_into_the_trash_is_not_marked(shell: Shell, folder: str) -> None:
    said = shell.done("mark-ham", "--into", folder, stdin=mail())
    assert said.startswith(f"{folder}: holds ")
    assert said.endswith(", so a mail that is moved there is no mark\n")
    assert shell.learnt()[0] == {"ham": 0, "spam": 0}
    assert "learnt as ham" in shell.done("mark-ham", "--into", "Archive/2026", stdin=mail())


@pytest.mark.parametrize("words", [(), ("-",)], ids=["no-argument", "dash"])
def test_a_message_is_marked_from_standard_input(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.done("mark-spam", *words, stdin=mail()).startswith("standard input: learnt as spam; ")
    assert shell.learnt()[0] == {"ham": 0, "spam": 1}


def test_several_messages_are_marked_in_one_command(shell: Shell) -> None:
    first, second = shell.write("1.eml", mail(name="1")), shell.write("2.eml", mail(name="2"))
    lines = shell.done("mark-spam", first, "-", second, stdin=mail(name="3")).splitlines()
    assert [line.partition(":")[0] for line in lines] == [str(first), "standard input", str(second)]
    assert shell.learnt()[0]["spam"] == 3


def test_an_empty_file_among_several_is_named_and_the_others_are_marked(shell: Shell) -> None:
    empty, good = shell.write("empty.eml", b""), shell.write("good.eml", mail())
    result = shell.run("mark-spam", empty, good)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"spamfilter: {empty}: no mail in it")
    assert shell.learnt()[0]["spam"] == 1


@pytest.mark.parametrize("command", [["search"], ["review"], ["word", "x"], ["lists"], ["quarantine", "list"]])
def test_what_only_reads_makes_no_database(shell: Shell, command: list[str]) -> None:
    result = shell.run(*command)
    assert result.exit_code == 0 or "no database yet" in result.stderr
    assert not (shell.folder / "spamfilter.db").exists()


def test_where_nothing_was_ever_kept_nothing_expires(shell: Shell) -> None:
    shell.done("migrate")
    assert shell.done("quarantine", "expire").startswith("0 older than 30 days deleted from ")


@pytest.mark.parametrize("command", ["mark-spam", "mark-ham", "forget"])
def test_the_same_twice_succeeds_and_changes_nothing(shell: Shell, command: str) -> None:
    path = shell.write("x.eml", mail())
    shell.done(command, path)
    before = [shell.rows(table) for table in ("words", "classes", "vocabularies", "ledger", "settings")]
    assert "nothing changed" in shell.done(command, path)
    assert [shell.rows(table) for table in ("words", "classes", "vocabularies", "ledger", "settings")] == before


def test_the_other_label_takes_the_first_back(shell: Shell) -> None:
    path = shell.write("x.eml", mail())
    shell.done("mark-spam", path)
    said = shell.done("mark-ham", path)
    assert said.startswith(f"{path}: learnt as ham (was spam, which is taken back); score 0.591 -> 0.1")
    assert shell.learnt() == ({"ham": 1, "spam": 0}, [])
    assert {row[4] for row in shell.rows("words")} == {0}


def test_what_is_forgotten_leaves_no_words(shell: Shell) -> None:
    path = shell.write("x.eml", mail())
    assert shell.done("forget", path) == f"{path}: not learnt; nothing changed\n"
    shell.done("mark-spam", path)
    assert shell.done("forget", path).startswith(f"{path}: forgotten as spam; score ")
    assert shell.rows("words") == []
    assert shell.learnt() == ({"ham": 0, "spam": 0}, [])


@pytest.mark.parametrize(
    ("command", "was", "changed"),
    [("mark-spam", None, True), ("mark-ham", None, True), ("forget", None, False)],
)
def test_a_change_is_one_json_object_a_line(shell: Shell, command: str, was: object, changed: bool) -> None:
    path = shell.write("x.eml", mail())
    change = json.loads(shell.done(command, "--json", path))
    assert change.keys() == {"file", "changed", "was", "again", "before", "after"}
    assert (change["file"], change["was"], change["changed"], change["before"]) == (str(path), was, changed, 0.5)


def test_a_message_is_judged_and_not_learnt(shell: Shell) -> None:
    shell.done("migrate")
    path = shell.write("x.eml", mail())
    assert shell.done("judge", path).startswith(f"{path}: unsure, score 0.500 (log-odds +0.00, ")
    shell.done("mark-spam", path)
    before = shell.rows("ledger")
    assert ": unsure, score 0.591" in shell.done("judge", stdin=mail())
    assert shell.rows("ledger") == before


@pytest.mark.parametrize("as_folder", [False, True])
def test_many_messages_are_judged_as_one_by_one(shell: Shell, as_folder: bool) -> None:
    """Some of them are known to the journal, whose tokens count; a wrong name is told after what comes before it."""
    shell.done("mark-spam", shell.write("one.eml", mail("cheap pills", "buy cheap pills now")))
    files = [
        shell.write(f"many/{number:02}.eml", mail(f"cheap {number}", f"pills number {number}", f"n{number}"))
        for number in range(FEW + 5)
    ]
    seen = {"fields": {b"as": 1, b"judged": 1}}
    with shell.store() as store:
        store.write_journal(
            [
                journal_entry(
                    id=ID, digest=parse(files[3].read_bytes()).digest(), message_id="<n3@example.org>", tokens=seen
                )
            ]
        )
    singly = [shell.done("judge", file) for file in files]
    assert ["fields +0.00" in line for line in singly[2:5]] == [False, True, False]
    names = [shell.folder / "many"] if as_folder else files
    assert shell.done("judge", *names) == "".join(singly)
    failed = shell.run("judge", *names, "none.eml")
    assert (failed.exit_code, failed.stdout) == (2, "".join(singly))


def test_gtube_is_judged_as_the_relay_judges_it(shell: Shell) -> None:
    shell.done("migrate")
    path = shell.write("x.eml", mail("a test", GTUBE.decode()))
    for words in (("judge",), ("judge", "--explain")):
        said = shell.done(*words, path)
        assert said.startswith(f"{path}: spam, score 1.000 (")
        assert said.endswith("; by the test line GTUBE\n")
    judged = json.loads(shell.done("judge", "--json", path))
    assert (judged["class"], judged["posterior"], judged["evidence"][0]["token"]) == ("spam", 1.0, "GTUBE")


def test_a_judgement_is_explained_in_a_table(shell: Shell) -> None:
    path = shell.write("x.eml", mail("hello"))
    shell.done("mark-spam", path)
    first, sentence, few, adds, legend, *lines = shell.done("judge", "--explain", "--all", path).splitlines()
    assert all(len(line) <= 100 for line in (sentence, few, adds, legend))
    lines = [first, *lines]
    assert lines[1].split() == ["token", "voice", "ham", "spam", "log-odds", "learnt", "from"]
    assert lines[2 + 25] == "  53 more words had less influence"
    assert any(line.split()[-5:-2] == ["fields", "0", "1"] for line in lines[2:27])
    assert all(len(line) <= 100 for line in lines[1:])


def test_words_that_people_do_not_read_are_one_line_and_count_all_the_same(shell: Shell) -> None:
    path = shell.write("x.eml", b"Received: from mx9.example.net by us\r\n" + mail("hello", "cheap pills"))
    shell.done("mark-spam", path)
    told = shell.done("judge", "--explain", path)
    everything = shell.done("judge", "--explain", "--all", path)
    assert "\n  pills " in told
    assert "received:" not in told
    assert "\n  ^" not in told
    assert "\n  ^" in everything
    folded = re.search(r"\n  ([+-][\d.]+) by (\d+) words that people do not read", told)
    assert folded
    judged = json.loads(shell.done("judge", "--explain", "--json", path))
    others = [item["weight"] for item in judged["evidence"] if not item["read"]]
    assert float(folded[1]) == pytest.approx(sum(others), abs=0.001)
    assert int(folded[2]) == len(others)


def test_a_judgement_is_explained_in_json(shell: Shell) -> None:
    path = shell.write("x.eml", mail("grün".encode("unicode_escape").decode()))
    shell.done("mark-spam", path)
    judged = json.loads(shell.done("judge", "--explain", "--json", path))
    assert judged.keys() >= {"file", "posterior", "log_odds", "class", "voices", "tokens", "evidence"}
    weights = {voice.name: voice.weight for voice in everybodys(Settings().voices())}
    odds = sum(weights[voice] * alone for voice, alone in judged["voices"].items())
    assert (judged["voices"].keys(), judged["log_odds"]) == (weights.keys(), pytest.approx(odds))
    assert judged["tokens"] == len(judged["evidence"]) > 25
    assert judged["log_odds"] == pytest.approx(sum(item["weight"] for item in judged["evidence"]))
    assert judged["evidence"][-1].keys() == {"token", "voice", "ham", "spam", "weight", "read"}
    assert json.loads(shell.done("judge", "--json", path))["evidence"] == []


def test_a_mail_that_passed_is_named_by_its_id_in_json(shell: Shell) -> None:
    message = parse(mail())
    with shell.store() as store:
        entry = journal_entry(id=ID, digest=message.digest(), message_id=message.field(b"message-id"))
        store.write_journal([entry])
    path = shell.write("x.eml", f"X-Spamfilter-Id: {ID}\r\n".encode() + mail())
    assert json.loads(shell.done("judge", "--json", path))["id"] == ID
    assert "file" not in json.loads(shell.done("mark-spam", "--json", path))


def pile(shell: Shell, name: str, count: int = 3) -> Path:
    for number in range(count):
        shell.write(f"{name}/cur/{number}", mail(f"{name} offer", f"text of {name}", f"{name}{number}"))
    return shell.folder / name


def test_training_learns_both_piles_and_shows_its_progress_on_standard_error(shell: Shell) -> None:
    result = shell.run("train", "--spam", pile(shell, "junk"), "--ham", pile(shell, "good", 4))
    assert result.exit_code == 0
    assert result.stdout == "learnt 4 ham and 3 spam; 0 were already learnt, 0 changed their label\n"
    assert "Learning" in result.stderr
    assert shell.learnt() == ({"ham": 4, "spam": 3}, [])


def test_a_training_into_a_log_says_now_and_then_how_far_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("train", "--spam", pile(shell, "junk"), "--ham", pile(shell, "good", 4))
    monkeypatch.setattr(screen, "TOLD_EVERY", 0.0)
    said = re.findall(r"^Learning, 5 rounds: (\d+)% done$", shell.run(*words).stderr, re.MULTILINE)
    assert said[-1] == "100"
    assert sorted(said, key=int) == said != ["100"]


def test_training_again_learns_nothing_twice(shell: Shell) -> None:
    words = ("train", "--spam", pile(shell, "junk"), "--ham", pile(shell, "good"))
    shell.done(*words)
    before = shell.rows("words"), shell.rows("ledger")
    assert shell.done(*words) == "learnt 0 ham and 0 spam; 6 were already learnt, 0 changed their label\n"
    assert (shell.rows("words"), shell.rows("ledger")) == before


def test_a_folder_within_one_of_the_other_label_is_learnt_as_its_own_name_says(shell: Shell) -> None:
    pile(shell, "box", 4)
    pile(shell, "box/.Fraud")
    result = shell.run("train", "--spam", "box/.Fraud", "--ham", "box")
    assert (result.exit_code, shell.learnt()) == (0, ({"ham": 4, "spam": 3}, []))
    assert "spamfilter: box/.Fraud: left out of the ham, as it is named as spam\n" in result.stderr


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_a_name_given_twice_is_refused_before_anything_is_read(shell: Shell, command: str) -> None:
    pile(shell, "box")
    (shell.folder / "link").symlink_to("box")
    assert "link: is named as ham and as spam; " in shell.fails(command, "--spam", "link", "--ham", "box")
    assert "link: is named twice; " in shell.fails(command, "--spam", "box", "--spam", "link")
    assert not (shell.folder / "spamfilter.db").exists()


def test_junk_trash_sent_mail_and_drafts_are_ham_only_if_they_are_named(shell: Shell) -> None:
    left_out = (".Junk", ".Trash", ".INBOX.Gesendet", "Entw&APw-rfe")
    for name in (".Friends", *left_out):
        pile(shell, f"box/{name}", 2)
    shell.write("box/Spam.mbox", b"From ann@x Sun Mar  1 12:00:00 2026\nSubject: buy\n\npills\n")
    result = shell.run("train", "--ham", "box")
    named = re.findall(r"^spamfilter: box/(\S+): left out of the ham, as its name says", result.stderr, re.MULTILINE)
    assert sorted(named) == sorted((*left_out, "Spam.mbox"))
    assert shell.learnt()[0] == {"ham": 2, "spam": 0}
    shell.done("train", "--ham", "box", "--ham", "box/.Trash")
    assert shell.learnt()[0] == {"ham": 4, "spam": 0}


@pytest.mark.parametrize("command", ["train --ham", "mark-ham"])
def test_mail_that_is_marked_as_deleted_or_a_draft_is_no_ham(shell: Shell, command: str) -> None:
    for number, flags in enumerate(["", "S", "ST", "T", "DS", "F"]):
        shell.write(f"box/cur/{number}.host:2,{flags}", mail(f"minutes {number}", name=f"{number}"))
    result = shell.run(*command.split(), "box")
    assert (
        result.stderr.count("box/cur: mail in it that is marked as deleted or as a draft is left out of the ham") == 1
    )
    assert (result.exit_code, shell.learnt()[0]) == (0, {"ham": 3, "spam": 0})
    shell.done("train", "--ham", "box/cur/2.host:2,ST")
    assert shell.learnt()[0] == {"ham": 4, "spam": 0}
    assert shell.run("mark-spam", "box").exit_code == 0
    assert shell.learnt()[0] == {"ham": 0, "spam": 6}


def test_folders_named_as_the_wrong_class_are_warned_of_and_can_be_put_right(shell: Shell) -> None:
    junk, sent = pile(shell, ".Junk", 3), pile(shell, ".Sent", 4)
    swapped = shell.run("train", "--ham", junk, "--spam", sent)
    assert f"spamfilter: {junk}: is read as ham, but its name says spam or junk; if --ham and --spam" in swapped.stderr
    assert f"spamfilter: {sent}: is read as spam, but its name says sent mail; if --ham and --spam" in swapped.stderr
    assert (swapped.exit_code, shell.learnt()[0]) == (0, {"ham": 3, "spam": 4})
    right = shell.run("train", "--ham", sent, "--spam", junk)
    assert "its name says" not in right.stderr
    assert right.stdout.endswith("7 changed their label\n")
    assert shell.learnt() == ({"ham": 4, "spam": 3}, [])


def test_folders_of_special_use_in_dovecots_configuration_are_no_ham(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("doveconf", "dovecot-imapd")
    mailboxes = "".join(
        f"mailbox {name} {{\n auto = create\n special_use = {use}\n}}\n"
        for name, use in (("Fraud", r"\Junk"), ('"Lists/Old ones"', r"\Trash"), ("Kept", r"\Archive"))
    )
    configuration = shell.write(
        "dovecot.conf", f"protocols = imap\nnamespace inbox {{\n inbox = yes\n{mailboxes}}}\n".encode()
    )
    monkeypatch.setenv("CONFIG_FILE", str(configuration))  # of all programs of Dovecot
    for name in (".Fraud", ".Lists.Old ones", ".Kept", ".Friends"):
        pile(shell, f"box/{name}", 2)
    result = shell.run("train", "--ham", "box")
    assert re.findall(r"box/(.+): left out of the ham, as Dovecot's configuration says (.+);", result.stderr) == [
        (".Fraud", "spam or junk"), (".Lists.Old ones", "deleted mail"),
    ]  # fmt: skip
    assert shell.learnt()[0] == {"ham": 4, "spam": 0}


MBOX = b"".join(b"From x@y Mon Mar  2 12:00:00 2026\n" + mail(name=name) + b"\n" for name in ("1", "2"))
NO_MAIL = {
    "archive.zip": b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
    "archive.tar": b"cur/1:2,S" + bytes(500) + mail(),
    "compressed.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
    "u.1": b"2 M1e C5f0e0000\n\1\2N                   0000000000000021\n" + mail(),
    "notes.txt": b"Dear all,\nthis is no mail: it has no header.\n",
    "random": bytes(range(255, -1, -1)) * 4,
}


def why_not(name: str) -> str:
    """What is said of a file that is no mail."""
    kind = {".zip": "zip", ".gz": "gzip"}.get(Path(name).suffix)
    if kind:
        return f"is compressed by {kind}, and not read; unpack it first (a mailbox of Dovecot"
    if name == "u.1":
        return "is in Dovecot's format dbox, and not read; copy the mailbox into a Maildir"
    return "begins with no header field, so it is no mail; tables and texts"


def test_what_is_no_mail_is_passed_over_and_named(shell: Shell) -> None:
    shell.done("migrate")
    good, junk = pile(shell, "good"), pile(shell, "junk")
    for name, content in NO_MAIL.items():
        shell.write(f"good/cur/{name}", content)
    commands: list[tuple[object, ...]] = [
        ("judge", good), ("evaluate", "--spam", junk, "--ham", good, "--resamples", "0"),
        ("train", "--ham", good), ("mark-ham", good),
    ]  # fmt: skip
    for words in commands:
        result = shell.run(*words)
        said = [line.split(": ")[1:3] for line in result.stderr.splitlines() if line.startswith("spamfilter: /")]
        assert sorted(said) == sorted([f"{good}/cur/{name}", why_not(name)] for name in NO_MAIL)
        assert result.exit_code == 2
        assert result.stdout
    assert shell.learnt()[0] == {"ham": 3, "spam": 0}


def test_random_bytes_on_standard_input_are_no_mail(shell: Shell) -> None:
    shell.done("migrate")
    for command in ("judge", "mark-spam"):
        assert shell.fails(command, stdin=NO_MAIL["random"]).startswith("spamfilter: standard input: begins with no ")


def test_of_many_files_that_are_no_mail_some_are_named_and_the_others_counted(shell: Shell) -> None:
    shell.done("migrate")
    for number in range(60):
        shell.write(f"box/{number}", b"no mail")
    assert shell.run("judge", "box").stderr.splitlines()[-1] == "spamfilter: and 10 more were passed over"


def test_training_by_an_index(shell: Shell) -> None:
    pile(shell, "junk")
    pile(shell, "good")
    index = shell.write("full/index", b"spam ../junk/cur/0\nham ../good/cur/0\nspam ../junk/cur/1\n")
    outcome = json.loads(shell.done("train", "--json", "--index", index))
    assert (outcome["learnt"], outcome["known"], outcome["problems"]) == ({"ham": 1, "spam": 2}, 0, [])
    nothing = shell.write("nothing", b"\n")
    assert shell.fails("train", "--index", nothing) == f"spamfilter: {nothing}: no mail in it\n"


def test_a_mail_that_cannot_be_read_is_named_and_the_others_are_learnt(shell: Shell) -> None:
    pile(shell, "junk")
    index = shell.write("index", b"spam junk/cur/0\nspam junk/cur/none\nspam junk/cur/1\n")
    result = shell.run("train", "--index", index)
    assert result.exit_code == 2
    assert f"spamfilter: {shell.folder}/junk/cur/none: No such file or directory\n" in result.stderr
    assert shell.learnt() == ({"ham": 0, "spam": 2}, [])


def test_an_interrupted_training_says_so_and_goes_on_the_next_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", "--spam", pile(shell, "junk", 40), "--ham", pile(shell, "good", 40))
    monkeypatch.setattr(bulk_training, "TOGETHER", 32)
    seen: list[Path] = []
    read = mailboxes._slice

    def interrupted(path: Path, name: str, start: int, stop: int) -> bytes:
        seen.append(path)
        if len(seen) == 70:
            raise KeyboardInterrupt
        return read(path, name, start, stop)

    monkeypatch.setattr(mailboxes, "_slice", interrupted)
    try:
        result = shell.run(*words)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL, "a further one must end the process without a word"
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert result.exit_code == 130
    assert result.stdout.startswith("learnt 32 ham and 32 spam; ")
    assert "stopped; what was learnt is kept. Run the same command to continue" in result.stderr
    assert shell.learnt() == ({"ham": 32, "spam": 32}, [])
    assert shell.done(*words).startswith("learnt 8 ham and 8 spam; 64 were already learnt, ")


def test_the_report_as_text_and_as_json(shell: Shell) -> None:
    shell.done("mark-spam", stdin=mail())
    with shell.store() as store:
        now = datetime.now(UTC)
        store.write_journal([journal_entry(at=now - timedelta(hours=hours)) for hours in (1, 30, 24 * 8)])
    assert "2 messages" in shell.done("stats")
    assert "1 message," in shell.done("stats", "--since", "24h")
    assert "3 messages" in shell.done("stats", "--since", "2w")
    report = json.loads(shell.done("stats", "--json"))
    assert report == {
        **json.loads(shell.done("stats", "--format", "json")),
        **{key: report[key] for key in ("since", "until", "before_since")},  # of another moment
    }
    assert (report["messages"], report["learnt"], report["learnings"]) == (2, {"ham": 0, "spam": 1}, 1)
    assert datetime.fromisoformat(report["since"]).tzinfo == UTC
    assert json.loads(shell.done("stats", "--json", "--since", NOON.date().isoformat()))["since"].startswith(
        "2026-03-01"
    )


def test_a_date_as_the_end_of_the_report_includes_that_day(shell: Shell) -> None:
    with shell.store() as store:
        store.write_journal([journal_entry(at=NOON), journal_entry(at=NOON + timedelta(days=1))])
    day = NOON.date().isoformat()
    assert json.loads(shell.done("stats", "--json", "--since", day, "--until", day))["messages"] == 1
    today = datetime.now().astimezone().date().isoformat()
    assert json.loads(shell.done("stats", "--json", "--since", day, "--until", today))["messages"] == 2
    assert "lies in the future" in shell.fails("stats", "--until", "9999-12-31")
    assert "lies behind the end" in shell.fails("stats", "--until", day, "--since", today)
    assert json.loads(shell.done("stats", "--json", "--since", "0001-01-02"))["messages"] == 2


@pytest.mark.parametrize(
    ("zone", "begin", "end"),
    [
        pytest.param("UTC", "2026-10-19 00:00", "2026-10-26 00:00", id="utc"),
        pytest.param("Europe/Berlin", "2026-10-18 22:00", "2026-10-25 23:00", id="summer-time-ends"),
    ],
)
def test_seven_days_until_yesterday_begin_and_end_at_midnight(
    monkeypatch: pytest.MonkeyPatch, zone: str, begin: str, end: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        until = moment("--until", "yesterday", datetime(2026, 10, 26, 6, 17, tzinfo=UTC), end=True)
        since = moment("--since", "7d", until)
        assert moment("--since", "yesterday", until) == until - timedelta(hours=25 if zone != "UTC" else 24)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (f"{since:%Y-%m-%d %H:%M}", f"{until:%Y-%m-%d %H:%M}") == (begin, end)


@pytest.mark.parametrize("since", ["x", "7", "7y", "-7d", "2026-13-01", "99999999w", "999999w"])
def test_a_span_that_is_none_is_named(shell: Shell, since: str) -> None:
    assert repr(since) in shell.fails("stats", "--since", since)


def test_a_database_is_migrated_forth_and_said_so(shell: Shell) -> None:
    assert shell.done("migrate") == f"{shell.url}: schema none -> {HEAD}\n"
    assert shell.done("migrate") == f"{shell.url}: schema {HEAD}, nothing to do\n"
    assert "9999" in shell.fails("migrate", "--revision", "9999")


def test_going_back_to_an_older_schema_needs_an_answer(shell: Shell) -> None:
    assert shell.done("migrate", "--revision", HEAD).endswith(f"schema none -> {HEAD}\n")
    back = shell.fails("migrate", "--revision", "0002")
    assert back.endswith("; make a backup, stop the relay, and add --yes\n")
    assert shell.rows("alembic_version") == [(HEAD,)]
    assert shell.done("migrate", "--yes", "--revision", "0002").endswith(f"schema {HEAD} -> 0002\n")
    assert shell.done("migrate", "--revision", HEAD).endswith(f"schema 0002 -> {HEAD}\n")


@pytest.mark.parametrize("status", [{}, {"schema": "0010"}], ids=["that-names-no-schema", "of-an-older-schema"])
def test_a_relay_of_an_older_version_is_to_be_restarted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, status: dict[str, str]
) -> None:
    migrate(shell.url, "0010")
    monkeypatch.setattr("spamfilter.commands.maintenance.status_of_relay", lambda settings, place: status)
    done = shell.run("migrate")
    assert (done.exit_code, done.stdout) == (0, f"{shell.url}: schema 0010 -> {HEAD}\n")
    assert done.stderr == "warning: a relay of an older version runs on it: restart it now, or it learns nothing\n"


@pytest.mark.parametrize(("answer", "after"), [(b"n\n", HEAD), (b"y\n", "0002")], ids=["no", "yes"])
def test_on_a_terminal_going_back_is_asked(shell: Shell, answer: bytes, after: str) -> None:
    shell.done("migrate")
    typed_on_a_terminal(answer, "migrate", "--revision", "0002")
    assert shell.rows("alembic_version") == [(after,)]


@pytest.mark.parametrize("command", ["mark-spam", "judge"])
def test_without_a_name_on_a_terminal_nothing_is_waited_for(shell: Shell, command: str) -> None:
    shell.done("migrate")
    code, said = typed_on_a_terminal(b"", command)
    assert (code, said) == (2, "spamfilter: no mail: name an id, a file or a Maildir, or pipe a mail in\n")


def typed_on_a_terminal(keys: bytes, *words: str) -> tuple[int, str]:
    """The exit code and what is said of a command whose standard input is a terminal."""
    ours, its = os.openpty()
    try:
        os.write(ours, keys)
        program = [sys.executable, "-m", "spamfilter", *words]
        done = subprocess.run(program, stdin=its, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(ours)
        os.close(its)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words", [("stats",), ("backup", "copy.db"), ("retrain",), ("evaluate", "--live"), ("forget", "--by", "ann")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_where_there_is_no_database_a_reading_command_says_so_and_makes_none(
    shell: Shell, words: tuple[str, ...]
) -> None:
    assert "spamfilter.db: no database yet; " in shell.fails(*words)
    assert not list(shell.folder.iterdir())


def test_a_backup_is_a_database_with_everything(shell: Shell) -> None:
    shell.done("mark-spam", stdin=mail())
    target = shell.folder / "copy.db"
    assert shell.done("backup", target) == f"{target}: {target.stat().st_size} bytes\n"
    other = Shell(shell.folder / "other")
    other.folder.mkdir()
    target.rename(other.folder / "spamfilter.db")
    assert other.learnt() == ({"ham": 0, "spam": 1}, [])
    shell.write("precious", b"precious")
    migrate(shell.url, "0003")
    shell.done("backup", "before the upgrade.db")
    with closing(sqlite3.connect(shell.folder / "before the upgrade.db")) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]
    migrate(shell.url)
    assert "precious: exists already" in shell.fails("backup", "precious")
    assert "nowhere/copy.db" in shell.fails("backup", "nowhere/copy.db")


def test_the_configuration_is_checked(shell: Shell) -> None:
    path = shell.write("x.toml", b'[relay]\nnext_hop = "smtp://127.0.0.1:26"\n')
    text = shell.done("--config", path, "check-config")
    assert f"configuration  {path}\n" in text
    assert "next hop       smtp://127.0.0.1:26\n" in text
    assert text.endswith("ok\n")
    assert "defaults and environment" in shell.done("check-config")


def test_train_says_when_it_could_not_go_over_the_other_class(shell: Shell) -> None:
    shell.done("mark-ham", pile(shell, "good", 2))
    warned = "this run learnt 3 spam beside 0 of 2 ham: others are marks or an import, which no run goes over"
    assert warned in shell.run("train", "--spam", pile(shell, "junk")).stderr
    assert "this run" not in shell.run("train", "--ham", pile(shell, "more", 3)).stderr


def test_what_another_run_learns_meanwhile_is_called_neither_mark_nor_import(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    piles = ("--spam", pile(shell, "junk", 4), "--ham", pile(shell, "good", 3))
    elsewhere = find_piles([], [pile(shell, "more", 5)], print)
    read = mailboxes._slice

    def meanwhile(path: Path, name: str, start: int, stop: int) -> bytes:
        monkeypatch.setattr(mailboxes, "_slice", read)
        with shell.store() as store:
            bulk_training.train(
                Filter(store, Settings().voices()), elsewhere, "bob", lambda _: None, bulk_training.Outcome()
            )
        return read(path, name, start, stop)

    monkeypatch.setattr(mailboxes, "_slice", meanwhile)
    result = shell.run("train", *piles)
    assert shell.learnt()[0] == {"ham": 8, "spam": 4}
    assert "marks" not in result.stderr


def test_what_will_be_rejected_is_said_after_training_and_by_check_config(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.search("^rejects        unknown: .*no database yet", shell.done("check-config"), re.MULTILINE)
    result = shell.run("train", "--spam", pile(shell, "junk"), "--ham", pile(shell, "good", 4))
    said = "no spam yet: 4 ham and 3 spam are learnt, of 200 each that it needs (reject_after)\n"
    assert result.stderr.startswith(f"learning into {shell.folder}/spamfilter.db\n")
    assert result.stderr.endswith(f"the relay rejects {said}")
    assert f"\nrejects        {said}ok\n" in shell.done("check-config")
    monkeypatch.setenv("SPAMFILTER_VERDICT__REJECT_AFTER", "3")
    assert "rejects        spam from 0.999 on: 4 ham and 3 spam are learnt\n" in shell.done("check-config")
    monkeypatch.setenv("SPAMFILTER_RELAY__MODE", "after-queue")
    assert "rejects        nothing, because of mode after-queue\n" in shell.done("check-config")


def test_the_prefix_before_the_subject_of_tagged_mail_is_no_word(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPAMFILTER_VERDICT__SUBJECT_PREFIX", "[JUNK]")

    def tagged(name: str) -> bytes:
        return b"".join(tagging.mark(mail("cheap pills", name=name), [("X-Spamfilter-Id", new_id())], "[JUNK]"))

    for number in range(6):
        shell.write(f"spam/{number}.eml", tagged(f"s{number}"))
        shell.write(f"ham/{number}.eml", mail("minutes", name=f"h{number}"))
    shell.done("train", "--spam", "spam", "--ham", "ham")
    shell.done("mark-spam", shell.write("more.eml", tagged("more")))
    pills, junk = map(json.loads, shell.done("word", "--json", "pills", "junk").splitlines())
    assert pills["evidence"]
    assert junk["evidence"] == []
    as_tagged, as_it_came = (
        json.loads(shell.done("judge", "--json", shell.write("x.eml", sent)))["log_odds"]
        for sent in (tagged("x"), mail("cheap pills", name="x"))
    )
    assert as_tagged == as_it_came


def test_a_surprising_configuration_is_warned_of(shell: Shell) -> None:
    path = shell.write("x.toml", b'[verdict]\non_ham = "defer"\n')
    result = shell.run("--config", path, "check-config")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: verdict.on_ham")


def test_every_fault_of_the_configuration_is_a_line(shell: Shell) -> None:
    path = shell.write("x.toml", b"[limits]\nerrors = 0\nrecipients = 0\n")
    result = shell.run("--config", path, "check-config")
    assert result.exit_code == 2
    assert [line.startswith(f"spamfilter: {path}: limits.") for line in result.stderr.splitlines()] == [True, True]


def test_the_configuration_is_that_of_option_environment_and_variables(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.write("x.toml", b'[store]\nurl = "sqlite:////here.db"\n')
    monkeypatch.setenv("SPAMFILTER_CONFIG", str(path))
    assert "database       sqlite:////here.db\n" in shell.done("check-config")
    monkeypatch.setenv("SPAMFILTER_STORE__URL", "sqlite:////elsewhere.db")
    assert "database       sqlite:////elsewhere.db\n" in shell.done("check-config")
    assert "No such file" in shell.fails("--config", "none.toml", "check-config")


def test_every_sample_is_listed_and_printed(shell: Shell) -> None:
    listed = shell.done("sample-config", "--list").splitlines()
    assert listed == samples()
    for name in listed:
        assert shell.done("sample-config", name) == shipped(name).read_text(encoding="utf-8")
    assert shell.done("sample-config") == shipped("config/spamfilter.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["none", "config/none", "config", "systemd/", "config/../pyproject.toml"])
def test_a_sample_that_is_none_is_named(shell: Shell, name: str) -> None:
    assert name in shell.fails("sample-config", name)


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        pytest.param(("mark-spam", "none.eml"), b"", "none.eml: not a file, a folder or an id", id="missing-file"),
        pytest.param(("mark-spam", ID), b"", f"{ID}: no message of this id", id="unknown-id"),
        pytest.param(("mark-ham",), b"", "standard input: no mail", id="empty-input"),
        pytest.param(("judge",), b" \r\n", "standard input: no mail", id="blank-input"),
        pytest.param(("mark-ham", "-"), MBOX, "standard input: more than one mail; name the file", id="mbox-piped-in"),
        pytest.param(("forget", "empty"), b"", "empty: no mail in it", id="empty-folder"),
        pytest.param(("train", "--spam", "none"), b"", "none: no such file", id="missing-pile"),
        pytest.param(("train", "--index", "bad-index"), b"", "bad-index: line 1: ", id="bad-index"),
        pytest.param(("train", "--index", "none"), b"", "none: cannot be read as an index", id="missing-index"),
        pytest.param(("--config", "none.toml", "judge"), b"", "none.toml: No such file", id="missing-configuration"),
        pytest.param(("--config", "bad.toml", "stats"), b"", "bad.toml: unknown key spam", id="bad-configuration"),
    ],
)
def test_what_a_user_got_wrong_is_one_line_that_names_it(
    shell: Shell, words: tuple[str, ...], stdin: bytes, sentence: str
) -> None:
    shell.done("migrate")
    (shell.folder / "empty").mkdir()
    shell.write("bad-index", b"spma x\n")
    shell.write("bad.toml", b"[spam]\nx = 1\n")
    assert sentence in shell.fails(*words, stdin=stdin)


@pytest.mark.parametrize(
    "words",
    [
        ("train",),
        ("stats", "--format", "yaml"),
        ("stats", "--json", "--format", "html"),
        ("mark-spam", "--loud"),
        ("no-such-command",),
        ("backup",),
    ],
    ids=lambda words: "-".join(words),
)
def test_wrong_usage_is_exit_code_2_with_the_usage(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run(*words)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert "Error: " in result.stderr


DATABASE_COMMANDS: dict[str, tuple[object, ...]] = {
    "judge": ("judge", "-"),
    "mark-spam": ("mark-spam", "-"),
    "forget": ("forget", "-"),
    "train": ("train", "--spam", "x.eml"),
    "stats": ("stats",),
    "migrate": ("migrate",),
    "backup": ("backup", "copy.db"),
}
every_database_command = pytest.mark.parametrize("command", DATABASE_COMMANDS)


def corrupt(shell: Shell) -> None:
    shell.write("spamfilter.db", b"this is no database, but it is long enough to look at" * 100)


def newer(shell: Shell) -> None:
    with shell.store():
        pass
    connection = sqlite3.connect(shell.folder / "spamfilter.db")
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


@every_database_command
@pytest.mark.parametrize("damage", [corrupt, newer], ids=["corrupt", "newer"])
def test_a_database_that_cannot_be_used_is_one_line_that_names_it(
    shell: Shell, command: str, damage: Callable[[Shell], None]
) -> None:
    shell.write("x.eml", mail())
    damage(shell)
    if (command, damage) == ("backup", newer):  # which can be copied, for the way back
        shell.done("backup", "copy.db")
    else:
        assert "spamfilter.db: " in shell.fails(*DATABASE_COMMANDS[command], stdin=mail())


@pytest.mark.parametrize("command", [*DATABASE_COMMANDS.values(), ("review",)], ids=lambda command: command[0])
def test_who_has_a_damaged_database_is_told_what_to_do(shell: Shell, command: tuple[str, ...]) -> None:
    shell.write("x.eml", mail())
    corrupt(shell)
    path = shell.folder / "spamfilter.db"
    advice = f"{path}: file is not a database; move it away with its -wal and -shm, and put a backup in its place\n"
    assert shell.fails(*command, stdin=mail()) == f"spamfilter: {advice}"


@every_database_command
def test_a_state_directory_that_cannot_be_made_is_one_line_that_names_it(
    shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(shell.write("x.eml", mail()) / "state"))
    assert "x.eml/state: " in shell.fails(*DATABASE_COMMANDS[command], stdin=mail())


@pytest.mark.parametrize(
    ("url", "damage"),
    [
        pytest.param("", corrupt, id="corrupt"),
        pytest.param("", newer, id="newer"),
        pytest.param("", None, id="no-state-directory"),
        pytest.param("sqlite:x.db", newer, id="bad-url"),
    ],
)
def test_the_relay_refuses_to_start_with_one_line_that_says_why(
    shell: Shell, url: str, damage: Callable[[Shell], None] | None
) -> None:
    state = shell.folder if damage else shell.write("file", b"") / "state"
    if damage:
        damage(shell)
    environ = {
        **os.environ,
        "SPAMFILTER_RELAY__LISTEN": '["127.0.0.1:0"]',
        "SPAMFILTER_STORE__URL": url,
        "STATE_DIRECTORY": str(state),
    }
    relay = subprocess.run([sys.executable, "-m", "spamfilter", "serve"], env=environ, capture_output=True, check=False)
    assert (relay.returncode, relay.stdout) == (2, b"")
    assert relay.stderr.count(b"\n") == 1
    assert relay.stderr.startswith(b"spamfilter: ")
    assert (url or str(state)).encode() in relay.stderr


def test_an_address_that_the_host_has_not_yet_is_tried_again(shell: Shell) -> None:
    environ = {**os.environ, "SPAMFILTER_RELAY__LISTEN": '["192.0.2.1:2525"]', "STATE_DIRECTORY": str(shell.folder)}
    relay = subprocess.run([sys.executable, "-m", "spamfilter", "serve"], env=environ, capture_output=True, check=False)
    assert relay.returncode == 75
    assert b"cannot listen there: Cannot assign requested address" in relay.stderr


NO_IPV6 = """
ip link set lo up
echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6
mount --bind "$1" /etc/hosts
shift
exec "$@"
"""
"""Most containers: /etc/hosts knows ::1, and the kernel gives no such address."""


def test_localhost_is_listened_on_where_ipv6_is_off(shell: Shell) -> None:
    require_root("a network of its own")
    hosts = shell.write("hosts", b"127.0.0.1 localhost\n::1 localhost\n")
    unshare = [require("unshare", "util-linux"), "--net", "--mount", "sh", "-ec", NO_IPV6, "sh", str(hosts)]
    require("ip", "iproute2")
    environ = {
        **os.environ,
        "SPAMFILTER_RELAY__LISTEN": '["localhost:2525"]',
        "SPAMFILTER_RELAY__NEXT_HOP": f"maildir:{shell.folder}/judged",
        "STATE_DIRECTORY": str(shell.folder),
    }
    command = [*unshare, sys.executable, "-m", "spamfilter", "serve"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as relay:
        assert relay.stderr is not None
        said = list(takewhile(lambda line: "ready: " not in line, relay.stderr))
        relay.terminate()
    assert [line.split(" INFO ")[1] for line in said if "listening on" in line] == ["listening on 127.0.0.1:2525\n"]


def test_a_port_that_a_user_may_not_open_is_for_systemd(shell: Shell) -> None:
    environ = {**os.environ, "SPAMFILTER_RELAY__LISTEN": '["127.0.0.1:25"]', "STATE_DIRECTORY": str(shell.folder)}
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 25:
        missing("any user may open port 25 here: sysctl net.ipv4.ip_unprivileged_port_start=1024")
    setpriv = [require("setpriv", "util-linux"), "--bounding-set=-all", "--inh-caps=-all"]
    without_rights = setpriv if os.geteuid() == 0 else []
    command = [*without_rights, sys.executable, "-m", "spamfilter", "serve"]
    relay = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert relay.returncode == 2
    assert b"Permission denied; of a port below 1024 let systemd listen: systemd/spamfilter.socket" in relay.stderr


@pytest.mark.parametrize("command", ["judge", "migrate"])
@pytest.mark.parametrize("url", ["sqlite", "sqlite:x.db", "sqlite://host/x.db"])
def test_a_store_url_that_is_none_is_one_line_that_names_it(
    shell: Shell, command: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAMFILTER_STORE__URL", url)
    assert url in shell.fails(*DATABASE_COMMANDS[command], stdin=mail())


@pytest.mark.parametrize("command", ["mark-spam", "forget", "train", "migrate"])
def test_a_locked_database_is_exit_code_75(shell: Shell, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_connection, "BUSY_SECONDS", 0.05)
    shell.write("x.eml", mail())
    shell.done("mark-ham", stdin=mail(name="other"))
    before = shell.rows("ledger")
    holder = sqlite3.connect(shell.folder / "spamfilter.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        result = shell.run(*DATABASE_COMMANDS[command], stdin=mail())
        assert shell.run("judge", stdin=mail()).exit_code == 0
        assert shell.run("stats").exit_code == 0
    finally:
        holder.close()
    assert result.exit_code == 75
    assert result.stderr.splitlines()[-1].endswith("spamfilter.db: another process holds the database; try again")
    assert shell.rows("ledger") == before


def test_other_rules_than_those_of_the_counts_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.done("mark-spam", stdin=mail())
    monkeypatch.setenv("SPAMFILTER_LEARN__LIKELIHOOD", "multinomial")
    assert "change [learn] back" in shell.fails("judge", stdin=mail())


def test_the_database_is_made_where_it_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    state = shell.folder / "new" / "state"
    monkeypatch.setenv("STATE_DIRECTORY", str(state))
    shell.done("mark-spam", stdin=mail())
    assert (state / "spamfilter.db").exists()
    assert oct(state.stat().st_mode & 0o777) == "0o700"


def test_the_module_runs_as_a_program_without_a_traceback(shell: Shell) -> None:
    program = [sys.executable, "-W", "error", "-m", "spamfilter"]
    learnt = subprocess.run([*program, "mark-spam", "-"], input=mail(), capture_output=True, check=False)
    assert (learnt.returncode, learnt.stderr.count(b"\n")) == (0, 1)
    assert learnt.stdout.startswith(b"standard input: learnt as spam; ")
    wrong = subprocess.run([*program, "judge", "none.eml"], capture_output=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert wrong.stderr == b"spamfilter: none.eml: not a file, a folder or an id (26 letters and digits)\n"


def test_names_that_mean_no_message_keep_no_other_from_being_marked_or_judged(shell: Shell) -> None:
    """Someone marks what a search has listed, of which the journal has forgotten some."""
    first, second = (shell.write(f"{number}.eml", mail(name=str(number))) for number in range(2))
    for command in ("mark-spam", "judge", "forget"):
        told = shell.run(command, "none.eml", first, ID, second)
        lines, problems = told.stdout.splitlines(), told.stderr.splitlines()[-2:]
        assert (told.exit_code, [line.split(":")[0] for line in lines]) == (2, [str(first), str(second)])
        assert [line.split(": ")[:2] for line in problems] == [["spamfilter", "none.eml"], ["spamfilter", ID]]


def test_a_configuration_from_a_pipe_counts_for_all_of_a_command(shell: Shell) -> None:
    """As `--config <(decrypt spamfilter.toml)`: a mark must not go into the database of the defaults."""
    ours, its = os.pipe()
    os.write(its, f"[store]\nurl = 'sqlite:///{shell.folder}/other.db'\n".encode())
    os.close(its)
    command = [sys.executable, "-m", "spamfilter", "--config", f"/dev/fd/{ours}", "mark-spam", "-"]
    try:
        done = subprocess.run(command, input=mail(), capture_output=True, pass_fds=[ours], check=False, timeout=60)
    finally:
        os.close(ours)
    assert (done.returncode, [file.name for file in shell.folder.glob("*.db")]) == (0, ["other.db"])


def test_a_file_name_cannot_move_the_cursor(shell: Shell) -> None:
    file = shell.folder / "a\x1b[2J.eml"
    file.write_bytes(mail())
    for command in ("mark-spam", "judge", "forget"):
        assert "\x1b" not in shell.done(command, file)


def test_an_error_does_the_terminal_no_harm(shell: Shell) -> None:
    shell.done("migrate")
    assert shell.fails("judge", "a\x1b[2J\u202e\x85b\rc.eml").startswith("spamfilter: a\\x1b[2J\\u202e\\x85b\\rc.eml: ")
    assert "\x1b" not in shell.fails("--config", shell.folder / "\x1b[2J.toml", "judge", stdin=mail())


def test_an_error_of_the_system_does_the_terminal_no_harm(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shell.folder / "\x1b[2J"
    folder.mkdir()
    (folder / "new").touch()
    monkeypatch.setenv("SPAMFILTER_VERDICT__QUARANTINE", str(folder))
    assert shell.fails("quarantine", "list").endswith("/\\x1b[2J/new: Not a directory\n")


def test_json_is_ascii(shell: Shell) -> None:
    name = "grün\x1b\x9b\u202e.eml"
    path = shell.write(name, mail())
    for command in ("mark-spam", "judge", "forget"):
        said = shell.done(command, "--json", path)
        assert said.isascii()
        assert said.rstrip("\n").isprintable()
        assert json.loads(said)["file"] == str(path)


async def test_doctor_shows_what_a_stranger_greets_with_and_does_the_terminal_no_harm(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hop() as hop:
        hop.replies["QUIT"] = b"close"
        hop.replies["CONNECT"] = "554 go \x1b[2J\x9b away \u202e\r\n".encode()
        monkeypatch.setenv("SPAMFILTER_RELAY__LISTEN", f'["127.0.0.1:{hop.port}"]')
        monkeypatch.setenv("SPAMFILTER_RELAY__NEXT_HOP", f"smtp://127.0.0.1:{hop.port}")
        shown = (await asyncio.to_thread(shell.run, "doctor", "--no-canary")).stdout
        hop.replies["CONNECT"] = b"220 mail.test ESMTP spamfilter \x1b[2J\r\n"
        greeted = (await asyncio.to_thread(shell.run, "doctor", "--no-canary")).stdout
    assert "554 go \\x1b[2J" in shown
    assert "greets with 220 mail.test ESMTP spamfilter \\x1b[2J" in greeted
    for text in (shown, greeted):
        assert all(line.isprintable() for line in text.split("\n"))


def test_check_config_looks_at_what_the_programs_need(shell: Shell) -> None:
    accounts, file = shell.folder / "accounts", shell.folder / "x.toml"
    file.write_text(f'[web]\nlisten = "127.0.0.1:8725"\naccounts = "{accounts}"\n')
    assert f"web.accounts = {str(accounts)!r}: No such file" in shell.fails("--config", file, "check-config")
    accounts.write_text("# none yet\n")
    assert "no account: nobody can sign in" in shell.run("--config", file, "check-config").stderr
    accounts.write_text("ann:admin:-\n")
    assert "line 1: 'ann' has the role 'admin'" in shell.fails("--config", file, "check-config")
    file.write_text('[store]\nurl = "sqlite:////nonexistent/x.db"\n')
    assert "/nonexistent is no folder; create it" in shell.run("--config", file, "check-config").stderr


@pytest.mark.parametrize("arguments", [["--help"], ["sample-config"], ["stats", "--help"]], ids=" ".join)
def test_output_on_a_full_disk_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "spamfilter", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (2, "spamfilter: output: No space left on device\n")
        assert subprocess.run(command, stdout=full, stderr=full, check=False, timeout=60).returncode == 2
