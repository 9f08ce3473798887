"""Does the relay stay what it is for ten minutes of load, and do 5,000 idle connections harm those that work?

A real relay between Postfix' smtp-source, at 1, 50 and 500 connections, and a sink that notes each message. Users mark
mail all the while, reports are made one after the other, and a client of its own sends a message each 100 ms and takes
the time of each phase. smtp-source runs again and again, by turns with connections that are kept and with a new one for
each message; each run sends another mail. At the end:

1. Each message that was answered with 250 is at the sink exactly once, and in the journal exactly once.
2. Each mark that changed something is in the ledger, and `doctor --verify` finds nothing.
3. Memory of its own (RssAnon) in the last minute is within 5 % of that in the third.

Then connections that say nothing more: what each costs in memory, after the greeting and after EHLO; whether each hears
421 when its time is over; and the messages a second of a busy client at a relay with them and at one without, by turns.

    python benchmarks/load.py [--minutes N] [--connections N ...] [--idle N] [--result FILE]

Needs Postfix; takes about 40 minutes. Every program shares the processors of one machine, so the times are those of a
relay that has less than one.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from idle_connections import idle_report
from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))  # the parts are those of the tests

from tests.faults.daemon import Daemon
from tests.load.beside import TAUGHT, Look, Reports, Users, Watch
from tests.load.installation import complaints, journalled, marked, trained
from tests.load.probe import PHASES, Probe, Sample
from tests.load.process import cpu_seconds, machine_seconds
from tests.load.sink import sink
from tests.load.source import DOMAIN, Source, astray

ROUND_SECONDS = 12.0
"""Of one run of smtp-source: some forty different mails in ten minutes, and starts and ends that do not count."""
FIRST_ROUND = 50
MARKS_A_SECOND = 5
BETWEEN_REPORTS = 2.0
FLAT = 0.05
THIRD_MINUTE = 2
"""Counted from 0: warm-up is over."""


@dataclass(frozen=True)
class Share:
    """Processor time, in seconds, of what took part in a run."""

    relay: float
    source: float
    sink: float
    reports: float
    machine: float

    def row(self, seconds: float) -> str:
        rest = self.machine - self.relay - self.source - self.sink - self.reports
        parts = (self.relay, self.source, self.sink, self.reports, rest)
        return ", ".join(f"{100 * part / seconds:.0f} %" for part in parts)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them is at most."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def minutes_of(looks: Sequence[Look | Sample]) -> list[list[Look | Sample]]:
    """What was seen in each whole minute, or in the part that there is of the last one."""
    found: list[list[Look | Sample]] = []
    for look in looks:
        while len(found) <= look.began // 60:
            found.append([])
        found[int(look.began // 60)].append(look)
    return found


def run(folder: Path, connections: int, minutes: float) -> tuple[list[str], list[str]]:
    """One run; the lines of the report, and what is wrong."""
    folder.mkdir()
    with sink(folder / "notes") as hop, trained(folder / "relay", hop) as relay:
        for one in range(TAUGHT):  # so that memory has the size for their words before it is looked at
            Users(relay, 0).mark(one, "spam")
        source, taught = Source(folder), marked(relay)
        watch, users = Watch(relay), Users(relay, 1 / MARKS_A_SECOND)
        reports, probe = Reports(relay, BETWEEN_REPORTS), Probe(relay.port)
        began, pid, messages = time.monotonic(), relay.process.pid, FIRST_ROUND
        before = (cpu_seconds(pid), cpu_seconds(hop.process.pid), machine_seconds())
        with watch, users, reports, probe:
            while (left := began + 60 * minutes - time.monotonic()) > 0:
                done = source.send(relay.port, messages, min(connections, messages), kept=len(source.rounds) % 2 == 1)
                messages = max(connections, int(done.rate * min(ROUND_SECONDS, left)))
                print(f"{connections}: {time.monotonic() - began:.0f} s, {done.rate:.0f} a second", file=sys.stderr)
        seconds = time.monotonic() - began
        after = (cpu_seconds(pid), cpu_seconds(hop.process.pid), machine_seconds())
        share = Share(
            after[0] - before[0], sum(one.cpu for one in source.rounds), after[1] - before[1],
            sum(reports.cpu), after[2] - before[2],
        )  # fmt: skip
        status, found = relay.ask({"command": "status"}), complaints(relay)
        ending = ended(relay)
        arrived, sent = hop.end(), [name for one in source.rounds for name in one.recipients()]
        sent += [f"{sample.name}@{DOMAIN}" for sample in probe.samples if sample.accepted]
        lost, doubled, strange = astray(sent, arrived)
        unwritten, twice, unknown = astray(sent, journalled(relay))
        entries, written = marked(relay) - taught, len(journalled(relay))
        wrong = [f"not accepted from the probe: {one}" for one in probe.samples if not one.accepted][:5]
        wrong += watch.failures + users.failures + reports.failures + found + ending
        for what, names in (
            ("lost", lost), ("doubled", doubled), ("never sent", strange), ("not in the journal", unwritten),
            ("twice in the journal", twice), ("in the journal alone", unknown),
        ):  # fmt: skip
            wrong += [f"{len(names)} {what}: {names[:3]}"] * bool(names)
        if entries != users.entries:
            wrong.append(f"{entries} entries of the ledger instead of {users.entries}")
        lines = [
            f"## {connections} connection{'s' * (connections > 1)}, {seconds / 60:.1f} minutes",
            "",
            "| | |",
            "|---|---|",
            f"| messages accepted, at the sink, in the journal | {len(sent)}, {len(arrived)}, {written} |",
            f"| lost, doubled | {len(lost)}, {len(doubled)} |",
            "| messages a second: all with the probe's, smtp-source's with connections kept, with new ones |"
            f" {len(sent) / seconds:.0f},"
            f" {median_rate(source, True):.0f}, {median_rate(source, False):.0f} |",
            "| processor time of the relay for a message, with its share of what users teach |"
            f" {1000 * share.relay / len(sent):.2f} ms |",
            f"| processors used by relay, smtp-source, sink, reports, all else on the machine | {share.row(seconds)} |",
            f"| marks that changed something, that did not, that were to be repeated | {users.changed}, {users.same},"
            f" {users.again} |",
            f"| entries of the ledger by them | {entries} |",
            f"| reports, median seconds of the first ten, of the last ten | {len(reports.seconds)},"
            f" {statistics.median(reports.seconds[:10]):.1f}, {statistics.median(reports.seconds[-10:]):.1f} |",
            f"| journal rows waiting at the end, dropped | {status['journal_waiting']}, {status['journal_dropped']} |",
            f"| size of the database, largest write-ahead log | {relay.database.stat().st_size / 1e6:.0f} MB,"
            f" {max(look.wal for look in watch.looks) / 1e6:.1f} MB |",
            f"| most descriptors, threads | {max(look.descriptors for look in watch.looks)},"
            f" {max(look.threads for look in watch.looks)} |",
            f"| problems that `doctor --verify` finds | {len(found)} |",
            "",
        ]
    memory, not_flat = of_memory(watch.looks)
    return [*lines, *of_replies(probe.samples), *memory], wrong + not_flat


def ended(relay: Daemon) -> list[str]:
    """Stop it; what was wrong with its end or in its log."""
    try:
        relay.stop()
    except AssertionError as error:
        return [str(error)[:2000]]
    return relay.problems()


def median_rate(source: Source, kept: bool) -> float:
    rates = [one.rate for one in source.rounds[1:] if one.kept is kept]
    return statistics.median(rates) if rates else 0.0


def of_replies(samples: Sequence[Sample]) -> list[str]:
    """How long the probe waited."""
    lines = [
        "Milliseconds that the probe waited, median and 99 %: "
        + "; ".join(
            f"{phase} {1000 * quantile(times, 0.5):.1f}, {1000 * quantile(times, 0.99):.1f}"
            for phase in PHASES
            if (times := [one.seconds[phase] for one in samples if phase in one.seconds])
        ),
        "",
        "| minute | messages of the probe | final dot, median ms | 99 % ms |",
        "|---|---|---|---|",
    ]
    for number, minute in enumerate(minutes_of(samples), 1):
        dots = [one.seconds["dot"] for one in minute if isinstance(one, Sample) and "dot" in one.seconds]
        if dots:
            lines.append(
                f"| {number} | {len(dots)} | {1000 * quantile(dots, 0.5):.1f} | {1000 * quantile(dots, 0.99):.1f} |"
            )
    return [*lines, ""]


def of_memory(looks: Sequence[Look]) -> tuple[list[str], list[str]]:
    """Memory by minute, and whether it was flat."""
    minutes = [[look for look in minute if isinstance(look, Look)] for minute in minutes_of(looks)]
    minutes = [minute for minute in minutes if len(minute) >= 20]
    anonymous = [statistics.median(look.anonymous for look in minute) for minute in minutes]
    lines = [
        "Megabytes in each minute, median: RssAnon "
        + ", ".join(f"{size / 1e6:.1f}" for size in anonymous)
        + "; Pss "
        + ", ".join(f"{statistics.median(look.proportional for look in minute) / 1e6:.1f}" for minute in minutes),
        "",
    ]
    if len(anonymous) <= THIRD_MINUTE + 1:
        return lines, []
    growth = anonymous[-1] / anonymous[THIRD_MINUTE] - 1
    lines += [f"RssAnon of the last minute against the third: {100 * growth:+.1f} %.", ""]
    return lines, [f"memory has grown by {100 * growth:.1f} %"] if abs(growth) > FLAT else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each run")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 50, 500], help="of smtp-source, by run")
    parser.add_argument("--idle", type=int, default=5000, help="connections that say nothing; 0 leaves that out")
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and with it what was started
    lines: list[str] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spamfilter-load-") as folder:
        for connections in arguments.connections:
            found, bad = run(Path(folder) / f"run{connections}", connections, arguments.minutes)
            print("\n".join(found), flush=True)
            lines, wrong = lines + found, wrong + [f"{connections} connections: {one}" for one in bad]
        if arguments.idle:
            found, bad = idle_report(Path(folder) / "idle", arguments.idle)
            print("\n".join(found), flush=True)
            lines, wrong = lines + found, wrong + bad
    text = "\n".join([*lines, "Wrong: " + "; ".join(wrong) if wrong else "Nothing lost, nothing doubled; flat.", ""])
    if arguments.result:
        write_result(arguments.result, "Ten minutes of load, and idle connections", __file__, text)
    if wrong:
        raise SystemExit("wrong: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
