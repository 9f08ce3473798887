"""Doubt: how far what the filter does not know could move its log-odds, to either side.

It is large where fewer words are known than in the mail that was learnt, as in mail of another kind, and what is known
contradicts itself. What is usual is learnt, message by message (`Calibration.usual`). Per cent of ham lost and of spam
caught by filters trained on all of SpamAssassin and judging TREC 2007, and the other way round (benchmarks/cold.py):
without doubt 11.4 and 81, .9 and 68; with it 1.7 and 60, .1 and 33.
"""

from collections.abc import Sequence

import numpy as np

from spamfilter.bayes.likelihoods.likelihood import exact_sum
from spamfilter.bayes.voices import Said

UNKNOWN = 5.0
"""The log-odds in doubt if all words were usually known, and none of a message is."""
DIVIDED, AGREED = 150.0, 0.5
"""The same for each unit of agreement below AGREED: of streams with feedback one mail in twenty has less. What is
tagged of their spam falls by .9 % or less, and with 300 by another .6."""


def doubt(known: float, usual: float, agreement: float) -> float:
    """The log-odds in doubt. known: share of a message's words that have counts; usual: of a usual message's."""
    return max(0.0, usual - known) * (UNKNOWN + DIVIDED * max(0.0, AGREED - agreement))


def agreement(said: Sequence[Said]) -> float:
    """How one-sided the evidence is: 1 if all words speak for the same class, 0 if as much speaks for the other.

    The weighted mean of the voices that have evidence, so that voices of different opinions do not agree.
    """
    agreed = weights = 0.0
    for voice, _, heard in said:
        if loud := exact_sum(np.abs(heard.shares)):
            agreed += voice.weight * exact_sum(heard.shares) / loud
            weights += voice.weight
    return abs(agreed) / weights if weights else 1.0
