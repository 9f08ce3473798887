"""The binomial model: each word of the text is a Bernoulli trial for each known word."""

from dataclasses import dataclass
from typing import ClassVar

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.likelihood import Floats, Generative, MessageCounts, OfOccurrences


@dataclass(frozen=True)
class Binomial(OfOccurrences, Bernoulli):
    """prior + sum over known words of (x_w ln p + (L - x_w) ln(1 - p)), with p = (f_wc + m) / (F_c + m V).

    x_w: occurrences in the message, L: of all its known words; f_wc: in the class, F_c: of all words there, V: words
    known; m: smoothing. Absent words are L ln(1 - p) each, summed by how many words have each count. Unknown words are
    skipped, so that a message of nothing else has the odds of the prior.

    >>> import math
    >>> counts, model = Counts(), Binomial()
    >>> counts.tally()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1}, counts)), 6)  # (2/3 * 2/3) / (1/3 * 1/3)
    4.0
    """

    name: ClassVar[str] = "binomial"
    revision: ClassVar[int] = 2

    def trials(self, label: str, counts: Counts) -> float:
        """F_c + m V."""
        return counts.occurrences[label] + self.smoothing * counts.vocabulary

    def impossible(self, label: str, message: MessageCounts, counts: Counts) -> bool:
        """A word that is certain leaves no room for another, which is impossible then."""
        return Generative.impossible(self, label, message, counts)

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        return message.times * super().given(label, message, counts)

    def rest(self, label: str, message: MessageCounts, counts: Counts) -> float:
        return float(message.times[message.known].sum()) * super().rest(label, message, counts)
