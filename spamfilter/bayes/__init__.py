"""The model: the tokens of a Message, counts of them, likelihoods, voices, a probability and a verdict.

Pure: no file, no socket, no clock. A new likelihood is a file and a row in likelihoods/, a new token feature a
function and a row of FEATURES in tokens, seen by a row of VOICES in voices. compiled/ has tokens and scores in C, with
the same results.
Imports: errors, system and mail. Start with voices for the sum of log-odds, and likelihoods/likelihood for a summand.
For other things than mail the likelihoods are estimators, below; docs/library.md is about them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spamfilter.bayes.estimator import Classifier, NaiveBayes
    from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
    from spamfilter.bayes.likelihoods.binomial import Binomial
    from spamfilter.bayes.likelihoods.complement import Complement
    from spamfilter.bayes.likelihoods.moments import GaussianNaiveBayes
    from spamfilter.bayes.likelihoods.multinomial import Multinomial
    from spamfilter.bayes.likelihoods.poisson import Poisson
    from spamfilter.bayes.likelihoods.weighted import Weighted

__all__ = [
    "Bernoulli",
    "Binomial",
    "Classifier",
    "Complement",
    "GaussianNaiveBayes",
    "Multinomial",
    "NaiveBayes",
    "Poisson",
    "Weighted",
]
_MODULES = {"Classifier": "estimator", "NaiveBayes": "estimator", "GaussianNaiveBayes": "likelihoods.moments"}


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: commands that need none of them start faster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'likelihoods.' + name.lower())}"), name)
