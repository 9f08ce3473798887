"""Learning curves on articles about two kinds of computer: types 1 and 2, with smoothing and without.

What holds for every way of halving the set that was tried; the figures are in benchmarks/results. One round of bulk
training: these models learn every article whole, and have nothing to learn the second time.
"""

import pytest
from textbook import learner, newsgroups, of_texts

from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.voices import Voice
from spamfilter.evaluation.contenders import Learner
from spamfilter.evaluation.protocols import SIZES, Trial
from spamfilter.evaluation.runs import evaluate
from tests.support.real import corpus

Curves = dict[str, list[float]]
NAMES = ["type 1, m = 0", "type 1, m = 1", "type 2, m = 0", "type 2, m = 1"]

every = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def curves() -> Curves:
    """Name -> accuracy in per cent at each size of the training."""
    models = (Multinomial(smoothing=0.0), Multinomial(), Bernoulli(smoothing=0.0), Bernoulli())

    def enter() -> list[Learner]:
        return [learner(name, "body", model) for name, model in zip(NAMES, models, strict=True)]

    examples = of_texts(newsgroups(corpus("textbook")), (Voice("body", models[0]),))
    found = evaluate(examples, enter, "learning-curve", Trial(split="random", rounds=1), resamples=0)
    return {name: [one.metrics.accuracy for one in found if one.likelihood == name] for name in NAMES}


@every
def test_there_is_a_point_for_each_tenth_of_the_training_half(name: str, curves: Curves) -> None:
    assert len(curves[name]) == len(SIZES) == 10


@every
def test_more_than_85_per_cent_are_right_in_the_end(name: str, curves: Curves) -> None:
    assert curves[name][-1] > 85


@every
def test_the_curve_rises(name: str, curves: Curves) -> None:
    assert curves[name][-1] > curves[name][0] + 10


def test_smoothing_helps_the_multinomial_model(curves: Curves) -> None:
    assert curves["type 1, m = 1"][-1] > curves["type 1, m = 0"][-1]


def test_occurrences_tell_more_than_presence(curves: Curves) -> None:
    assert curves["type 1, m = 1"][-1] > curves["type 2, m = 1"][-1]
