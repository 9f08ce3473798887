"""Doubt: how far what the filter does not know could move its log-odds towards ham; towards spam half as far.

It is large where two things come together, as in mail of another kind: fewer words are known than in the mail that was
learnt (`Calibration.usual`), and the known words contradict each other. Per cent of ham lost and of spam caught by
filters trained on all of SpamAssassin and judging TREC 2007, and the other way round (benchmarks/cold.py): without
doubt 11.4 and 81, .9 and 68; with it .4 and 60, .4 and 49.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods.likelihood import exact_sum
from spamfilter.bayes.voices import TEXT, VoiceScore, believed_of, everybodys, heard_of, together

UNKNOWN = 2.0
"""The log-odds in doubt of a message without a known word, if usually all words are known."""
DIVIDED, AGREED = 300.0, 0.45
"""DIVIDED is added to UNKNOWN for each unit of agreement below AGREED. In streams with feedback one mail in twenty has
less agreement, and .6 % less of their spam is tagged at most (benchmarks/cold.py, benchmarks/accuracy.py)."""
TOWARDS_SPAM = 0.5
"""How much of the doubt counts against ham: spam that passes costs less than ham that is lost."""
AMPLE_HAM, ENOUGH_HAM, LEAST_COMPARED = 0.9, 520, 0.15
"""Hams for each spam, and hams in all, with which all evidence for spam counts; and the least share of it that counts.
Per cent of ham lost and of spam caught by filters that have learnt 50 ham and 500 spam of SpamAssassin's mail and of
TREC 2007 (benchmarks/cold.py): if all counts, 98 and 97, 8 and 99; so 0 and 25, 0 and 32. With 500 hams instead of 520,
one that has learnt 100 ham and 1,000 spam loses .4 % of SpamAssassin's ham instead of .3."""
LITTLE_COMPARED = 0.5
"""The share below which people are told to teach the filter more ham."""
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


def compared(ham: int, spam: int) -> float:
    """The share of the evidence for spam that counts, by how many messages of each class it rests on.

    A word is evidence for spam because ham has it less often. Of a few hams that says little, and the more spam is
    learnt, the more words of all mail are known from spam alone.
    """
    return min(1.0, max(ham / (AMPLE_HAM * max(spam, 1)), ham / ENOUGH_HAM, LEAST_COMPARED))


def uncompared(scores: Sequence[VoiceScore], counts: Mapping[str, Counts], learnt: Mapping[Label, int]) -> float:
    """The log-odds for spam that do not count, because the filter has learnt too little ham to compare with.

    learnt: messages, without those of other filters. There is ham enough, too, if as much ham as spam has taught a
    voice anything. What imported voices say is not among these log-odds: the other filter has had its ham.
    """
    taught = [counts[voice.name].messages for voice in everybodys([score.voice for score in scores])]
    ham, spam = (max((of[label] for of in taught), default=0) for label in LABELS)
    share = max(compared(learnt["ham"], learnt["spam"]), compared(ham, spam))
    if share == 1:
        return 0.0
    own = heard_of([score for score in scores if not score.voice.imported])
    return (1 - share) * max(0.0, together(own, believed_of(learnt)))
