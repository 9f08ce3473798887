"""Two words in 500 praises and 500 complaints about mobile phones and their like (D. Kotzias et al., KDD 2015).

Praise is ham here, complaint is spam. A review has a word if `words` finds it, in lower case and whole: then `great`
is in 92 praises and 5 complaints, `waste` in 0 and 14. The Bernoulli model without smoothing and with no word but these
gives every figure. One of those printed, .00014, is said to be of complaint given great and not waste. That product is
.00486; .00014 is that of great and waste.
"""

import math

import pytest
from textbook import reviews

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.tokens import words
from tests.bayes.textbook.learnt import learnt
from tests.support.probabilities import class_probabilities, log_joint
from tests.support.real import corpus

PRAISE: Label = "ham"
COMPLAINT: Label = "spam"
MODEL = Bernoulli(smoothing=0.0)


@pytest.fixture(scope="module")
def texts() -> list[tuple[Label, set[bytes]]]:
    return [(label, set(words(text))) for label, text in reviews(corpus("textbook"), "amazon_cells")]


def of_words(texts: list[tuple[Label, set[bytes]]], *known: bytes) -> Counts:
    return learnt(MODEL, ((label, {word: 1 for word in known if word in text}) for label, text in texts))


def likelihood(label: Label, counts: Counts, *present: bytes) -> float:
    """P(class) times the chances of the words present and of the words absent."""
    return math.exp(log_joint(MODEL, dict.fromkeys(present, 1), counts)[label])


def test_great_is_in_184_of_1000_praises_and_97_of_1000_reviews(texts: list[tuple[Label, set[bytes]]]) -> None:
    counts = of_words(texts, b"great")
    assert counts.messages == {PRAISE: 500, COMPLAINT: 500}
    assert counts.get(b"great", PRAISE) / counts.messages[PRAISE] == 0.184
    assert sum(counts.get(b"great", label) for label in (PRAISE, COMPLAINT)) / 1000 == 0.097
    assert sum(likelihood(label, counts, b"great") for label in (PRAISE, COMPLAINT)) == pytest.approx(0.097)


def test_great_makes_praise_of_a_review_and_its_absence_says_little(texts: list[tuple[Label, set[bytes]]]) -> None:
    counts = of_words(texts, b"great")
    assert round(class_probabilities(MODEL, {b"great": 1}, counts)[PRAISE], 3) == 0.948
    assert round(class_probabilities(MODEL, {}, counts)[PRAISE], 3) == 0.452


def test_waste_is_in_no_praise_and_14_complaints(texts: list[tuple[Label, set[bytes]]]) -> None:
    counts = of_words(texts, b"waste")
    assert [counts.get(b"waste", label) for label in (PRAISE, COMPLAINT)] == [0, 14]


def test_great_without_waste_is_praise_by_092(texts: list[tuple[Label, set[bytes]]]) -> None:
    counts = of_words(texts, b"great", b"waste")
    assert round(likelihood(PRAISE, counts, b"great"), 3) == 0.092
    assert round(likelihood(COMPLAINT, counts, b"great"), 5) == 0.00486
    assert round(likelihood(COMPLAINT, counts, b"great", b"waste"), 5) == 0.00014


def test_great_and_waste_is_no_praise_that_was_ever_seen(texts: list[tuple[Label, set[bytes]]]) -> None:
    counts = of_words(texts, b"great", b"waste")
    assert likelihood(PRAISE, counts, b"great", b"waste") < 1e-300
    assert class_probabilities(MODEL, {b"great": 1, b"waste": 1}, counts)[COMPLAINT] == pytest.approx(1)
