"""Every command of the README and of the pages of docs/, run as a newcomer would: in order, in a new home, in a copy of
the checkout.

Of the pages those that want no server. The commands of docs/dovecot.md, which stand in a list, run in test_dovecot, and
those of docs/import.md in test_import.
"""

import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.installed import ROOT, clean_environment, copy_checkout
from tests.integration.servers import free_port, greets, keep_port, wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "training",
    "operation",
    "feedback",
    "quarantine",
    "report",
    "evaluation",
    "doctor",
    "postfix",
    "exim",
    "benchmarks",
)
"""Pages with commands, in the order of the README's path."""

ELSEWHERE = ("import", "milter", "postgresql")
"""Run in test_import, test_sendmail and test_fleet_page."""


def blocks_of(page: str) -> list[str]:
    """The commands of a page, as they stand there."""
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


BLOCKS = blocks_of(README)
ON_PAGES = {page.stem: blocks_of(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").glob("*.md")}


def test_every_page_with_commands_is_run() -> None:
    assert {name for name, blocks in ON_PAGES.items() if blocks} == {*PAGES, *ELSEWHERE}


def test_the_test_command_of_the_readme_is_what_ci_runs() -> None:
    commands = [block for block in BLOCKS if "pytest" in block]
    assert len(commands) == 1
    assert "grep -m 1 -F '.[test]' README.md" in (ROOT / ".ci" / "run").read_text()
    assert next(line for line in README.splitlines() if ".[test]" in line) == commands[0].strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="readme-") as name:
        yield Path(name)


def test_every_other_command_works_as_it_stands(folder: Path) -> None:
    if Path("/var/lib/spamfilter").exists():
        pytest.fail("a service is installed here, whose database these commands would use: /var/lib/spamfilter")
    checkout = copy_checkout(folder / "checkout")
    home = folder / "home"
    for sorted_into, words in ((".Junk", "cheap pills"), (".Archive", "lunch at noon")):
        (home / "Maildir" / sorted_into / "cur").mkdir(parents=True)
        for number in range(3):
            mail = home / "Maildir" / sorted_into / "cur" / f"{number}:2,S"
            mail.write_text(f"Subject: {words} {number}\n\n{words}\n")
    environment = clean_environment(home)
    log = folder / "log"
    environment["PATH"] = f"{checkout / '.venv' / 'bin'}:{environment['PATH']}"
    commands = [block for block in BLOCKS if "pytest" not in block]
    commands += [block for page in PAGES for block in ON_PAGES[page]]
    port = 10025
    if greets(port) or not keep_port(port):
        # The reader's own relay, started by the first command, or another run of the tests.
        port = free_port()
        environment["SPAMFILTER_RELAY__LISTEN"] = f'["127.0.0.1:{port}"]'
        commands = [command.replace("10025", str(port)) for command in commands]
    first, *others = commands
    assert "spamfilter serve" in first
    said: dict[str, str] = {}
    with log.open("wb") as file:
        relay = subprocess.Popen(
            ["bash", "-c", first], env=environment, cwd=checkout, stdout=file, stderr=file, start_new_session=True
        )
    try:
        wait_until(lambda: "ready:" in log.read_text() or relay.poll() is not None, "the first command", 300)
        assert relay.poll() is None, log.read_text()
        assert f"send mail to 127.0.0.1:{port}" in log.read_text()
        for block in others:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                env=environment, cwd=checkout, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            said[block] = done.stdout
    finally:
        subprocess.run(["pkill", "-TERM", "-s", str(relay.pid)], check=False)
        relay.send_signal(signal.SIGTERM)
        relay.wait(60)

    def output(word: str) -> str:
        return next(text for block, text in said.items() if word in block)

    assert "X-Spam-Status: No, score=0.500 class=unsure threshold=0.900 learnt=0/0 known=0.00" in output("sendmail(")
    marks = output("mark-spam")
    assert "learnt as spam; score " in marks
    assert "learnt as ham (was spam, which is taken back)" in marks
    assert "forgotten as ham" in marks
    assert "learnt 3 ham and 3 spam" in output("train --spam")
    assert "next hop       smtp://127.0.0.1:10026\n" in output("check-config")
    assert "<!doctype html>" in (checkout / "report.html").read_text()
    report, _, machine = output("stats --since 7d --json").rpartition("\n{")
    assert "Mail        1 message" in report
    assert json.loads("{" + machine)["learnt"] == {"ham": 3, "spam": 3}
