"""Robinson's probabilities, combined by Fisher's chi-squared test: the classical scorer of SpamBayes and bogofilter."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Above, Floats, Likelihood, MessageCounts, exact_sum, log, ratio

SILENCE = -1e300
"""The logarithm of a probability of 0: far below any sum of logarithms, and finite."""


@dataclass(frozen=True)
class RobinsonFisher(Likelihood):
    """ln(I / (1 - I)), with the indicator I = (1 + H - S) / 2 of two chi-squared tests with 2 n degrees of freedom.

    H = Q(-2 sum ln f), S = Q(-2 sum ln(1 - f)), over the n words with |f - 1/2| of at least `deviation`;
    f = (s x + n_w p) / (s + n_w), p = (spam / N_s) / (spam / N_s + ham / N_h), n_w = spam + ham messages with the word;
    s: how many messages the assumption x is worth. Unknown words are skipped.
    Source: G. Robinson, Linux Journal 107 (2003).

    >>> counts, model = Counts(), RobinsonFisher(strength=1.0)
    >>> _ = counts.add("spam", {b"money": 1})
    >>> round(1 / (1 + math.exp(-model.log_odds({b"money": 1}, counts))), 6)  # f = 3/4: H = .75, S = .25
    0.75
    """

    strength: Above = 0.45
    assumed: Annotated[float, Gt(0), Lt(1)] = 0.5
    deviation: Annotated[float, Ge(0), Lt(0.5)] = 0.1
    name: ClassVar[str] = "robinson_fisher"

    def _chances(self, message: MessageCounts, counts: Counts) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """f of each word, 1 - f, and which words count; f and 1 - f are both 1 for the others."""
        ham, spam = message.counts
        number = ham + spam
        ham, spam = ratio(ham, counts.messages["ham"]), ratio(spam, counts.messages["spam"])
        known = (number > 0) & (spam + ham > 0)
        p = np.divide(spam, spam + ham, out=np.full(len(number), self.assumed), where=known)
        q = np.divide(ham, spam + ham, out=np.full(len(number), 1 - self.assumed), where=known)
        f = (self.strength * self.assumed + number * p) / (self.strength + number)
        g = (self.strength * (1 - self.assumed) + number * q) / (self.strength + number)
        heard = known & (np.abs(f - g) >= 2 * self.deviation)
        return np.where(heard, f, 1.0), np.where(heard, g, 1.0), heard

    def shares(self, message: MessageCounts, counts: Counts) -> Floats:
        """ln(f / (1 - f)): the log-odds by each word alone. The test combines them to less than their sum."""
        f, g, _ = self._chances(message, counts)
        return log(f) - log(g)

    def total(self, message: MessageCounts, shares: Floats, counts: Counts) -> float:
        f, g, heard = self._chances(message, counts)
        return _indicator(exact_sum(-log(f)), exact_sum(-log(g)), int(np.count_nonzero(heard)))


def _indicator(spam: float, ham: float, words: int) -> float:
    """ln(I / (1 - I)) from -sum ln f and -sum ln(1 - f) of so many words."""
    if not words:
        return 0.0
    h, not_h = _tails(spam, words)
    s, not_s = _tails(ham, words)
    return _log_sum(h, not_s) - _log_sum(s, not_h)  # 1 + H - S = H + (1 - S), and 1 - H + S = S + (1 - H)


def _tails(mean: float, n: int) -> tuple[float, float]:
    """ln P(N < n) and ln P(N >= n) of a Poisson variable: ln Q and ln(1 - Q) of chi-squared 2 mean with 2 n degrees.

    Each sum begins with its largest term and ends where terms are too small to change it, so neither loses precision.
    """
    if mean <= 0:
        return 0.0, SILENCE
    largest = min(n - 1, int(mean))
    downwards, upwards = (k / mean for k in range(largest, 0, -1)), (mean / k for k in range(largest + 1, n))
    below = _term(mean, largest) + math.log(_sum(downwards) + _sum(upwards) - 1)
    largest = max(n, int(mean))
    downwards, upwards = (k / mean for k in range(largest, n, -1)), (mean / k for k in count(largest + 1))
    above = _term(mean, largest) + math.log(_sum(downwards) + _sum(upwards) - 1)
    return min(below, 0.0), min(above, 0.0)


def _term(mean: float, k: int) -> float:
    return k * math.log(mean) - mean - math.lgamma(k + 1)


def _sum(factors: Iterable[float]) -> float:
    """The sum of terms as multiples of the first. factors: each further term, divided by the one before it."""
    total = term = 1.0
    for factor in factors:
        if term <= 1e-17 * total:
            break
        term *= factor
        total += term
    return total


def _log_sum(a: float, b: float) -> float:
    return max(a, b) + math.log1p(math.exp(min(a, b) - max(a, b)))
