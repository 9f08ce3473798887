"""The binomial model: each word of the text is a Bernoulli trial for each known word."""

from dataclasses import dataclass
from typing import ClassVar

from spamfilter.bayes.counts import Counts, Label
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.likelihood import Floats, MessageCounts, OfOccurrences


@dataclass(frozen=True)
class Binomial(OfOccurrences, Bernoulli):
    """prior + sum over known words of (x_w ln p + (L - x_w) ln(1 - p)), with p = (f_wc + m) / (F_c + 2 m).

    x_w: occurrences in the message, L: all its words; f_wc: in the class, F_c: all its words; m: smoothing. Absent
    words are L ln(1 - p) each, summed by how many words have each count. Unknown words are skipped, but count in L.

    >>> import math
    >>> counts, model = Counts(), Binomial()
    >>> counts.tally()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1}, counts)), 6)  # (2/3 * 2/3) / (1/3 * 1/3)
    4.0
    """

    name: ClassVar[str] = "binomial"

    def trials(self, label: Label, counts: Counts) -> int:
        """F_c."""
        return counts.occurrences[label]

    def given(self, label: Label, message: MessageCounts, counts: Counts) -> Floats:
        return message.times * super().given(label, message, counts)

    def rest(self, label: Label, message: MessageCounts, counts: Counts) -> float:
        return message.length * super().rest(label, message, counts)
