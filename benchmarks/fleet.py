"""How many marks a second does a fleet learn on one PostgreSQL, and how soon does every relay know them?

The script starts a PostgreSQL with its default durability. Writers, each a process of its own, learn mails of 900
words as fast as they can; then, beside followers, at a steady pace. Followers look for new entries of the ledger every
quarter of a second, as a relay does, and note how long after each entry was written they see it, its commit included.
A follower here reads entries, and does not add them to counts: that is the relay's own processor, not the database's.
Followers are threads of a few processes; when those want more processor than the machine has, the lag that is shown is
too long.

Beside it stands the least that a server does for a learning whose counts are in the database once it is committed: the
writers' lock, one statement that adds 900 words, one row of the ledger, by the driver alone; and the same with a look
at the words before, without which nothing can be judged. No program that keeps its counts so is faster on this machine.

    pip install -e '.[postgresql]'; apt-get install postgresql
    python benchmarks/fleet.py [--writers N] [--seconds N] [--followers N ...] [--pace N] [--entries N] [--result FILE]

Load of the database: processor seconds of PostgreSQL's processes for each second on the clock, and milliseconds of
processor for a learning, followers included. On a machine with other work these are what can be compared; learnings a
second, and lags, are then only bounds. Errors are writers who waited for 10 seconds: their users would try again.

With --entries 1000000 two rows more have a ledger that is old already; to write it takes ten minutes.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path

import psycopg
from results import write_result
from retraining import fill

from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.voices import Voice, Voices
from spamfilter.errors import StoreBusy
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.service.ledger_following import FOLLOW_EVERY
from spamfilter.stores import open_store

sys.path.insert(0, str(Path(__file__).parents[1]))  # the server is that of the tests

from tests.support import postgresql

WORDS = 900
"""Words of a mail: twice the median of TREC 2007."""
VOCABULARY = 200_000
"""Words that mails are made of, the frequent ones far more often, as in any language."""
VOICES: Voices = (Voice("fields", LIKELIHOODS["multinomial"]()),)
"""Multinomial learns every word of every mail; the default learns less the surer it was, so this is the most work."""
PROCESSES = 4
"""Followers share so many processes: more would wait for each other on two cores."""
TICKS = os.sysconf("SC_CLK_TCK")
spawn = multiprocessing.get_context("spawn")

BARE = """
CREATE TABLE words (word text COLLATE "C" PRIMARY KEY, ham integer NOT NULL, spam integer NOT NULL);
CREATE TABLE ledger (id bigint PRIMARY KEY, tokens bytea NOT NULL)
"""
LOCK = "SELECT pg_advisory_xact_lock(1)"
LOOK = """
SELECT found.* FROM unnest(%s::text[]) AS asked (word)
CROSS JOIN LATERAL (SELECT word, ham, spam FROM words WHERE words.word = asked.word) AS found
"""
ADD = """
INSERT INTO words SELECT unnest(%s::text[]), %s, %s
ON CONFLICT (word) DO UPDATE SET ham = words.ham + excluded.ham, spam = words.spam + excluded.spam
"""
APPEND = "INSERT INTO ledger SELECT coalesce(max(id), 0) + 1, %s FROM ledger"
PACKED = 3000
"""Bytes of the tokens of a mail in the ledger."""


Followed = tuple[list[float], list[int], float, int]
"""Lags of entries in seconds; how many entries each follower has seen; processor seconds; looks at the ledger."""


def mail(chance: random.Random) -> Reading:
    """A mail of WORDS different words, by Zipf's law."""
    words: set[bytes] = set()
    while len(words) < WORDS:
        words.add(b"word%d" % int(VOCABULARY ** chance.random()))
    return Reading(chance.randbytes(16), {"fields": dict.fromkeys(words, 1)})


def write(
    url: str, number: int, pace: float, stop: Event, results: "multiprocessing.Queue[tuple[int, int, float]]"
) -> None:
    """Learn until told to stop; number: the seed of the mails; pace: learnings a second, 0: as many as can be.

    Puts learnings, errors, and processor seconds.
    """
    chance, learnt, errors = random.Random(number), 0, 0
    with closing(open_store(url)) as store:
        filter = Filter(store, VOICES, whole=False)
        began, begin = time.process_time(), time.monotonic() + chance.random() / (pace or 1)
        while not stop.is_set():
            if pace:
                time.sleep(max(0.0, begin + learnt / pace - time.monotonic()))
            try:
                filter.learn(mail(chance), chance.choice(("ham", "spam")), "benchmark")
                learnt += 1
            except StoreBusy:
                errors += 1
    results.put((learnt, errors, time.process_time() - began))


def write_bare(dsn: str, look: bool, number: int, seconds: float, results: "multiprocessing.Queue[int]") -> None:
    """Send a learning's least statements for so long; puts how often."""
    chance, learnt, end = random.Random(number), 0, time.monotonic() + seconds
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as connection:
        while time.monotonic() < end:
            words = sorted(word.decode() for word in mail(chance).tokens["fields"])
            ham = chance.choice((0, 1))
            with connection.transaction():
                connection.execute(LOCK)
                if look:
                    connection.execute(LOOK, (words,), binary=True).fetchall()
                connection.execute(ADD, (words, ham, 1 - ham))
                connection.execute(APPEND, (chance.randbytes(PACKED),))
            learnt += 1
    results.put(learnt)


def follow(url: str, followers: int, stop: Event, results: "multiprocessing.Queue[Followed]") -> None:
    """Follow the ledger in threads until told to stop and nothing is left."""
    lags: list[float] = []
    seen: list[int] = []
    looks: list[int] = []

    def one(number: int) -> None:
        with closing(open_store(url)) as store:
            last = first = store.state({}).last
            time.sleep(FOLLOW_EVERY * number / followers)
            while True:
                looks.append(last)
                ending = stop.is_set()
                entries, newest = store.news(last)
                now = datetime.now(UTC)
                lags.extend((now - entry.at).total_seconds() for entry in entries)
                missed = [entry.id for entry in entries] != [*range(last + 1, last + 1 + len(entries))]
                assert not missed, "entries were missed"
                last = entries[-1].id if entries else last
                if ending and not entries:
                    break
                if not entries or last >= newest:
                    time.sleep(FOLLOW_EVERY)
            seen.append(last - first)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(followers)]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((lags, seen, time.process_time() - began, len(looks)))


def database_seconds(server: postgresql.Server) -> float:
    """Processor seconds of all PostgreSQL's processes so far, those that have ended included."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            own, parent = int(path.parent.name), int(fields[1])
            if own == server.process.pid:
                total += sum(map(int, fields[11:15]))
            elif parent == server.process.pid:
                total += sum(map(int, fields[11:13]))
    return total / TICKS


def measure(server: postgresql.Server, url: str, writers: int, pace: float, followers: int, seconds: float) -> str:
    """A row of the table. pace: of all writers together."""
    with closing(open_store(url)) as store:
        Filter(store, VOICES, whole=False)
        before = store.state({}).last
    stop, stop_following = spawn.Event(), spawn.Event()
    learnt, followed = spawn.Queue(), spawn.Queue()
    processes = min(followers, PROCESSES)
    following = [
        spawn.Process(target=follow, args=(url, (followers + at) // processes, stop_following, followed))
        for at in range(processes)
    ]
    writing = [
        spawn.Process(target=write, args=(url, before + number, pace / writers, stop, learnt))
        for number in range(writers)
    ]
    with closing(open_store(url)) as store:
        for process in following:
            process.start()
        connected(server, url, followers)
        for process in writing:
            process.start()
        while store.state({}).last < before + writers:
            time.sleep(0.05)
        first, clock, load = store.state({}).last, time.monotonic(), database_seconds(server)
        time.sleep(seconds)
        number, taken = store.state({}).last - first, time.monotonic() - clock
        used = database_seconds(server) - load
        stop.set()
        counts = [learnt.get() for _ in writing]
        stop_following.set()
        seen = [followed.get() for _ in following]
        for process in writing + following:
            process.join()
        total = store.state({}).last - before
        assert sum(count for count, *_ in counts) == total
        wrong = Filter(store, VOICES).verify()
        assert wrong == [], wrong
    assert all(one == total for _, each, *_ in seen for one in each), "a follower has not seen every entry"
    deadlocks = server.execute("SELECT sum(deadlocks) FROM pg_stat_database")[0][0]
    lags = [lag for some, *_ in seen for lag in some]
    writer = 1000 * sum(one for *_, one in counts) / total
    looks = 1000 * sum(one for *_, one, _ in seen) / max(sum(one for *_, one in seen), 1)
    wanted = f"{pace:.0f}" if pace else "as fast as they can"
    return (
        f"| {before:,} | {writers} | {wanted} | {followers} | {number / taken:.0f} |"
        f" {sum(errors for _, errors, _ in counts)}, {deadlocks} | {lag_text(lags)} | {used / taken:.2f} |"
        f" {1000 * used / max(number, 1):.1f} | {writer:.1f} |"
        f" {f'{looks:.1f}' if seen else '-'} |"
    )


def measure_bare(server: postgresql.Server, writers: int, look: bool, seconds: float) -> str:
    """A row of the table of what is possible."""
    with server.database(empty=True) as url:
        dsn = url.replace(f"{postgresql.KIND}:", "postgresql:")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(BARE)
        learnt, load = spawn.Queue(), database_seconds(server)
        writing = [spawn.Process(target=write_bare, args=(dsn, look, at, seconds, learnt)) for at in range(writers)]
        for process in writing:
            process.start()
        total = sum(learnt.get() for _ in writing)
        for process in writing:
            process.join()
    used = 1000 * (database_seconds(server) - load) / total
    return f"| {'with' if look else 'without'} a look | {total / seconds:.0f} | {used:.1f} |"


def connected(server: postgresql.Server, url: str, followers: int) -> None:
    """Wait until all followers have looked at the ledger once."""
    question = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{postgresql.name_in(url)}'"
    while int(str(server.execute(question)[0][0])) < followers:
        time.sleep(0.1)


def lag_text(lags: Sequence[float]) -> str:
    if not lags:
        return "- | - | -"
    ordered = sorted(lags)
    return " | ".join(
        f"{lag:.2f}" for lag in (statistics.median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1])
    )


def table(rows: Iterable[str]) -> str:
    head = (
        "| entries of the ledger before | writers | learnings a second asked for | followers | learnings a second |"
        " errors, deadlocks | lag, median | 99 % | worst | processors of the database | its ms a learning |"
        " writer's ms a learning | follower's ms a look |"
    )
    return "\n".join([head, "|---" * 13 + "|", *rows, ""])


def bare_table(rows: Iterable[str]) -> str:
    head = "| the least statements | learnings a second | database's ms a learning |"
    return "\n".join(["", head, "|---" * 3 + "|", *rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    parser.add_argument("--followers", type=int, nargs="*", default=[2, 10, 50, 100, 200])
    parser.add_argument("--entries", type=int, default=0, help="of the ledger, before two rows more")
    parser.add_argument("--pace", type=float, default=10.0, help="learnings a second beside followers")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    server, rows = postgresql.Server(durable=True), []
    try:
        server.stop()
        server.options += ["-c", f"max_connections={2 * max([50, *arguments.followers]) + 50}"]
        server.start()
        for followers, pace in [(0, 0.0), *((number, arguments.pace) for number in arguments.followers)]:
            with server.database() as url:
                rows.append(measure(server, url, arguments.writers, pace, followers, arguments.seconds))
            print(rows[-1], file=sys.stderr, flush=True)
        if arguments.entries:
            with server.database() as url:
                with closing(open_store(url)) as store:
                    Filter(store, VOICES, whole=False)
                    fill(store, arguments.entries)
                for followers, pace in [(0, 0.0), (10, arguments.pace)]:
                    rows.append(measure(server, url, arguments.writers, pace, followers, arguments.seconds))
                    print(rows[-1], file=sys.stderr, flush=True)
        bare = [measure_bare(server, arguments.writers, look, arguments.seconds) for look in (False, True)]
    finally:
        server.remove()
    text = (
        table(rows)
        + bare_table(bare)
        + f"\nLoad average of the machine, of {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}.\n"
    )
    print(text)
    if arguments.result:
        write_result(arguments.result, "A fleet on one PostgreSQL", __file__, text)


if __name__ == "__main__":
    main()
