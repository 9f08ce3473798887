"""LIKELIHOODS: how counts become log-odds, and what a learnt message adds; one small file each."""

from spamfilter.likelihoods.likelihood import Likelihood
from spamfilter.likelihoods.multinomial import Multinomial
from spamfilter.likelihoods.soft import Soft

LIKELIHOODS: dict[str, type[Likelihood]] = {"soft": Soft, "multinomial": Multinomial}

__all__ = ["LIKELIHOODS", "Likelihood"]
