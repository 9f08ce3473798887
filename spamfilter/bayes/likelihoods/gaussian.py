"""The Gaussian model: numeric attributes, each with a mean and a variance in each class."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Above, Floats, Generative, MessageCounts, Prior
from spamfilter.bayes.tokens import Token, Tokens

SUM, SQUARES = b" sum", b" squares"
QUANTISED = 1 / 12
"""The least variance: that of a uniform variable which was rounded to a whole number."""


@dataclass(frozen=True)
class Gaussian(Generative):
    """prior + sum over attributes of ln N(x; mean, variance of the class), for the attributes that a message has.

    Attributes are whole numbers. Three counts are kept of each: how many messages had it, the sum of its values, and
    the sum of their squares; so the moments are exact, and what was learnt can be taken away. variance: divided by n,
    at least `floor`. An attribute that a message lacks, or that fewer than `least` messages of a class have had, leaves
    its factor out. The filter limits each share to `most`: real tails are thicker than a Gaussian's, and
    few messages give narrow ones; without the bounds one unusual attribute would decide the verdict.

    >>> counts, model = Counts(), Gaussian(least=1)
    >>> for label, values in (("spam", (9, 11)), ("ham", (1, 3))):
    ...     for value in values:
    ...         _ = counts.add(label, model.deltas({b"links": value}, 1))
    >>> model.log_odds({b"links": 7}, counts)  # ((7 - 2)^2 - (7 - 10)^2) / 2
    8.0
    """

    floor: Above = QUANTISED
    least: Annotated[int, Ge(1)] = 30
    most: Above = 5.0
    prior: Prior = "equal"
    name: ClassVar[str] = "gaussian"

    def moments(self, attribute: Token, label: str, counts: Counts) -> tuple[float, float] | None:
        """Mean and variance of an attribute in a class, from whole numbers; None if the class never had it."""
        n = counts.get(attribute, label)
        if not n:
            return None
        total, squares = counts.get(attribute + SUM, label), counts.get(attribute + SQUARES, label)
        mean, variance = mean_and_variance(n, total, squares)
        return mean, max(variance, self.floor)

    def heard(self, message: MessageCounts, shares: Floats) -> Floats:
        return np.clip(shares, -self.most, self.most)

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        def logarithm(attribute: Token, value: float) -> float:
            few = min(counts.get(attribute, "ham"), counts.get(attribute, "spam")) < self.least
            moments = None if few else self.moments(attribute, label, counts)
            return 0.0 if moments is None else log_density(value, *moments)

        each = map(logarithm, message.tokens, message.times.tolist())
        return np.fromiter(each, np.float64, len(message.tokens))

    def words(self, tokens: Tokens) -> set[Token]:
        return {word for token in tokens for word in (token, token + SUM, token + SQUARES)}

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        found: dict[Token, int] = {}
        for attribute, value in tokens.items():
            found[attribute] = 1
            if value:
                found[attribute + SUM] = value
                found[attribute + SQUARES] = value * value
        return found


def mean_and_variance(n: int, total: int, squares: int, unbiased: bool = False, scale: int = 1) -> tuple[float, float]:
    """Of n numbers, in units of 1 / scale, by their sum and the sum of their squares; the variance divided by n, or by
    n - 1."""
    return total / (n * scale), (n * squares - total * total) / (n * (n - unbiased) * scale * scale)


def log_density(value: float, mean: float, variance: float) -> float:
    """ln N(value; mean, variance)."""
    return -0.5 * (math.log(2 * math.pi * variance) + (value - mean) ** 2 / variance)
