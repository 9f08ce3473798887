"""Imported voices: what another filter has learnt, heard as that filter would say it, until our own counts know enough.

IMPORTED is the table of filters whose counts can be imported. Each row is a voice: it sees the words that the other
filter would find (the other modules here), has the counts of an import, and combines them by that filter's own formula
with its parameters, so that judging right after an import is as accurate as the filter that it came from
(benchmarks/imported.py). It learns nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods.likelihood import LogOdds, TokenShares
from spamfilter.bayes.likelihoods.robinson_fisher import RobinsonFisher
from spamfilter.bayes.tokens import Tokens
from spamfilter.bayes.voices import Voice, Voices, everybodys

SPAM_AT = math.log(0.9 / 0.1)
"""The log-odds that mean spam with the thresholds as shipped: what the other filter calls spam is spam."""
MOST = 10.0
"""The log-odds that an imported voice stays below. The other filters are as good as certain of most mail, with log-odds
of hundreds, against which what is marked later could say nothing."""


@dataclass(frozen=True)
class Imported(RobinsonFisher):
    """Robinson's formula with another filter's parameters; what is heard of it is bounded.

    ham, spam: the cut-offs of the other filter. From `spam` on our posterior reaches .9, and up to `ham` it is below
    .5, where our thresholds are.

    >>> round(Imported(ham=0.45, spam=0.99).bounded(math.log(0.99 / 0.01)), 6) == round(SPAM_AT, 6)
    True
    """

    ham: float = 0.5
    spam: float = 0.99
    name: ClassVar[str] = "imported"

    def bounded(self, log_odds: float) -> float:
        """What the filter hears of the other filter's log-odds: it grows with them, and stays within MOST."""
        ham, spam = (math.log(cutoff / (1 - cutoff)) for cutoff in (self.ham, self.spam))
        stretched = SPAM_AT / (1 - SPAM_AT / MOST)  # of which the bound below leaves SPAM_AT
        x = stretched * (log_odds - ham) / (spam - ham)
        return x / (1 + abs(x) / MOST)

    def judge(self, tokens: Tokens, counts: Counts) -> tuple[LogOdds, TokenShares]:
        log_odds, heard = super().judge(tokens, counts)
        said = self.bounded(log_odds.own)
        loud = float(np.abs(heard.shares).sum())
        shares = heard.shares * (abs(said) / loud) if loud else heard.shares
        return LogOdds(said, said), heard._replace(shares=np.ascontiguousarray(shares))


_FORMULAS = {
    # Each filter's parameters and cut-offs are those that it comes with; but of SpamAssassin and SpamBayes, of whose
    # words three in four and six in seven are found, .95 here is .99 there, and .85 is .9 (benchmarks/imported.py).
    "bogofilter": Imported(strength=0.0178, assumed=0.52, deviation=0.375, ham=0.45, spam=0.99),
    "spamassassin": Imported(strength=0.03, assumed=0.538, deviation=0.346, ham=0.5, spam=0.95),
    "spambayes": Imported(strength=0.45, assumed=0.5, deviation=0.1, ham=0.2, spam=0.85),
}
IMPORTED: dict[str, Voice] = {name: Voice(name, likelihood, imported=True) for name, likelihood in _FORMULAS.items()}
"""Filter, which is also the name of its voice and of its family of tokens -> the voice."""

FADES = 300
"""Messages that our own counts have learnt when they know enough, half of them of each class: an imported voice gets
weaker with each of them, and is silent then. A compromise of two corpora, where users mark what was judged wrongly: on
SpamAssassin's 1-ROCA% is .018 with 100, .045 with 300 and .093 with 1,000; on TREC 2007 they mark 129, 63 and 59 of
3,000 mails. These figures are of an import that fades by the sum of both classes, and so never later."""


def with_imported(voices: Voices, names: object) -> Voices:
    """These voices and those of imports. names: of filters; as the database keeps them, so None if there are none."""
    known = [IMPORTED[name] for name in names if name in IMPORTED] if isinstance(names, list) else []
    return (*(voice for voice in voices if not voice.imported), *known)


def without_imported(tokens: Mapping[str, Tokens]) -> Mapping[str, Tokens]:
    """Tokens of a message without those of imported voices, which learn nothing of them."""
    if not any(name in IMPORTED for name in tokens):
        return tokens
    return {name: tokens[name] for name in tokens if name not in IMPORTED}


def at_work(voices: Voices, counts: Mapping[str, Counts]) -> Sequence[Voice]:
    """The voices that speak: imported ones with counts while little else is learnt, with a weight that falls."""
    if not any(voice.imported for voice in voices):
        return voices
    own = [counts[voice.name] for voice in everybodys(voices)]
    left = 1 - 2 * max((min(of.messages.values()) for of in own), default=0) / FADES
    heard = []
    for voice in voices:
        if not voice.imported:
            heard.append(voice)
        elif left > 0 and counts[voice.name].vocabulary:
            heard.append(replace(voice, weight=voice.weight * left))
    return heard
