"""The Bernoulli model: each known word is in a message or is not ("type 2")."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import Floats, Generative, MessageCounts, NotBelow, Prior, log, ratio


@dataclass(frozen=True)
class Bernoulli(Generative):
    """prior + sum over present words of ln p + sum over absent words of ln(1 - p), p = (n_wc + m) / (N_c + 2 m).

    n_wc: messages of the class with the word; N_c: messages of the class; m: smoothing. The absent part is the sum
    over the whole vocabulary less that of the present words. Unknown words are skipped.

    >>> import math
    >>> counts, model = Counts(), Bernoulli()
    >>> counts.tally()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1}, counts)), 6)  # (2/3 * 2/3) / (1/3 * 1/3)
    4.0
    """

    smoothing: NotBelow = 1.0
    prior: Prior = "map"
    name: ClassVar[str] = "bernoulli"
    needs_tallies: ClassVar[bool] = True

    def trials(self, label: str, counts: Counts) -> float:
        """The trials that a word of this class has had, with those of the smoothing: N_c + 2 m."""
        return counts.messages[label] + 2 * self.smoothing

    def _chance(self, number: Floats, label: str, counts: Counts) -> Floats | float:
        return ratio(number + self.smoothing, self.trials(label, counts))

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        chance = self._chance(message.of_class(label), label, counts)
        return log(chance) - log(1 - chance)

    def chance(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        return np.asarray(self._chance(message.of_class(label), label, counts), np.float64)

    def impossible(self, label: str, message: MessageCounts, counts: Counts) -> bool:
        """Also where a word is absent that every message of the class has."""

        def certain(number: Floats) -> Floats:
            return np.asarray(self._chance(number, label, counts) >= 1, np.float64)

        present = float(certain(message.of_class(label)).sum())
        return super().impossible(label, message, counts) or (
            counts.over_vocabulary((self, label, "certain"), label, certain) > present
        )

    def rest(self, label: str, message: MessageCounts, counts: Counts) -> float:
        def absent(number: Floats) -> Floats:
            return log(1 - self._chance(number, label, counts))

        return counts.over_vocabulary((self, label), label, absent)
