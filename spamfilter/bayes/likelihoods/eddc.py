"""Exponential differential document count: words weigh by how often and how purely they occurred.

The confidence factor of OSBF (F. Assis, TREC 2006), trained on or near error with reinforcement of the header.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods.likelihood import (
    FEW,
    Above,
    Floats,
    Likelihood,
    LogOdds,
    MessageCounts,
    TokenShares,
    exact_sum,
    log,
)
from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.tokens import HEADER_PHRASE, Token, Tokens

SCALE = 0.59 / math.log(10)
"""OSBF's scale of scores, which its thresholds refer to; the voice's weight adapts it to the other voices."""
EQUAL = 1e-6
"""A word whose document frequencies differ by less has no share."""
REPEATS = 4
"""How often the header may be learnt again, at most."""
LEAP = 8.4
"""A repeat that raises S by this much is the last one."""


@dataclass(frozen=True)
class Eddc(Likelihood):
    """S = .59 / ln 10 * (sum over tokens of v + ln(L_s / L_h)); L: messages that this voice has learnt, at least 1.

    v = ln((.5 + c (s / L_s - .5)) / (.5 + c (h / L_h - .5))), with the confidence
    c = min(1, .8 + (L_s + L_h) / 20) x^2 / (1 + 8 / (n W)), n = s + h, W = e^e, e = min(5, (3 (L_s + L_h))^.2), of
    x = ((s' - h')^2 - 1 / (4 n)) / (s' + h')^2, s' and h' being s and h as if both classes had learnt as many.

    Learns a message whose S towards its label is below `thick`: 1 to each token. If S then is still below, and has
    risen by less than `step`, the words of the header get 1 again and again, until S is above `goal` or a repeat
    gained much: at most 4 times, and at most half the square root of the messages learnt of the rarer class; never if
    S contradicted the label by `doubt` or more, since such a label is either new or wrong. The amount is 1 plus the
    number of repeats.

    The filter hears at most `limit` from the header and `text_limit` from the text, on either side: since learning
    stops at `thick`, higher values were never tested. On trec07p with 5 % of wrong labels the rule of repeats halves
    1-ROCA%, and the limit of the text lowers it by a tenth; trained on a third of SpamAssassin and judging the next,
    that of the header lowers it by a third. What else was tried: docs/likelihoods.md.

    >>> counts, eddc = Counts(), Eddc()
    >>> _ = counts.add("ham", {b"lunch": 1}, messages=16), counts.add("spam", {b"pills": 1}, messages=16)
    >>> eddc.amount({b"^cheap": 1}, "spam", counts)  # 16 of the rarer class: two repeats
    3
    >>> _ = counts.add("spam", eddc.deltas({b"^cheap": 1, b"now": 1}, 3))
    >>> counts.get(b"^cheap", "spam"), counts.get(b"now", "spam")
    (3, 1)
    """

    thick: Above = 20.0
    step: Above = 14.0
    goal: Above = 30.0
    doubt: Above = 3.0
    limit: Above = 20.0
    text_limit: Above = 15.0
    name: ClassVar[str] = "eddc"

    def shares(self, message: MessageCounts, counts: Counts) -> Floats:
        return self._shares(message.counts, *_learnt(counts))

    def heard(self, message: MessageCounts, shares: Floats) -> Floats:
        if np.abs(shares).sum() <= min(self.limit, self.text_limit):
            return shares
        header = _of_header(message.tokens)
        for part, most in ((header, self.limit), (~header, self.text_limit)):
            said = abs(exact_sum(shares[part]))
            if said > most:
                shares = np.where(part, shares * (most / said), shares)
        return shares

    def judge(self, tokens: Tokens, counts: Counts) -> tuple[LogOdds, TokenShares]:
        if score_helper is None or not isinstance(tokens, TokenArrays):
            return super().judge(tokens, counts)
        words, numbers, learnt = tokens.spellings, counts.numbers(tokens.spellings), _learnt(counts)
        logarithms, constant = np.log(_chances(numbers, *learnt)), self._constant(*learnt)
        limits = HEADER_PHRASE[0], self.limit, self.text_limit
        own, heard, shares = score_helper.heard(logarithms, SCALE, constant, words.text, words.ends, *limits)
        return LogOdds(own, heard), TokenShares(words, numbers, np.frombuffer(shares))

    def scale_of_part(self, tokens: int, of: int) -> float:
        return 1.0

    def constants(self, message: MessageCounts, counts: Counts) -> float:
        return self._constant(*_learnt(counts))

    def _constant(self, ham_learnt: int, spam_learnt: int) -> float:
        return SCALE * math.log(max(spam_learnt, 1) / max(ham_learnt, 1))

    def _shares(self, counts: Floats, ham_learnt: int, spam_learnt: int) -> Floats:
        if score_helper is not None:
            logarithms = np.log(_chances(counts, ham_learnt, spam_learnt)).reshape(counts.shape)
            return np.asarray(SCALE * (logarithms[1] - logarithms[0]))
        sure, weight = _confidence(ham_learnt + spam_learnt)
        ham_learnt, spam_learnt = max(ham_learnt, 1), max(spam_learnt, 1)
        in_ham, in_spam = counts[0] / ham_learnt, counts[1] / spam_learnt
        shares = np.zeros(len(in_ham))
        telling = np.flatnonzero(np.abs(in_spam - in_ham) >= EQUAL)
        if not telling.size:
            return shares
        (ham, spam), in_ham, in_spam = counts[:, telling], in_ham[telling], in_spam[telling]
        most = max(ham_learnt, spam_learnt)
        s, h, n = np.floor(spam * most / spam_learnt), np.floor(ham * most / ham_learnt), spam + ham
        x = ((s - h) ** 2 - 0.25 / n) / (s + h) ** 2
        c = sure * x * x / (1 + 8 / (n * weight))
        shares[telling] = SCALE * (log(0.5 + c * (in_spam - 0.5)) - log(0.5 + c * (in_ham - 0.5)))
        return shares

    def amount(self, tokens: Tokens, label: Label, counts: Counts, log_odds: float | None = None) -> int:
        if log_odds is None:
            log_odds = self.log_odds(tokens, counts)
        before = log_odds if label == "spam" else -log_odds
        if before >= self.thick:
            return 0
        message = MessageCounts.of(tokens, counts)
        learnt = {**counts.messages, label: counts.messages[label] + 1}
        header = _of_header(message.tokens)

        def towards(repeats: int) -> float:
            raised = message.counts.copy()
            raised[LABELS.index(label)] += 1 + repeats * header
            shares = self._shares(raised, learnt["ham"], learnt["spam"])
            found = exact_sum(shares) + self._constant(learnt["ham"], learnt["spam"])
            return found if label == "spam" else -found

        most = 0 if before <= -self.doubt else min(REPEATS, math.isqrt(min(learnt.values())) // 2)
        after = towards(0) if most else 0.0
        if after >= self.thick or after - before >= self.step:
            return 1
        for repeats in range(1, most + 1):
            before, after = after, towards(repeats)
            if after > self.goal or after - before >= LEAP:
                return 1 + repeats
        return 1 + most

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        if amount <= 1:
            return super().deltas(tokens, amount)
        if isinstance(tokens, TokenArrays) and amount <= FEW:
            return TokenArrays(tokens.spellings, np.where(_of_header(tokens.spellings), amount, 1))
        return {token: amount if token[:1] == HEADER_PHRASE else 1 for token in tokens}


def _learnt(counts: Counts) -> tuple[int, int]:
    """The messages of ham and of spam."""
    return counts.messages["ham"], counts.messages["spam"]


def _confidence(learnt: int) -> tuple[float, float]:
    """The factor of c before x^2, and W."""
    e = min(5.0, (3 * learnt) ** 0.2)
    return min(1.0, 0.8 + learnt / 20), e**e


def _chances(counts: Floats, ham_learnt: int, spam_learnt: int) -> Floats:
    """The chances whose logarithms give the shares: those of all words in ham, then in spam."""
    sure, weight = _confidence(ham_learnt + spam_learnt)
    return np.frombuffer(score_helper.eddc(counts, max(ham_learnt, 1), max(spam_learnt, 1), EQUAL, sure, weight))


def _of_header(tokens: Sequence[Token]) -> NDArray[np.bool_]:
    if isinstance(tokens, Spellings):
        return tokens.beginning_with(HEADER_PHRASE)
    return np.fromiter((token[:1] == HEADER_PHRASE for token in tokens), np.bool_, len(tokens))
