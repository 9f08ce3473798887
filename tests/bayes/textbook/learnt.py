"""Counts of labelled messages, for a likelihood alone."""

from collections.abc import Iterable

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import Likelihood
from spamfilter.bayes.tokens import Tokens


def learnt(likelihood: Likelihood, messages: Iterable[tuple[Label, Tokens]]) -> Counts:
    """What a likelihood that learns every message whole has counted after these."""
    counts = Counts()
    if likelihood.needs_tallies:
        counts.tally()
    for label, tokens in messages:
        counts.add(label, likelihood.deltas(tokens, 1))
    return counts
