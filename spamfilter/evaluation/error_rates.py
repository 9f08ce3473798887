"""Error rates of a filter: the measures of the TREC spam tracks.

Scores are any numbers that rise with spam; scores of one class are given ascending. Source: G. Cormack, TREC 2007 Spam
Track Overview.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spamfilter.bayes.labels import Label
from spamfilter.evaluation.confidence_intervals import wilson

BINS = 10
"""Bins of probability in which calibration is measured and plotted."""


def is_spam(labels: Sequence[Label]) -> NDArray[np.bool_]:
    return np.asarray([label == "spam" for label in labels], np.bool_)


def bins_of(posteriors: NDArray[np.float64]) -> NDArray[np.int_]:
    """The bin of each probability, from 0 on; 1 is in the last one."""
    return np.asarray(np.minimum((posteriors * BINS).astype(int), BINS - 1))


def roc_area_above(ham: NDArray[np.float64], spam: NDArray[np.float64]) -> float:
    """1-ROCA%: 100 times the chance that a ham scores above a spam; a tie counts half."""
    below = np.searchsorted(spam, ham, side="left")
    tied = np.searchsorted(spam, ham, side="right") - below
    return float(100 * (below.sum() + tied.sum() / 2) / (len(ham) * len(spam)))


def spam_missed(ham: NDArray[np.float64], spam: NDArray[np.float64], lost: float = 0.001) -> float:
    """sm@hm: per cent of spam that is missed at the score at which this share of ham is lost."""
    threshold = ham[-(math.floor(lost * len(ham)) + 1)]
    return float(100 * np.searchsorted(spam, threshold, side="right") / len(spam))


def logistic_average(ham_rate: float, spam_rate: float, ham: int, spam: int) -> float:
    """LAM%: the mean of two misclassification rates on the logit scale; rates clipped to half a message."""

    def logit(rate: float, messages: int) -> float:
        rate = min(max(rate, 0.5 / messages), 1 - 0.5 / messages)
        return math.log(rate / (1 - rate))

    return 100 / (1 + math.exp(-(logit(ham_rate, ham) + logit(spam_rate, spam)) / 2))


def calibration_error(posteriors: ArrayLike, spam: ArrayLike) -> float:
    """ECE: the mean distance between probability and share of spam in equal bins, weighted by messages."""
    p, y = np.asarray(posteriors, dtype=np.float64), np.asarray(spam, dtype=np.float64)
    sums = [np.bincount(bins_of(p), weights=values, minlength=BINS) for values in (p, y)]
    return float(np.abs(sums[0] - sums[1]).sum() / len(p))


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one run: accuracy and rates in per cent, brier and ece between 0 and 1."""

    messages: int
    ham: int
    spam: int
    roca: float
    sm_at_hm_01: float
    hm: float
    sm: float
    lam: float
    brier: float
    ece: float
    accuracy: float


RATES = ("roca", "sm_at_hm_01", "hm", "sm", "lam", "brier", "ece", "accuracy")
"""The measures that get a confidence interval."""


def measure(log_odds: Sequence[float], posteriors: Sequence[float], labels: Sequence[Label]) -> Metrics:
    """All measures of one run; hm and sm with P >= 0.5 as spam. Both classes must occur."""
    return _measure(np.asarray(log_odds, np.float64), np.asarray(posteriors, np.float64), is_spam(labels))


def intervals(
    log_odds: Sequence[float], posteriors: Sequence[float], labels: Sequence[Label], resamples: int, seed: int = 1
) -> dict[str, tuple[float, float]]:
    """The 95 % confidence interval of each of RATES: Wilson's for shares of messages, of the others percentiles of
    bootstrap samples, drawn within each class.

    It says how much a figure depends on the choice of messages; the filter's learning is not repeated. The bootstrap
    cannot know of errors that have not occurred yet.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993.
    """
    odds, p, spam = np.asarray(log_odds, np.float64), np.asarray(posteriors, np.float64), is_spam(labels)
    classes = [np.flatnonzero(~spam), np.flatnonzero(spam)]
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        drawn = np.concatenate([chance.choice(places, len(places)) for places in classes])
        sample = _measure(odds[drawn], p[drawn], spam[drawn])
        found.append([getattr(sample, name) for name in RATES])
    low, high = np.percentile(np.array(found), (2.5, 97.5), axis=0)
    bounds = {name: (float(low[at]), float(high[at])) for at, name in enumerate(RATES)}
    wrong = (p >= 0.5) != spam
    for name, counted in (("hm", wrong[~spam]), ("sm", wrong[spam]), ("accuracy", ~wrong)):
        least, most = wilson(int(counted.sum()), len(counted))
        bounds[name] = 100 * least, 100 * most
    return bounds


def contradicted(log_odds: Sequence[float], posteriors: Sequence[float], labels: Sequence[Label]) -> list[int]:
    """Suspected wrong labels: places of the messages whose verdict contradicts the label, the most confident first."""
    spam = is_spam(labels)
    odds = np.asarray(log_odds, np.float64)
    against = np.where(spam, -odds, odds)
    wrong = (np.asarray(posteriors) >= 0.5) != spam
    return [int(place) for place in np.argsort(-against, kind="stable") if wrong[place]]


def _measure(odds: NDArray[np.float64], p: NDArray[np.float64], y: NDArray[np.bool_]) -> Metrics:
    ham, spam = np.sort(odds[~y]), np.sort(odds[y])
    hm = float((p[~y] >= 0.5).mean())
    sm = float((p[y] < 0.5).mean())
    return Metrics(
        messages=len(y),
        ham=len(ham),
        spam=len(spam),
        roca=roc_area_above(ham, spam),
        sm_at_hm_01=spam_missed(ham, spam),
        hm=100 * hm,
        sm=100 * sm,
        lam=logistic_average(hm, sm, len(ham), len(spam)),
        brier=float(((p - y) ** 2).mean()),
        ece=calibration_error(p, y),
        accuracy=100 - 100 * (hm * len(ham) + sm * len(spam)) / len(y),
    )
