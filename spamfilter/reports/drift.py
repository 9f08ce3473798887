"""Whether a share has changed by more than chance: an alarm that is worth a look, and not one a week."""

import math
from dataclasses import dataclass

Z = 3.29
"""Standard errors of the difference: one false alarm in a thousand looks, if mail came by chance alone."""
RATIO = 1.5
"""Mail does not come by chance alone but in campaigns, so that less than this is no news whatever its Z."""
FEWEST = 5
"""Events now or before: three errors after one are three times as many, and mean nothing."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A share of `messages`, which was another one before. what: of what it is the share."""

    what: str
    share: float
    before: float


def drift(what: str, now: tuple[int, int], before: tuple[int, int]) -> Drift | None:
    """The drift from `before` to `now`, each (events, trials), or None if there is none to speak of.

    A test of two proportions with a pooled variance, and two conditions on top of it.
    """
    if not now[1] or not before[1] or max(now[0], before[0]) < FEWEST:
        return None
    share, other = now[0] / now[1], before[0] / before[1]
    pooled = (now[0] + before[0]) / (now[1] + before[1])
    error = math.sqrt(pooled * (1 - pooled) * (1 / now[1] + 1 / before[1]))
    if not error or abs(share - other) / error < Z or max(share, other) < RATIO * min(share, other):
        return None
    return Drift(what, share, other)
