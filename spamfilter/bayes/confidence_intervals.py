"""Confidence intervals of shares. Source: E. B. Wilson, JASA 22 (1927)."""

import math


def wilson(events: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a share, right for small numbers, too; (0, 1) without trials.

    >>> [round(bound, 3) for bound in wilson(1, 10)]
    [0.018, 0.404]
    """
    if not trials:
        return 0.0, 1.0
    share, square = events / trials, z * z / trials
    centre = share + square / 2
    margin = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    return max(0.0, (centre - margin) / (1 + square)), min(1.0, (centre + margin) / (1 + square))
