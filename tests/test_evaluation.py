"""The measures, against brute force and against cases counted by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.counts import LABELS, Label
from spamfilter.evaluation import (
    calibration_error,
    logistic_average,
    measure,
    roc_area_above,
    spam_missed,
    split,
)
from tests.made import some

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)
RUN = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(LABELS)), min_size=1, max_size=25)


def ascending(scores: list[float]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(sorted(scores), dtype=np.float64)


@some(200)
@given(SCORES, SCORES)
def test_the_area_above_the_curve_is_the_share_of_wrong_pairs(ham: list[float], spam: list[float]) -> None:
    wrong = sum(1.0 if h > s else 0.5 if h == s else 0.0 for h in ham for s in spam)
    assert roc_area_above(ascending(ham), ascending(spam)) == pytest.approx(100 * wrong / len(ham) / len(spam))


@pytest.mark.parametrize(
    ("ham", "spam", "area"),
    [
        pytest.param([0.0, 1.0], [2.0, 3.0], 0.0, id="perfect"),
        pytest.param([2.0, 3.0], [0.0, 1.0], 100.0, id="upside-down"),
        pytest.param([1.0], [1.0], 50.0, id="tie"),
        pytest.param([0.0, 2.0], [1.0, 3.0], 25.0, id="one-pair-of-four"),
    ],
)
def test_the_area_of_small_cases(ham: list[float], spam: list[float], area: float) -> None:
    assert roc_area_above(ascending(ham), ascending(spam)) == area


@some(200)
@given(SCORES, SCORES, st.sampled_from([0.0, 0.001, 0.1, 0.3, 0.5]))
def test_spam_missed_is_what_lies_at_or_below_the_ham_that_may_be_lost(
    ham: list[float], spam: list[float], lost: float
) -> None:
    threshold = sorted(ham, reverse=True)[math.floor(lost * len(ham))]
    missed = sum(1 for score in spam if score <= threshold)
    assert spam_missed(ascending(ham), ascending(spam), lost) == pytest.approx(100 * missed / len(spam))


@pytest.mark.parametrize(
    ("ham", "threshold"),
    [
        pytest.param(999, 998.0, id="999-ham-none-may-be-lost"),
        pytest.param(1000, 998.0, id="1000-ham-one-may-be-lost"),
        pytest.param(2000, 1997.0, id="2000-ham-two-may-be-lost"),
    ],
)
def test_one_ham_in_a_thousand_may_be_lost(ham: int, threshold: float) -> None:
    hams = ascending([float(score) for score in range(ham)])
    assert spam_missed(hams, np.array([threshold])) == 100
    assert spam_missed(hams, np.array([threshold + 0.5])) == 0


@pytest.mark.parametrize(
    ("ham_rate", "spam_rate", "average"),
    [
        pytest.param(0.5, 0.5, 50.0, id="chance"),
        pytest.param(0.1, 0.1, 10.0, id="equal-rates"),
        pytest.param(0.2, 0.8, 50.0, id="mirrored-rates"),
        pytest.param(0.0, 0.0, 0.5, id="no-error-is-half-a-message"),
        pytest.param(1.0, 1.0, 99.5, id="all-errors-is-all-but-half-a-message"),
        pytest.param(0.1, 0.5, 25.0, id="odds-of-a-ninth-and-one-make-a-third"),
    ],
)
def test_the_logistic_average_of_small_cases(ham_rate: float, spam_rate: float, average: float) -> None:
    assert logistic_average(ham_rate, spam_rate, 100, 100) == pytest.approx(average)


@some(200)
@given(RUN)
def test_the_calibration_error_is_the_weighted_distance_over_ten_bins(run: list[tuple[float, Label]]) -> None:
    error = 0.0
    for number in range(10):
        inside = [(p, y == "spam") for p, y in run if min(int(p * 10), 9) == number]
        if inside:
            mean = sum(p for p, _ in inside) / len(inside)
            share = sum(y for _, y in inside) / len(inside)
            error += len(inside) / len(run) * abs(mean - share)
    assert calibration_error([p for p, _ in run], [y == "spam" for _, y in run]) == pytest.approx(error, abs=1e-12)


def test_scores_are_split_by_label_and_sorted() -> None:
    ham, spam = split([3.0, 1.0, 2.0, 0.0], ["ham", "spam", "ham", "spam"])
    assert (ham.tolist(), spam.tolist()) == ([2.0, 3.0], [0.0, 1.0])


def test_the_measures_of_a_run_counted_by_hand() -> None:
    metrics = measure(
        [-2.0, 0.0, -1.0, 1.0, -1.0, 3.0],
        [0.1, 0.5, 0.3, 0.8, 0.3, 0.9],
        ["ham", "ham", "ham", "spam", "spam", "spam"],
    )
    assert (metrics.messages, metrics.ham, metrics.spam) == (6, 3, 3)
    # Of nine pairs one is wrong (ham at 0, spam at -1) and one tied (both at -1).
    assert metrics.roca == pytest.approx(100 * 1.5 / 9)
    # No ham may be lost: the threshold is the highest ham, 0; one spam of three lies below it.
    assert metrics.sm_at_hm_01 == pytest.approx(100 / 3)
    assert (metrics.hm, metrics.sm) == pytest.approx((100 / 3, 100 / 3))
    assert metrics.lam == pytest.approx(100 / 3)
    assert metrics.brier == pytest.approx((0.01 + 0.25 + 0.09 + 0.04 + 0.49 + 0.01) / 6)
    # Bins: 0.1, 0.5, 0.8 and 0.9 hold one each; 0.3 holds a ham and a spam.
    assert metrics.ece == pytest.approx((0.1 + 0.5 + 0.2 + 0.1 + abs(0.6 - 1)) / 6)
