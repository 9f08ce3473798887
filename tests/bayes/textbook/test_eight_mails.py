"""Eight short mails, and what a ninth is: "the money jumps".

Each class has a word of it that the other lacks, so that without smoothing both are impossible. The weighted model,
with an assumption of one half that is worth one message, tells them apart.
"""

import math

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.weighted import Weighted
from spamfilter.bayes.tokens import Tokens, words
from tests.bayes.textbook.learnt import learnt
from tests.support.probabilities import class_probabilities, log_joint

MAILS: list[tuple[Label, bytes]] = [
    ("ham", b"nobody owns the water"),
    ("ham", b"the quick rabbit jumps fences"),
    ("spam", b"buy pharmaceuticals now"),
    ("spam", b"make quick money at the online casino"),
    ("ham", b"the quick brown fox jumps"),
    ("ham", b"next meeting is at night"),
    ("spam", b"meeting with your superstar"),
    ("spam", b"money like water"),
]
UNSMOOTHED = [
    pytest.param(Multinomial(smoothing=0.0), id="multinomial"),
    pytest.param(Bernoulli(smoothing=0.0), id="bernoulli"),
]


def tokens(text: bytes) -> Tokens:
    return dict.fromkeys(words(text), 1)


NEW = tokens(b"the money jumps")


def joint(model: Generative) -> dict[Label, float]:
    counts = learnt(model, ((label, tokens(text)) for label, text in MAILS))
    return {label: math.exp(value) for label, value in log_joint(model, NEW, counts).items()}


def test_weighted_probabilities_are_0125_bad_and_029_good() -> None:
    found = joint(Weighted(weight=1.0, assumed=0.5))
    assert found["spam"] == pytest.approx(0.0125)
    assert round(found["ham"], 3) == 0.029


def test_the_new_mail_is_good_by_70_to_30() -> None:
    model = Weighted(weight=1.0, assumed=0.5)
    counts = learnt(model, ((label, tokens(text)) for label, text in MAILS))
    assert class_probabilities(model, NEW, counts) == pytest.approx({"spam": 0.30, "ham": 0.70})
    assert model.log_odds(NEW, counts) == pytest.approx(math.log(3 / 7))


@pytest.mark.parametrize("model", UNSMOOTHED)
def test_without_smoothing_both_classes_are_impossible(model: Generative) -> None:
    assert all(value < 1e-300 for value in joint(model).values())


@pytest.mark.parametrize("model", UNSMOOTHED)
def test_without_smoothing_the_log_odds_are_still_a_number_that_the_posterior_agrees_with(model: Generative) -> None:
    """Each class lacks one word, so what they have decides: `the` is in three good mails and one bad."""
    counts = learnt(model, ((label, tokens(text)) for label, text in MAILS))
    odds, posterior = model.log_odds(NEW, counts), class_probabilities(model, NEW, counts)
    assert -1 < odds < 0
    assert posterior["spam"] == pytest.approx(1 / (1 + math.exp(-odds)))
    assert sum(posterior.values()) == pytest.approx(1)
