"""Every command of the README, run as a newcomer would: in order, in a new home, in a copy of the checkout."""

import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.installed import ROOT, clean_environment, copy_checkout
from tests.integration.servers import free_port, greets, wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


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


def test_every_other_command_of_the_readme_works_as_it_stands(folder: Path) -> None:
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
    commands = [block for block in BLOCKS if "pytest" not in block]
    port = 10025
    if greets(port):
        # The reader's own relay, started by the first command, runs in another window.
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

    assert "X-Spam-Status: No, score=0.500 class=unsure threshold=0.900 learnt=0/0" in output("sendmail(")
    marks = output("mark-spam")
    assert "learnt as spam; score 0.500 -> " in marks
    assert "learnt as ham (was spam, which is taken back)" in marks
    assert "forgotten as ham" in marks
    assert "learnt 3 ham and 3 spam" in output("train --spam")
    assert "next hop       smtp://127.0.0.1:10026\n" in output("check-config")
    assert "<!doctype html>" in (checkout / "report.html").read_text()
    report, _, machine = output("stats").rpartition("\n{")
    assert "Mail        1 message" in report
    assert json.loads("{" + machine)["learnt"] == {"ham": 3, "spam": 3}
