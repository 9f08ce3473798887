"""Calibration: log-odds to a probability, by online Platt scaling.

P(spam) = sigmoid(slope * S + offset). Each learnt message moves slope and offset by one AdaGrad step on the log-loss
(John C. Platt 1999; Duchi, Hazan, Singer 2011). The probability has no influence on what a message adds to the counts.

Some labels are wrong, and a wrong label contradicts the surest verdicts as often as all others: so the share of wrong
labels is told by the squared log-odds that labels contradict, and the log-loss is corrected for it without bias
(Natarajan, Dhillon, Ravikumar, Tewari 2013). With 5 % wrong labels the expected calibration error on 20,000 messages of
TREC 2007 is .018, and 93 % of the spam is called spam; without the correction .069 and 75 % (benchmarks/accuracy.py).
With right labels nothing changes.

The calibration also keeps the average share of a message's words that were known before the message was learnt. `doubt`
compares the words of a new message with it.

Invariant: the state is the sum of its steps in whole numbers, so taking a step back restores it exactly.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from spamfilter.bayes.labels import Label
from spamfilter.errors import StoreError

UNIT = 2**40
"""The state counts in 2^-40: steps below that are noise, and sums of integers do not drift."""
RATE = 0.05
MIN_SLOPE = 0.05
"""The least slope: zero would ignore the counts, and a negative one would invert what they say."""
ENERGY = 0.1
"""The start of AdaGrad's sums of squares: the first steps are not larger than RATE / sqrt(ENERGY)."""

BEFORE, OFTEN_KNOWN = 10, 0.75
"""The average begins as if BEFORE messages had been learnt, with this share of their words known. Of the first messages
few words are known, and new words must raise doubt all the same."""

AGREED = 200 * 10.0**2
"""The share of wrong labels begins as if 200 messages with log-odds of 10 had been learnt, all with right labels."""
OWN_ERRORS = 0.005
"""The share that a filter contradicts by its own errors where all labels are right: .0001 to .0025 with the default and
its voices alone, in each of the streams of benchmarks/accuracy.py."""
MOST_WRONG = 0.25
"""The greatest share of wrong labels that is believed: at a half, labels would say nothing."""

Step = tuple[int, ...]
"""What a message adds to each field of the calibration; that of an earlier version ends before `messages` or `squares`.
"""
NO_STEP: Step = (0, 0, 0, 0)
"""The step of a message that has no influence on the calibration."""
ERROR_ENERGY = 3
"""The place of `offset_energy` in a step: the square of how far the probability was from the label."""
SURPRISING = round(0.1**2 * UNIT)


class Calibration(NamedTuple):
    """slope, offset and their sums of squared gradients, each in units of 2^-40.

    messages, known: how many were learnt, and the sum of the shares of their words that were known, in the same unit.
    squares, contradicted: the sums of squared log-odds, and of those squared gradients of the slope that plain log-loss
    has, which is hardly anything but the squares that labels contradict.
    """

    slope: int = UNIT
    offset: int = 0
    slope_energy: int = round(ENERGY * UNIT)
    offset_energy: int = round(ENERGY * UNIT)
    messages: int = BEFORE
    known: int = round(BEFORE * OFTEN_KNOWN * UNIT)
    squares: int = round(AGREED * UNIT)
    contradicted: int = 0

    @property
    def usual(self) -> float:
        """The average share of a message's words that were known before the message was learnt."""
        return self.known / UNIT / self.messages

    @property
    def wrong(self) -> float:
        """The share of labels that are wrong, as far as can be told."""
        return min(max(0.0, self.contradicted / self.squares - OWN_ERRORS), MOST_WRONG)

    @property
    def factor(self) -> float:
        """What log-odds are multiplied by."""
        return max(self.slope / UNIT, MIN_SLOPE)

    def calibrated(self, log_odds: float) -> float:
        """The log-odds of the posterior."""
        return self.factor * log_odds + self.offset / UNIT

    def posterior(self, log_odds: float) -> float:
        """P(spam), between 0 and 1, of a message with these log-odds."""
        z = self.calibrated(log_odds)
        # Beyond 36 the sum 1 + exp(-z) is 1 in double precision; exp itself overflows at 709.
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, z))))

    def log_odds(self, posterior: float) -> float:
        """The log-odds of a message with this P(spam), which must lie between 0 and 1, both excluded."""
        return (math.log(posterior / (1 - posterior)) - self.offset / UNIT) / self.factor

    def step(self, log_odds: float, label: Label, known: float) -> Step:
        """The step that learning a message with these log-odds makes. known: share of its words that have counts."""
        spam, posterior = float(label == "spam"), self.posterior(log_odds)
        error = posterior - spam
        wrong = self.wrong
        corrected = posterior - (spam - wrong) / (1 - 2 * wrong)
        slope_energy = round((error * log_odds) ** 2 * UNIT)
        offset_energy = round(error**2 * UNIT)
        slope = -RATE * corrected * log_odds / math.sqrt((self.slope_energy + slope_energy) / UNIT)
        offset = -RATE * corrected / math.sqrt((self.offset_energy + offset_energy) / UNIT)
        floor = round(MIN_SLOPE * UNIT) - self.slope
        return (
            max(round(slope * UNIT), floor),
            round(offset * UNIT),
            slope_energy,
            offset_energy,
            1,
            round(known * UNIT),
            round(log_odds**2 * UNIT),
            slope_energy,
        )

    def plus(self, step: Step, sign: int = 1) -> "Calibration":
        """The state after a step, or with sign -1 after the step was taken back."""
        return restored([kept + sign * more for kept, more in zip_longest(self, step, fillvalue=0)])


def restored(numbers: Sequence[int]) -> Calibration:
    """The state that a database has, of an earlier version perhaps. Raises StoreError if it is of a later one."""
    if len(numbers) > len(Calibration._fields):
        raise StoreError("the database was taught by a newer version of spamfilter: upgrade this one, too")
    return Calibration(*numbers)


def is_surprise(step: Step) -> bool:
    """Whether the probability was further than a tenth from the label of the message that made this step."""
    return step[ERROR_ENERGY] >= SURPRISING
