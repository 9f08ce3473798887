"""docs/reliability.md says what was measured, of every promise, and that nothing was lost."""

import re

import pytest
from reliability import BEGIN, END, HEADINGS, ROOT, sentence_of

from tests.faults.test_promises import OWN, PROMISES

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
TABLE = PAGE.partition(f"{BEGIN}\n")[2].partition(END)[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines()[2:]]


def test_the_page_has_the_table_of_the_newest_result() -> None:
    newest = max((ROOT / "benchmarks" / "results").glob("*-reliability.md"))
    assert TABLE
    assert TABLE in newest.read_text(encoding="utf-8")


def test_each_promise_and_each_of_its_faults_stands_in_the_table() -> None:
    names = {row[0] for row in ROWS}
    faults = {sentence_of(test) for tests in PROMISES.values() for test in tests}
    assert faults | {f"**{promise}**" for promise in PROMISES} <= names


@pytest.mark.parametrize("column", ["lost", "doubled", "wrong counts"])
def test_there_is_none_of_what_must_not_be(column: str) -> None:
    figures = [row[HEADINGS.index(column)] for row in ROWS if row[1]]
    assert figures
    assert set(figures) == {"0"}


def test_each_file_of_tests_stands_in_the_page() -> None:
    files = {file.stem for file in (ROOT / "tests" / "faults").glob("test_*.py")} - OWN
    assert files == set(re.findall(r"`(test_\w+)\.py`", PAGE))
