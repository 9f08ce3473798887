"""The weighted model: the counted probability of a word, averaged with an assumed one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, cast

import numpy as np
from annotated_types import Gt, Lt

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.likelihood import Above, Floats, Generative, MessageCounts, Prior, log, ratio

Chance = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class Weighted(Generative):
    """prior + sum over present words of ln P(w|c), with P(w|c) = (w a + n_w P) / (w + n_w), P = n_wc / N_c.

    n_wc: messages of the class with the word, n_w: of both; N_c: messages of the class; a: the assumed probability,
    w: how many messages the assumption is worth. assumptions: word -> class -> its own a, for words that an
    administrator knows about; they count before they are learnt.
    Source: Toby Segaran, Programming Collective Intelligence, 2007.

    >>> import math
    >>> counts, model = Counts(), Weighted()
    >>> _ = counts.add("spam", {b"money": 1})
    >>> _ = counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1, b"new": 1}, counts)), 6)  # ((.5 + 1) / 2) / ((.5 + 0) / 2)
    3.0
    """

    weight: Above = 1.0
    assumed: Chance = 0.5
    assumptions: Mapping[str, Mapping[Label, Chance]] = field(default_factory=dict)
    prior: Prior = "map"
    name: ClassVar[str] = "weighted"
    skips_unknown: ClassVar[bool] = False

    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        number = message.counts.sum(axis=0)
        counted = ratio(message.of_class(label), counts.messages[label])
        return log((self.weight * self._assumption(label, message) + number * counted) / (self.weight + number))

    def _assumption(self, label: str, message: MessageCounts) -> Floats | float:
        if not self.assumptions:
            return self.assumed
        own = (
            self.assumptions.get(token.decode(), {}).get(cast(Label, label), self.assumed) for token in message.tokens
        )
        return np.fromiter(own, np.float64, len(message.tokens))
