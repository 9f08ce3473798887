"""The Poisson model: each word occurs at its own rate per word of text."""

from dataclasses import dataclass
from typing import ClassVar

from spamfilter.bayes.counts import LABELS, Counts, Label
from spamfilter.bayes.likelihoods.likelihood import Floats, MessageCounts, NotBelow, OfOccurrences, Prior, log, ratio


@dataclass(frozen=True)
class Poisson(OfOccurrences):
    """prior + sum over known words of (x_w ln(r_w L) - r_w L), with the rate r_w = (f_wc + m) / (F_c + m K).

    x_w: occurrences in the message, L: all its words; f_wc: in the class, F_c: all its words; K = 2 classes. The
    second term is summed in closed form, absent words included. Unknown words are skipped, but count in L.
    Source: Mosteller and Wallace, Inference and Disputed Authorship, 1964.

    >>> import math
    >>> counts, model = Counts(), Poisson()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1}, counts)), 6)  # rates 2/3 and 1/3, and as many words in all
    2.0
    """

    smoothing: NotBelow = 1.0
    prior: Prior = "map"
    name: ClassVar[str] = "poisson"

    def _rate(self, number: Floats | float, label: Label, counts: Counts) -> Floats | float:
        return ratio(number, counts.occurrences[label] + len(LABELS) * self.smoothing)

    def given(self, label: Label, message: MessageCounts, counts: Counts) -> Floats:
        rate = self._rate(message.of_class(label) + self.smoothing, label, counts)
        return message.times * log(rate * message.length)

    def rest(self, label: Label, message: MessageCounts, counts: Counts) -> float:
        of_all = counts.occurrences[label] + self.smoothing * counts.vocabulary
        return -message.length * float(self._rate(float(of_all), label, counts))
