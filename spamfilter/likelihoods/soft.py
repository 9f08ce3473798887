"""The soft rule: a message adds as much as the filter was wrong about it.

Discriminative frequency estimate (Su, Zhang, Ling, Matwin, ICML 2008) with a cap, which keeps it
sane under wrong labels. No priors, no class totals, no top-k, no clipping: each was tried and lost.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

from spamfilter.counts import Counts, Label
from spamfilter.features import Token, Tokens
from spamfilter.likelihoods.likelihood import Likelihood


class Soft(Likelihood):
    """S = scale / sqrt(n) * sum over tokens of ln((spam + prior) / (ham + prior)).

    n: distinct tokens of the message, unknown ones too. Counts are in messages, kept in eighths.
    A learnt message adds floor(8 * min(1, rate * (1 - p)) + 1/2) eighths to each of its tokens,
    where p is the probability that 1 / (1 + exp(-S)) gave to its true label.

    >>> counts, soft = Counts(), Soft()
    >>> soft.log_odds({b"cheap": 1}, counts)
    0.0
    >>> soft.amount({b"cheap": 1}, "spam", counts)  # p = 1/2: min(1, 3/2) of a message
    8
    >>> counts.add("spam", soft.deltas({b"cheap": 1}, 8))
    >>> round(soft.log_odds({b"cheap": 2, b"new": 1}, counts), 4)  # 1.4 / sqrt(2) * ln(4/3)
    0.2848
    """

    unit: ClassVar[int] = 8
    most: ClassVar[int] = 16
    """Eighths that one message may add in all rounds of bulk training: two messages. Without the bound
    wrong labels are hammered in (trec07p with 5 % of them, 1-ROCA%: .053 without, .010 with)."""

    def __init__(self, scale: float = 1.4, prior: float = 3.0, rate: float = 3.0) -> None:
        self.scale = scale
        self.prior = prior * self.unit
        self.rate = rate

    def _sides(self, tokens: Tokens, counts: Counts) -> dict[Label, dict[Token, int]]:
        return {
            label: {token: count for token in tokens if (count := known.get(token))}
            for label, known in counts.words.items()
        }

    def weights(self, tokens: Tokens, counts: Counts) -> dict[Token, float]:
        sides = self._sides(tokens, counts)
        scale = self.scale / math.sqrt(len(tokens) or 1)
        return {
            token: scale
            * math.log((sides["spam"].get(token, 0) + self.prior) / (sides["ham"].get(token, 0) + self.prior))
            for token in {**sides["ham"], **sides["spam"]}
        }

    def log_odds(self, tokens: Tokens, counts: Counts) -> float:
        """The sum of `weights`, without naming them: half the time, equal to rounding."""
        prior, log = self.prior, math.log
        ham, spam = counts.words["ham"], counts.words["spam"]
        spammy = [log(count + prior) for token in tokens if (count := spam.get(token))]
        hammy = [-log(count + prior) for token in tokens if (count := ham.get(token))]
        total = math.fsum(spammy + hammy) + (len(hammy) - len(spammy)) * log(prior)
        return self.scale / math.sqrt(len(tokens) or 1) * total

    def amount(self, tokens: Tokens, label: Label, counts: Counts) -> int:
        log_odds = self.log_odds(tokens, counts)
        towards = log_odds if label == "spam" else -log_odds
        # exp overflows beyond 709; long before that there is nothing left to learn, or everything.
        wrong = 1 / (1 + math.exp(min(towards, 700.0)))
        return math.floor(self.unit * min(1.0, self.rate * wrong) + 0.5)

    def more(self, tokens: Tokens, label: Label, counts: Counts, amount: int) -> int:
        return min(self.amount(tokens, label, counts), max(0, self.most - amount))

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        return dict.fromkeys(tokens, amount) if amount else {}
