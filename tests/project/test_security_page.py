"""docs/security.md against what is there: files, limits, figures."""

import re
from pathlib import Path

from spamfilter.config.sections import Limits
from tests.service.test_systemd_units import EXPOSED_AT_MOST
from tests.support.sandbox import allowed_calls

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"\b(?:tests|benchmarks|systemd|config|docs)/[\w./-]*\w", PAGE))
    named |= {f"docs/{link}" for link in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE)}
    assert len(named) > 15
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_limit_stands_there_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([0-9.]+) \|$", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == Limits().model_dump()


def test_its_figures_are_those_of_the_units() -> None:
    page = " ".join(PAGE.split())
    (calls,) = re.findall(r"about (\d+) system calls", page)
    assert abs(int(calls) - len(allowed_calls("spamfilter.service"))) <= 10
    pattern = (
        r"counts ([0-9.]+) of 10, for the weekly report ([0-9.]+), for digests ([0-9.]+), for the web page ([0-9.]+);"
    )
    figures = re.findall(pattern, page)
    assert figures == [tuple(str(value) for value in EXPOSED_AT_MOST.values())]


def test_every_module_of_the_mutations_and_its_tests_exist() -> None:
    table = (ROOT / "benchmarks" / "mutation.py").read_text(encoding="utf-8")
    rows = re.findall(r'^    "([\w/]+)": "([^"]+)",$', table, re.MULTILINE)
    assert len(rows) > 10
    files = {f"spamfilter/{module}.py" for module, _ in rows} | {
        f"tests/{test}" for _, tests in rows for test in tests.split()
    }
    assert sorted(name for name in files if not (ROOT / name).exists()) == []
