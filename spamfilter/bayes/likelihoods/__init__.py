"""The table LIKELIHOODS: how counts become log-odds, and what a learnt message adds; one file each."""

from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.binomial import Binomial
from spamfilter.bayes.likelihoods.complement import Complement
from spamfilter.bayes.likelihoods.eddc import Eddc
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Likelihood, LogOdds
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.likelihoods.robinson_fisher import RobinsonFisher
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.likelihoods.weighted import Weighted

LIKELIHOODS: dict[str, type[Likelihood]] = {
    row.name: row
    for row in (
        Soft, Eddc, Multinomial, Bernoulli, Weighted, Poisson, Binomial, Complement, RobinsonFisher, Gaussian,
    )
}  # fmt: skip

__all__ = ["LIKELIHOODS", "Likelihood", "LogOdds"]
