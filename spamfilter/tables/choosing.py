"""The kind of a column chosen by the data: the one by which the column alone tells the class of held-out rows best.

A density and a probability cannot be compared, but what follows from them can: ln P(class | value), summed over rows
that the distribution was not learnt from.
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from spamfilter.bayes.estimator import log_normalised
from spamfilter.bayes.likelihoods.likelihood import log_priors
from spamfilter.tables.columns import KINDS, Options, fits
from spamfilter.tables.reading import Table

CANDIDATES = ("number", "poisson", "binned", "presence", "category")
"""Kinds of one column. Of several that are equally good, the first is taken."""
LEAST = math.log(sys.float_info.min)
"""Stands for ln P of an impossible class, so that a sum stays finite."""
MOST_ROWS = 1_000
"""Rows that are looked at, half of them learnt. More would only change the order of kinds that are nearly as good."""


def best_kinds(columns: Iterable[str], table: Table, options: Options) -> dict[str, str]:
    """Column -> its kind, by these rows alone; `category` for one without a value."""
    sample = table.part(np.random.default_rng(1).permutation(len(table.rows))[:MOST_ROWS].tolist())
    halves = [sample.part(range(first, len(sample.rows), 2)) for first in (0, 1)]
    return {column: _best(column, table, halves, options) for column in columns}


def _best(column: str, table: Table, halves: list[Table], options: Options) -> str:
    cells = {str(row[column]) for row in table.rows if column in row}
    if not cells:
        return "category"
    one, other = halves
    told = {
        kind: _told(column, kind, one, other, options) + _told(column, kind, other, one, options)
        for kind in CANDIDATES
        if fits(kind, column, cells)
    }
    return max(told, key=told.__getitem__)


def _told(column: str, kind: str, learnt: Table, judged: Table, options: Options) -> float:
    """The sum of ln P(class | value) over these rows, by what others have taught."""
    classes = {label: learnt.labels.count(label) for label in sorted({*learnt.labels, *judged.labels})}
    part = KINDS[kind](kind, (column,), learnt, options)
    for label in classes:
        part.model.admit(label)
    part.learn(learnt.rows, learnt.labels)
    prior = log_priors(classes, "map")
    alike = defaultdict[tuple[tuple[str, float], ...], Counter[str]](Counter)  # many cells may be one feature
    for row, label in zip(judged.rows, judged.labels, strict=True):
        if column in row:
            alike[tuple(part.features(column, row[column]).items())][label] += 1
    if not alike:
        return 0.0
    likelihoods = [part.model.log_likelihood(dict(features)) for features in alike]
    shares = log_normalised([[prior[str(name)] + found[name] for name in part.model.classes] for found in likelihoods])
    times = [[labels[str(name)] for name in part.model.classes] for labels in alike.values()]
    return float((np.maximum(shares, LEAST) * times).sum())
