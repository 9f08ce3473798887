"""The Poisson model: each word occurs at its own rate, in each word of text or in each message."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Floats, MessageCounts, NotBelow, OfOccurrences, Prior, log, ratio


@dataclass(frozen=True)
class Poisson(OfOccurrences):
    """prior + sum over known words of (x_w ln(r_w L) - r_w L), absent words in closed form.

    x_w: occurrences in the message. per "word": r_w = (f_wc + m) / (F_c + m V) occurrences in a word of text, L: the
    words of the message. per "message": r_w = (f_wc + m) / (N_c + 2 m) in a message, as long as it may be, and L = 1.
    f_wc: in the class, F_c: all its words, N_c: its messages, V: words known, m: smoothing. Unknown words are skipped.
    By the word, the rates of a class sum to 1, and the odds are those of the multinomial model.
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
    per: Literal["word", "message"] = "word"
    name: ClassVar[str] = "poisson"
    revision: ClassVar[int] = 2

    def _rate(self, number: Floats | float, label: str, counts: Counts) -> Floats | float:
        m = self.smoothing
        of_all = counts.occurrences[label] + m * counts.vocabulary
        return ratio(number, of_all if self.per == "word" else counts.messages[label] + 2 * m)

    def _length(self, message: MessageCounts) -> float:
        return float(message.times.sum()) if self.per == "word" else 1.0

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        rate = self._rate(message.of_class(label) + self.smoothing, label, counts)
        return message.times * log(rate * self._length(message))

    def rest(self, label: str, message: MessageCounts, counts: Counts) -> float:
        of_all = counts.occurrences[label] + self.smoothing * counts.vocabulary
        return -self._length(message) * float(self._rate(float(of_all), label, counts))
