"""The kind of a column chosen by the data: the one by which the column alone tells the class of held-out rows best.

A density and a probability cannot be compared, but what follows from them can: ln P(class | value), summed over rows
that the distribution was not learnt from.
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from spamfilter.bayes.estimator import log_normalised
from spamfilter.bayes.likelihoods.likelihood import log_priors
from spamfilter.tables.columns import KINDS, Cells, Options, Part, cells_of, fits
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
    seen = {str(row[column]) for row in table.rows if column in row}
    if not seen:
        return "category"
    kinds = [kind for kind in CANDIDATES if fits(kind, column, seen)]
    told = dict.fromkeys(kinds, 0.0)
    one, other = halves
    for learnt, judged in ((one, other), (other, one)):
        classes = {label: learnt.labels.count(label) for label in sorted({*learnt.labels, *judged.labels})}
        taught, asked = cells_of(column, learnt), cells_of(column, judged)
        for kind in kinds:
            part = KINDS[kind](kind, (column,), learnt, options)
            told[kind] += _told(part, classes, taught, asked)
    return max(kinds, key=told.__getitem__)


def _told(part: Part, classes: Mapping[str, int], taught: Cells, asked: Cells) -> float:
    """The sum of ln P(class | value) over these cells, by what others have taught. classes: class -> rows of these."""
    for label in classes:
        part.model.admit(label)
    part.learn_cells(taught)
    prior = log_priors(classes, "map")
    alike = defaultdict[tuple[tuple[str, float], ...], Counter[str]](Counter)  # many cells may be one feature
    (column,) = part.columns
    for (cell, label), times in asked.items():
        alike[tuple(part.features(column, cell).items())][label] += times
    if not alike:
        return 0.0
    likelihoods = [part.model.log_likelihood(dict(features)) for features in alike]
    shares = log_normalised([[prior[str(name)] + found[name] for name in part.model.classes] for found in likelihoods])
    rows = [[labels[str(name)] for name in part.model.classes] for labels in alike.values()]
    return float((np.maximum(shares, LEAST) * rows).sum())
