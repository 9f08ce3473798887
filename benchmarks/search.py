"""How long do searches of the journal take, and what does their index cost?

A journal of made-up mail of 30 days is written; half of it has kept its tokens. Each search lists a page and counts
all that is found, as the web page does; so does a search that finds nothing, which must look at every entry. Then the
overview of the web page, which it reads ahead at its start and when an hour has begun, and keeps the hours of days.

    python benchmarks/search.py [--entries N] [--result FILE]

Takes a minute or two.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from results import write_result
from sqlalchemy import text

from spamfilter.bayes.verdict import Class
from spamfilter.reports import daily_summaries
from spamfilter.reports.report import build
from spamfilter.stores import JournalEntry, Wanted
from spamfilter.stores.sql import SqlStore
from spamfilter.system.ids import first_id
from spamfilter.web.overview import AHEAD, PERIODS

PAGE, TURNS, WRITTEN = 50, 5, 500
NOW = datetime.now(UTC)
SEARCHES = {
    "all": Wanted(),
    "class": Wanted(class_="spam"),
    "unsure first": Wanted(unsure_first=True),
    "action, none": Wanted(action="quarantine"),
    "recipient, none": Wanted(recipient="nobody@"),
    "recipient, all": Wanted(recipient="@example.net>"),
    "sender, a domain": Wanted(sender="@word77.example.org>"),
    "sender, none": Wanted(sender="nobody@"),
    "subject, two words": Wanted(subject="word7 word8"),
    "client": Wanted(client="192.0.2.1"),
    "Message-ID": Wanted(message_id="<77@example.org>"),
    "reply, a code, none": Wanted(reply="451"),
    "reply, a queue id": Wanted(reply="queued as AB12"),
    "a day": Wanted(since=NOW - timedelta(days=20), until=NOW - timedelta(days=19)),
    "an hour of the day": Wanted(hour=13),
    "score": Wanted(least=0.9999),
    "all of these": Wanted(
        class_="ham", sender="word", recipient="@example.net", subject="word", client="192.", reply="250",
        since=NOW - timedelta(days=29), hour=13, least=0.1,
    ),
}  # fmt: skip


def entries(number: int) -> Iterator[JournalEntry]:
    """So many mails, evenly over 30 days until now."""
    chance = random.Random(1)

    def word() -> str:
        return f"word{chance.randrange(5000)}"

    for at in range(number):
        moment = NOW - timedelta(days=30) * (number - at) / number
        class_: Class = chance.choice(("ham", "ham", "spam", "spam", "spam", "unsure"))
        words = [word() for _ in range(8)]
        yield JournalEntry(
            id=f"{first_id(moment)[:10]}{at:016}", at=moment, digest=chance.randbytes(16),
            message_id=f"<{at}@example.org>", sender=f"{word()}@{word()}.example.org",
            recipients=[f"{word()}@example.net" for _ in range(chance.choice((1, 1, 1, 3)))],
            subject=" ".join(words[:6]), size=5000, client=f"192.0.{chance.randrange(256)}.{chance.randrange(256)}",
            log_odds=0.0, score=chance.random(), class_=class_, action="tag" if class_ == "spam" else "pass",
            reply=f"250 2.0.0 Ok: queued as {chance.getrandbits(48):X}", judge_us=500, total_us=2000,
            listed="", host="",
            evidence=[(f"subject:{one}", 0.5) for one in words],
            tokens={"fields": {b"%d" % chance.getrandbits(24): 1 for _ in range(150)}} if at > number / 2 else None,
        )  # fmt: skip


def milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """The shortest time of some turns, on the clock and of the processor."""
    taken = []
    for _ in range(TURNS):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        taken.append((1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - processor)))
    return min(clock for clock, _ in taken), min(processor for _, processor in taken)


def written(folder: Path, number: int, indexed: bool) -> tuple[SqlStore, float]:
    """A journal of so many mails, and the microseconds of processor time to write one."""
    store = SqlStore(f"sqlite:///{folder}/{indexed}.db")
    store.create()
    if not indexed:
        with store.writing() as connection:
            connection.execute(text("DROP INDEX journal_search"))
    taken = 0.0
    mails = entries(number)
    while some := list(islice(mails, WRITTEN)):
        began = time.process_time()
        store.write_journal(some)
        taken += time.process_time() - began
    return store, 1e6 * taken / number


def overviews(store: SqlStore) -> list[str]:
    """The time to make the report of the web page: read ahead as the page does, and at a look then, by the period.

    At the page's start, and when the next hour has begun; then looks at it once more.
    """
    daily_summaries.keep(store, NOW, NOW - timedelta(days=60))
    hour, parts = NOW.replace(minute=0, second=0, microsecond=0), daily_summaries.Parts()

    def taken(days: int, until: datetime) -> str:
        clock, processor = time.perf_counter(), time.process_time()
        build(store, ["fields"], until - timedelta(days=days), until, parts)
        return f"{1000 * (time.perf_counter() - clock):.0f} | {1000 * (time.process_time() - processor):.0f}"

    looks = [(f"a look at a {name}", days) for name, days in PERIODS.items()]
    rows = [*((f"{name}, read ahead", PERIODS[name]) for name in AHEAD), *looks]
    untils = (hour, hour + timedelta(hours=1), hour + timedelta(hours=1))
    columns = [[taken(days, until) for _, days in rows] for until in untils]
    return [
        f"| {name} | {' | '.join(figures)} |"
        for (name, _), figures in zip(rows, zip(*columns, strict=True), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    lines = ["| search | messages | list, ms | and its number, ms | of that processor, ms |", "|---|---|---|---|---|"]
    with TemporaryDirectory(prefix="search-") as made:
        plain, plain_us = written(Path(made), arguments.entries, indexed=False)
        store, indexed_us = written(Path(made), arguments.entries, indexed=True)
        sizes = plain.size(), store.size()
        plain.close()
        with closing(store):
            for name, wanted in SEARCHES.items():
                listed = milliseconds(lambda wanted=wanted: store.search(wanted, PAGE + 1))  # type: ignore[misc]
                number = milliseconds(lambda wanted=wanted: store.number_found(wanted))  # type: ignore[misc]
                both, processor = (one + other for one, other in zip(listed, number, strict=True))
                found = store.number_found(wanted)
                lines.append(f"| {name} | {found:,} | {listed[0]:.0f} | {both:.0f} | {processor:.0f} |")
                print(lines[-1], flush=True)
            shown = overviews(store)
    table = "\n".join(lines)
    said = (
        f"{arguments.entries:,} entries; the shortest of {TURNS} turns, on a machine that did other work, too.\n\n"
        f"{table}\n\n| overview | at the start, ms | of that processor | when an hour has begun, ms |"
        " of that processor | again, ms | of that processor |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(shown)
        + f"\n\nThe index: {(sizes[1] - sizes[0]) / arguments.entries:.0f} bytes an entry, of"
        f" {sizes[1] / arguments.entries:.0f} in all (half of the entries without tokens). Writing an entry takes"
        f" {indexed_us:.0f} microseconds of processor time, without the index {plain_us:.0f}.\n"
    )
    print(said)
    if arguments.result:
        write_result(arguments.result, "Searches of the journal", __file__, said)


if __name__ == "__main__":
    main()
