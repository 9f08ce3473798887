"""Fixtures that any test may use."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spamfilter.learning import mark_lookup
from spamfilter.system import paths
from tests.support import program, real
from tests.support.shell import Shell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell that starts the tests in the background ignores it for them, and for all programs that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["TZ"] = "UTC"  # times without an offset are local; a developer's clock may be any
time.tzset()
program.forks = True

LONGEST = (
    "test_textbook_page.py", "test_month.py", "test_readme.py", "test_lint.py", "test_postgresql.py", "test_wheel.py",
    "test_locked.py", "test_postfix.py", "test_poisoning.py", "test_import.py", "test_api.py", "test_outages.py",
    "test_kept_by_mistake.py", "test_fleet.py", "test_tallies.py", "test_real_mail.py", "test_report_by_mail.py",
)  # fmt: skip
"""Files of which a test takes half a minute or more. They begin first, or the last of them would run alone."""


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # of xdist, which puts files with few tests last


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder with every corpus unpacked; skips where there is none."""
    return real.corpora()


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Path]:
    """The folder of one corpus by name; skips where it is missing."""
    return real.corpus


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """A real browser; skips where there is none."""
    from playwright.sync_api import sync_playwright  # takes a part of a second, and few tests need it

    program = real.require("chromium", "chromium")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    arguments += ["--disable-sync", "--no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Takes a time zone as POSIX writes it."""

    def set_to(zone: str) -> None:
        patch.setenv("TZ", zone)
        time.tzset()

    with monkeypatch.context() as patch:
        yield set_to
    time.tzset()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A user in an empty folder, whose configuration is the default one; ids can be marked at once."""
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none.toml")
    monkeypatch.setattr(mark_lookup, "WRITTEN_WITHIN", 0.0)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("SPAMFILTER_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out and what it needs, packages in one line."""
    packages: set[str] = set()
    left_out: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if found := re.search("apt-get install (.+)", reason):
            packages.update(found[1].split())
            reason = "apt-get install"
        elif reason.startswith("needs root"):
            reason = "run them as root, in a virtual machine or a container"
        left_out[reason] += 1
    for reason, tests in left_out.most_common():
        of_packages = f" {' '.join(sorted(packages))}" if reason == "apt-get install" else ""
        terminalreporter.write_line(f"left out: {tests} tests; {reason}{of_packages}")
