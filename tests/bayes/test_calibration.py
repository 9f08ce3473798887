"""Calibration: a probability for any log-odds, and steps that can be taken back exactly."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.calibration import BEFORE, MIN_SLOPE, OFTEN_KNOWN, UNIT, Calibration, Step, restored
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import StoreError
from tests.support.made import some

LEARNT = st.tuples(st.floats(-60, 60), st.sampled_from(LABELS), st.floats(0, 1))


def after(learnt: list[tuple[float, Label, float]]) -> tuple[Calibration, list[Step]]:
    state, steps = Calibration(), []
    for log_odds, label, known in learnt:
        steps.append(state.step(log_odds, label, known))
        state = state.plus(steps[-1])
    return state, steps


@some(150)
@given(st.lists(LEARNT, max_size=20), st.randoms(use_true_random=False))
def test_steps_taken_back_in_any_order_are_exactly_gone(
    learnt: list[tuple[float, Label, float]], order: random.Random
) -> None:
    state, steps = after(learnt)
    order.shuffle(steps)
    for step in steps:
        state = state.plus(step, -1)
    assert state == Calibration()


@some(150)
@given(st.lists(LEARNT, max_size=20), LEARNT)
def test_the_last_step_taken_back_is_the_state_before(
    learnt: list[tuple[float, Label, float]], last: tuple[float, Label, float]
) -> None:
    state, _ = after(learnt)
    step = state.step(*last)
    assert state.plus(step).plus(step, -1) == state


@some(150)
@given(
    st.lists(LEARNT, max_size=20),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
)
def test_the_posterior_is_a_probability_that_rises_with_the_log_odds(
    learnt: list[tuple[float, Label, float]], one: float, two: float
) -> None:
    state, _ = after(learnt)
    low, high = sorted((one, two))
    assert 0 <= state.posterior(low) <= state.posterior(high) <= 1


@some(100)
@given(st.lists(LEARNT, max_size=60))
def test_learning_never_turns_the_meaning_of_the_score(learnt: list[tuple[float, Label, float]]) -> None:
    assert after(learnt)[0].slope >= round(MIN_SLOPE * UNIT)


def test_wrong_labels_alone_stop_at_the_smallest_slope() -> None:
    state, _ = after([(4.0, "ham", 1.0), (-4.0, "spam", 1.0)] * 500)
    assert state.slope == round(MIN_SLOPE * UNIT)
    assert state.posterior(5) > state.posterior(-5)


def test_a_slope_that_taking_back_brought_below_zero_still_rises() -> None:
    state = Calibration(slope=-UNIT)
    assert state.posterior(1) > 0.5 > state.posterior(-1)
    assert state.plus(state.step(1.0, "spam", 1.0)).slope >= round(MIN_SLOPE * UNIT)


def test_the_start_is_the_plain_sigmoid() -> None:
    for log_odds in (-3.0, 0.0, 0.5, 12.0):
        assert Calibration().posterior(log_odds) == pytest.approx(1 / (1 + math.exp(-log_odds)))


def test_the_first_steps_are_those_of_adagrad_on_the_corrected_log_loss() -> None:
    a, b, energy_a, energy_b = 1.0, 0.0, 0.1, 0.1
    squares, contradicted, corrections = 20_000.0, 0.0, []
    learnt: list[tuple[float, Label, float]] = [
        (2.0, "ham", 0.1), (-1.0, "spam", 0.2), (30.0, "ham", 0.3), (3.0, "spam", 0.3), (-0.5, "spam", 0.4)
    ]  # fmt: skip
    for log_odds, label, _ in learnt:
        error = 1 / (1 + math.exp(-(a * log_odds + b))) - (label == "spam")
        energy_a += (error * log_odds) ** 2
        energy_b += error**2
        wrong = max(0.0, contradicted / squares - 0.005)
        corrected = ((1 - wrong) * error - wrong * (error + (1 if label == "spam" else -1))) / (1 - 2 * wrong)
        a -= 0.05 * corrected * log_odds / math.sqrt(energy_a)
        b -= 0.05 * corrected / math.sqrt(energy_b)
        corrections.append(wrong)
        squares += log_odds**2
        contradicted += (error * log_odds) ** 2
    state, _ = after(learnt)
    assert corrections[:3] == [0, 0, 0]
    assert min(corrections[3:]) > 0.03
    assert (state.slope / UNIT, state.offset / UNIT) == pytest.approx((a, b), abs=1e-9)
    assert (state.slope_energy / UNIT, state.offset_energy / UNIT) == pytest.approx((energy_a, energy_b), abs=1e-9)


@pytest.mark.parametrize("log_odds", [1e6, -1e6, 1e-12])
@pytest.mark.parametrize("label", LABELS)
def test_a_step_of_an_extreme_score_stays_finite(log_odds: float, label: Label) -> None:
    state = Calibration().plus(Calibration().step(log_odds, label, 0.5))
    assert 0 <= state.posterior(log_odds) <= 1


def test_what_is_usually_known_is_the_mean_of_what_was_learnt_and_of_what_stands_at_the_start() -> None:
    shares = [0.0, 0.5, 0.25, 1.0]
    state, steps = after([(1.0, "spam", known) for known in shares])
    assert Calibration().usual == OFTEN_KNOWN
    assert state.usual == pytest.approx((BEFORE * OFTEN_KNOWN + sum(shares)) / (BEFORE + len(shares)))
    assert state.plus(steps[1], -1).usual == pytest.approx((BEFORE * OFTEN_KNOWN + 1.25) / (BEFORE + 3))


def test_wrong_labels_are_counted_and_do_not_blunt_the_probability() -> None:
    """A twentieth of the labels contradicts what is told apart well, whatever the log-odds."""
    chance = random.Random(1)
    odds: list[tuple[float, Label, float]] = []
    for _ in range(6000):
        log_odds = chance.gauss(0, 10)
        spam = chance.random() < 1 / (1 + math.exp(-log_odds))
        odds.append((log_odds, "spam" if spam != (chance.random() < 0.05) else "ham", 1.0))
    state, _ = after(odds)
    assert state.wrong == pytest.approx(0.05, abs=0.012)
    assert state.slope / UNIT == pytest.approx(1, abs=0.25)


def test_no_more_than_a_quarter_of_the_labels_is_held_for_wrong() -> None:
    state, _ = after([(9.0, "ham", 1.0), (-9.0, "spam", 1.0)] * 500)
    assert state.wrong == 0.25


def test_a_step_of_an_earlier_version_leaves_what_is_usual_as_it_is() -> None:
    state, _ = after([(1.0, "spam", 0.3)])
    moved = state.plus((UNIT, 0, UNIT, UNIT))
    assert moved.usual == state.usual
    assert moved.slope == state.slope + UNIT


def test_what_a_newer_version_has_learnt_is_named_as_such() -> None:
    assert restored([*Calibration()][:4]) == Calibration()
    with pytest.raises(StoreError, match="by a newer version of spamfilter: upgrade"):
        restored([*Calibration(), 0])
    with pytest.raises(StoreError, match="by a newer version of spamfilter: upgrade"):
        Calibration().plus((*Calibration(), 0))
