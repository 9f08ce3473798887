"""What a column holds, and its distribution in each class. KINDS is the table of kinds.

Each kind is a classifier of bayes/ with equal priors, which the classifier of the table adds up; a value that is
missing leaves its factor out.
"""

import math
from bisect import bisect_right
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import quantiles
from typing import Any, cast

from spamfilter.bayes.estimator import Classifier, Features, NaiveBayes
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.moments import GaussianNaiveBayes
from spamfilter.bayes.tokens import words
from spamfilter.errors import InputError
from spamfilter.tables.reading import TERMS, TEXT, Row, Table, Value

OF_TEXT = ("multinomial", "bernoulli", "weighted", "poisson", "binomial", "complement")
"""Likelihoods of the words of a text."""
COUNT = "count"
EQUAL: dict[str, Any] = {"prior": "equal"}
"""The prior of each model: the classifier of the table has one of its own."""
FEW_VALUES = 20
"""Up to so many different values a column without numbers is a category, if nothing else is said."""
NO = frozenset(("0", "no", "false", "n", "f"))


@dataclass(frozen=True, slots=True)
class Options:
    """How columns are counted.

    smoothing: of every kind, m. likelihood: of texts and counts. vocabulary: the words that count, None for all;
    most_frequent, least_count: of all others the most frequent ones, and those that occur so often. fake_document: a
    document of all words in each class. unbiased: variances are divided by n - 1. bins: of a binned column.
    """

    smoothing: float = 1.0
    likelihood: str = "multinomial"
    vocabulary: frozenset[str] | None = None
    most_frequent: int | None = None
    least_count: int = 1
    fake_document: bool = False
    unbiased: bool = False
    bins: int = 10


@dataclass(slots=True)
class Part:
    """A column at work, or several that are counted together: a model, and how cells become features.

    features: of the column and the cell; raises InputError for a cell that is none. every_word: for a fake document.
    """

    columns: tuple[str, ...]
    model: Classifier
    features: Callable[[str, Value], Features]
    every_word: frozenset[str] = frozenset()

    def of(self, row: Row) -> Features | None:
        """The features of a row; None if every value is missing."""
        found = [self.features(column, row[column]) for column in self.columns if column in row]
        if len(found) <= 1:
            return found[0] if found else None
        return dict(ChainMap(*map(dict, found)))


def guessed(table: Table, column: str) -> str:
    """The kind of a column by its values: numbers; categories, if there are few different ones; else texts."""
    values = [row[column] for row in table.rows if column in row]
    if column in (TERMS, TEXT):
        return COUNT if column == TERMS else "text"
    if values and all(_is_number(value) for value in values):
        return "number"
    return "category" if len({str(value) for value in values}) <= FEW_VALUES else "text"


def parts(kinds: Mapping[str, str], table: Table, options: Options) -> list[Part]:
    """The columns of a table to train on, each as its kind; those of counts are one bag of words."""
    for column, kind in kinds.items():
        if kind not in KINDS:
            raise InputError(f"column {column!r}: {kind!r} is no kind; the kinds are {', '.join(KINDS)}")
    together = tuple(column for column, kind in kinds.items() if kind == COUNT)
    groups = [(kind, (column,)) for column, kind in kinds.items() if kind != COUNT]
    return [KINDS[kind](columns, table, options) for kind, columns in [*groups, *[(COUNT, together)] * bool(together)]]


def _category(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Its values, with Laplace's smoothing over those that were seen."""
    model = NaiveBayes(Multinomial(options.smoothing, prior="equal"))
    return Part(columns, model, lambda column, value: {str(value): 1})


def _presence(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Whether it is there."""
    model = NaiveBayes(Bernoulli(options.smoothing, prior="equal"))
    return Part(columns, model, lambda column, value: {column: int(str(value).lower() not in NO)})


def _number(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A mean and a variance."""
    model = GaussianNaiveBayes(unbiased=options.unbiased, prior="equal")
    return Part(columns, model, lambda column, value: {column: _number_of(column, value)})


def _poisson(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A count with a rate per row."""
    model = NaiveBayes(Poisson(options.smoothing, prior="equal", per="message"))
    return Part(columns, model, lambda column, value: {column: _whole(column, value)})


def _binned(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """A number, by the bin it falls into; bins have equally many of the rows that are trained on."""
    numbers = [_number_of(column, row[column]) for column in columns for row in table.rows if column in row]
    edges = sorted(set(quantiles(numbers, n=options.bins))) if len(numbers) > 1 else []

    def bin_of(column: str, value: Value) -> Features:
        return {f"bin {bisect_right(edges, _number_of(column, value))}": 1}

    return replace(_category(columns, table, options), features=bin_of)


def _text(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Its words, lower-cased."""

    def counted(column: str, value: Value) -> Features:
        return Counter(word.decode() for word in words(str(value).encode()))

    return _of_words(columns, counted, table, options)


def _count(columns: tuple[str, ...], table: Table, options: Options) -> Part:
    """Terms with their counts; a column with a number has one term, its name."""

    def counted(column: str, value: Value) -> Features:
        return {column: _whole(column, value)} if isinstance(value, str) else value

    return _of_words(columns, counted, table, options)


def _of_words(
    columns: tuple[str, ...], counted: Callable[[str, Value], Features], table: Table, options: Options
) -> Part:
    if options.likelihood not in OF_TEXT:
        raise InputError(f"--likelihood {options.likelihood!r}: texts and counts have {', '.join(OF_TEXT)}")
    texts = (counted(column, row[column]) for row in table.rows for column in columns if column in row)
    known = _vocabulary(texts, options)
    # The weight of an assumption may not be 0: as good as none then.
    weighted = options.likelihood == "weighted"
    parameters: dict[str, Any] = {"weight" if weighted else "smoothing": max(options.smoothing, 1e-12 * weighted)}
    model = NaiveBayes(cast("Generative", LIKELIHOODS[options.likelihood](**parameters, **EQUAL)))

    def features(column: str, value: Value) -> Features:
        found = counted(column, value)
        return found if known is None else {word: times for word, times in found.items() if word in known}

    return Part(columns, model, features, known or frozenset())


def _vocabulary(texts: Iterable[Features], options: Options) -> frozenset[str] | None:
    """The words that count; None for all that come."""
    limited = options.most_frequent is not None or options.least_count > 1
    if not limited and not options.fake_document:
        return options.vocabulary
    total: Counter[str] = Counter()
    for text in texts:
        total.update({word: int(times) for word, times in text.items()})
    often = [word for word, times in total.most_common(options.most_frequent) if times >= options.least_count]
    return frozenset(word for word in often if options.vocabulary is None or word in options.vocabulary)


def _is_number(value: Value) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def _number_of(column: str, value: Value) -> float:
    if not _is_number(value):
        raise InputError(f"column {column!r}: {value!r} is no number; choose another kind with --column")
    number = float(str(value))
    return int(number) if number.is_integer() else number


def _whole(column: str, value: Value) -> int:
    if not str(value).isdecimal():
        raise InputError(f"column {column!r}: {value!r} is no count; choose another kind with --column")
    return int(str(value))


KINDS: dict[str, Callable[[tuple[str, ...], Table, Options], Part]] = {
    "category": _category,
    "presence": _presence,
    COUNT: _count,
    "text": _text,
    "number": _number,
    "poisson": _poisson,
    "binned": _binned,
}
"""Kind -> columns as that kind, for a table to train on."""
