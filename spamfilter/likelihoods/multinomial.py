"""The multinomial model: a message is a bag of words drawn from its class ("type 1")."""

import math
from collections.abc import Mapping

from spamfilter.counts import Counts, Label
from spamfilter.features import Token, Tokens
from spamfilter.likelihoods.likelihood import Likelihood


class Multinomial(Likelihood):
    """prior + sum of x_w ln P(w|spam) / P(w|ham), with P(w|c) = (f_wc + m) / (F_c + m V).

    x_w: occurrences in the message; f_wc: in the class; F_c their sum; V words known; m: smoothing.
    Unknown words are skipped. The prior is MAP: (N_c + 1) / (N + 2). Every message counts whole.

    >>> counts, model = Counts(), Multinomial()
    >>> counts.add("spam", {b"money": 2, b"now": 1})
    >>> counts.add("ham", {b"water": 1})
    >>> round(math.exp(model.log_odds({b"money": 1, b"new": 1}, counts)), 6)  # (3/6) / (1/4)
    2.0
    """

    def __init__(self, smoothing: float = 1.0) -> None:
        self.smoothing = smoothing

    def constant(self, counts: Counts) -> float:
        return math.log((counts.messages["spam"] + 1) / (counts.messages["ham"] + 1))

    def weights(self, tokens: Tokens, counts: Counts) -> dict[Token, float]:
        m = self.smoothing
        ham, spam = counts.words["ham"], counts.words["spam"]
        room = m * counts.vocabulary
        base = math.log((counts.occurrences["ham"] + room) / (counts.occurrences["spam"] + room)) if room else 0.0
        return {
            token: times * (base + math.log((spam.get(token, 0) + m) / (ham.get(token, 0) + m)))
            for token, times in tokens.items()
            if token in ham or token in spam
        }

    def amount(self, tokens: Tokens, label: Label, counts: Counts) -> int:
        return 1

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        return tokens
