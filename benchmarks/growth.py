"""What grows with the words that are known, and with the messages that have passed?

Judging: counts of 10,000 to 10,000,000 words are made up, with frequencies that fall as in real text (Zipf), and the
same messages of 400 words are judged by every likelihood, in turns, so that a noisy machine is noisy for all of them.
The words are known to every size, and lie at random places of its tables; looking them up is a part of judging.
Where SPAMFILTER_CORPORA is set, mails of trec07p are judged, too, as the relay does it, by the default voices, which
share so many words between them; every size knows the tokens that these mails have most often.
Learning: the same messages are learnt and taken back in the tables in memory.
Start: databases of as many words, over the default voices; from exec to "ready", with the memory of the process then.

    python benchmarks/growth.py [--largest WORDS] [--journal MESSAGES] [--result FILE]

Takes three minutes with the largest size, and a gigabyte and a half; --journal adds a database through which a million
messages have passed, of which every twentieth was learnt: its size, and the time of what works on it.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory

import numpy as np
from full_database import SHARES, make, some_mails
from judge_speed import trec
from results import write_result
from running import relay

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.bayes.model import State
from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.relay.judging import Judge
from spamfilter.reports.daily_summaries import keep
from spamfilter.reports.report import build
from spamfilter.system.ids import new_id

sys.path.insert(0, str(Path(__file__).parents[1]))  # the store in memory is the tests'

from tests.support.memory_store import open_store

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MESSAGES, WORDS, TURNS, STARTS = 40, 400, 15, 3
PIECE = 500_000


def made(size: int, chance: np.random.Generator, common: Sequence[bytes] = ()) -> Counts:
    """Counts of so many words, as a relay holds them; the first 10,000 are the same in each size.

    common: those that count most, instead of words that are made up.
    """
    counts = Counts(HashedTable(size))
    kept = counts.kept
    assert isinstance(kept, HashedTable)
    for numbers in np.array_split(chance.permutation(size), -(-size // PIECE)):
        times = [10_000 // (numbers + 1) + (numbers % 3 != remainder) for remainder in (0, 1)]
        words = [common[number] if number < len(common) else b"word%d" % number for number in numbers.tolist()]
        kept.fill(b"\n".join(words), *times)
        for label, some in zip(LABELS, times, strict=True):
            counts.occurrences[label] += int(some.sum())
    for label in LABELS:
        counts.messages[label] = 20_000
    counts.vocabulary = size
    counts.tally()
    return counts


def messages(chance: random.Random) -> list[TokenArrays]:
    """As the tokenizer gives them."""
    found = []
    for _ in range(MESSAGES):
        words = Spellings.of([b"word%d" % number for number in chance.sample(range(SIZES[0]), WORDS)])
        times = np.array([chance.randint(1, 3) for _ in words], np.uint32)
        found.append(TokenArrays(words, times))
    return found


def look_up(tokens: TokenArrays, counts: Counts) -> object:
    return counts.numbers(tokens.spellings)


def microseconds(work: Callable[[TokenArrays], object], mails: list[TokenArrays]) -> float:
    """The median over the messages."""
    taken: list[float] = []
    for tokens in mails:
        began = time.perf_counter_ns()
        work(tokens)
        taken.append((time.perf_counter_ns() - began) / 1000)
    return median(taken)


def learning(mails: list[TokenArrays], counts: Counts) -> float:
    """The median microseconds to learn a message in memory."""
    taken: list[float] = []
    for tokens in mails:
        deltas = LIKELIHOODS["bernoulli"]().deltas(tokens, 1)
        began = time.perf_counter_ns()
        counts.add("spam", deltas)
        taken.append((time.perf_counter_ns() - began) / 1000)
        counts.subtract("spam", deltas)
    return median(taken)


def judged(mails: Sequence[bytes], counts: Mapping[str, Counts]) -> list[float]:
    """The microseconds to judge each mail as the relay does, from its bytes to the verdict with its evidence."""
    filter = Filter(open_store("memory:"), Learn().chosen())
    filter.adopt(State(dict(counts), dict.fromkeys(LABELS, 20_000), Calibration(), 1))
    judge = Judge(filter, Policy())
    taken: list[float] = []
    for mail in mails:
        began = time.perf_counter_ns()
        judge.judge(mail, "id")
        taken.append((time.perf_counter_ns() - began) / 1000)
    return taken


def table_head(part: str, sizes: Sequence[int]) -> list[str]:
    return [
        f"| {part} | {' | '.join(f'{size:,} words' for size in sizes)} | ratio |",
        f"|---|{'---|' * len(sizes)}---|",
    ]


def row(part: str, times: Sequence[float]) -> str:
    """A line of a table, for all sizes."""
    cells = " | ".join(f"{value:.0f}" for value in times)
    line = f"| {part} | {cells} | {times[-1] / times[0]:.2f} |"
    print(line, flush=True)
    return line


def judging(sizes: Sequence[int]) -> list[str]:
    """The table of times to judge and to learn."""
    tables = {size: made(size, np.random.default_rng(1)) for size in sizes}
    mails = messages(random.Random(2))
    rows: dict[str, Likelihood] = {name: kind() for name, kind in LIKELIHOODS.items() if name != "gaussian"}
    looked: dict[int, list[float]] = {size: [] for size in sizes}
    times: dict[tuple[str, int], list[float]] = {(name, size): [] for name in rows for size in sizes}
    learnt: dict[int, list[float]] = {size: [] for size in sizes}
    whole: dict[int, list[float]] = {size: [] for size in sizes}
    letters = [mail.read() for mail in some_mails(MESSAGES, SIZES[0])]
    for _ in range(TURNS):
        for name, likelihood in rows.items():
            for size, counts in tables.items():
                looked[size].append(microseconds(partial(look_up, counts=counts), mails))
                times[name, size].append(microseconds(partial(likelihood.judge, counts=counts), mails))
                learnt[size].append(learning(mails, counts))
                whole[size].append(median(judged(letters, dict.fromkeys(SHARES, counts))))
    lines = [
        f"Median microseconds for a message of {WORDS} words; ratio of {sizes[-1]:,} words known to {sizes[0]:,}.",
        "",
        *table_head("part", sizes),
    ]
    lines.append(row("looking up the words", [median(looked[size]) for size in sizes]))
    for name in rows:
        lines.append(row(f"judging, by {name}", [median(times[name, size]) for size in sizes]))
    lines.append(row("a mail of 150 words, as the relay judges it", [median(whole[size]) for size in sizes]))
    lines.append(row("learning, in memory", [median(learnt[size]) for size in sizes]))
    room = ", ".join(f"{kept.table.nbytes / size:.0f}" for size, kept in hashed(tables))
    return [*lines, "", f"Bytes of a table for each word: {room}."]


def hashed(tables: dict[int, Counts]) -> list[tuple[int, HashedTable]]:
    return [(size, counts.kept) for size, counts in tables.items() if isinstance(counts.kept, HashedTable)]


def judging_real_mail(sizes: Sequence[int]) -> list[str]:
    """The table of times to judge mails of trec07p."""
    mails = [Path(name).read_bytes() for name in trec()[1][::2]]
    views = [view(Learn().chosen(), parse(mail)) for mail in mails]
    having = Counter((voice, token) for seen in views for voice, tokens in seen.items() for token in tokens)
    common = [pair for pair, _ in having.most_common(SIZES[0])]

    def counts(size: int, voice: str) -> Counts:
        mine = [token for name, token in common if name == voice]
        return made(max(len(mine), round(size * SHARES[voice])), np.random.default_rng(1), mine)

    tables = {size: {voice: counts(size, voice) for voice in SHARES} for size in sizes}
    times: dict[int, list[list[float]]] = {size: [] for size in sizes}
    for _ in range(TURNS):
        for size, some in tables.items():
            times[size].append(judged(mails, some))
    medians = [[median(taken) for taken in zip(*times[size], strict=True)] for size in sizes]
    return [
        "",
        f"Microseconds to judge {len(mails)} mails of trec07p as the relay does;"
        f" {having.total() / len(mails):,.0f} words of each are looked up.",
        "",
        *table_head("over the mails", sizes),
        row("mean", [mean(some) for some in medians]),
        row("median", [median(some) for some in medians]),
        row("the slowest of a hundred", [quantiles(some, n=100)[-1] for some in medians]),
    ]


def starting(folder: Path, sizes: Sequence[int]) -> list[str]:
    """The table of starts."""
    lines = [
        "",
        f"Start of the relay as one process, median of {STARTS}: seconds from exec to ready, seconds of processor until"
        " then, megabytes resident then, and at most on the way.",
        "",
        "| words | database | ready | processor | resident | at most |",
        "|---|---|---|---|---|---|",
    ]
    for size in sizes:
        database = folder / "growth.db"
        make(database, size)
        runs = []
        for _ in range(STARTS + 1):
            with relay(folder, database) as running:
                runs.append(running)
        runs = runs[1:]  # the first one compiles and reads the disk
        middle = [
            median(values)
            for values in zip(
                *((one.ready, one.processor, one.megabytes, one.most_megabytes) for one in runs), strict=True
            )
        ]
        lines.append(
            f"| {size:,} | {database.stat().st_size / 1e6:.0f} MB | {middle[0]:.2f} s | {middle[1]:.2f} s |"
            f" {middle[2]:.0f} MB | {middle[3]:.0f} MB |"
        )
        print(lines[-1], flush=True)
        database.unlink()
    return lines


def journalled(folder: Path, messages: int) -> list[str]:
    """What a database costs through which so many messages have passed."""
    lines = [
        "",
        f"After {messages:,} messages in 30 days, every twentieth learnt, 1,000,000 words; tokens of the journal have"
        " expired. Seconds of processor, medians of 5.",
        "",
        "| what | cost |",
        "|---|---|",
    ]

    def line(what: str, cost: str) -> None:
        lines.append(f"| {what} | {cost} |")
        print(lines[-1], flush=True)

    def seconds(what: str, work: Callable[[int], object], times: int = 5) -> None:
        taken = []
        for turn in range(times):
            began = time.process_time()
            work(turn)
            taken.append(time.process_time() - began)
        line(what, f"{median(taken):.3f} s")

    database = folder / "journalled.db"
    make(database, 0, messages // 20)
    ledger_bytes = database.stat().st_size
    database.unlink()
    make(database, 1_000_000, messages // 20, messages)
    size = database.stat().st_size
    line("database", f"{size / 1e6:.0f} MB, {ledger_bytes / 1e6:.0f} MB of them ledger")
    now = datetime.now(UTC)
    with closing(open_store(f"sqlite:///{database}")) as store:
        filter = Filter(store, Learn().chosen(), whole=False)
        readings = [filter.read(parse(mail.read())) for mail in some_mails(125)[100:]]
        entry = replace(store.journal(now - timedelta(hours=1), now)[0], tokens=readings[0].tokens)
        seconds(
            "a batch of 500 rows of the journal",
            lambda turn: store.write_journal([replace(entry, id=new_id()) for _ in range(500)]),
        )
        seconds("a mark, without counts in memory", lambda turn: filter.learn(readings[turn], "spam", "cli"))
        names = [voice.name for voice in filter.voices]
        # As a relay does, once for each day.
        seconds("summing up all days that are over", lambda turn: keep(store, now, now - timedelta(days=30)), 1)
        seconds("stats of a day", lambda turn: build(store, names, now - timedelta(days=1), now))
        seconds("stats of 7 days, the default", lambda turn: build(store, names, now - timedelta(days=7), now), 1)
    with relay(folder, database) as running:
        line("start of the relay", f"{running.processor:.2f} s")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="leave out sizes above this")
    parser.add_argument("--journal", type=int, default=0, help="messages of the database that has judged many")
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.largest]
    lines = judging(sizes)
    if "SPAMFILTER_CORPORA" in os.environ:
        lines += judging_real_mail(sizes)
    with TemporaryDirectory(prefix="growth-") as folder:
        lines += starting(Path(folder), sizes)
        if arguments.journal:
            lines += journalled(Path(folder), arguments.journal)
    if arguments.result:
        write_result(arguments.result, "What grows with words and messages", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
