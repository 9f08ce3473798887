"""A naive Bayes classifier of tables: each column has a distribution, and the logarithms of all are summed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from spamfilter.bayes.estimator import NaiveBayes, posterior
from spamfilter.bayes.likelihoods.likelihood import log_priors
from spamfilter.errors import InputError
from spamfilter.tables.choosing import best_kinds
from spamfilter.tables.columns import BEST, COUNT, IGNORE, Options, Part, check, counted_words, guessed, parts
from spamfilter.tables.reading import Row, Table

Priors = Literal["map", "empirical", "equal"] | Mapping[str, float]
"""P(class) of C classes: (N_c + 1) / (N + C), N_c / N, 1 / C, or given."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The class of one row. class_: None where every class is impossible. joint: class -> ln P(class) + ln P(row |
    class), up to a constant; -inf for an impossible class. posterior: class -> P(class | row). unknown: the values and
    words of the row that were not learnt, and so do not count."""

    class_: str | None
    joint: Mapping[str, float]
    posterior: Mapping[str, float]
    unknown: tuple[str, ...] = ()


@dataclass(slots=True)
class TableClassifier:
    """kinds: column or pattern of columns -> kind, the last that fits; a column without one is guessed. used: column ->
    kind, once it is trained."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    priors: Priors = "map"
    used: dict[str, str] = field(default_factory=dict)
    learnt: dict[str, int] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    def train(self, table: Table, chosen: Mapping[str, str] | None = None) -> None:
        """Learn a table, and forget what was learnt before. Raises InputError for one that cannot be learnt.

        chosen: column -> kind, as the method `chosen` found them in a table of which this one is a part.
        """
        self.learnt = {label: table.labels.count(label) for label in sorted(set(table.labels))}
        if len(self.learnt) < 2:
            raise InputError(f"one class, {''.join(self.learnt)!r}: two at least are needed")
        if not isinstance(self.priors, str) and set(self.priors) != set(self.learnt):
            raise InputError(
                f"--prior names {', '.join(self.priors)}; the classes learnt from are {', '.join(self.learnt)}"
            )
        kinds = self.chosen(table) if chosen is None else chosen
        self.used = {**kinds} | self.best(table, kinds)
        check(self.used, table)
        self.parts = parts(self.used, table, self.options)
        if not self.parts:
            raise InputError("no column is left to learn from")
        for each in self.parts:
            for label in self.learnt:
                each.model.admit(label)
                if self.options.fake_document and each.every_word:
                    each.model.learn_one(dict.fromkeys(each.every_word, 1), label)
            each.learn(table)

    def predict(self, row: Row) -> Prediction:
        joint, unknown = self._log_priors(), list[str]()
        for each in self.parts:
            found = each.of(row)
            if found is None:
                continue
            said, unlearnt = each.say(found)
            unknown += unlearnt
            for label, value in said.items():
                joint[label] += value
        if max(joint.values()) == -math.inf:
            return Prediction(None, joint, dict.fromkeys(joint, math.nan), tuple(unknown))
        return Prediction(max(joint, key=joint.__getitem__), joint, posterior(joint), tuple(unknown))

    def priors_used(self) -> dict[str, float]:
        """Class -> P(class)."""
        return {label: math.exp(value) for label, value in self._log_priors().items()}

    def probabilities(self, feature: str) -> dict[str, dict[str, float]]:
        """Columns -> class -> P(feature | class), for the columns that know the word, value or name."""
        found = {}
        for each in self.parts:
            of_text = self.used[each.columns[0]] == "text" and [*counted_words(feature)]
            name = of_text[0] if of_text and len(of_text) == 1 else feature
            if isinstance(each.model, NaiveBayes) and each.model.knows(name):
                column = each.columns[0] if len(each.columns) == 1 else "counts"
                found[column] = {str(label): p for label, p in each.model.probability(name).items()}
        return found

    def has_words(self, table: Table) -> bool:
        """Whether any column of a table is of texts or counts, so that their likelihood matters."""
        return bool({"text", COUNT} & set(self.chosen(table).values()))

    def chosen(self, table: Table) -> dict[str, str]:
        """Column -> kind, as it was said or is guessed, without those to ignore. Raises InputError if a kind is said of
        no column."""
        for pattern in self.kinds:
            if not any(_fits(column, pattern) for column in table.columns):
                raise InputError(f"--column {pattern!r}: no such column; there are {', '.join(table.columns)}")
        kinds = {column: self.names(column) or guessed(table, column) for column in table.columns}
        return {column: kind for column, kind in kinds.items() if kind != IGNORE}

    def best(self, table: Table, kinds: Mapping[str, str]) -> dict[str, str]:
        """Column -> the kind that this data chooses, for the columns that are to be chosen by it."""
        return best_kinds([column for column, kind in kinds.items() if kind == BEST], table, self.options)

    def names(self, column: str) -> str | None:
        """The kind that was said for a column."""
        named = [kind for pattern, kind in self.kinds.items() if _fits(column, pattern)]
        return named[-1] if named else None

    def _log_priors(self) -> dict[str, float]:
        if isinstance(self.priors, str):
            return log_priors(self.learnt, self.priors)
        return {label: math.log(self.priors[label]) for label in self.learnt}


def _fits(column: str, pattern: str) -> bool:
    return column == pattern or fnmatchcase(column, pattern)
