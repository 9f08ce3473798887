"""How good a classifier of tables is: cross-validation, learning curves, confusion matrices."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spamfilter.errors import InputError
from spamfilter.evaluation.confidence_intervals import wilson
from spamfilter.system.escaping import harmless
from spamfilter.tables.reading import Row, Table

SIZES = tuple(tenth / 10 for tenth in range(1, 11))
"""The points of a learning curve, as shares of the rows to train on."""
Trained = Callable[[Table], Callable[[Row], str | None]]
"""Learns a table, and returns what predicts the class of a row; None where no class is possible."""


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """confusion: (true class, predicted class or None) -> rows; trained_on: rows, of a learning curve."""

    confusion: Mapping[tuple[str, str | None], int]
    trained_on: int = 0

    @property
    def rows(self) -> int:
        return sum(self.confusion.values())

    @property
    def right(self) -> int:
        return sum(times for (true, said), times in self.confusion.items() if true == said)

    @property
    def accuracy(self) -> float:
        """In per cent."""
        return 100 * self.right / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy, in per cent."""
        low, high = wilson(self.right, self.rows)
        return 100 * low, 100 * high

    def as_json(self) -> dict[str, Any]:
        """The JSON for programs."""
        return {
            "trained_on": self.trained_on, "rows": self.rows, "right": self.right, "accuracy": self.accuracy,
            "interval": [*self.interval],
            "confusion": [{"true": true, "said": said, "rows": rows} for (true, said), rows in self.confusion.items()],
        }  # fmt: skip

    def lines(self, name: str, curve: bool) -> Iterator[str]:
        """The lines for people. curve: whether it is a point of a learning curve, which has no confusion matrix."""
        low, high = self.interval
        trained = f", trained on {self.trained_on}" if curve else ""
        yield f"{name}{trained}: {self.right} of {self.rows} right, {self.accuracy:.1f} % ({low:.1f} to {high:.1f})"
        if curve:
            return
        said = sorted({str(label) for pair in self.confusion for label in pair if label is not None})
        none = any(label is None for _, label in self.confusion)
        yield "  true \\ said".ljust(26) + "".join(f"{harmless(label)[:12]:>13}" for label in [*said, *["none"] * none])
        for true in sorted({label for label, _ in self.confusion}):
            cells = [self.confusion.get((true, label), 0) for label in [*said, *[None] * none]]
            yield f"  {harmless(true)[:24]:<24}" + "".join(f"{cell:>13}" for cell in cells)


def judged(train: Trained, known: Table, new: Table) -> Counter[tuple[str, str | None]]:
    """The confusion of a classifier that learns one table and judges another."""
    predict = train(known)
    return Counter((label, predict(row)) for row, label in zip(new.rows, new.labels, strict=True))


def cross_validated(table: Table, train: Trained, folds: int, seed: int) -> TableOutcome:
    """Every row judged once, by a classifier that has learnt the other folds. Folds have equal shares of classes."""
    if folds > len(table.rows):
        raise InputError(f"{folds} folds, and the table has {len(table.rows)} rows; say --folds, or --itself")
    times = Counter(table.labels)
    if len(times) == 2 and min(times.values()) == 1:
        raise InputError(
            f"class {min(times, key=times.__getitem__)!r} has one row, without which there is one class; say --itself"
        )
    confusion: Counter[tuple[str, str | None]] = Counter()
    places = _by_class(table, seed)
    for fold in range(folds):
        mine = set(places[fold::folds])
        rest = table.part(at for at in range(len(table.rows)) if at not in mine)
        confusion += judged(train, rest, table.part(sorted(mine)))
    return TableOutcome(confusion)


def learning_curve(table: Table, train: Trained, seed: int) -> Iterator[TableOutcome]:
    """Trained on a tenth to all of a random half, judging the other half."""
    places = _by_class(table, seed)
    half, rest = places[::2], table.part(places[1::2])
    random.Random(seed).shuffle(half)
    for size in dict.fromkeys(max(2, round(share * len(half))) for share in SIZES):
        known = table.part(half[:size])
        if len(set(known.labels)) > 1:
            yield TableOutcome(judged(train, known, rest), len(known.rows))


def _by_class(table: Table, seed: int) -> list[int]:
    """The places of all rows, by class, and shuffled within each: each k-th of them is a sample with the same shares of
    the classes."""
    places = list(range(len(table.rows)))
    random.Random(seed).shuffle(places)
    return sorted(places, key=table.labels.__getitem__)
