"""Naive Bayes for anything that is counted: any number of classes, learnt and forgotten one by one or by the matrix.

It stands on the counts and likelihoods of the filter. Words, columns of a matrix, values of an attribute: a feature is
a name, and an example is a mapping of features to how often each occurs.

>>> weather = NaiveBayes(Multinomial(smoothing=0, prior="empirical"))
>>> for outlook, play in (("sunny", "no"), ("sunny", "yes"), ("overcast", "yes"), ("rainy", "yes")):
...     weather.learn_one({outlook: 1}, play)
>>> round(weather.predict_proba_one({"sunny": 1})["no"], 9)  # 1/1 * 1/4, where yes has 1/3 * 3/4
0.5
"""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import (
    IMPOSSIBLE_WORD,
    Generative,
    MessageCounts,
    Name,
    OfOccurrences,
    check_bounds,
)
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.errors import CountError

Number = int | float
Features = Mapping[str, Number]
"""Feature -> occurrences, or the value of a number."""


class Classifier(ABC):
    """What all classifiers share. classes: in the order in which they were first learnt, or are given."""

    classes: list[Hashable]

    @abstractmethod
    def learn_one(self, x: Features, y: Hashable) -> None:
        """Learn an example of a class."""

    @abstractmethod
    def forget_one(self, x: Features, y: Hashable) -> None:
        """Take away exactly what `learn_one` has added. Raises CountError if it was not learnt."""

    @abstractmethod
    def learn_many(self, examples: Iterable[tuple[Features, Hashable, int]]) -> None:
        """Learn examples, each with its class and how many times it came, faster than one by one."""

    @abstractmethod
    def log_likelihood(self, x: Features) -> dict[Hashable, float]:
        """Class -> ln P(x | class), without factors that are the same in every class."""

    @abstractmethod
    def log_prior(self) -> dict[Hashable, float]:
        """Class -> ln P(class)."""

    def joint_log_likelihood(self, x: Features) -> dict[Hashable, float]:
        """Class -> ln P(class) + ln P(x | class), without factors that are the same in every class."""
        prior = self.log_prior()
        return {label: value + prior[label] for label, value in self.log_likelihood(x).items()}

    def predict_proba_one(self, x: Features) -> dict[Hashable, float]:
        """Class -> P(class | x); empty before anything is learnt."""
        joint = self.joint_log_likelihood(x)
        return posterior(joint) if joint else {}

    def predict_one(self, x: Features) -> Hashable | None:
        """The likeliest class, of equals the first; None before anything is learnt."""
        joint = self.joint_log_likelihood(x)
        return max(joint, key=joint.__getitem__, default=None)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, as scikit-learn names them."""
        return np.array(self.classes)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget all, then learn a matrix."""
        self.set_params()
        vars(self).pop("n_features_in_", None)
        labels = self._labels(y)
        return self.partial_fit(X, labels, np.unique(labels).tolist())

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: Iterable[Hashable] = ()) -> Self:
        """Learn a matrix, shape (examples, features), and the class of each row. classes: all that will come.

        Raises ValueError for what is no matrix of the numbers that are learnt, or has other columns than before.
        """
        rows = self._matrix(X)
        labels = self._labels(y, len(rows))
        for label in classes:
            self.admit(label)
        self._learn(rows, labels)
        return self

    def predict_joint_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """joint_log_likelihood of each row, shape (examples, classes)."""
        joint = [[*self.joint_log_likelihood(by_column(row)).values()] for row in self._matrix(X)]
        return np.array(joint, np.float64).reshape(len(joint), len(self.classes))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """ln P(class | row), shape (examples, classes)."""
        joint = self.predict_joint_log_proba(X)
        return log_normalised(joint) if self.classes else joint

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """P(class | row), shape (examples, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of each row; None before anything is learnt."""
        joint = self.predict_joint_log_proba(X)
        return np.asarray(self.classes_[joint.argmax(axis=1)]) if self.classes else np.full(len(joint), None)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The share of rows of which the class is predicted."""
        found = self.predict(X)
        return float((found == self._labels(y, len(found))).mean())

    @abstractmethod
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with."""

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments. What was learnt is forgotten."""
        self.__init__(**{**self.get_params(), **parameters})  # type: ignore[misc]  # every class says what it takes
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks its estimators, so that its pipelines and its cross-validation take this one."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            # As scikit-learn says of its own models of counts, whose accuracy on blobs of numbers is not asked for.
            classifier_tags=ClassifierTags(poor_score=isinstance(self, NaiveBayes)),
            input_tags=InputTags(positive_only=isinstance(self, NaiveBayes)),
        )

    def admit(self, label: Hashable) -> int:
        """The place of a class in `classes`; a new one gets the last."""
        hash(label)  # raises TypeError: later it would have to be a key of dictionaries
        if label not in self.classes:
            self._begin()
            self.classes.append(label)
        return self.classes.index(label)

    @abstractmethod
    def _begin(self) -> None:
        """Make room for what is learnt of one more class, the next of `classes`."""

    def _learn(self, rows: NDArray[Any], labels: NDArray[Any]) -> None:
        for row, label in zip(rows, labels.tolist(), strict=True):
            self.learn_one(by_column(row), label)

    def _matrix(self, X: ArrayLike) -> NDArray[Any]:
        """X as an array. Errors have the words by which scikit-learn's own estimators are known."""
        if hasattr(X, "tocsr"):
            raise TypeError("a sparse matrix: sparse input is not supported; give X.toarray(), or mappings")
        found = np.asarray(X)
        if found.dtype == object:
            found = found.astype(np.float64)
        if found.ndim != 2:
            raise ValueError(f"X has the shape {found.shape}; expected 2D array. Reshape your data: a row an example")
        if not all(found.shape):
            what = "feature" if len(found) else "sample"
            raise ValueError(f"Found array with 0 {what}(s) (shape={found.shape}) while a minimum of 1 is required.")
        if found.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        if found.dtype.kind not in "iubf" or not np.isfinite(found).all():
            raise ValueError("X has what is no number: words, NaN or infinity")
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_: int = found.shape[1]
        if found.shape[1] != self.n_features_in_:
            name = type(self).__name__
            expected = f"{name} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {found.shape[1]} features, but {expected}")
        return found

    def _labels(self, y: ArrayLike, rows: int | None = None) -> NDArray[Any]:
        """A label for each row. rows: how many there are, where that is known."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        found = np.asarray(y)
        if found.ndim != 1:
            raise ValueError(f"y has the shape {found.shape}; wanted is one label for each row")
        if found.dtype.kind == "f" and not (np.isfinite(found).all() and (found == np.floor(found)).all()):
            raise ValueError("Unknown label type: fractions, NaN and infinity are no classes")
        if rows not in (None, len(found)):
            raise ValueError(f"y has {len(found)} labels, and X has {rows} rows")
        return found


class NaiveBayes(Classifier):
    """One likelihood of counts over one kind of features."""

    def __init__(self, likelihood: Generative | None = None) -> None:
        """likelihood: multinomial if none is given. Raises TypeError for one that is not of counts, ValueError for one
        with a parameter out of its bounds."""
        if likelihood is not None and (isinstance(likelihood, Gaussian) or not isinstance(likelihood, Generative)):
            raise TypeError("a likelihood of counts is wanted; numbers are learnt by GaussianNaiveBayes")
        self.likelihood = Multinomial() if likelihood is None else likelihood
        check_bounds(self.likelihood)
        self.classes = []
        self.counts = Counts(SpelledTable(()))
        if self.likelihood.needs_tallies:
            self.counts.tally()

    def learn_one(self, x: Features, y: Hashable) -> None:
        """Learn an example of a class. Raises ValueError for occurrences that are no whole number from 0 on."""
        deltas = self.likelihood.deltas(_tokens(x), 1)  # before the class is admitted, as x may be wrong
        self.counts.add(_key(self.admit(y)), deltas)

    def forget_one(self, x: Features, y: Hashable) -> None:
        if y not in self.classes:
            raise CountError(f"{y!r}: a class of which nothing was learnt")
        self.counts.subtract(_key(self.classes.index(y)), self.likelihood.deltas(_tokens(x), 1))

    def learn_many(self, examples: Iterable[tuple[Features, Hashable, int]]) -> None:
        sums = defaultdict[Hashable, Counter[bytes]](Counter)
        learnt: Counter[Hashable] = Counter()
        for x, y, times in examples:
            learnt[y] += times
            deltas = sums[y]
            for token, delta in self.likelihood.deltas(_tokens(x), 1).items():
                deltas[token] += times * delta
        for label, deltas in sums.items():
            self.counts.add(_key(self.admit(label)), deltas, learnt[label])

    def log_likelihood(self, x: Features) -> dict[Hashable, float]:
        message = self._heard(x)
        return {
            label: self.likelihood.log_likelihood(_key(at), message, self.counts)
            for at, label in enumerate(self.classes)
        }

    def judged(self, x: Features) -> tuple[dict[Hashable, float], list[str]]:
        """As `log_likelihood`, but -inf for a class that gives it a probability of 0, as without smoothing one word
        may; and the features that were learnt in no class."""
        message, found = self._heard(x), dict[Hashable, float]()
        for at, label in enumerate(self.classes):
            impossible = self.likelihood.impossible(_key(at), message, self.counts)
            found[label] = -math.inf if impossible else self.likelihood.log_likelihood(_key(at), message, self.counts)
        unknown = np.flatnonzero(~message.known).tolist()
        return found, [message.tokens[at].decode() for at in unknown]

    def log_prior(self) -> dict[Hashable, float]:
        return {label: self.likelihood.log_prior(_key(at), self.counts) for at, label in enumerate(self.classes)}

    def knows(self, feature: str) -> bool:
        """Whether it was learnt in any class."""
        return bool(self._heard({feature: 1}).known)

    def probability(self, feature: str) -> dict[Hashable, float]:
        """Class -> P(feature | class), or its rate in the Poisson model."""
        message = self._heard({feature: 1})
        each = (self.likelihood.chance(_key(at), message, self.counts) for at in range(len(self.classes)))
        least = math.exp(IMPOSSIBLE_WORD)  # below it is what stands for 0
        return {label: float(p) if p > least else 0.0 for label, (p,) in zip(self.classes, each, strict=True)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"likelihood": self.likelihood}

    def _heard(self, x: Features) -> MessageCounts:
        return MessageCounts.of(_tokens(x), self.counts)

    def _begin(self) -> None:
        self.counts.admit(_key(len(self.classes)))

    def _learn(self, rows: NDArray[Any], labels: NDArray[Any]) -> None:
        if (rows < 0).any():
            raise ValueError("Negative values in data passed to X: occurrences are whole numbers from 0 on")
        if (rows != np.floor(rows)).any():
            raise ValueError("X has what is no whole number from 0 on, as occurrences are")
        counted = rows if isinstance(self.likelihood, OfOccurrences) else rows > 0
        for label in dict.fromkeys(labels.tolist()):
            mine = labels == label
            total = by_column(counted[mine].sum(axis=0))
            self.counts.add(_key(self.admit(label)), _tokens(total), int(mine.sum()))


def by_column(row: NDArray[Any]) -> dict[str, Number]:
    """The numbers of a row, by the numbers of their columns."""
    return {str(column): value for column, value in enumerate(row.tolist())}


def log_normalised(joint: ArrayLike) -> NDArray[np.float64]:
    """Logarithms of numbers that sum to 1 in each row, from logarithms of numbers in their proportion."""
    rows = np.asarray(joint, np.float64)
    less = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(less - np.log(np.exp(less).sum(axis=1, keepdims=True)))


def posterior(joint: Mapping[Name, float]) -> dict[Name, float]:
    """Class -> P(class), from the logarithms of numbers in their proportion; of one class at least."""
    return dict(zip(joint, np.exp(log_normalised([[*joint.values()]]))[0].tolist(), strict=True))


def _key(at: int) -> str:
    """The name of a class in the counts."""
    return str(at)


def _tokens(x: Features) -> dict[bytes, int]:
    if any(times < 0 or times % 1 for times in set(x.values())):
        raise ValueError("occurrences are whole numbers from 0 on")
    return {feature.encode(): int(times) for feature, times in x.items() if times}
