"""The measures, against brute force and against cases counted by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.evaluation.error_rates import (
    RATES,
    calibration_error,
    contradicted,
    intervals,
    logistic_average,
    measure,
    roc_area_above,
    spam_missed,
)
from tests.support.made import some

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


@pytest.mark.parametrize(
    ("posteriors", "labels", "accuracy"),
    [
        pytest.param([0.1, 0.6, 0.4, 0.2, 0.9, 0.3], "hhhhss", 100 * 4 / 6, id="one-ham-and-one-spam-wrong"),
        pytest.param([0.5, 0.1, 0.1, 0.1, 0.9], "hhhhs", 80.0, id="one-half-is-spam"),
        pytest.param([0.9, 0.1], "hs", 0.0, id="all-wrong"),
        pytest.param([0.1, 0.9], "hs", 100.0, id="all-right"),
        pytest.param([0.1] * 9 + [0.1], "h" * 9 + "s", 90.0, id="everything-taken-for-ham"),
    ],
)
def test_the_accuracy_is_the_share_of_messages_on_the_right_side_of_one_half(
    posteriors: list[float], labels: str, accuracy: float
) -> None:
    given: list[Label] = ["spam" if letter == "s" else "ham" for letter in labels]
    assert measure(posteriors, posteriors, given).accuracy == pytest.approx(accuracy)


Scores = tuple[list[float], list[float], list[Label]]


def test_no_error_yet_is_no_promise_that_there_will_be_none() -> None:
    """Wilson: of 20 without an error up to 16 % may have one."""
    labels: list[Label] = ["ham", "spam"] * 20
    odds = [9.0 if label == "spam" else -9.0 for label in labels]
    bounds = intervals(odds, [float(label == "spam") for label in labels], labels, resamples=20)
    assert [round(bound, 1) for name in ("hm", "sm", "accuracy") for bound in bounds[name]] == [
        0.0, 16.1, 0.0, 16.1, 91.2, 100.0,
    ]  # fmt: skip


def overlapping(messages: int, seed: int = 1) -> Scores:
    """Scores of two bells that overlap, with probabilities that are too sure; half ham, half spam."""
    chance = np.random.default_rng(seed)
    labels = LABELS * (messages // 2)
    odds = [float(chance.normal(1.0 if label == "spam" else -1.0)) for label in labels]
    return odds, [1 / (1 + math.exp(-8 * value)) for value in odds], list(labels)


def test_an_interval_holds_the_figure_and_is_none_without_width() -> None:
    run = overlapping(400)
    metrics, bounds = measure(*run), intervals(*run, resamples=300)
    assert set(bounds) == set(RATES)
    for name, (low, high) in bounds.items():
        assert low <= getattr(metrics, name) <= high, name
        assert low < high, name


def test_more_messages_make_intervals_narrower() -> None:
    few, many = (intervals(*overlapping(messages), resamples=300) for messages in (100, 2500))
    for name in set(RATES) - {"sm_at_hm_01"}:  # which hangs on the few ham that score highest, however many there are
        (low, high), (lower, higher) = few[name], many[name]
        # Five times as many of each would be a fifth; a third leaves room for chance.
        assert higher - lower < (high - low) / 3, name


def test_intervals_repeat_with_their_seed_and_change_with_another() -> None:
    run = overlapping(100)
    assert intervals(*run, resamples=50, seed=3) == intervals(*run, resamples=50, seed=3)
    assert intervals(*run, resamples=50, seed=3) != intervals(*run, resamples=50, seed=4)


def test_samples_are_drawn_within_each_class() -> None:
    # Of one spam among a hundred every third sample would have none, were they drawn from all.
    labels: list[Label] = [*["ham"] * 99, "spam"]  # type: ignore[list-item]  # a display of literals
    scores = [float(number) for number in range(100)]
    bounds = intervals(scores, [number / 99 for number in range(100)], labels, resamples=200)
    assert bounds["roca"] == bounds["sm_at_hm_01"] == (0.0, 0.0)


def test_an_interval_covers_the_true_figure_about_nineteen_times_of_twenty() -> None:
    truth = 100 * 0.5 * math.erfc(1 / math.sqrt(2))  # a bell of width 1 beyond its distance of 1 from the border
    hits = 0
    for seed in range(60):
        odds, p, labels = overlapping(200, seed)
        low, high = intervals(odds, p, labels, resamples=200)["hm"]
        hits += low <= truth <= high
    assert 51 <= hits <= 60


@some(200)
@given(st.lists(st.tuples(st.integers(-9, 9), st.sampled_from(LABELS)), min_size=1, max_size=25))
def test_contradicted_labels_are_those_on_the_wrong_side_the_surest_first(run: list[tuple[int, Label]]) -> None:
    odds, labels = [value / 2 for value, _ in run], [label for _, label in run]
    posteriors = [1 / (1 + math.exp(-value)) for value in odds]
    found = contradicted(odds, posteriors, labels)
    assert sorted(found) == [
        at for at, (p, label) in enumerate(zip(posteriors, labels, strict=True)) if (p >= 0.5) != (label == "spam")
    ]
    sure = [abs(odds[at]) for at in found]
    assert sure == sorted(sure, reverse=True)


def test_planted_wrong_labels_stand_at_the_top() -> None:
    chance = np.random.default_rng(5)
    labels = list(LABELS * 50)
    odds = [float(chance.normal(3.0 if label == "spam" else -3.0)) for label in labels]
    planted = {7, 40, 81}
    odds = [value + (9.0 if labels[at] == "ham" else -9.0) if at in planted else value for at, value in enumerate(odds)]
    found = contradicted(odds, [1 / (1 + math.exp(-value)) for value in odds], labels)
    assert set(found[:3]) == planted


def test_labels_that_no_verdict_contradicts_are_not_suspected() -> None:
    assert contradicted([-1.0, 2.0], [0.3, 0.8], ["ham", "spam"]) == []
