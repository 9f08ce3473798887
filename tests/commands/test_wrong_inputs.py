"""What users get wrong: each is a sentence that names it, and exit code 2. More of it is in test_cli.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.made import mail
from tests.support.shell import Shell


@pytest.fixture
def piles(shell: Shell) -> Shell:
    """A folder of mail with a folder below it, and a link to it."""
    for number in range(3):
        shell.write(f"box/{number}.eml", mail(f"minutes {number}", name=f"h{number}"))
        shell.write(f"box/Fraud/{number}.eml", mail(f"pills {number}", name=f"s{number}"))
    (shell.folder / "link").symlink_to("box")
    return shell


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--spam", ""],
        ["allow", "--for", "", "bank.example"],
        ["migrate", "--to", ""],
        ["quarantine", "release", "--to", "", "x"],
    ],
    ids=["folder", "recipient", "database", "mailbox"],
)
def test_an_empty_word_is_refused_and_nothing_done(piles: Shell, words: list[str]) -> None:
    result = piles.run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "one of the words is empty" in result.stderr
    assert [path.name for path in piles.folder.iterdir() if "spamfilter" in path.name] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train --spam box --ham box", "box: is named as ham and as spam; name each file and folder once"),
        ("train --spam box --ham box/../box", "is named as ham and as spam"),
        ("train --spam box/Fraud --spam box/Fraud/", "is named twice"),
        ("evaluate --spam link --ham box", "link: is named as ham and as spam"),
        ("evaluate --spam box", "no ham among 6 messages to judge"),
        ("mark-spam", "standard input: no mail; name an id, a file or a Maildir, or pipe a mail in"),
        ("forget --by ann", "no database yet; `serve`, `train` and marks make one"),
        ("stats", "no database yet; "),
        ("stats --since tomorrow", "--since 'tomorrow': neither a span (24h, 7d, 4w) nor a date (2026-01-31, yest"),
        ("judge --explain \udcff.eml", "\\udcff.eml: not a file, a folder or an id"),
        ("block 192.0.2.1 --note \udcff", "the note must be one line of at most 200 printable characters"),
        ("migrate --revision 1", "--revision '1': neither 'head' nor four digits"),
        ("migrate --to redis:x", "--to: not a store; known kinds: sqlite, postgresql+psycopg"),
        ("migrate --to sqlite:////nowhere/x.db --yes", "--from and --to move between databases; --revision and --yes"),
        ("migrate --from sqlite:////nowhere/x.db", "/nowhere/x.db: no such database; name it by --from"),
        ("quarantine show x", "'x': not an id (26 letters and digits)"),
        ("sample-config none", "none: no such sample; `spamfilter sample-config --list` names them"),
    ],
)
def test_a_wrong_word_is_a_sentence_that_names_it(piles: Shell, words: str, sentence: str) -> None:
    if words.startswith("judge"):
        piles.done("migrate")
    result = piles.run(*words.split())
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("spamfilter: ")
    assert sentence in last


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--spam"), "each --spam, --ham or --index takes one path, a folder or a mailbox, and may be"),
        (("retrain", "--mail"), "each --mail takes one path, a folder or a mailbox, and may be repeated. Instead of"),
    ],
    ids=["train", "retrain"],
)
def test_what_a_shell_makes_of_a_folder_with_an_asterisk_is_one_line(
    piles: Shell, words: tuple[str, ...], sentence: str
) -> None:
    result = piles.run(*words, *[f"box/{number}.eml" for number in range(1200)])
    assert (result.exit_code, result.stdout) == (2, "")
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: 'box/1.eml' and 1,198 more: of no option; {sentence}")


@pytest.mark.parametrize(
    ("spam", "ham", "learnt"),
    [("box/Fraud", "box", {"ham": 3, "spam": 3}), ("box", "box/Fraud", {"ham": 3, "spam": 3})],
    ids=["spam-below-ham", "ham-below-spam"],
)
def test_a_folder_below_the_other_is_learnt_as_it_is_named_in_either_order(
    piles: Shell, spam: str, ham: str, learnt: dict[str, int]
) -> None:
    for words in (("--spam", spam, "--ham", ham), ("--ham", ham, "--spam", spam)):
        result = piles.run("train", *words)
        assert result.exit_code == 0, result.stderr
        assert "left out of the" in result.stderr
        assert piles.learnt()[0] == learnt


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SPAMFILTER_SPAM", "1", "SPAMFILTER_SPAM: no key of the configuration; "),
        ("SPAMFILTER_VERDICT__SPAN", "1", "SPAMFILTER_VERDICT__SPAN: unknown key verdict.span = '1'"),
        ("SPAMFILTER_VERDICT__SPAM", "high", "SPAMFILTER_VERDICT__SPAM"),
    ],
)
def test_a_variable_that_is_no_key_stops_every_command(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    shell.write("x.eml", mail())
    for words in (("check-config",), ("judge", "x.eml"), ("train", "--spam", "x.eml"), ("stats",)):
        assert sentence in shell.fails(*words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('listen = ["0.0.0.0:25"]', "takes clients from everywhere, but relay.domains is empty"),
        ('listen = ["[::]:25"]', "takes clients from everywhere, but relay.domains is empty"),
        ('next_hop = "smtp://127.0.0.1:10025"', "is where the relay itself listens: mail would loop"),
        ('next_hop = "smtp://localhost:10025"', "is where the relay itself listens: mail would loop"),
        ('trusted = ["0.0.0.0/0"]', "an open relay"),
    ],
)
def test_a_configuration_that_loses_or_loops_mail_fails_the_check(shell: Shell, text: str, sentence: str) -> None:
    path: Path = shell.write("x.toml", f"[relay]\n{text}\n".encode())
    for words in (("check-config",), ("check-config", "--systemd")):
        result = shell.run("--config", path, *words)
        assert result.exit_code == 2
        assert result.stderr.startswith("spamfilter: relay.")
        assert sentence in result.stderr
        assert "ok" not in result.stdout.split()


def test_a_command_whose_output_is_closed_does_its_work(piles: Shell) -> None:
    program = [sys.executable, "-m", "spamfilter", "mark-spam", "box/Fraud", "box/0.eml"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *program], cwd=piles.folder, check=False)
    assert done.returncode == 0
    assert piles.learnt()[0] == {"ham": 0, "spam": 4}


@pytest.mark.parametrize("words", ["judge -", "judge", "mark-spam -", "import -", "web-password x"])
def test_a_command_whose_input_is_closed_says_so(piles: Shell, words: str) -> None:
    program = [sys.executable, "-m", "spamfilter", *words.split()]
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *program]
    done = subprocess.run(command, cwd=piles.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("spamfilter: ") or done.stderr.startswith("Usage: ")
    assert "Traceback" not in done.stderr


def test_a_dump_that_is_piped_in_where_no_temporary_file_can_be_made_says_what_to_do(shell: Shell) -> None:
    """As in a container whose root is read-only."""
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "spamfilter", "import", "-"]
    done = subprocess.run(command, cwd=shell.folder, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("spamfilter: standard input: needs a copy: No usable temporary directory found")
    assert "; set TMPDIR to a folder you may write" in " ".join(done.stderr.split())


def test_hundreds_of_marks_of_one_class_come_with_advice(shell: Shell) -> None:
    for number in range(100):
        shell.write(f"junk/{number}.eml", mail(f"pills {number}", name=f"s{number}"))
    found = shell.run("mark-spam", "junk")
    assert found.exit_code == 0
    assert "100 marks of spam alone: run `spamfilter retrain`, which mixes them" in " ".join(found.stderr.split())
    assert "marks of spam alone" not in shell.run("mark-spam", "junk").stderr
