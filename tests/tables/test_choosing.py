"""The kind that the data chooses for a column: the distribution that its values have, by the learnt rows alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from spamfilter.tables.choosing import best_kinds
from spamfilter.tables.classifier import TableClassifier
from spamfilter.tables.columns import Options
from spamfilter.tables.reading import Row, Table
from spamfilter.tables.trials import cross_validated
from tests.support.shell import Shell

ROWS = 600
CHANCE = np.random.default_rng(1)


def _drawn(kind: str) -> Table:
    """A table of one column, its values drawn for each class."""
    labels = ["no", "yes"] * (ROWS // 2)
    values = {label: map(str, numbers.tolist()) for label, numbers in DRAWN[kind].items()}
    return Table(("x",), [{"x": next(values[label])} for label in labels], labels)


DRAWN: dict[str, dict[str, NDArray[Any]]] = {
    "number": {"no": CHANCE.normal(0, 1, ROWS).round(3), "yes": CHANCE.normal(2, 1, ROWS).round(3)},
    "poisson": {"no": CHANCE.poisson(3, ROWS), "yes": CHANCE.poisson(9, ROWS)},
    "binned": {"no": CHANCE.exponential(1, ROWS).round(4), "yes": (CHANCE.pareto(0.6, ROWS) + 0.5).round(4)},
    "presence": {
        "no": CHANCE.lognormal(0, 3, ROWS).round(2) * (CHANCE.random(ROWS) < 0.1),
        "yes": CHANCE.lognormal(0, 3, ROWS).round(2) * (CHANCE.random(ROWS) < 0.8),
    },
    "category": {"no": CHANCE.choice([1, 3, 5], ROWS), "yes": CHANCE.choice([2, 4, 6], ROWS)},
}
"""Kind -> values of each class that it describes."""


@pytest.mark.parametrize("kind", DRAWN)
def test_the_distribution_that_the_values_have_is_chosen_or_one_that_is_right_as_often(kind: str) -> None:
    table, options = _drawn(kind), Options(bins=6)

    def right(each: str) -> int:
        def train(learnt: Table) -> Callable[[Row], str | None]:
            classifier = TableClassifier({"x": each}, options)
            classifier.train(learnt)
            return lambda row: classifier.predict(row).class_

        return cross_validated(table, train, 5, 1).right

    chosen = best_kinds(["x"], table, options)["x"]
    assert chosen == kind or right(chosen) >= right(kind)


def test_the_choice_is_no_constant() -> None:
    assert len({best_kinds(["x"], _drawn(kind), Options(bins=6))["x"] for kind in DRAWN}) >= 4


def test_a_column_without_a_value_leaves_its_factor_out(shell: Shell) -> None:
    assert best_kinds(["x"], Table(("x",), [{}, {}], ["no", "yes"]), Options()) == {"x": "category"}
    rows = [
        f"{'old' if number % 2 else 'young'},{'7' if number == 3 else ''},{number // 2 % 2}" for number in range(20)
    ]
    file = shell.write("t.csv", "\n".join(["age,score,class", *rows]).encode())  # most folds lack the only value
    assert "naive_bayes: " in shell.done("classify", file, "--column", "score=best")
    assert "one_rule: " in shell.done("classify", file, "--likelihood", "one_rule")


def test_the_choice_is_told(shell: Shell) -> None:
    file: Path = shell.folder / "t.csv"
    lines = [f"{number % 7},{'ab'[number % 2]},{'yn'[number % 2]}" for number in range(40)]
    file.write_text("\n".join(["count,letter,class", *lines]), encoding="utf-8")
    told = shell.done("classify", file, "--column", "*=best", "--folds", "4")
    assert "letter" in told.splitlines()[0]
    assert told.startswith("best, by all rows: ")
    found = json.loads(shell.done("classify", file, "--column", "letter=best", "--folds", "4", "--json"))
    assert found["best"]["letter"] in ("category", "presence")
