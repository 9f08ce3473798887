"""LIKELIHOODS: how counts become log-odds, and what a learnt message adds; one small file each."""

from spamfilter.likelihoods.bernoulli import Bernoulli
from spamfilter.likelihoods.binomial import Binomial
from spamfilter.likelihoods.complement import Complement
from spamfilter.likelihoods.eddc import Eddc
from spamfilter.likelihoods.gaussian import Gaussian
from spamfilter.likelihoods.likelihood import Likelihood, Opinion
from spamfilter.likelihoods.multinomial import Multinomial
from spamfilter.likelihoods.poisson import Poisson
from spamfilter.likelihoods.robinson_fisher import RobinsonFisher
from spamfilter.likelihoods.soft import Soft
from spamfilter.likelihoods.weighted import Weighted

LIKELIHOODS: dict[str, type[Likelihood]] = {
    row.name: row
    for row in (
        Soft, Eddc, Multinomial, Bernoulli, Weighted, Poisson, Binomial, Complement, RobinsonFisher, Gaussian,
    )
}  # fmt: skip

__all__ = ["LIKELIHOODS", "Likelihood", "Opinion"]
