"""The likelihoods as estimators: against scikit-learn and river, by the row and by the matrix, and forgotten again."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import river.naive_bayes
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import spamfilter.bayes
from spamfilter.bayes import (
    Bernoulli,
    Binomial,
    Classifier,
    Complement,
    GaussianNaiveBayes,
    Multinomial,
    NaiveBayes,
    Poisson,
    Weighted,
)
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.errors import CountError

Matrix = NDArray[np.int64]
ROWS, COLUMNS, CLASSES = 90, 20, ("a", "b", "c")
OF_COUNTS = [Multinomial(), Bernoulli(), Weighted(), Poisson(), Poisson(per="message"), Binomial(), Complement()]


def drawn(seed: int = 1) -> tuple[Matrix, NDArray[np.str_], Matrix]:
    """Rows of three classes in which each column occurs, their classes, and other rows."""
    random = np.random.default_rng(seed)
    rates = random.gamma(0.7, 1.0, (len(CLASSES), COLUMNS))
    labels = np.arange(ROWS) % len(CLASSES)
    known = random.poisson(rates[labels])
    known[np.arange(COLUMNS), np.arange(COLUMNS)] += 1
    return known, np.array(CLASSES)[labels], random.poisson(rates[np.arange(30) % len(CLASSES)])


def features(row: NDArray[Any]) -> dict[str, int | float]:
    return {str(column): value for column, value in enumerate(row.tolist()) if value}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(Multinomial(prior="empirical"), MultinomialNB(), id="multinomial"),
        pytest.param(Multinomial(0.3, prior="equal"), MultinomialNB(alpha=0.3, fit_prior=False), id="smoothing"),
        pytest.param(Bernoulli(prior="empirical"), BernoulliNB(), id="bernoulli"),
        pytest.param(Complement(), ComplementNB(), id="complement"),
    ],
)
def test_of_three_classes_it_gives_what_scikit_learn_gives(ours: Any, theirs: Any) -> None:
    known, labels, new = drawn()
    mine = NaiveBayes(ours).fit(known, labels)
    theirs.fit(known, labels)
    assert mine.classes_.tolist() == theirs.classes_.tolist()
    assert mine.predict_log_proba(new) == pytest.approx(theirs.predict_log_proba(new), rel=1e-9, abs=1e-9)
    assert mine.predict(new).tolist() == theirs.predict(new).tolist()
    assert mine.score(new, mine.predict(new)) == 1


def test_numbers_give_what_scikit_learn_gives() -> None:
    random, labels = np.random.default_rng(1), np.array(CLASSES)[np.arange(ROWS) % len(CLASSES)]
    known = np.round(random.normal(np.arange(ROWS)[:, None] % len(CLASSES), 2.0, (ROWS, COLUMNS)), 3)
    new = np.round(random.normal(1, 2.0, (30, COLUMNS)), 3)
    mine = GaussianNaiveBayes(prior="empirical").fit(known, labels)
    theirs = GaussianNB(var_smoothing=0).fit(known, labels)
    assert mine.predict_log_proba(new) == pytest.approx(theirs.predict_log_proba(new), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs", "error"),
    [
        pytest.param(Multinomial(prior="empirical"), river.naive_bayes.MultinomialNB, 1e-9, id="multinomial"),
        pytest.param(Bernoulli(prior="empirical"), river.naive_bayes.BernoulliNB, 1e-7, id="bernoulli"),
    ],
)
def test_row_by_row_it_gives_what_river_gives(ours: Any, theirs: Callable[[], Any], error: float) -> None:
    """River adds 1e-9 to each probability of the Bernoulli model before its logarithm, so it differs by so much."""
    known, labels, new = drawn()
    mine, other = NaiveBayes(ours), theirs()
    for row, label in zip(known, labels.tolist(), strict=True):
        mine.learn_one(features(row), label)
        other.learn_one(features(row), label)
    for row in new:
        expected = other.predict_proba_one(features(row))
        assert mine.predict_proba_one(features(row)) == pytest.approx(expected, rel=error, abs=1e-12)


@pytest.mark.parametrize("likelihood", OF_COUNTS, ids=repr)
def test_a_matrix_is_its_rows(likelihood: Any) -> None:
    known, labels, new = drawn()
    whole, single = NaiveBayes(likelihood).partial_fit(known, labels), NaiveBayes(likelihood)
    for row, label in zip(known, labels.tolist(), strict=True):
        single.learn_one(features(row), label)
    joint = [single.joint_log_likelihood(features(row)) for row in new]
    assert single.classes == whole.classes
    assert [list(one.values()) for one in joint] == whole.predict_joint_log_proba(new).tolist()
    assert [single.predict_one(features(row)) for row in new] == whole.predict(new).tolist()


@pytest.mark.parametrize(
    "made",
    [*(lambda like=like: NaiveBayes(like) for like in OF_COUNTS), GaussianNaiveBayes],
    ids=[*map(repr, OF_COUNTS), "gaussian"],
)
def test_what_is_forgotten_was_never_learnt(made: Callable[[], Classifier]) -> None:
    known, labels, new = drawn()
    rows = [*zip(map(features, known), labels.tolist(), strict=True)]
    without, forgotten = made(), made()
    for x, y in rows[:60]:
        without.learn_one(x, y)
        forgotten.learn_one(x, y)
    for x, y in rows[60:]:
        forgotten.learn_one(x, y)
    for x, y in rows[:59:-1]:
        forgotten.forget_one(x, y)
    for row in new:
        assert without.joint_log_likelihood(features(row)) == forgotten.joint_log_likelihood(features(row))


def test_what_was_not_learnt_cannot_be_forgotten() -> None:
    for model in (NaiveBayes(), GaussianNaiveBayes()):
        model.learn_one({"x": 1}, "a")
        for x, y in (({"x": 1}, "b"), ({"z": 1}, "a")):
            with pytest.raises(CountError):
                model.forget_one(x, y)
        assert model.predict_proba_one({"x": 1}) == {"a": 1}
    numbers = GaussianNaiveBayes()
    numbers.partial_fit([[5], [6], [7]], ["a", "a", "a"])
    with pytest.raises(CountError):
        numbers.forget_one({"0": 100}, "a")  # it would leave a variance below zero
    numbers.forget_one({"0": 6}, "a")
    assert numbers.moments("0", "a") == (6, 1)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.float64])
def test_numbers_of_numpy_are_numbers(kind: Any) -> None:
    numbers = GaussianNaiveBayes()
    for x in (5000, 5010):
        numbers.learn_one({"x": kind(x)}, "a")
    assert numbers.moments("x", "a") == (5005, 25)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        pytest.param([[1, -1]], ["a"], "Negative values", id="negative"),
        pytest.param([[0.5, 1]], ["a"], "no whole number from 0 on", id="fraction"),
        pytest.param([[1, math.nan]], ["a"], "no number", id="nan"),
        pytest.param([["x", "y"]], ["a"], "no number", id="words"),
        pytest.param([1, 2], ["a"], "expected 2D array", id="row"),
        pytest.param([[1, 2]], ["a", "b"], "X has 1 rows", id="labels"),
        pytest.param([[1, 2, 3]], ["a"], "X has 3 features, but NaiveBayes is expecting 2 features", id="columns"),
    ],
)
def test_a_wrong_matrix_changes_nothing_and_says_what_is_wrong(X: Any, y: Any, said: str) -> None:  # noqa: N803
    model = NaiveBayes().partial_fit([[1, 2]], ["a"])
    with pytest.raises(ValueError, match=said):
        model.partial_fit(X, y)
    assert (model.classes, model.counts.messages) == (["a"], {"0": 1})


@pytest.mark.parametrize("number", [0.5, -1, math.nan, math.inf])
def test_what_is_no_number_of_occurrences_changes_nothing(number: float) -> None:
    model = NaiveBayes()
    with pytest.raises(ValueError, match="whole numbers from 0 on"):
        model.learn_one({"x": number}, "a")
    assert model.classes == []


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_changes_nothing(number: float) -> None:
    model = GaussianNaiveBayes()
    with pytest.raises(ValueError, match="is no number that can be learnt"):
        model.learn_one({"x": number}, "a")
    assert model.classes == []


def test_wrong_likelihoods_say_what_is_wrong() -> None:
    with pytest.raises(TypeError, match="GaussianNaiveBayes"):
        NaiveBayes(Gaussian())
    wrongs: tuple[dict[str, Any], ...] = ({"smoothing": -5}, {"prior": "nonsense"}, {"prior": 1.5})
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            NaiveBayes(Multinomial(**wrong))
    with pytest.raises(ValueError, match="'uniform' is no prior"):
        GaussianNaiveBayes(prior="uniform")  # type: ignore[arg-type]  # which is wrong
    three = NaiveBayes(Multinomial(prior=0.25)).partial_fit([[1], [1], [1]], ["a", "b", "c"])
    with pytest.raises(ValueError, match="a prior of two classes"):
        three.predict([[1]])


def test_a_likelihood_of_ones_own_is_taken_as_it_is() -> None:
    class Own(Multinomial):
        def __init__(self, weights: NDArray[Any]) -> None:
            super().__init__()
            object.__setattr__(self, "weights", weights)

    assert NaiveBayes(Own(np.ones(3))).partial_fit([[1, 0], [0, 1]], ["a", "b"]).predict([[1, 0]]).tolist() == ["a"]


def test_without_smoothing_it_says_which_classes_are_impossible() -> None:
    model = NaiveBayes(Multinomial(smoothing=0)).partial_fit([[1, 1, 0], [0, 1, 1]], ["a", "b"])
    assert model.judged({"0": 1}) == (model.log_likelihood({"0": 1}) | {"b": -math.inf}, [])
    assert model.judged({"0": 1, "2": 1, "3": 1}) == ({"a": -math.inf, "b": -math.inf}, ["3"])


def test_before_anything_is_learnt_there_is_no_class() -> None:
    for model in (NaiveBayes(), GaussianNaiveBayes()):
        assert (model.predict_one({"x": 1}), model.predict_proba_one({"x": 1})) == (None, {})


def test_parameters_are_read_and_set_as_scikit_learn_does() -> None:
    model = GaussianNaiveBayes(decimals=2).partial_fit([[1.0]], ["a"])
    assert model.set_params(floor=1.0).get_params() == {
        "decimals": 2, "unbiased": False, "floor": 1.0, "prior": "map",
    }  # fmt: skip
    assert model.classes == []


OF_ANOTHER_DESIGN = {
    "check_no_attributes_set_in_init": "it learns one by one from the start, without fit",
    "check_dont_overwrite_parameters": "which adds to `classes`",
    "check_estimators_unfitted": "before anything is learnt there is no class, and no error",
    "check_do_not_raise_errors_in_init_or_set_params": "a wrong argument is an error at once",
    "check_supervised_y_2d": "a column of labels is an error, and no warning",
    "check_supervised_y_no_nan": "of which the words differ",
}
"""Checks of scikit-learn that fail, with the reason; docs/library.md names them."""
OF_NO_LIKELIHOOD = {
    "check_parameters_default_constructible": "the default, None, becomes Multinomial() at once",
    "check_set_params": "and so does a None that is set",
}


class WholeNumbers(NaiveBayes):
    """The checks draw fractions, which counts are not: these are cut to whole numbers before they are learnt."""

    def _matrix(self, rows: ArrayLike) -> NDArray[Any]:
        found = super()._matrix(rows)
        return np.where(found < 0, found, np.floor(found))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "passed", "expected"),
    [
        pytest.param(GaussianNaiveBayes(), 45, OF_ANOTHER_DESIGN, id="gaussian"),
        *(
            pytest.param(
                WholeNumbers(likelihood()),
                47,
                OF_ANOTHER_DESIGN | OF_NO_LIKELIHOOD,
                id=likelihood.name,
            )
            for likelihood in (Multinomial, Bernoulli, Weighted, Poisson, Binomial, Complement)
        ),
    ],
)
def test_the_checks_of_scikit_learn_pass_but_for_those_of_another_design(
    model: Classifier, passed: int, expected: dict[str, str]
) -> None:
    found = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    assert [(one["check_name"], str(one["exception"])) for one in found if one["status"] == "failed"] == []
    assert sum(one["status"] == "passed" for one in found) >= passed


def test_scikit_learn_cross_validates_it_in_a_pipeline() -> None:
    known, labels, _ = drawn()
    found = cross_val_score(make_pipeline(NaiveBayes(Multinomial())), known, labels, cv=3)
    assert found.mean() > 0.8


def test_every_public_name_is_there() -> None:
    for name in spamfilter.bayes.__all__:
        assert getattr(spamfilter.bayes, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = spamfilter.bayes.nothing


@pytest.mark.parametrize("make", [NaiveBayes, GaussianNaiveBayes])
def test_what_cannot_be_a_class_leaves_the_model_as_it_was(make: type[Classifier]) -> None:
    model = make()
    with pytest.raises(TypeError, match="unhashable"):
        model.learn_one({"a": 1}, ["x"])  # type: ignore[arg-type]
    model.learn_one({"a": 1}, "x")
    assert model.predict_proba_one({"a": 1}) == {"x": 1.0}


@pytest.mark.parametrize("make", [NaiveBayes, GaussianNaiveBayes])
def test_before_anything_is_learnt_a_matrix_has_no_class(make: type[Classifier]) -> None:
    assert make().predict([[1, 2], [3, 4]]).tolist() == [None, None]
    assert make().predict_proba([[1, 2], [3, 4]]).shape == (2, 0)


def test_a_score_of_other_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="y has 3 labels, and X has 1 rows"):
        NaiveBayes().fit([[1, 0]], ["a"]).score([[1, 0]], ["a", "b", "c"])


def test_a_number_that_is_none_is_not_judged() -> None:
    model = GaussianNaiveBayes()
    for value in (1, 2, 5):
        model.learn_one({"a": value}, value > 2)
    with pytest.raises(ValueError, match="a is nan, which is no number to judge by"):
        model.predict_one({"a": math.nan})
