"""Confidence intervals of shares. Source: E. B. Wilson, JASA 22 (1927)."""

import math

Z = 1.959964
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


def wilson(events: int, trials: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share, right for small numbers, too; (0, 1) without trials.

    >>> [round(bound, 3) for bound in wilson(1, 10)]
    [0.018, 0.404]
    """
    if not trials:
        return 0.0, 1.0
    share, square = events / trials, Z * Z / trials
    centre = share + square / 2
    margin = Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    low = (centre - margin) / (1 + square) if events else 0.0  # which the sums above round to 1e-17, and 1 to .99...
    high = (centre + margin) / (1 + square) if events < trials else 1.0
    return low, high
