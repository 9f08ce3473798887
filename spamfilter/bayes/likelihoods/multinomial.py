"""The multinomial model: a message is a bag of words drawn from its class ("type 1")."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Floats, MessageCounts, NotBelow, OfOccurrences, Prior, log, ratio


@dataclass(frozen=True)
class Multinomial(OfOccurrences):
    """prior + sum of x_w ln P(w|c), with P(w|c) = (f_wc + m) / (F_c + m V).

    x_w: occurrences in the message; f_wc: in the class; F_c their sum; V words known; m: smoothing.
    Unknown words are skipped.

    >>> import math
    >>> counts, model = Counts(), Multinomial()
    >>> _ = counts.add("spam", {b"money": 2, b"now": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1, b"new": 1}, counts)), 6)  # (3/6) / (1/4)
    2.0
    """

    smoothing: NotBelow = 1.0
    prior: Prior = "map"
    name: ClassVar[str] = "multinomial"

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        m = self.smoothing
        known = message.of_class(label) + m
        return np.asarray(message.times * log(ratio(known, counts.occurrences[label] + m * counts.vocabulary)))
