"""The complement model: a message is of the class whose complement makes its words least likely."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Floats, MessageCounts, NotBelow, OfOccurrences, Prior, log, ratio


@dataclass(frozen=True)
class Complement(OfOccurrences):
    """Sum of x_w (ln q_w(spam) - ln q_w(ham)), where -ln q_w(c) is ln((f + m) / (F + m V)) of the other classes.

    x_w: occurrences in the message; f: in the other classes; F their sum; V words known; m: smoothing. With
    `normalise`, for two classes only, the logarithms of a class are divided by their sum over the vocabulary, so that a
    class whose words depend on each other more does not get too much weight. Unknown words are skipped. Of two classes,
    and without `normalise`, it is the multinomial model with equal priors.
    Source: Rennie, Shih, Teevan, Karger, ICML 2003.

    >>> import math
    >>> counts, model = Counts(), Complement()
    >>> counts.tally()
    >>> _ = counts.add("spam", {b"money": 2, b"now": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1, b"new": 1}, counts)), 6)  # (3/6) / (1/4)
    2.0
    """

    smoothing: NotBelow = 1.0
    normalise: bool = False
    prior: Prior = "equal"
    name: ClassVar[str] = "complement"
    needs_tallies: ClassVar[bool] = True

    def chance(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        """P(word | the other classes) of each word of a message, by which it is judged."""
        return np.exp(-replace(self, normalise=False).given(label, message.each_once(), counts))

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        m, elsewhere = self.smoothing, sum(counts.occurrences.values()) - counts.occurrences[label]
        sum_of_all = elsewhere + m * counts.vocabulary

        def logarithms(number: Floats) -> Floats:
            return log(ratio(number + m, sum_of_all))

        each = message.times * logarithms(message.counts.sum(axis=0) - message.of_class(label))
        if not self.normalise:
            return -each
        (other,) = (one for one in counts.messages if one != label)  # tallies of several classes together are not kept
        whole = counts.over_vocabulary((self, label), other, logarithms)
        return each / whole if whole else each
