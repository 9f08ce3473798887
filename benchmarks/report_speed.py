"""How long does the report of a year with a million messages take, and how much memory?

A journal of so many made-up messages, evenly over 365 days, with people's marks and trainings in the ledger; then
`spamfilter stats --since 365d` as a process of its own, by turns with a start of Python that does nothing. Once with
the whole journal, once after the days that are older than a month have been dropped but for their figures, which must
say the same.

    python benchmarks/report_speed.py [--messages N] [--turns N] [--database FILE] [--result FILE]

Takes some minutes, most of them to make the journal, and 2 GB of disk for a million. With --database it is made once in
that file, and later runs work on copies of it.
"""

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.learning.filter import Filter, Reading
from spamfilter.reports import daily_summaries
from spamfilter.stores import JournalEntry, Store, open_store
from spamfilter.system.ids import new_id
from tests.support.made import VOICE, journal_entry

DAYS = 365
MARKED = 0.01
"""Share of the messages that people mark."""
TRAINED = 0.02
"""And of those that bulk training has taught."""
BATCH = 1000
KEPT_DAYS = 30


def entries(messages: int, now: datetime) -> Iterator[JournalEntry]:
    """Messages of a hundred domains and words, the oldest first."""
    chance = random.Random(1)
    for number in range(messages):
        class_ = chance.choices(CLASSES, [50, 3, 47])[0]
        score = {"ham": chance.betavariate(0.3, 9), "unsure": chance.uniform(0.5, 0.9), "spam": chance.uniform(0.9, 1)}
        yield journal_entry(
            id=f"{number:09}{new_id()[9:]}",
            digest=number.to_bytes(16, "big"),
            at=now - timedelta(days=DAYS) * (1 - (number + 0.5) / messages),
            message_id=f"<{number}@example.org>",
            sender=f"a@d{int(chance.paretovariate(1)) % 100}.example",
            recipients=[f"user{chance.randrange(200)}@example.net"],
            client=f"192.0.2.{chance.randrange(250)}",
            class_=class_,
            score=score[class_],
            action=ACTIONS[0] if class_ != "spam" else ACTIONS[1],
            judge_us=int(chance.lognormvariate(6, 0.5)),
            total_us=int(chance.lognormvariate(9, 1)),
            evidence=[(f"subject:word{chance.randrange(100)}", chance.uniform(-3, 3)) for _ in range(8)],
            tokens=None,
        )


def fill(store: Store, messages: int, now: datetime) -> None:
    """The journal, and in the ledger what was taught of it."""
    batch: list[JournalEntry] = []
    for entry in entries(messages, now):
        batch.append(entry)
        if len(batch) == BATCH:
            store.write_journal(batch)
            batch = []
    store.write_journal(batch)
    chance = random.Random(2)
    filter = Filter(store, VOICE)
    for source, share in (("train", TRAINED), ("imap", MARKED)):
        with filter.training() as training:
            for number in sorted(chance.sample(range(messages), int(share * messages))):
                at = now - timedelta(days=DAYS) * (1 - (number + 0.5) / messages) + timedelta(hours=1)
                tokens = {"fields": {b"word%d" % chance.randrange(1000): 1 for _ in range(20)}}
                reading = Reading(number.to_bytes(16, "big"), tokens)
                training.learn(reading, chance.choice(LABELS), source, f"user{number % 20}", at)


def found_in(database: Path) -> tuple[int, datetime]:
    """How many messages a journal has that was made by `fill`, and the end of its year."""
    with closing(sqlite3.connect(database)) as connection:
        number, last = connection.execute("SELECT count(*), max(at) FROM journal").fetchone()
    return number, datetime.fromisoformat(last).replace(tzinfo=UTC) + timedelta(days=DAYS) * 0.5 / number


def report(environment: dict[str, str], form: str, now: datetime) -> tuple[float, float, float, str]:
    """Seconds, those of the processor, and megabytes of one report of the year before `now`, and what it says."""
    period = ("--since", (now - timedelta(days=DAYS)).isoformat(), "--until", now.isoformat())
    command = [sys.executable, "-m", "spamfilter", "stats", *period, "--format", form]
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    megabytes = used.ru_maxrss * resource.getpagesize() / 4096 / 1000
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, megabytes, said


def nothing() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def rows(what: str, environment: dict[str, str], turns: int, now: datetime) -> tuple[list[str], dict[str, object]]:
    """A row for each format, and the JSON of the report."""
    found = []
    for form in ("text", "html", "json"):
        starts, reports = zip(*((nothing(), report(environment, form, now)) for _ in range(turns)), strict=True)
        seconds, busy, megabytes = (list(one) for one in list(zip(*reports, strict=True))[:3])
        found.append(
            f"| {what} | {form} | {median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
            f" | {median(busy):.2f} | {median(seconds) / median(starts):.0f} | {max(megabytes):.0f} |"
        )
        print(found[-1], file=sys.stderr, flush=True)
    return found, json.loads(reports[-1][3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--database", type=Path, help="make the journal here once, and work on a copy of it")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    messages, now = arguments.messages, datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        database = Path(folder) / "spamfilter.db"
        made = arguments.database or database
        if made.exists():
            messages, now = found_in(made)
        else:
            with closing(open_store(f"sqlite:///{made}")) as store:
                fill(store, messages, now)
        if made != database:
            shutil.copyfile(made, database)
        url = f"sqlite:///{database}"
        environment = {**os.environ, "STATE_DIRECTORY": folder, "SPAMFILTER_LEARN__VOICES": '["fields"]'}
        with closing(open_store(url)) as store:
            began = time.perf_counter()
            kept = daily_summaries.keep(store, now, now - timedelta(days=2 * DAYS))
            keeping = time.perf_counter() - began
            size = store.size()
        whole, before = rows("the whole journal", environment, arguments.turns, now)
        with closing(open_store(url)) as store:
            last = daily_summaries.midnight((now - timedelta(days=KEPT_DAYS)).date())
            daily_summaries.keep(store, now, last)
            store.expire(last, last)
        dropped, after = rows(f"{KEPT_DAYS} days of it", environment, arguments.turns, now)
    same = ("messages", "classes", "actions", "replies", "ham_rate", "spam_rate", "calibration")
    differing = [name for name in same if before[name] != after[name]]
    text = "\n".join([
        f"{messages:,} messages in {DAYS} days, {messages * MARKED:,.0f} of them marked,"
        f" {messages * TRAINED:,.0f} taught in bulk; {size / 1e6:,.0f} MB of database. To keep {kept} days"
        f" took {keeping:.0f} s, {1e6 * keeping / messages:.0f} us a message.",
        "",
        f"| journal | format | seconds: median of {arguments.turns}, least to most | of the processor"
        " | of those of `python -c pass` | megabytes at most |",
        "|---|---|---|---|---|---|",
        *whole, *dropped, "",
        f"Figures that differ after entries were dropped: {', '.join(differing) or 'none'}.", "",
    ])  # fmt: skip
    print(text)
    if arguments.result:
        write_result(arguments.result, "The report of a year", __file__, text)
    if differing:
        raise SystemExit(f"differing: {', '.join(differing)}")


if __name__ == "__main__":
    main()
