"""Whether a rate differs significantly from earlier periods: rare enough alarms that each is worth a look."""

import math
from dataclasses import dataclass

Z = 3.29
"""Standard errors of the difference: one false alarm in a thousand comparisons, if messages were independent."""
RATIO = 1.5
"""Messages come in campaigns and are not independent, so a smaller ratio is no drift, whatever its Z."""
FEWEST = 5
"""Least number of events, now or before: three errors after one are three times as many, but mean nothing."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A rate that has changed. what: the name of the rate."""

    what: str
    share: float
    before: float


def drift(what: str, now: tuple[int, int], before: tuple[int, int]) -> Drift | None:
    """The drift from `before` to `now`, each (events, trials); None if the difference is not significant.

    A test of two proportions with pooled variance, and the conditions RATIO and FEWEST.
    """
    if not now[1] or not before[1] or max(now[0], before[0]) < FEWEST:
        return None
    share, other = now[0] / now[1], before[0] / before[1]
    pooled = (now[0] + before[0]) / (now[1] + before[1])
    error = math.sqrt(pooled * (1 - pooled) * (1 / now[1] + 1 / before[1]))
    if not error or abs(share - other) / error < Z or max(share, other) < RATIO * min(share, other):
        return None
    return Drift(what, share, other)
