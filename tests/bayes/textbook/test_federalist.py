"""Who wrote the Federalist papers? (Mosteller and Wallace, Inference and Disputed Authorship, 1964.)

Hamilton is ham here, Madison is spam. A paper is its counts of 70 function words, and one token more for all other
words, so that its length is right. The counts were made anew, with the list of the 70 from memory. What came out:

- The known result is found: the 65 papers of one known author are all given to him, and of the 15 that are disputed
  or joint one goes to Hamilton, no. 55, and 14 to Madison. It is found with either prior by the multinomial and the
  Poisson model. The binomial model agrees with the MAP prior; with equal priors it is undecided about no. 55.
- theta(Hamilton, a) is .0221 of the words. It is .0199, as printed, where the marks of punctuation, which the texts
  hold as words in angle brackets, count as words; then the known result is found as well.
"""

import math
from collections.abc import Callable

import pytest
from textbook import Paper, papers

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.binomial import Binomial
from spamfilter.bayes.likelihoods.likelihood import Generative, Prior
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.tokens import Tokens
from tests.bayes.textbook.learnt import learnt
from tests.support.real import corpus

HAMILTON: Label = "ham"
MADISON: Label = "spam"
AUTHORS: dict[str, Label] = {"HAMILTON": HAMILTON, "MADISON": MADISON}
MODELS: dict[str, Callable[[Prior], Generative]] = {
    "multinomial": lambda prior: Multinomial(prior=prior),
    "poisson": lambda prior: Poisson(prior=prior),
    "binomial": lambda prior: Binomial(prior=prior),
}
DOUBTFUL = 55

every_model = pytest.mark.parametrize("name", MODELS)
either_prior = pytest.mark.parametrize("prior", ["map", "equal"])
either_length = pytest.mark.parametrize(
    "marks", [pytest.param(False, id="words"), pytest.param(True, id="words-and-marks")]
)


@pytest.fixture(scope="module")
def all_papers() -> list[Paper]:
    return papers(corpus("textbook"))


def known(all_papers: list[Paper], marks: bool = False) -> list[tuple[Label, Tokens]]:
    return [(AUTHORS[paper.author], paper.tokens(marks)) for paper in all_papers if paper.author in AUTHORS]


def unknown(all_papers: list[Paper], marks: bool = False) -> dict[int, Tokens]:
    """Number -> tokens of the twelve disputed and the three joint papers."""
    return {paper.number: paper.tokens(marks) for paper in all_papers if paper.author in ("DISPUTED", "BOTH")}


def author(log_odds: float) -> Label:
    return MADISON if log_odds > 0 else HAMILTON


def test_the_map_priors_are_776_and_224(all_papers: list[Paper]) -> None:
    model = Multinomial()
    counts = learnt(model, known(all_papers))
    assert counts.messages == {HAMILTON: 51, MADISON: 14}
    assert round(math.exp(model.log_prior(HAMILTON, counts)), 3) == 0.776
    assert round(math.exp(model.log_prior(MADISON, counts)), 3) == 0.224


def test_there_are_70_function_words(all_papers: list[Paper]) -> None:
    assert learnt(Multinomial(), known(all_papers)).vocabulary == 70 + 1


@pytest.mark.parametrize(
    ("marks", "theta"), [pytest.param(False, 0.0221, id="words"), pytest.param(True, 0.0199, id="words-and-marks")]
)
def test_theta_of_a_is_one_more_than_counted_over_all_words_and_the_vocabulary(
    marks: bool, theta: float, all_papers: list[Paper]
) -> None:
    counts = learnt(Poisson(), known(all_papers, marks))
    assert round((counts.get(b"a", HAMILTON) + 1) / (counts.occurrences[HAMILTON] + counts.vocabulary), 4) == theta


@every_model
@either_prior
@either_length
def test_all_65_known_papers_are_right(name: str, prior: Prior, marks: bool, all_papers: list[Paper]) -> None:
    model = MODELS[name](prior)
    counts = learnt(model, known(all_papers, marks))
    assert [author(model.log_odds(tokens, counts)) for _, tokens in known(all_papers, marks)] == [
        label for label, _ in known(all_papers, marks)
    ]


@pytest.mark.parametrize(
    ("name", "prior"),
    [("multinomial", "map"), ("multinomial", "equal"), ("poisson", "map"), ("poisson", "equal"), ("binomial", "map")],
)
@either_length
def test_of_15_papers_one_is_hamiltons_and_14_are_madisons(
    name: str, prior: Prior, marks: bool, all_papers: list[Paper]
) -> None:
    model = MODELS[name](prior)
    counts = learnt(model, known(all_papers, marks))
    found = {number: model.log_odds(tokens, counts) for number, tokens in unknown(all_papers, marks).items()}
    assert len(found) == 15
    assert [number for number, odds in found.items() if author(odds) == HAMILTON] == [DOUBTFUL]


@either_length
def test_the_binomial_model_with_equal_priors_is_undecided_about_that_one(marks: bool, all_papers: list[Paper]) -> None:
    """It takes the token of the other words for a word like any, and counts those that are not it."""
    model = Binomial(prior="equal")
    counts = learnt(model, known(all_papers, marks))
    found = {number: model.log_odds(tokens, counts) for number, tokens in unknown(all_papers, marks).items()}
    assert abs(found.pop(DOUBTFUL)) < 0.25
    assert {author(odds) for odds in found.values()} == {MADISON}


@every_model
@either_prior
def test_each_known_paper_is_right_when_it_is_unlearnt_and_judged_by_the_others(
    name: str, prior: Prior, all_papers: list[Paper]
) -> None:
    model = MODELS[name](prior)
    counts = learnt(model, known(all_papers))
    right = 0
    for label, tokens in known(all_papers):
        deltas = model.deltas(tokens, 1)
        counts.subtract(label, deltas)
        right += author(model.log_odds(tokens, counts)) == label
        counts.add(label, deltas)
    assert right == 65
    assert counts == learnt(model, known(all_papers))
