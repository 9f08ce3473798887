"""How long does a row take to be learnt, judged and forgotten, beside river, and a matrix beside scikit-learn?

Rows have 57 numbers, as Spambase has. Processor time.

    python benchmarks/library_speed.py [--rows N] [--result FILE]

Takes about ten minutes for a million rows.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import river.naive_bayes
from results import write_result
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB

from spamfilter.bayes import Bernoulli, GaussianNaiveBayes, Multinomial, NaiveBayes

COLUMNS = 57
AT_ONCE = 10_000
"""Rows that are made at once, and of which every hundredth is judged."""
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
    "multinomial": (lambda: NaiveBayes(Multinomial()), river.naive_bayes.MultinomialNB, MultinomialNB),
    "bernoulli": (lambda: NaiveBayes(Bernoulli()), river.naive_bayes.BernoulliNB, BernoulliNB),
    "gaussian": (GaussianNaiveBayes, river.naive_bayes.GaussianNB, GaussianNB),
}
"""Name -> ours, river's, scikit-learn's."""


def timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def batch(models: tuple[Any, Any, Any, Any], random: np.random.Generator) -> list[float]:
    """Seconds of AT_ONCE rows: learnt, judged, forgotten; learnt, judged by river; a matrix by ours, by theirs."""
    one, matrix, other, third = models
    values = (random.random((AT_ONCE, COLUMNS)) < 0.25) * random.integers(1, 9, (AT_ONCE, COLUMNS))
    labels = random.integers(0, 2, AT_ONCE).tolist()
    as_rows = [{f"a{at}": value for at, value in enumerate(row)} for row in values.tolist()]
    pairs, some = list(zip(as_rows, labels, strict=True)), as_rows[::100]
    spent = [
        timed(lambda: [one.learn_one(x, y) for x, y in pairs]),
        100 * timed(lambda: [one.predict_proba_one(x) for x in some]),
        timed(lambda: [one.forget_one(x, y) for x, y in pairs]),
        timed(lambda: [other.learn_one(x, y) for x, y in pairs]),
        100 * timed(lambda: [other.predict_proba_one(x) for x in some]),
        timed(lambda: matrix.partial_fit(values, labels)),
        timed(lambda: third.partial_fit(values, labels, classes=[0, 1])),
    ]
    for x, y in pairs:  # so that the counts grow
        one.learn_one(x, y)
    return spent


def measured(name: str, rows: int) -> str:
    """A row of the table: microseconds of a row of numbers."""
    make, river_makes, sklearn_makes = CASES[name]
    models, random = (make(), make(), river_makes(), sklearn_makes()), np.random.default_rng(1)
    spent = np.sum([batch(models, random) for _ in range(rows // AT_ONCE)], axis=0)
    return f"| {name} | {' | '.join(f'{1e6 * seconds / rows:.1f}' for seconds in spent)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    lines = [
        "| model | learnt | judged | forgotten | learnt by river | judged by river | matrix | matrix by scikit-learn |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for name in CASES:
        lines.append(measured(name, arguments.rows))
        print(lines[-1], flush=True)
    lines += ["", f"Microseconds of a row of {COLUMNS} numbers; {arguments.rows:,} rows.", ""]
    if arguments.result:
        write_result(arguments.result, "The speed of the library", __file__, "\n".join(lines))


if __name__ == "__main__":
    main()
