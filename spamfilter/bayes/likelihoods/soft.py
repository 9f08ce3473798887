"""The soft rule: a message adds the more to the counts, the more wrong the filter was about it.

Discriminative frequency estimate (Su, Zhang, Ling, Matwin, ICML 2008) with a cap, which limits the harm of wrong
labels. Priors, class totals, top-k and clipping were tried: each was less accurate.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.likelihood import Above, Floats, Likelihood, LogOdds, MessageCounts, TokenShares
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.bayes.tokens import Tokens


@dataclass(frozen=True)
class Soft(Likelihood):
    """S = scale / sqrt(n) * sum over tokens of ln((spam + prior) / (ham + prior)) * P.

    n: distinct tokens of the message, unknown ones too. Counts are in messages, kept in eighths.
    P = sqrt(|spam - ham| / (spam + ham + purity)): a word of both classes weighs less than its odds, and so does a
    rare one: with .75, half of them after a quarter of a message. Short texts gain (PC or Mac: errors 10.6 -> 9.7 %);
    with purity 0, 1-ROCA% with 5 % of wrong labels is .0235 instead of .0210. What else was tried: docs/likelihoods.md.

    A learnt message adds floor(8 * min(1, rate * (1 - p)) + 1/2) eighths to each of its tokens,
    where p is the probability that 1 / (1 + exp(-S)) gave to its true label.

    >>> counts, soft = Counts(), Soft()
    >>> soft.log_odds({b"cheap": 1}, counts)
    0.0
    >>> soft.amount({b"cheap": 1}, "spam", counts)  # p = 1/2: min(1, 2/2) of a message
    8
    >>> _ = counts.add("spam", soft.deltas({b"cheap": 1}, 8))
    >>> round(soft.log_odds({b"cheap": 2, b"new": 1}, counts), 4)  # 1.9 / sqrt(2) * ln(4/3) * sqrt(1/1.75)
    0.2922
    """

    scale: Above = 1.9
    prior: Above = 3.0
    purity: Above = 0.75
    rate: Above = 2.0
    name: ClassVar[str] = "soft"
    unit: ClassVar[int] = 8
    most: ClassVar[int] = 16
    """Eighths that one message may add in all rounds of bulk training: two messages. Without the bound each round
    learns wrong labels again (trec07p with 5 % of them, 1-ROCA%: .244 without, .018 with)."""

    def shares(self, message: MessageCounts, counts: Counts) -> Floats:
        logarithms = np.log(message.counts + self.prior * self.unit)
        ham, spam = message.counts
        purity = np.sqrt(np.abs(spam - ham) / (spam + ham + self.purity * self.unit))
        shares = (logarithms[1] - logarithms[0]) * self.scale * purity
        return np.asarray(shares / math.sqrt(len(shares)) if len(shares) else shares)

    def judge(self, tokens: Tokens, counts: Counts) -> tuple[LogOdds, TokenShares]:
        table, least = counts.kept.table, self.purity * self.unit
        if score_helper is not None and table is not None and isinstance(tokens, TokenArrays):
            words = tokens.spellings
            found = score_helper.soft(table, words.hashes, _logarithms(self.prior * self.unit), self.scale, least)
            if found is not None:
                own, shares, numbers = found
                return LogOdds(own, own), TokenShares(
                    words, np.frombuffer(numbers).reshape(2, -1), np.frombuffer(shares)
                )
        return super().judge(tokens, counts)

    def scale_of_part(self, tokens: int, of: int) -> float:
        return math.sqrt(of / tokens)

    def amount(self, tokens: Tokens, label: Label, counts: Counts, log_odds: float | None = None) -> int:
        if log_odds is None:
            log_odds = self.log_odds(tokens, counts)
        towards = log_odds if label == "spam" else -log_odds
        # exp overflows beyond 709, where `wrong` has long been 0.
        wrong = 1 / (1 + math.exp(min(towards, 700.0)))
        return math.floor(self.unit * min(1.0, self.rate * wrong) + 0.5)

    def more(self, tokens: Tokens, label: Label, counts: Counts, amount: int) -> int:
        return min(self.amount(tokens, label, counts), max(0, self.most - amount))


COMMON = 2**16
"""Counts below this have their logarithms in a table: those of eight thousand messages that were learnt fully."""


@cache
def _logarithms(prior: float) -> Floats:
    """The logarithms of count + prior for counts below COMMON."""
    return np.asarray(np.log(np.arange(COMMON) + prior))
