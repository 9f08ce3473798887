"""The list of protections, each of which a test fails without: up to date with the code, so that it can be tried."""

import subprocess
import sys

import pytest
from protections import ROOT, Protection, protections

ROWS = protections()


@pytest.mark.parametrize("protection", ROWS, ids=lambda row: f"{row.area}: {row.name}")
def test_what_protects_stands_in_the_code_once_and_can_be_taken_out(protection: Protection) -> None:
    source = (ROOT / protection.file).read_text(encoding="utf-8")
    assert protection.taken_out(source) != source


def test_no_two_protections_have_one_name() -> None:
    names = [(row.area, row.name) for row in ROWS]
    assert len(names) == len(set(names))


def test_each_protection_has_a_test_that_exists() -> None:
    tests = sorted({row.test for row in ROWS})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("not there", "x", "occurs 0 times"),
        ("a", "b", "occurs 2 times"),
        ("a = a", "a = a", "nothing is changed"),
        ("a = a", "a = (", "it is no Python"),
    ],
)
def test_a_row_that_shows_nothing_is_refused(old: str, new: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Protection("area", "name", "file.py", old, new, "test").taken_out("a = a\n")
