"""Does the time to judge a message depend on how many words are known?

Counts of 10,000 to 1,000,000 words are made up, with frequencies that fall as in real text (Zipf), and the same
messages of 400 words are judged by every likelihood, in turns, so that a noisy machine is noisy for all of them. The
words are known to every size, and lie at random places of its tables. Two parts are timed apart: looking up the
words of the message, which is alike for all likelihoods and can only depend on how much of the tables the processor's
caches hold; and the formula, with what it says of absent words, which must not depend on the size at all.

    python benchmarks/growth.py [--result FILE]

Takes some seconds.
"""

import argparse
import random
import time
from pathlib import Path
from statistics import median

import numpy as np
from results import write_result

from spamfilter.counts import LABELS, Counts, Hashed
from spamfilter.features import Tokens
from spamfilter.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.likelihoods.likelihood import Matrix

SIZES = (10_000, 100_000, 1_000_000)
MESSAGES, WORDS, TURNS = 40, 400, 15


def made(size: int, chance: random.Random) -> Counts:
    """Counts of so many words, as a relay holds them; the first 10,000 are the same in each size."""
    counts = Counts(Hashed(size))
    words = [b"word%d" % number for number in range(size)]
    chance.shuffle(words)
    numbers = np.array([int(word[4:]) for word in words])
    for label in LABELS:
        times = 10_000 // (numbers + 1) + (numbers % 3 != (label == "spam"))
        counts.kept.put(words, label, times)
        counts.messages[label] = 20_000
        counts.occurrences[label] = int(times.sum())
        counts.vocabulary = size
    counts.tally()
    return counts


def messages(chance: random.Random) -> list[Tokens]:
    return [
        {b"word%d" % number: chance.randint(1, 3) for number in chance.sample(range(SIZES[0]), WORDS)}
        for _ in range(MESSAGES)
    ]


def microseconds(likelihood: Likelihood, mails: list[Tokens], counts: Counts) -> tuple[float, float]:
    """The medians over the messages: to look up the words, and to compute the log-odds from that."""
    looking: list[float] = []
    computing: list[float] = []
    for tokens in mails:
        began = time.perf_counter_ns()
        matrix = Matrix.of([tokens], counts)
        found = time.perf_counter_ns()
        likelihood.total(matrix, likelihood.shares(matrix, counts), counts)
        looking.append((found - began) / 1000)
        computing.append((time.perf_counter_ns() - found) / 1000)
    return median(looking), median(computing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    tables = {size: made(size, random.Random(1)) for size in SIZES}
    mails = messages(random.Random(2))
    rows: dict[str, Likelihood] = {name: row() for name, row in LIKELIHOODS.items() if name != "gaussian"}
    times: dict[tuple[str, int], list[tuple[float, float]]] = {(name, size): [] for name in rows for size in SIZES}
    for _ in range(TURNS):
        for name, likelihood in rows.items():
            for size, counts in tables.items():
                times[name, size].append(microseconds(likelihood, mails, counts))
    lines = [
        f"Median microseconds for a message of {WORDS} words; ratio of {SIZES[-1]:,} words known to {SIZES[0]:,}."
        f" The tallies hold {', '.join(str(len((table.tallies or {})['ham'])) for table in tables.values())} different"
        " counts.",
        "",
        f"| part | {' | '.join(f'{size:,} words' for size in SIZES)} | ratio |",
        f"|---|{'---|' * len(SIZES)}---|",
    ]

    def line(part: str, medians: list[float]) -> None:
        cells = " | ".join(f"{value:.0f}" for value in medians)
        lines.append(f"| {part} | {cells} | {medians[-1] / medians[0]:.2f} |")
        print(lines[-1], flush=True)

    line("looking up the words", [median(pair[0] for name in rows for pair in times[name, size]) for size in SIZES])
    for name in rows:
        line(f"formula of {name}", [median(pair[1] for pair in times[name, size]) for size in SIZES])
    for name in rows:
        line(f"judging as a whole, by {name}", [median(map(sum, times[name, size])) for size in SIZES])
    if arguments.result:
        write_result(arguments.result, "Time to judge, and words known", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
