"""Naive Bayes for numbers: of each feature a mean and a variance in each class, exact to learn and to forget.

>>> play = GaussianNaiveBayes(unbiased=True, prior="empirical")
>>> for temperature, label in ((66, "yes"), (70, "yes"), (80, "no"), (85, "no"), (71, "no")):
...     play.learn_one({"temperature": temperature}, label)
>>> [round(moment, 3) for moment in play.moments("temperature", "no")]
[78.667, 50.333]
>>> play.predict_one({"temperature": 69})
'yes'
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from spamfilter.bayes.estimator import Classifier, Features, Number
from spamfilter.bayes.likelihoods.gaussian import log_density, mean_and_variance
from spamfilter.bayes.likelihoods.likelihood import log_priors
from spamfilter.errors import CountError


@dataclass(slots=True)
class Sums:
    """Of the values of a feature in a class, as whole numbers: how many, their sum, the sum of their squares."""

    number: int = 0
    total: int = 0
    squares: int = 0


class GaussianNaiveBayes(Classifier):
    """ln P(class) + sum over the features that an example has of ln N(x; mean, variance of the class).

    Values are kept in units of 10 to the power of -decimals, so that sums are exact. unbiased: the variance is divided
    by n - 1 instead of n. floor: the least variance. prior: as those of the likelihoods. A feature of which a class
    has too few values for a variance leaves its factor out; a missing one does.
    """

    def __init__(
        self,
        decimals: int = 6,
        unbiased: bool = False,
        floor: float = 1e-9,
        prior: Literal["map", "empirical", "equal"] = "map",
    ) -> None:
        self.decimals, self.unbiased, self.floor, self.prior = decimals, unbiased, floor, prior
        log_priors({}, prior)  # raises ValueError for another name
        self._scale: int = 10**decimals
        self.classes = []
        self._learnt: list[int] = []
        self._sums: list[dict[str, Sums]] = []

    def learn_one(self, x: Features, y: Hashable) -> None:
        self._change(y, x, 1)

    def learn_many(self, examples: Iterable[tuple[Features, Hashable, int]]) -> None:
        for x, y, times in examples:
            self._change(y, x, times)

    def forget_one(self, x: Features, y: Hashable) -> None:
        if y not in self.classes or not self._learnt[self.classes.index(y)] or not self._has(x, y):
            raise CountError(f"{y!r}: this was not learnt")
        self._change(y, x, -1)

    def moments(self, feature: str, label: Hashable) -> tuple[float, float] | None:
        """Mean and variance of a feature in a class; None of too few values."""
        found = self._sums[self.classes.index(label)].get(feature, Sums())
        if found.number < 1 + self.unbiased:
            return None
        mean, variance = mean_and_variance(found.number, found.total, found.squares, self.unbiased, self._scale)
        return mean, max(variance, self.floor)

    def log_likelihood(self, x: Features) -> dict[Hashable, float]:
        logarithms = dict.fromkeys(self.classes, 0.0)
        for feature, value in x.items():
            if not math.isfinite(value):
                raise ValueError(f"{feature} is {value}, which is no number to judge by; leave out what is missing")
            moments = {label: self.moments(feature, label) for label in self.classes}
            for label, found in moments.items():
                if found is not None and None not in moments.values():
                    logarithms[label] += log_density(value, *found)
        return logarithms

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("decimals", "unbiased", "floor", "prior")}

    def log_prior(self) -> dict[Hashable, float]:
        return log_priors(dict(zip(self.classes, self._learnt, strict=True)), self.prior)

    def _has(self, x: Features, label: Hashable) -> bool:
        """Whether an example may have been learnt: what is left without it are sums of some values."""
        mine = self._sums[self.classes.index(label)]
        for feature, value in x.items():
            sums, whole = mine.get(feature, Sums()), self._whole(value)
            left = Sums(sums.number - 1, sums.total - whole, sums.squares - whole * whole)
            if left.number < 0 or left.total**2 > left.number * left.squares or (left.squares and not left.number):
                return False
        return True

    def _change(self, y: Hashable, x: Features, times: int) -> None:
        """times: below 0 to take away."""
        values = [self._whole(value) for value in x.values()]  # before the class is admitted, as x may be wrong
        at = self.admit(y)
        self._learnt[at] += times
        mine = self._sums[at]
        for feature, value in zip(x, values, strict=True):
            sums = mine.setdefault(feature, Sums())
            sums.number += times
            sums.total += times * value
            sums.squares += times * value * value

    def _whole(self, value: Number) -> int:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number that can be learnt")
        # NumPy's integers would overflow.
        return int(value) * self._scale if isinstance(value, int | np.integer) else round(float(value) * self._scale)

    def _begin(self) -> None:
        self._learnt.append(0)
        self._sums.append({})
