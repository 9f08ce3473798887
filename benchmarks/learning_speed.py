"""How fast does it learn, beside bogofilter, and how long do commands take on a full database?

Training: the same mails of TREC 2007 are registered by bogofilter in bulk (-s -b and -n -b), and learnt by
`spamfilter train` as the README runs it, each into a new database, in turns. Commands: mark-spam with a relay that
runs, and without one, judge and stats, on a database that has a million words and as many journal rows as asked for.

    apt-get install bogofilter
    python benchmarks/learning_speed.py [--mails N] [--rounds N] [--words N] [--journal N] [--result FILE]

Takes some minutes. SPAMFILTER_CORPORA names the folder of the corpora.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

from corpora import unpacked
from full_database import make, some_mails
from results import write_result
from running import environment, processor_seconds, relay

CORPUS = "trec07p-first20000"
TIMES = 11
"""Runs of each command, after one that compiles and reads the disk."""


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of processor in the processes that this starts."""

    def processor() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    clock, before = time.perf_counter(), processor()
    work()
    return time.perf_counter() - clock, processor() - before


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def spamfilter(folder: Path, database: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "spamfilter", *arguments]
    subprocess.run(command, env=environment(folder, database), check=True, capture_output=True)


def bogofilter(folder: Path, piles: dict[str, list[str]]) -> None:
    for option, label in (("-s", "spam"), ("-n", "ham")):
        names = "".join(f"{name}\n" for name in piles[label]).encode()
        subprocess.run(["bogofilter", "-C", "-d", str(folder), option, "-b"], input=names, check=True)


def training(folder: Path, count: int, rounds: int) -> list[str]:
    """The table of trainings."""
    corpus = unpacked(CORPUS)
    lines = [line.split(" ", 1) for line in (corpus / "index").read_text().splitlines()[:count]]
    piles = {
        kind: [str((corpus / name).resolve()) for label, name in lines if label == kind] for kind in ("spam", "ham")
    }
    index = folder / "index"
    index.write_text("".join(f"{label} {(corpus / name).resolve()}\n" for label, name in lines), encoding="utf-8")
    ours, theirs = [], []
    for number in range(rounds + 1):
        peer, database = folder / f"bogofilter{number}", folder / f"train{number}.db"
        peer.mkdir()
        theirs.append(spent(lambda peer=peer: bogofilter(peer, piles)))  # type: ignore[misc]
        ours.append(spent(lambda database=database: spamfilter(folder, database, "train", "--index", str(index))))  # type: ignore[misc]
        shutil.rmtree(peer)
        database.unlink()
    ours, theirs = ours[1:], theirs[1:]
    table = [
        f"{count:,} mails, medians of {rounds} rounds with their quartiles; messages a second.",
        "",
        "| | of the clock | of processor |",
        "|---|---|---|",
    ]
    for name, runs in (("bogofilter, in bulk", theirs), ("spamfilter train", ours)):
        table.append(
            f"| {name} | {_rates(count, [run[0] for run in runs])} | {_rates(count, [run[1] for run in runs])} |"
        )
    ratios = [quartiles([their[at] / our[at] for our, their in zip(ours, theirs, strict=True)]) for at in (0, 1)]
    table.append(
        "| ratio | " + " | ".join(f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in ratios) + " |"
    )
    return table


def _rates(count: int, seconds: Sequence[float]) -> str:
    low, middle, high = quartiles([count / each for each in seconds])
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


def commands(folder: Path, words: int, journal: int) -> list[str]:
    """The table of commands."""
    database = folder / "full.db"
    make(database, words, journal // 20, journal)
    files = []
    for number, mail in enumerate(some_mails(20 + 4 * (TIMES + 1))[20:]):
        file = folder / f"{number}.eml"
        file.write_bytes(mail.read())
        files.append(str(file))
    table = [
        f"On a database of {words:,} words, {journal:,} journal rows and {journal // 20:,} learnings; milliseconds,"
        f" medians of {TIMES} (stats: of 5 and 3) with their quartiles.",
        "",
        "| command | of the clock | of processor | of processor in the relay |",
        "|---|---|---|---|",
    ]

    def timed(name: str, of: Callable[[int], list[str]], pid: int | None, times: int = TIMES) -> None:
        runs = []
        for turn in range(times + 1):
            before = processor_seconds(pid) if pid else 0.0
            run = spent(lambda turn=turn: spamfilter(folder, database, *of(turn)))  # type: ignore[misc]
            runs.append((*run, processor_seconds(pid) - before if pid else 0.0))
        cells = [quartiles([1000 * run[at] for run in runs[1:]]) for at in range(3 if pid else 2)]
        table.append(
            f"| {name} | "
            + " | ".join(f"{m:.0f} ({low:.0f} to {high:.0f})" for low, m, high in cells)
            + (" |" if pid else " | |")
        )
        print(table[-1], flush=True)

    with relay(folder, database) as running:
        settled(running.pid)
        timed("mark-spam FILE, a relay running", lambda turn: ["mark-spam", files[turn]], running.pid)
    timed("mark-spam FILE, no relay", lambda turn: ["mark-spam", files[TIMES + 1 + turn]], None)
    timed("judge FILE", lambda turn: ["judge", files[2 * (TIMES + 1) + turn]], None)
    timed("stats of a day", lambda turn: ["stats", "--since", "24h"], None, 5)
    timed("stats of 7 days, the default", lambda turn: ["stats"], None, 3)
    return table


def settled(pid: int) -> None:
    """Wait until the relay has nothing to do: at its start it sums up the days of the journal."""
    before = -1.0
    while (now := processor_seconds(pid)) - before > 0.02:
        before = now
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mails", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=1_000_000, help="0: no commands, only trainings")
    parser.add_argument("--journal", type=int, default=100_000)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    if shutil.which("bogofilter") is None:
        parser.error("bogofilter is not installed: apt-get install bogofilter")
    with TemporaryDirectory(prefix="learning-") as name:
        folder = Path(name)
        lines = training(folder, arguments.mails, arguments.rounds)
        print("\n".join(lines), flush=True)
        if arguments.words:
            lines += ["", *commands(folder, arguments.words, arguments.journal)]
    load = f"Load of the machine at the end: {os.getloadavg()[0]:.1f}."
    if arguments.result:
        write_result(arguments.result, "Learning, and commands", __file__, "\n".join([*lines, "", load, ""]))


if __name__ == "__main__":
    main()
