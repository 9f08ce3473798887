"""Counts of labelled messages, for a likelihood alone."""

from collections.abc import Iterable

from spamfilter.counts import Counts, Label
from spamfilter.features import Tokens
from spamfilter.likelihoods import Likelihood


def learnt(likelihood: Likelihood, messages: Iterable[tuple[Label, Tokens]]) -> Counts:
    """What a likelihood that learns every message whole has counted after these."""
    counts = Counts()
    if likelihood.needs_tallies:
        counts.tally()
    for label, tokens in messages:
        counts.add(label, likelihood.deltas(tokens, 1))
    return counts
