"""The same numbers as scikit-learn and scipy give, on data of chance."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2  # type: ignore[import-untyped]  # scipy publishes no types
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.complement import Complement
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.robinson_fisher import RobinsonFisher
from tests.bayes.likelihoods.drawn import Bag, learn, learnt
from tests.support.probabilities import class_probabilities, log_joint

Table = NDArray[np.int64]
MESSAGES, NEW, WORDS = 60, 40, 30


def occurrences(seed: int) -> tuple[Table, Table, Table]:
    """Messages x words to learn with their labels (1: spam), and others to judge; each word is learnt at least once."""
    random = np.random.default_rng(seed)
    rates = random.gamma(0.5, 1.0, (2, WORDS))
    labels = (np.arange(MESSAGES) % 3 == 0).astype(np.int64)
    known = random.poisson(rates[labels])
    known[random.integers(0, MESSAGES, WORDS), np.arange(WORDS)] += 1
    return known, labels, random.poisson(rates[np.arange(NEW) % 2])


def values(seed: int) -> tuple[Table, Table, Table]:
    """The same of attributes, each of them in every message."""
    random = np.random.default_rng(seed)
    means, spreads = random.uniform(50, 500, (2, WORDS)), random.uniform(5, 90, (2, WORDS))
    labels = (np.arange(MESSAGES) % 3 == 0).astype(np.int64)

    def drawn(classes: Table) -> Table:
        return np.abs(np.rint(random.normal(means[classes], spreads[classes]))).astype(np.int64)

    return drawn(labels), labels, drawn(np.arange(NEW) % 2)


def bag(row: Table, zeros: bool) -> Bag:
    return {b"%d" % word: int(times) for word, times in enumerate(row) if times or zeros}


Theirs = Callable[[float, float], Any]
CASES: dict[str, tuple[Callable[[float, float], Generative], Theirs, Callable[[int], tuple[Table, Table, Table]]]] = {
    "multinomial": (
        lambda m, prior: Multinomial(m, prior=prior),
        lambda m, prior: MultinomialNB(alpha=m, class_prior=[1 - prior, prior]),
        occurrences,
    ),
    "multinomial-equal": (
        lambda m, prior: Multinomial(m, prior="equal"),
        lambda m, prior: MultinomialNB(alpha=m, fit_prior=False),
        occurrences,
    ),
    "bernoulli": (
        lambda m, prior: Bernoulli(m, prior=prior),
        lambda m, prior: BernoulliNB(alpha=m, class_prior=[1 - prior, prior]),
        occurrences,
    ),
    "bernoulli-equal": (
        lambda m, prior: Bernoulli(m, prior="equal"),
        lambda m, prior: BernoulliNB(alpha=m, fit_prior=False),
        occurrences,
    ),
    "gaussian": (
        lambda m, prior: Gaussian(1e-9, least=1, prior=prior),
        lambda m, prior: GaussianNB(var_smoothing=0, priors=[1 - prior, prior]),
        values,
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("m", "prior"), [(1.0, 0.5), (0.25, 0.2), (3.0, 0.999)])
@pytest.mark.parametrize("case", CASES)
def test_the_same_probabilities_as_scikit_learn(case: str, m: float, prior: float, seed: int) -> None:
    our_model, their_model, data = CASES[case]
    known, labels, new = data(seed)
    ours, theirs = our_model(m, prior), their_model(m, prior)
    theirs.fit(known, labels)
    messages = [bag(row, data is values) for row in new]
    counts = learnt(ours, [(LABELS[label], bag(row, data is values)) for row, label in zip(known, labels, strict=True)])
    joint, posterior = theirs.predict_joint_log_proba(new), theirs.predict_proba(new)
    for place, tokens in enumerate(messages):
        assert list(log_joint(ours, tokens, counts).values()) == pytest.approx(
            joint[place].tolist(), rel=1e-9, abs=1e-9
        )
        assert list(class_probabilities(ours, tokens, counts).values()) == pytest.approx(
            posterior[place].tolist(), abs=1e-9
        )
    scores = (joint[:, 1] - joint[:, 0]).tolist()
    assert [ours.log_odds(tokens, counts) for tokens in messages] == pytest.approx(scores, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("m", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("normalise", [False, True], ids=["plain", "normalised"])
def test_the_same_complement_as_scikit_learn(normalise: bool, m: float, seed: int) -> None:
    known, labels, new = occurrences(seed)
    ours, theirs = Complement(m, normalise), ComplementNB(alpha=m, norm=normalise).fit(known, labels)
    counts = learnt(ours, [(LABELS[label], bag(row, False)) for row, label in zip(known, labels, strict=True)])
    joint = theirs.predict_joint_log_proba(new)
    messages = [bag(row, False) for row in new]
    scores = (joint[:, 1] - joint[:, 0]).tolist()
    assert [ours.log_odds(tokens, counts) for tokens in messages] == pytest.approx(scores, rel=1e-9, abs=1e-9)
    for tokens, proba in zip(messages, theirs.predict_proba(new).tolist(), strict=True):
        assert list(class_probabilities(ours, tokens, counts).values()) == pytest.approx(proba, abs=1e-9)


def test_labels_are_in_the_order_of_the_numbers_of_scikit_learn() -> None:
    assert LABELS == ("ham", "spam")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("deviation", [0.0, 0.1])
def test_robinson_fisher_is_the_chi_squared_test_of_scipy(deviation: float, seed: int) -> None:
    known, labels, new = occurrences(seed)
    model, counts = RobinsonFisher(deviation=deviation), Counts()
    for row, label in zip(known, labels, strict=True):
        learn(model, bag(row, False), LABELS[label], counts)
    compared = 0
    for row in new:
        tokens = bag(row, False)
        f = np.array([_robinson(counts, token) for token in tokens])
        f = f[np.abs(f - 0.5) >= deviation]
        tests = -2 * np.log(f).sum(), -2 * np.log1p(-f).sum()
        (h, not_h), (s, not_s) = (
            (chi2.sf(test, 2 * len(f)), chi2.cdf(test, 2 * len(f))) if len(f) else (0.5, 0.5) for test in tests
        )
        if min(h, not_h, s, not_s) > 1e-290:
            compared += 1
            expected = math.log(h + not_s) - math.log(s + not_h)
            assert model.log_odds(tokens, counts) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert compared > NEW / 2


def _robinson(counts: Counts, token: bytes) -> float:
    spam = counts.get(token, "spam") / counts.messages["spam"]
    ham = counts.get(token, "ham") / counts.messages["ham"]
    number = counts.get(token, "ham") + counts.get(token, "spam")
    return (0.45 * 0.5 + number * spam / (spam + ham)) / (0.45 + number)
