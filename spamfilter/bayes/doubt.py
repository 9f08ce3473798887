"""Doubt: how far what the filter does not know could move its log-odds towards ham; towards spam half as far.

It is large where fewer words are known than in the mail that was learnt, as in mail of another kind, and what is known
contradicts itself. What is usual is learnt, message by message (`Calibration.usual`). Per cent of ham lost and of spam
caught by filters trained on all of SpamAssassin and judging TREC 2007, and the other way round (benchmarks/cold.py):
without doubt 11.4 and 81, .9 and 68; with it .4 and 60, .4 and 49.
"""

from collections.abc import Sequence

import numpy as np

from spamfilter.bayes.likelihoods.likelihood import exact_sum
from spamfilter.bayes.voices import TEXT, VoiceScore

UNKNOWN = 2.0
"""The log-odds in doubt if all words were usually known, and none of a message is."""
DIVIDED, AGREED = 300.0, 0.45
"""The same for each unit of agreement below AGREED: of streams with feedback one mail in twenty has less. What is
tagged of their spam falls by .6 % or less (benchmarks/cold.py, benchmarks/accuracy.py)."""
TOWARDS_SPAM = 0.5
"""How much of the doubt counts against ham: spam that passes costs less than ham that is lost."""
SPEAKING = 50
"""How many words must speak in the text that people read to count half of the agreement."""


def doubt(known: float, usual: float, agreement: float) -> float:
    """The log-odds in doubt. known: share of a message's words that have counts; usual: of a usual message's."""
    return max(0.0, usual - known) * (UNKNOWN + DIVIDED * max(0.0, AGREED - agreement))


def agreement(scores: Sequence[VoiceScore]) -> float:
    """How one-sided the evidence is: 1 if all words speak for the same class, 0 or less if as much speaks against it.

    The weighted mean of the voices that have evidence, so that voices of different opinions do not agree; and where the
    text that people read says less than this mean, the more of its words speak, the more it is that of the text. So a
    header that looks like spam elsewhere does not outvote a text that does not.
    """
    agreed = weights = text = 0.0
    speaking = 0
    for voice, _, heard in scores:
        if loud := exact_sum(np.abs(heard.shares)):
            one_sided = exact_sum(heard.shares) / loud
            agreed += voice.weight * one_sided
            weights += voice.weight
            if voice.name == TEXT:
                text, speaking = one_sided, int(np.count_nonzero(heard.shares))
    if not weights:
        return 1.0
    mean = abs(agreed) / weights
    least = min(mean, text if agreed > 0 else -text)
    return mean + (least - mean) * speaking / (speaking + SPEAKING)
