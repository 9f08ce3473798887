"""Does any input break a guarantee? Coverage-guided fuzzing, so many runs of each target.

The targets are those of tests/fuzzing/: parser, tokenizer, SMTP dialogue, milter, configuration, mailboxes, feedback
socket, and what a next hop says. Each begins with its evidence, tests/evidence/NAME/, and with what earlier runs have
found to be interesting, if --inputs names a folder to keep that in. An input that breaks something is written to
--findings, and the rest of the runs goes on without it.

    python benchmarks/fuzz.py [--runs N | --seconds S] [--target NAME]... [--jobs N] [--result FILE]

Exits with 1 where there are findings. A million runs take from minutes to an hour a target; an interrupt writes
what was done until then.
"""

import argparse
import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))  # the targets are those of the tests

from tests.fuzzing.targets import EVIDENCE, TARGETS

ROOT = Path(__file__).parents[1]
LONGEST = 4096
"""Bytes of an input: room for several transactions or mails, and each run stays below some milliseconds."""
STUCK_SECONDS = 120
"""For one run, which takes milliseconds: what waits this long on a busy machine hangs."""
MEMORY_MB = 2048
PIECE = 100_000
"""Runs of one process: the fuzzer's own memory grows with them, by gigabytes in a million."""
MAX_FINDINGS = 20
"""Of a target; then it is broken, and not worth more runs."""

_PULSE = re.compile(r"^#(\d+)\s.*\bcov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)
_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)


@dataclass
class Outcome:
    """What became of one target. counters: places of the code, by how often they were passed, that were reached."""

    name: str
    runs: int = 0
    seconds: float = 0.0
    coverage: int = 0
    counters: int = 0
    inputs: int = 0
    findings: list[str] = field(default_factory=list)

    def row(self) -> str:
        found = ", ".join(self.findings) or "none"
        rate = self.runs / self.seconds if self.seconds else 0
        return (
            f"| {self.name} | {self.runs:,} | {self.seconds:,.0f} | {rate:,.0f} | {self.coverage:,} |"
            f" {self.counters:,} | {self.inputs:,} | {found} |"
        )


class Fuzzing:
    """The processes that run, so that an interrupt reaches them."""

    def __init__(self, runs: int, seconds: float, nice: int, inputs: Path, findings: Path) -> None:
        self._runs = runs
        self._seconds = seconds
        self._nice = str(nice)
        self._inputs = inputs
        self._findings = findings
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = Lock()
        self.stopping = False

    def stop(self) -> None:
        self.stopping = True
        with self._lock:
            for process in self._processes:
                process.send_signal(signal.SIGINT)

    def fuzz(self, outcome: Outcome) -> Outcome:
        """All runs of a target, in pieces, and in a new one where an input breaks something."""
        inputs = self._inputs / outcome.name
        inputs.mkdir(parents=True, exist_ok=True)
        self._findings.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        while not self.stopping and outcome.runs < self._runs and len(outcome.findings) < MAX_FINDINGS:
            left = self._seconds - (time.monotonic() - began) if self._seconds else 0
            if self._seconds and left < 1:
                break
            code, said = self._process(outcome, inputs, int(left))
            outcome.seconds = time.monotonic() - began
            if code == 0 or self.stopping:
                continue
            written = re.search(r"Test unit written to (\S+)", said)
            if written is None:
                raise RuntimeError(f"{outcome.name}: the fuzzer failed:\n{said[-4000:]}")
            outcome.findings.append(Path(written.group(1)).name)
            print(f"{outcome.name}: finding {written.group(1)}\n{_why(said)}", flush=True)
        return outcome

    def _process(self, outcome: Outcome, inputs: Path, seconds: int) -> tuple[int, str]:
        command = [
            "nice", "-n", self._nice, sys.executable, "-m", "tests.fuzzing", outcome.name,
            f"-runs={min(PIECE, self._runs - outcome.runs)}", f"-max_total_time={seconds}", f"-max_len={LONGEST}",
            f"-timeout={STUCK_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1", "-close_fd_mask=0",
            f"-artifact_prefix={self._findings}/{outcome.name}-", str(inputs), str(EVIDENCE / outcome.name),
        ]  # fmt: skip
        before = outcome.runs
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            with self._lock:
                self._processes.add(process)
            said = ""
            assert process.stderr is not None
            for line in process.stderr:
                said = (said + line)[-100_000:]
                if pulse := _PULSE.match(line):
                    executed, outcome.coverage, outcome.counters, outcome.inputs = map(int, pulse.groups())
                    outcome.runs = before + executed
            with self._lock:
                self._processes.discard(process)
        if executed_in_all := _EXECUTED.search(said):
            outcome.runs = before + int(executed_in_all.group(1))
        return process.returncode, said


def _why(said: str) -> str:
    """The end of the traceback in what a fuzzer said."""
    trace = said.partition("=== Uncaught Python exception: ===")[2].partition("==")[0]
    return trace.strip()[-1500:]


@contextlib.contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "Runs of each target, wall-clock seconds, executions a second; coverage is libFuzzer's: edges of our own code,"
        " and the same told apart by how often they were passed; inputs: those kept for reaching something new. A"
        " finding is an input that raised, hung, or broke what the target promises.",
        "",
        "| target | runs | seconds | a second | edges | features | inputs | findings |",
        "|---|---|---|---|---|---|---|---|",
        *(outcome.row() for outcome in outcomes),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000, help="of each target (default: a million)")
    parser.add_argument("--seconds", type=float, default=0, help="of each target at the most")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="this one alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--nice", type=int, default=10, help="how much others on this machine come first")
    parser.add_argument("--inputs", type=Path, help="keep here what reaches something new, and begin with it")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="write here what breaks something")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    outcomes = [Outcome(name) for name in arguments.target or TARGETS]
    with _kept(arguments.inputs) as inputs:
        fuzzing = Fuzzing(arguments.runs, arguments.seconds, arguments.nice, inputs, arguments.findings.resolve())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: fuzzing.stop())
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(fuzzing.fuzz, outcomes):
                print(outcome.row(), flush=True)
    if arguments.result:
        write_result(arguments.result, "Fuzzing", __file__, _table(outcomes))
    sys.exit(any(outcome.findings for outcome in outcomes))


if __name__ == "__main__":
    main()
