"""The weather table: does one play, if it is sunny, cool, humid and windy? (Witten, Frank, Hall, Pal, Data Mining.)

To play is ham here, not to play is spam. An attribute and its value are a token, so that a day has four of them. The
book multiplies n_wc / N_c over the four and by the prior, without smoothing: the weighted model does so, with an
assumption that is worth next to nothing. The multinomial model without smoothing divides by 4 N_c instead, which is the
same in both classes.
"""

import math

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.weighted import Weighted
from spamfilter.bayes.tokens import Tokens
from tests.bayes.textbook.learnt import learnt
from tests.support.probabilities import class_probabilities, log_joint

TABLE = """
    sunny    hot  high   false no
    sunny    hot  high   true  no
    overcast hot  high   false yes
    rainy    mild high   false yes
    rainy    cool normal false yes
    rainy    cool normal true  no
    overcast cool normal true  yes
    sunny    mild high   false no
    sunny    cool normal false yes
    rainy    mild normal false yes
    sunny    mild normal true  yes
    overcast mild high   true  yes
    overcast hot  normal false yes
    rainy    mild high   true  no
"""
ATTRIBUTES = ("outlook", "temperature", "humidity", "windy")
CLASSES: dict[str, Label] = {"yes": "ham", "no": "spam"}
NOT_TO_PLAY = 5 / 14
WEIGHTED = Weighted(weight=1e-9, prior=NOT_TO_PLAY)


def day(*values: str) -> Tokens:
    return {f"{name}={value}".encode(): 1 for name, value in zip(ATTRIBUTES, values, strict=True)}


DAYS = [(CLASSES[play], day(*values)) for *values, play in map(str.split, TABLE.strip().splitlines())]
NEW = day("sunny", "cool", "high", "true")


def test_nine_of_fourteen_days_are_played() -> None:
    assert learnt(WEIGHTED, DAYS).messages == {"ham": 9, "spam": 5}


def test_to_play_is_00529_and_not_to_play_02057() -> None:
    found = log_joint(WEIGHTED, NEW, learnt(WEIGHTED, DAYS))
    assert round(math.exp(found["ham"]), 5) == 0.00529
    assert round(math.exp(found["spam"]), 5) == 0.02057


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(WEIGHTED, id="weighted"),
        pytest.param(Multinomial(smoothing=0.0, prior=NOT_TO_PLAY), id="multinomial"),
    ],
)
def test_one_plays_with_probability_2046(model: Generative) -> None:
    found = class_probabilities(model, NEW, learnt(model, DAYS))
    assert round(found["ham"], 4) == 0.2046
    assert round(found["spam"], 4) == 0.7954
