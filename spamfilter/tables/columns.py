"""What a column holds, and its distribution in each class. KINDS is the table of kinds.

Each kind is a classifier of bayes/ with equal priors, which the classifier of the table adds up; a value that is
missing leaves its factor out.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from statistics import quantiles
from typing import Any, cast

from spamfilter.bayes.estimator import Classifier, Features, NaiveBayes
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.moments import GaussianNaiveBayes
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.tokens import words
from spamfilter.errors import InputError
from spamfilter.tables.reading import LONGEST, TERMS, TEXT, Row, Table, Value

OF_TEXT = tuple(name for name, row in LIKELIHOODS.items() if issubclass(row, Generative) and row is not Gaussian)
"""Likelihoods of the words of a text."""
COUNT, BEST, IGNORE = "count", "best", "ignore"
"""COUNT is the kind of columns that are counted together. The other two stand where a kind would: BEST lets the data
choose it (`choosing`), IGNORE leaves the column out."""
NOISE = 1e-14
"""Numbers that differ by less than this share of them, as .3 and .1 + .2, are the same but for rounding."""
SMALL, MOST_DECIMALS = 3, 100
"""Numbers that differ by less than 10 ** -SMALL are kept with more decimals, at most MOST_DECIMALS more."""
FEW_VALUES = 20
"""Up to so many different values a column without numbers is a category, if nothing else is said."""
MOST = 1e100
"""The greatest number, whose square and sums are still floats."""
NO = frozenset(("no", "false", "n", "f"))


@dataclass(frozen=True, slots=True)
class Options:
    """How columns are counted.

    smoothing: m of each kind that `smoothings`, kind -> m, does not name. likelihood: of texts and counts. vocabulary:
    the terms that count, and of texts the words in them, None for all. most_frequent: only so many words count, the
    most frequent ones. least_count: only words count that occur so often. fake_document: whether each class learns a
    document of all words. unbiased: whether variances are divided by n - 1. bins: how many a binned column has.
    """

    smoothing: float = 1.0
    smoothings: Mapping[str, float] = field(default_factory=dict)
    likelihood: str = "multinomial"
    vocabulary: frozenset[str] | None = None
    most_frequent: int | None = None
    least_count: int = 1
    fake_document: bool = False
    unbiased: bool = False
    bins: int = 10

    def m(self, kind: str) -> float:
        return self.smoothings.get(kind, self.smoothing)


Cells = Mapping[tuple[Value, str], int]
"""Cell of a column and label of its row -> rows, without those that lack the column."""


def cells_of(column: str, table: Table) -> Cells:
    """The cells of a column that has no counts of terms."""
    return Counter((row[column], label) for row, label in zip(table.rows, table.labels, strict=True) if column in row)


@dataclass(slots=True)
class Part:
    """A column at work, or several that are counted together: a model, and how cells become features.

    features: of the column and the cell; raises InputError for a cell that does not fit. every_word: for a fake
    document. said: single feature -> what is said of it, kept until more is learnt. Most cells of a column are alike,
    and 8,000 rows of 22 categories are cross-validated five times faster by it.
    """

    columns: tuple[str, ...]
    model: Classifier
    features: Callable[[str, Value], Features]
    every_word: frozenset[str] = frozenset()
    said: dict[tuple[str, float], tuple[Mapping[str, float], list[str]]] = field(default_factory=dict)

    def learn(self, table: Table) -> None:
        if len(self.columns) == 1 and self.columns[0] != TERMS:
            self.learn_cells(cells_of(self.columns[0], table))
            return
        found = ((self.of(row), label) for row, label in zip(table.rows, table.labels, strict=True))
        self.model.learn_many((features, label, 1) for features, label in found if features is not None)
        self.said.clear()

    def learn_cells(self, cells: Cells) -> None:
        """Learn the cells of its one column."""
        (column,) = self.columns
        self.model.learn_many((self.features(column, cell), label, times) for (cell, label), times in cells.items())
        self.said.clear()

    def say(self, features: Features) -> tuple[Mapping[str, float], list[str]]:
        """Class -> ln P(features | class), up to a constant, -inf for an impossible one; and the values and words that
        were not learnt."""
        only = next(iter(features.items())) if len(features) == 1 else None
        if only in self.said:
            return self.said[only]
        if isinstance(self.model, NaiveBayes):
            judged, unknown = self.model.judged(features)
        else:
            judged, unknown = self.model.log_likelihood(features), []
        found = {str(label): value for label, value in judged.items()}
        if only:
            self.said[only] = found, unknown
        return found, unknown

    def of(self, row: Row) -> Features | None:
        """The features of a row; None if every value is missing."""
        found = [self.features(column, row[column]) for column in self.columns if column in row]
        if len(found) == 1:
            return found[0]
        return {name: times for features in found for name, times in features.items()} if found else None


def guessed(table: Table, column: str) -> str:
    """The kind of a column by its values: numbers; categories, if there are few different ones; else texts."""
    values = [row[column] for row in table.rows if column in row]
    if column in (TERMS, TEXT):
        return COUNT if column == TERMS else "text"
    if values and all(_finite(str(value)) is not None for value in values):
        return "number"
    return "category" if len({str(value) for value in values}) <= FEW_VALUES else "text"


def parts(kinds: Mapping[str, str], table: Table, options: Options) -> list[Part]:
    """A part for each column of a table to train on, and one for all columns of counts, which are one bag of words."""
    for column, kind in kinds.items():
        if kind not in KINDS:
            raise InputError(
                f"column {column!r}: {kind!r} is no kind; the kinds are {', '.join((*KINDS, BEST, IGNORE))}"
            )
    together = tuple(column for column, kind in kinds.items() if kind == COUNT)
    groups: list[tuple[str, tuple[str, ...]]] = [(kind, (column,)) for column, kind in kinds.items() if kind != COUNT]
    if len(together) == 1 and together != (TERMS,) and options.likelihood != "bernoulli":
        raise InputError(f"column {together[0]!r}: a single column of counts is no bag of words; choose poisson for it")
    groups += [(COUNT, together)] * bool(together)
    return [KINDS[kind](kind, columns, table, options) for kind, columns in groups]


def check(kinds: Mapping[str, str], table: Table) -> None:
    """Raises InputError with file and line of the first cell that does not fit its column's kind."""
    cells = {column: _CELLS[kind] for column, kind in kinds.items() if kind in _CELLS}
    for at, row in enumerate(table.rows):
        for column, cell in cells.items():
            if isinstance(value := row.get(column), str):
                try:
                    cell(column, value)
                except InputError as error:
                    raise InputError(f"{table.place(at)}: {error}") from None


def fits(kind: str, column: str, cells: Collection[str]) -> bool:
    """Whether a column with these different cells can be of this kind."""
    if kind == "category":
        return len(cells) <= FEW_VALUES
    try:
        for cell in cells if kind in _CELLS else ():
            _CELLS[kind](column, cell)
    except InputError:
        return False
    return True


def _category(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Its values, with Laplace's smoothing over those that were seen."""
    model = NaiveBayes(Multinomial(options.m(kind), prior="equal"))
    return Part(columns, model, lambda column, value: {str(value): 1})


def _presence(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Whether a cell says yes: it is neither a word of NO nor 0."""

    def is_there(column: str, value: Value) -> Features:
        return {column: int(str(value).lower() not in NO and _finite(str(value)) != 0)}

    return Part(columns, NaiveBayes(Bernoulli(options.m(kind), prior="equal")), is_there)


def _number(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A mean and a variance; where numbers differ by little, with more decimals, and with a smaller least variance."""
    numbers = sorted({_number_of(column, row[column]) for column in columns for row in table.rows if column in row})
    gaps = (two - one for one, two in pairwise(numbers) if not math.isclose(one, two, rel_tol=NOISE))
    least = min(gaps, default=1.0)
    more = min(max(0, math.ceil(-math.log10(least)) - SMALL), MOST_DECIMALS)
    model = GaussianNaiveBayes(6 + more, options.unbiased, 10.0 ** (-9 - 2 * more), prior="equal")
    return Part(columns, model, lambda column, value: {column: _number_of(column, value)})


def _poisson(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A count with a rate per row."""
    model = NaiveBayes(Poisson(options.m(kind), prior="equal", per="message"))
    return Part(columns, model, lambda column, value: {column: _whole(column, value)})


def _binned(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A number, by the bin it falls into; bins have equally many of the rows that are trained on."""
    numbers = [_number_of(column, row[column]) for column in columns for row in table.rows if column in row]
    edges = sorted(set(quantiles(numbers, n=options.bins))) if len(numbers) > 1 else []

    def bin_of(column: str, value: Value) -> Features:
        return {f"bin {bisect_right(edges, _number_of(column, value))}": 1}

    return replace(_category(kind, columns, table, options), features=bin_of)


def _text(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Its words, lower-cased."""
    if options.vocabulary is not None:
        options = replace(options, vocabulary=frozenset(counted_words("\n".join(options.vocabulary))))
    return _of_words(kind, columns, lambda column, value: counted_words(str(value)), table, options)


def counted_words(text: str) -> Counter[str]:
    """The words of a text, as they are learnt, with their occurrences."""
    return Counter(word.decode() for word in words(text.encode()))


def _count(kind: str, columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Terms with their counts; a column with a number has one term, its name."""

    def counted(column: str, value: Value) -> Features:
        return {column: _whole(column, value)} if isinstance(value, str) else value

    return _of_words(kind, columns, counted, table, options)


def _of_words(
    kind: str, columns: tuple[str, ...], counted: Callable[[str, Value], Features], table: Table, options: Options
) -> Part:
    if options.likelihood not in OF_TEXT:
        raise InputError(f"--likelihood {options.likelihood!r}: texts and counts have {', '.join(OF_TEXT)}")
    texts = (counted(column, row[column]) for row in table.rows for column in columns if column in row)
    known = _vocabulary(texts, options)
    # The weight of an assumption may not be 0: as good as none then.
    weighted = options.likelihood == "weighted"
    m = max(options.m(kind), 1e-12 * weighted)
    parameters: dict[str, Any] = {"weight" if weighted else "smoothing": m, "prior": "equal"}
    model = NaiveBayes(cast("Generative", LIKELIHOODS[options.likelihood](**parameters)))

    def features(column: str, value: Value) -> Features:
        found = counted(column, value)
        return found if known is None else {word: times for word, times in found.items() if word in known}

    return Part(columns, model, features, known or frozenset())


def _vocabulary(texts: Iterable[Features], options: Options) -> frozenset[str] | None:
    """The words that count; None if all do."""
    limited = options.most_frequent is not None or options.least_count > 1
    if not limited and not options.fake_document:
        return options.vocabulary
    total: Counter[str] = Counter()
    for text in texts:
        chosen = (word for word in text if options.vocabulary is None or word in options.vocabulary)
        total.update({word: int(text[word]) for word in chosen})
    return frozenset(word for word, times in total.most_common(options.most_frequent) if times >= options.least_count)


@lru_cache(2**16)
def _finite(text: str) -> float | None:
    """The number that a text is, None if it is none. The same cells are read again in each fold."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or "_" in text:  # which is part of a number in Python's sources alone
        return None
    return int(number) if number.is_integer() else number


def _number_of(column: str, value: Value) -> float:
    number = _finite(str(value))
    if number is None:
        raise InputError(f"column {column!r}: {value!r} is no number; choose another kind with --column")
    if abs(number) > MOST:
        raise InputError(f"column {column!r}: {value!r} is more than {MOST:g}, the limit")
    return number


def _whole(column: str, value: Value) -> int:
    if not str(value).isdecimal():
        raise InputError(f"column {column!r}: {value!r} is no count; choose another kind with --column")
    if len(str(value)) > LONGEST:
        raise InputError(f"column {column!r}: {str(value)[:LONGEST]}... is no count that can be kept")
    return int(str(value))


_CELLS = {COUNT: _whole, "number": _number_of, "poisson": _whole, "binned": _number_of}
"""Kind -> what reads a cell of a column."""
KINDS: dict[str, Callable[[str, tuple[str, ...], Table, Options], Part]] = {
    "category": _category,
    "presence": _presence,
    COUNT: _count,
    "text": _text,
    "number": _number,
    "poisson": _poisson,
    "binned": _binned,
}
"""Kind -> columns as that kind, for a table to train on."""
