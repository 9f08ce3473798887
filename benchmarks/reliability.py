"""What becomes of mail, counts and time under each fault? The tests of tests/faults, often, and the crash loop.

Each test breaks a running relay, its next hop, its client, its database or its machine, and settles the account: what
was answered with 250 is at the next hop once, all else is still the client's. In this run each of them notes what it
has seen; the counts are recomputed from the ledger more often; and from the end of each fault the time is taken until
the next mail has passed.

    python benchmarks/reliability.py [--tries N] [--workers N] [--kills N | --crash-loop FILE]
                                     [--result FILE] [--page FILE]

Needs root, and the programs that the tests need. A try takes some minutes, the crash loop about twenty.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))  # the faults are those of the tests

from tests.faults.case import RECORD
from tests.faults.test_promises import PROMISES

ROOT = Path(__file__).parents[1]
HEADINGS = (
    "fault", "tried", "mail sent", "lost", "doubled", "sent again and there twice", "recounts", "wrong counts",
    "recovery: median, s", "longest, s",
)  # fmt: skip
SPELT = {"tls": "TLS", "sigterm": "SIGTERM", "kill 9": "kill -9", "maildir": "Maildir"}
"""Words that the names of tests cannot hold as they are."""
CRASHES = "kill -9 at a random moment, under load and with feedback"
BEGIN, END = "<!-- made by benchmarks/reliability.py -->", "<!-- end of the table -->"
"""Lines of a page between which the table stands."""


@dataclass
class Row:
    """What came of one fault, all its cases and tries together."""

    name: str
    tried: int = 0
    sent: int = 0
    lost: int = 0
    doubled: int = 0
    twice: int = 0
    recounts: int = 0
    wrong: int = 0
    recoveries: list[float] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        """A case, as the tests note it."""
        self.tried += 1
        for name in ("sent", "lost", "doubled", "twice", "recounts", "wrong"):
            setattr(self, name, getattr(self, name) + line[name])
        self.recoveries += line["recoveries"]

    def markdown(self) -> str:
        median = f"{statistics.median(self.recoveries):.2f}" if self.recoveries else "-"
        longest = f"{max(self.recoveries):.2f}" if self.recoveries else "-"
        figures = (self.tried, self.sent, self.lost, self.doubled, self.twice, self.recounts, self.wrong)
        return _line(self.name, *figures, median, longest)


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def tried(record: Path, workers: int) -> int:
    """Run the tests once, each noting into this file; pytest's exit code."""
    environment = {**os.environ, RECORD: str(record)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "faults")]
    command += [f"--basetemp={record.parent / 'p'}"]  # the path of a socket has a limit
    command += ["-n", str(workers), "--dist", "loadfile"] if workers > 1 else []
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def rows(lines: Sequence[dict[str, Any]]) -> dict[str, Row]:
    """Test -> its row, for all tests of the promises."""
    found = {test: Row(sentence_of(test)) for tests in PROMISES.values() for test in tests}
    for line in lines:
        if line["test"] in found:
            found[line["test"]].add(line)
    return found


def sentence_of(test: str) -> str:
    sentence = test.partition(".test_")[2].replace("_", " ")
    for plain, spelt in SPELT.items():
        sentence = re.sub(rf"\b{plain}\b", spelt, sentence)
    return sentence


def crashed(file: Path) -> Row:
    """The row of a crash loop, from its result file."""
    text = file.read_text(encoding="utf-8")

    def cell(name: str) -> str:
        found = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"{file}: no line {name!r}; it is made by benchmarks/crash_loop.py")
        return found[1]

    usual, longest = map(float, cell("seconds from a start to ready: median, longest").split(","))
    return Row(
        CRASHES,
        tried=int(cell("kills, seconds each").split(",")[0]),
        sent=int(cell("messages, all accepted in the end")),
        lost=int(cell("lost")),
        doubled=int(cell("doubled")),
        twice=int(cell("sent again after such an attempt, and there twice")),
        recounts=1,
        wrong=int(cell("problems of database, counts in memory and `doctor --verify`"))
        + int(cell("messages whose label is not what was answered")),
        recoveries=[usual, usual, longest],  # whose median is the usual one
    )


def table(found: dict[str, Row], crashes: Row | None) -> str:
    """All rows below the promises that they are of; a fault that two promises are about stands below the first."""
    lines = [_line(*HEADINGS), _line("---", *["--:"] * (len(HEADINGS) - 1))]
    seen: set[str] = set()
    for promise, tests in PROMISES.items():
        lines.append(_line(f"**{promise}**", *[""] * (len(HEADINGS) - 1)))
        lines += [found[test].markdown() for test in tests if test not in seen]
        seen.update(tests)
    every = [*found.values(), *([crashes] if crashes else [])]
    total = Row("**all**")
    for row in every:
        total.tried += row.tried
        total.recoveries += row.recoveries
        for name in ("sent", "lost", "doubled", "twice", "recounts", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
    if crashes:
        lines += [_line("**killed again and again**", *[""] * (len(HEADINGS) - 1)), crashes.markdown()]
    return "\n".join([*lines, total.markdown(), ""])


def wrong_with(found: dict[str, Row], crashes: Row | None, codes: Sequence[int]) -> list[str]:
    """What must not be, a sentence each."""
    wrong = [f"pytest ended with {code}" for code in codes if code]
    for row in (*found.values(), *([crashes] if crashes else [])):
        if not row.tried:
            wrong.append(f"never tried: {row.name}")
        if row.lost or row.doubled or row.wrong:
            wrong.append(f"{row.name}: {row.lost} lost, {row.doubled} doubled, {row.wrong} wrong counts")
    return wrong


def put(page: Path, text: str) -> None:
    """Replace the table of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page}: the lines {BEGIN!r} and {END!r} are missing")
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1, help="how often all the tests are run")
    parser.add_argument("--workers", type=int, default=1, help="files of tests at a time; recoveries take longer then")
    parser.add_argument("--kills", type=int, default=1000, help="of the crash loop, whose result file is written, too")
    parser.add_argument("--crash-loop", type=Path, help="take its figures from this result file instead")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    parser.add_argument("--page", type=Path, help="put the table into this page, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sf-") as folder:
        record = Path(folder) / "record"
        record.touch()
        codes = [tried(record, arguments.workers) for _ in range(arguments.tries)]
        found = rows([json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()])
    crash_file = arguments.crash_loop
    if crash_file is None:
        crash_file = ROOT / "benchmarks" / "results" / f"{datetime.now(UTC):%Y-%m-%d}-crash-loop.md"
        command = [sys.executable, str(ROOT / "benchmarks" / "crash_loop.py"), "--kills", str(arguments.kills)]
        codes.append(subprocess.run([*command, "--result", str(crash_file)], cwd=ROOT, check=False).returncode)
    crashes = crashed(crash_file)
    text, wrong = table(found, crashes), wrong_with(found, crashes, codes)
    said = "Wrong: " + "; ".join(wrong) if wrong else "Nothing lost, nothing doubled, every count right."
    print(f"{text}\n{said}")
    if arguments.result:
        write_result(arguments.result, "Mail, counts and time under each fault", __file__, f"{text}\n{said}\n")
    if arguments.page:
        put(arguments.page, text)
    if wrong:
        raise SystemExit("wrong: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
