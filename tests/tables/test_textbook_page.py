"""docs/textbook.md: each of its commands prints what the page says."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real import corpus

DOCS = Path(__file__).parents[2] / "docs"
CORPUS = "$TEXTBOOK"


def examples() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Heading -> its commands, each with what it prints; a section is run from its beginning."""
    for section in re.split(r"^## ", (DOCS / "textbook.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
        commands = [
            each.partition("\n") for block in blocks for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        ]
        yield section.partition("\n")[0], [(command, said) for command, _, said in commands]


EXAMPLES = dict(examples())


@pytest.mark.parametrize("section", EXAMPLES)
def test_each_command_prints_what_the_page_says(section: str, tmp_path: Path) -> None:
    shutil.copytree(DOCS / "textbook", tmp_path, dirs_exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C"}
    if any(CORPUS in command for command, _ in EXAMPLES[section]):
        environment["TEXTBOOK"] = str(corpus("textbook"))
    assert EXAMPLES[section]
    for command, said in EXAMPLES[section]:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.stderr, done.stdout) == ("", said), command
