"""The binomial model: each word of the text is this word, or is not."""

from dataclasses import dataclass
from typing import ClassVar

from spamfilter.bayes.counts import LABELS, Counts, Label
from spamfilter.bayes.likelihoods.likelihood import (
    Floats,
    MessageCounts,
    NotBelow,
    OfOccurrences,
    Prior,
    log,
    over_vocabulary,
    ratio,
)


@dataclass(frozen=True)
class Binomial(OfOccurrences):
    """prior + sum over known words of (x_w ln p + (L - x_w) ln(1 - p)), with p = (f_wc + m) / (F_c + m K).

    x_w: occurrences in the message, L: all its words; f_wc: in the class, F_c: all its words; K = 2 classes. Absent
    words are L ln(1 - p) each, summed by how many words have each count. Unknown words are skipped, but count in L.

    >>> import math
    >>> counts, model = Counts(), Binomial()
    >>> counts.tally()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1}, counts)), 6)  # (2/3 * 2/3) / (1/3 * 1/3)
    4.0
    """

    smoothing: NotBelow = 1.0
    prior: Prior = "map"
    name: ClassVar[str] = "binomial"
    needs_tallies: ClassVar[bool] = True

    def _chance(self, number: Floats, label: Label, counts: Counts) -> Floats | float:
        return ratio(number + self.smoothing, counts.occurrences[label] + len(LABELS) * self.smoothing)

    def given(self, label: Label, message: MessageCounts, counts: Counts) -> Floats:
        chance = self._chance(message.of_class(label), label, counts)
        return message.times * (log(chance) - log(1 - chance))

    def rest(self, label: Label, message: MessageCounts, counts: Counts) -> float:
        def absent() -> float:
            return over_vocabulary(label, counts, lambda number: log(1 - self._chance(number, label, counts)))

        return message.length * counts.derived((self, label), absent)
