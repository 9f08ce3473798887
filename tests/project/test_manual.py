"""The manual pages are those that the program and its sample configuration make, and troff understands them."""

import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from manual import SAMPLE, pages

from spamfilter.commands import COMMANDS
from spamfilter.system.packaged_files import shipped
from tests.support.real import require

FOLDER = Path(__file__).parents[2] / "docs" / "man"


@cache
def shown(page: Path) -> str:
    """What a reader sees, on one line; troff's warnings are errors."""
    done = subprocess.run(
        [require("groff", "groff"), "-man", "-Tascii", "-ww", "-P-cbou", "-rLL=200n", str(page)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_the_pages_are_made_of_the_program() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == pages(), (
        "python docs/manual.py docs/man"
    )


def test_the_page_of_the_program_names_every_command() -> None:
    text = shown(FOLDER / "spamfilter.1")
    assert [name for name in COMMANDS if f" spamfilter {name} " not in text] == []
    assert "spamfilter quarantine release" in text
    assert "--mail-to ADDRESS Mail it through the next hop instead." in text


@pytest.mark.parametrize("line", [line for line in shipped(SAMPLE).read_text().splitlines() if line[:1] not in "#["])
def test_the_page_of_the_configuration_shows_every_key_with_its_default(line: str) -> None:
    assert tomllib.loads(line)
    assert line in shown(FOLDER / "spamfilter.toml.5")
