"""How long does a mark wait while all counts are rebuilt?

A ledger of a million learnings, of ten words each, is written to SQLite or PostgreSQL. One process rebuilds the counts
with another likelihood, as `spamfilter retrain` does; another learns a mail ten times a second, and notes how long each
took. At the end the counts must be the sum of the ledger, with all that was learnt meanwhile.

    python benchmarks/retraining.py [--learnings N] [--store sqlite postgresql] [--result FILE]

Takes about a quarter of an hour for each store, half of it to write the ledger.
"""

import argparse
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory

from results import write_result

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.voices import Voice, Voices
from spamfilter.errors import StoreError
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.learning.transaction import Reading
from spamfilter.stores import Entry, Store, open_store

sys.path.insert(0, str(Path(__file__).parents[1]))  # the server is that of the tests

from tests.support import postgresql

WORDS, VOCABULARY, TOGETHER = 10, 1_000_000, 2_000
"""Words of a mail; words that there are, the frequent ones far more often; learnings of one transaction."""
EVERY = 0.1
"""Seconds between learnings while the counts are rebuilt."""
spawn = multiprocessing.get_context("spawn")


def voices(likelihood: str) -> Voices:
    return (Voice("fields", LIKELIHOODS[likelihood]()),)


def words(chance: random.Random) -> dict[bytes, int]:
    return {b"word%d" % int(VOCABULARY ** chance.random()): 1 for _ in range(WORDS)}


def fill(store: Store, number: int) -> None:
    """A ledger of so many learnings, with their counts."""
    chance, counts = random.Random(1), Counts()
    for start in range(0, number, TOGETHER):
        with store.learning() as learning:
            for _ in range(start, min(start + TOGETHER, number)):
                label: Label = chance.choice(LABELS)
                tokens = words(chance)
                learning.append(
                    Entry(
                        label, {"fields": 1}, (0, 0, 0, 0), {"fields": tokens},
                        datetime.now(UTC), chance.randbytes(16), "cli", "benchmark",
                    )
                )  # fmt: skip
                learning.change("fields", label, tokens, 1, counts.add(label, tokens, 1))


def learn(url: str, stop: Event, results: "multiprocessing.Queue[list[float]]") -> None:
    """Learn mails until told to stop, or until the new counts want other voices; puts the seconds that each took."""
    chance, taken = random.Random(2), list[float]()
    with closing(open_store(url)) as store, suppress(StoreError):
        filter = Filter(store, voices("multinomial"), whole=False)
        while not stop.is_set():
            time.sleep(EVERY)
            began = time.monotonic()
            filter.learn(Reading(chance.randbytes(16), {"fields": words(chance)}), "spam", "benchmark")
            taken.append(time.monotonic() - began)
    results.put(taken)


def measure(kind: str, url: str, number: int) -> str:
    """A row of the table."""
    with closing(open_store(url)) as store:
        Filter(store, voices("multinomial"), whole=False)
        began = time.monotonic()
        fill(store, number)
        print(f"{kind}: {number:,} learnings written in {time.monotonic() - began:.0f} s", file=sys.stderr)
        stop, results = spawn.Event(), spawn.Queue()
        other = spawn.Process(target=learn, args=(url, stop, results))
        other.start()
        began = time.monotonic()
        retrain(store, voices("soft"), {}, lambda count: None)
        seconds = time.monotonic() - began
        stop.set()
        taken = sorted(results.get())
        other.join()
        wrong = Filter(store, voices("soft")).verify()
        assert wrong == [], wrong
        assert store.state({}).last == number + len(taken)
    return (
        f"| {kind} | {number:,} | {seconds:.0f} | {len(taken):,} | {1000 * statistics.median(taken):.0f} |"
        f" {1000 * taken[len(taken) * 99 // 100]:.0f} | {1000 * taken[-1]:.0f} |"
    )


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of an empty database."""
    if kind == "sqlite":
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/store.db"
    else:
        server = postgresql.Server(durable=True)
        try:
            with server.database() as url:
                yield url
        finally:
            server.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learnings", type=int, default=1_000_000)
    parser.add_argument("--store", nargs="*", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"])
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    rows = []
    for kind in arguments.store:
        with database(kind) as url:
            rows.append(measure(kind, url, arguments.learnings))
            print(rows[-1], file=sys.stderr, flush=True)
    head = (
        "| store | learnings in the ledger | seconds to rebuild | learnt meanwhile | a learning, median ms | 99 % |"
        " longest |"
    )
    text = "\n".join([head, "|---" * 7 + "|", *rows, ""])
    print(text)
    if arguments.result:
        write_result(arguments.result, "Learning while all counts are rebuilt", __file__, text)


if __name__ == "__main__":
    main()
