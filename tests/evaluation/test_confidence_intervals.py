"""Wilson's interval against its equation and against published figures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.evaluation.confidence_intervals import wilson
from tests.support.made import some


@pytest.mark.parametrize(
    ("events", "trials", "low", "high"),
    [
        pytest.param(0, 0, 0.0, 1.0, id="no-trials"),
        pytest.param(0, 10, 0.0, 0.2775, id="none-of-ten"),
        pytest.param(10, 10, 0.7225, 1.0, id="ten-of-ten"),
        pytest.param(5, 10, 0.2366, 0.7634, id="half"),
        pytest.param(1, 1000, 0.000177, 0.005642, id="one-of-a-thousand"),
    ],
)
def test_the_wilson_interval_of_known_cases(events: int, trials: int, low: float, high: float) -> None:
    assert wilson(events, trials) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize("trials", [1, 4, 10, 14, 1000, 10**6])
def test_none_and_all_are_bounds_themselves(trials: int) -> None:
    assert wilson(0, trials)[0] == 0
    assert wilson(trials, trials)[1] == 1


@some(200)
@given(st.integers(1, 10**7), st.data())
def test_the_bounds_of_wilson_solve_its_equation_and_enclose_the_share(trials: int, data: st.DataObject) -> None:
    events = data.draw(st.integers(0, trials))
    low, high = wilson(events, trials)
    share = events / trials
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):
        if not 1e-12 < bound < 1 - 1e-12:
            assert events in (0, trials)
            continue
        assert abs(share - bound) == pytest.approx(
            1.959964 * math.sqrt(bound * (1 - bound) / trials), rel=1e-4, abs=1e-9
        )
