"""What commands show on a terminal of 80 columns, and what in a pipe."""

import subprocess
from pathlib import Path

import click
import pytest

from spamfilter.mail.message import parse
from tests.support.made import journal_entry, mail
from tests.support.program import COMMAND
from tests.support.pseudo_terminal import shown
from tests.support.shell import Shell

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"
LONG = "a subject that goes on and on, as those of newsletters do, until it has no room on a line any more"
RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A shell whose database has learnt mail, an entry of the journal, a rule on a sender, and mail in quarantine."""
    for number in range(6):
        shell.write(f"good/{number}.eml", mail(f"minutes of meeting {number}", f"we met on day {number}", f"h{number}"))
        shell.write(f"junk/{number}.eml", mail(f"cheap pills {number}", f"buy {number} pills now", f"s{number}"))
    shell.done("train", "--spam", "junk", "--ham", "good")
    message = parse(mail(LONG, name="x"))
    entry = journal_entry(
        id=ID, digest=message.digest(), sender="newsletter-of-the-week@lists.example.org",
        recipients=("somebody.with.a.name@example.net", "another@example.net"), subject=LONG, class_="unsure",
        tokens={"fields": {b"cheap": 1, b"meeting": 1}},
    )  # fmt: skip
    with shell.store() as store:
        store.write_journal([entry])
    shell.done("block", "192.0.2.0/24", "--for", "somebody.with.a.name@example.net", "--note", LONG)
    shell.write(f"quarantine/new/1795486932.M1P1Q1_{ID}.host", mail(LONG))
    shell.write(f"{LONG}.eml", mail("cheap pills", "buy pills now"))
    return shell


COMMANDS: dict[str, tuple[str, ...]] = {
    "stats": ("stats", "--since", "1000w"),
    "judge": ("judge", f"{LONG}.eml"),
    "explain": ("judge", "--explain", f"{LONG}.eml"),
    "word": ("word", "pills"),
    "mark": ("mark-ham", f"{LONG}.eml"),
    "search": ("search",),
    "lists": ("lists",),
    "quarantine": ("quarantine", "list"),
    "doctor": ("doctor", "--no-canary"),
    "evaluate": (
        "evaluate", "--spam", "junk", "--ham", "good", "--resamples", "20", "--wrong-labels", "2",
        "--likelihood", "configured", "--likelihood", "fields=soft,body=poisson",
    ),
    "check-config": ("check-config",),
    "review": ("review", "--since", "1000w"),
    "forget": ("forget", "--by", "nobody"),
    "error": ("judge", "no such file, and a sentence that is longer than the terminal of this user is wide"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_longer_than_the_terminal_is_wide(used: Shell, name: str) -> None:
    _, text = shown(*COMMANDS[name], keys=b"wq" if name == "review" else b"")
    lines = [click.unstyle(line.rpartition("\r")[2]) for line in text.split("\n")]
    unbroken = str(used.folder)  # a path is not broken
    assert [line for line in lines if len(line) > 80 and unbroken not in line] == []
    assert max(map(len, lines)) > 20


def test_classes_and_faults_have_colours_on_a_terminal(used: Shell) -> None:
    assert ": \x1b[3" in shown("judge", f"{LONG}.eml")[1]
    assert f"{YELLOW}unsure" in shown("search")[1]
    assert f"{RED}block" in shown("lists")[1]
    assert f"{RED}spamfilter:" in shown("judge", "none")[1]
    said = shown("doctor", "--no-canary")[1]
    assert f"{GREEN}ok" in said
    assert f"{RED}failed" in said
    assert f"{GREEN}ok" in shown("check-config")[1]
    assert "\x1b[1mDatabase" in shown("stats")[1]


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
@pytest.mark.parametrize("name", ["search", "doctor", "error", "stats"])
def test_there_are_no_colours_where_they_are_not_wanted(used: Shell, name: str, environ: dict[str, str]) -> None:
    assert "\x1b" not in shown(*COMMANDS[name], environ=environ)[1]


@pytest.mark.parametrize("name", ["search", "judge", "lists", "doctor", "error"])
def test_a_pipe_gets_whole_lines_without_colours(used: Shell, name: str) -> None:
    done = subprocess.run([*COMMAND, *COMMANDS[name]], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "\x1b" not in said
    assert max(map(len, said.split("\n"))) > 80


def test_a_colour_is_for_the_class_and_not_for_a_word_of_a_name(used: Shell) -> None:
    used.write("spam, score.eml", Path("good/0.eml").read_bytes())
    said = shown("judge", "spam, score.eml")[1]
    assert said.startswith("spam, score.eml: \x1b[")
