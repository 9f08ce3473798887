"""1R: the single column that, by a rule of one value each, makes the fewest errors. The baseline for a table.

Numbers are cut into intervals whose most frequent class comes SMALL times at least; a missing value is a value.
Source: R. Holte, Very simple classification rules perform well on most commonly used datasets, Machine Learning 1993.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from spamfilter.errors import InputError
from spamfilter.tables.columns import check, guessed
from spamfilter.tables.reading import LONGEST, Row, Table, Value

SMALL, SMALLER, FEW_ROWS = 6, 3, 50
"""Rows of the most frequent class in an interval, at least, but for the last: Holte's number, and the one for tables of
few rows."""
MISSING = ""
"""The bucket of missing values. No cell has this text, because an empty cell is a missing value."""


@dataclass(frozen=True, slots=True)
class OneRule:
    """column: the one that decides. edges: between intervals; None of categories. classes: value or interval -> class.
    errors: on what was learnt, of rows. other: the class of a value that was not seen."""

    column: str
    edges: tuple[float, ...] | None
    classes: dict[str, str]
    errors: int
    rows: int
    other: str

    def predict(self, row: Row) -> str:
        return self.classes.get(_bucket(row.get(self.column), self.edges), self.other)

    def lines(self) -> list[str]:
        """The rule, a line for each value."""
        return [f"{self.column}: {_named(bucket, self.edges)} -> {class_}" for bucket, class_ in self.classes.items()]


def one_rule(table: Table, kinds: Mapping[str, str]) -> OneRule:
    """The rule of a table with labels. Texts have none; raises InputError if all columns are texts.

    kinds: column -> kind, as by `kinds_for_rule` of these rows or of more.
    """
    other = Counter(table.labels).most_common(1)[0][0]
    small = SMALL if len(table.rows) >= FEW_ROWS else SMALLER
    rules = []
    for column, kind in kinds.items():
        if kind not in ("category", "number"):
            continue
        edges = _edges(table, column, small) if kind == "number" else None
        seen: dict[str, Counter[str]] = {}
        for row, label in zip(table.rows, table.labels, strict=True):
            seen.setdefault(_bucket(row.get(column), edges), Counter())[label] += 1
        classes = {bucket: counts.most_common(1)[0][0] for bucket, counts in sorted(seen.items(), key=_in_order)}
        errors = sum(counts.total() - counts[classes[bucket]] for bucket, counts in seen.items())
        rules.append(OneRule(column, edges, classes, errors, len(table.rows), other))
    if not rules:
        raise InputError("1R needs a column of categories or numbers")
    return min(rules, key=lambda rule: rule.errors)


def kinds_for_rule(chosen: Mapping[str, str], table: Table) -> dict[str, str]:
    """Column -> kind for a rule: category or number as they were chosen, any other as the column looks.

    Raises InputError for a cell that is no number.
    """
    kinds = {
        column: kind if kind in ("category", "number") else guessed(table, column) for column, kind in chosen.items()
    }
    check({column: kind for column, kind in kinds.items() if kind == "number"}, table)
    return kinds


def _edges(table: Table, column: str, small: int) -> tuple[float, ...]:
    """Where one interval ends and the next begins: halfway between two values, and not between equal classes."""
    pairs = sorted(
        (float(str(row[column])), label)
        for row, label in zip(table.rows, table.labels, strict=True)
        if column in row
    )  # fmt: skip
    if not pairs:
        return ()
    ends: list[tuple[float, str]] = []
    inside: Counter[str] = Counter()
    for (value, label), (following, next_label) in pairwise(pairs):
        inside[label] += 1
        class_, times = inside.most_common(1)[0]
        if times >= small and following != value and next_label != class_:
            ends.append(((value + following) / 2, class_))
            inside = Counter()
    inside[pairs[-1][1]] += 1
    classes = [*(class_ for _, class_ in ends), inside.most_common(1)[0][0]]
    return tuple(edge for (edge, class_), then in zip(ends, classes[1:], strict=True) if class_ != then)


def _bucket(value: Value | None, edges: tuple[float, ...] | None) -> str:
    if value is None:
        return MISSING
    return str(value) if edges is None else str(bisect_right(edges, float(str(value))))


def _in_order(item: tuple[str, Counter[str]]) -> tuple[bool, int, str]:
    bucket = item[0]
    return bucket == MISSING, int(bucket) if bucket.isdecimal() and len(bucket) <= LONGEST else 0, bucket


def _named(bucket: str, edges: tuple[float, ...] | None) -> str:
    if edges is None or bucket == MISSING:
        return bucket or "missing"
    if not edges:
        return "any number"
    at, said = int(bucket), [f"{edge:.15g}" for edge in edges]  # all that a float holds, but for noise as in .1 + .2
    if at == 0:
        return f"below {said[0]}"
    if at == len(edges):
        return f"from {said[-1]}"
    return f"{said[at - 1]} to {said[at]}"
