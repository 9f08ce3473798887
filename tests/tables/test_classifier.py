"""The classifier of tables: the books' figures, each kind of column, missing values, and what is impossible."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from spamfilter.errors import InputError
from spamfilter.tables.classifier import TableClassifier
from spamfilter.tables.columns import KINDS, Options
from spamfilter.tables.one_rule import OneRule, kinds_for_rule, one_rule
from spamfilter.tables.reading import Table, read, read_classes
from spamfilter.tables.trials import TableOutcome, cross_validated, judged, learning_curve

WEATHER = """outlook,temperature,humidity,windy,play
sunny,85,85,false,no
sunny,80,90,true,no
overcast,83,86,false,yes
rainy,70,96,false,yes
rainy,68,80,false,yes
rainy,65,70,true,no
overcast,64,65,true,yes
sunny,72,95,false,no
sunny,69,70,false,yes
rainy,75,80,false,yes
sunny,75,70,true,yes
overcast,72,90,true,yes
overcast,81,75,false,yes
rainy,71,91,true,no
"""


@pytest.fixture
def weather(tmp_path: Path) -> Table:
    """The weather table with numbers for temperature and humidity."""
    file = tmp_path / "weather.csv"
    file.write_text(WEATHER)
    return read(file, "play")


def of(column: str, values: str, labels: str) -> Table:
    """A table of one column; a dot is a missing value."""
    return Table((column,), [{} if value == "." else {column: value} for value in values.split()], labels.split())


def rule_of(table: Table) -> OneRule:
    return one_rule(table, kinds_for_rule(TableClassifier().chosen(table), table))


def posterior(classifier: TableClassifier, **row: str) -> dict[str, float]:
    return dict(classifier.predict(row).posterior)


def test_numbers_by_mean_and_variance_give_the_figures_of_the_book(weather: Table) -> None:
    """Witten, Frank, Hall, Pal, Data Mining: .000036 and .000137, which are 20.8 and 79.2 per cent."""
    classifier = TableClassifier(options=Options(smoothing=0, unbiased=True), priors="empirical")
    classifier.train(weather)
    found = classifier.predict({"outlook": "sunny", "temperature": "66", "humidity": "90", "windy": "true"})
    assert {label: round(math.exp(value), 6) for label, value in found.joint.items()} == {
        "no": 0.000136, "yes": 0.000036,
    }  # fmt: skip
    assert {label: round(p, 3) for label, p in found.posterior.items()} == {"no": 0.792, "yes": 0.208}


def test_a_difference_of_rounding_alone_is_no_spread_of_a_column() -> None:
    """With a least variance by the difference of .3 and .1 + .2, 5.00001 would be impossible beside many 5.0."""
    rows = "5.0 5.0 5.0 0.1 0.3 9.9", "a a a b b b"
    table, noisy = of("x", *rows), of("x", f"{rows[0]} 0.30000000000000004", f"{rows[1]} b")
    found = []
    for known in (table, noisy):
        classifier = TableClassifier({"x": "number"}, priors="equal")
        classifier.train(known)
        found.append(posterior(classifier, x="5.00001"))
    assert found[0]["a"] > 0.99
    assert found[1] == pytest.approx(found[0], abs=1e-3)


def test_numbers_of_rooms_with_an_underscore_are_no_numbers() -> None:
    """Python reads 1_2 as 12."""
    assert TableClassifier().chosen(of("room", "1_2 1_3 2_1", "a b a")) == {"room": "category"}


def test_a_missing_value_leaves_its_factor_out(weather: Table) -> None:
    classifier = TableClassifier({"temperature": "ignore", "humidity": "ignore"}, Options(smoothing=0), "empirical")
    classifier.train(weather)
    joint = classifier.predict({"windy": "true"}).joint
    assert math.exp(joint["yes"]) == pytest.approx(9 / 14 * 3 / 9)
    assert math.exp(joint["no"]) == pytest.approx(5 / 14 * 3 / 5)


def test_a_missing_value_is_not_counted_in_its_column_either() -> None:
    classifier = TableClassifier(options=Options(smoothing=0), priors="equal")
    classifier.train(of("x", "a . b a", "yes yes yes no"))
    assert posterior(classifier, x="a") == pytest.approx({"no": 2 / 3, "yes": 1 / 3})


@pytest.mark.parametrize(
    ("kind", "values", "value", "expected"),
    [
        # Laplace over the values that were seen: (1 + 1) / (2 + 2) and (2 + 1) / (2 + 2).
        pytest.param("category", "a b a a", "a", {"no": 3 / 4, "yes": 2 / 4}, id="category"),
        pytest.param("presence", "1 0 yes true", "1", {"no": 3 / 4, "yes": 2 / 4}, id="presence"),
        pytest.param("presence", "1 0 yes true", "no", {"no": 1 / 4, "yes": 2 / 4}, id="absence"),
        # Rates of (3 + 1) / (2 + 2) and (7 + 1) / (2 + 2) per row.
        pytest.param("poisson", "1 2 3 4", "2", {"yes": math.exp(-1), "no": 4 * math.exp(-2)}, id="poisson"),
        pytest.param("binned", "1 2 8 9", "1.5", {"yes": 3 / 4, "no": 1 / 4}, id="binned"),
        pytest.param(
            "number", "1 3 4 6", "2",
            {"yes": 1.0, "no": math.exp(-4.5)}, id="number",
        ),
        pytest.param("text", "a b a,a a", "a c", {"yes": 2 / 4, "no": 4 / 5}, id="text"),
    ],
)  # fmt: skip
def test_each_kind_has_its_distribution(kind: str, values: str, value: str, expected: dict[str, float]) -> None:
    classifier = TableClassifier({"x": kind}, Options(bins=2), "equal")
    classifier.train(of("x", values, "yes yes no no"))
    total = sum(expected.values())
    assert posterior(classifier, x=value) == pytest.approx({label: p / total for label, p in expected.items()})


def test_every_kind_is_tried() -> None:
    assert set(KINDS) == {"category", "presence", "count", "text", "number", "poisson", "binned"}


def test_counts_are_terms_of_a_document(tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("document,term,count,class\n1,money,2,spam\n1,now,1,spam\n2,water,1,ham\n")
    classifier = TableClassifier(priors="equal")
    classifier.train(read(file, "class", "counts"))
    found = classifier.predict({"terms": {"money": 1, "new": 1}}).posterior
    assert found == pytest.approx({"ham": 1 / 3, "spam": 2 / 3})  # (0 + 1) / (1 + 3) and (2 + 1) / (3 + 3)


@pytest.mark.parametrize("likelihood", ["multinomial", "bernoulli", "weighted", "poisson", "binomial"])
def test_unsmoothed_it_says_that_no_class_is_possible(likelihood: str) -> None:
    classifier = TableClassifier({"x": "text"}, Options(smoothing=0, likelihood=likelihood))
    classifier.train(Table(("x",), [{"x": "a b"}, {"x": "b c"}], ["one", "two"]))
    if likelihood != "weighted":  # which keeps a trace of its assumption
        found = classifier.predict({"x": "a c"})
        assert found.class_ is None
        assert set(found.joint.values()) == {-math.inf}
    assert classifier.predict({"x": "a b"}).class_ == "one"
    assert classifier.predict({"x": "a b"}).joint["two"] < -20


def test_a_word_that_comes_often_is_unlikely_and_not_impossible() -> None:
    classifier = TableClassifier({"*": "count"})
    classifier.train(Table(("x", "y"), [{"x": "900", "y": "1"}, {"x": "1", "y": "900"}], ["one", "two"]))
    found = classifier.predict({"x": "900"})
    assert found.class_ == "one"
    assert -7000 < found.joint["two"] < -5000


def test_unsmoothed_an_absent_word_may_rule_a_class_out() -> None:
    classifier = TableClassifier({"x": "text"}, Options(smoothing=0, likelihood="bernoulli"))
    classifier.train(Table(("x",), [{"x": "a b"}, {"x": "b c"}, {"x": "b"}], ["one", "two", "two"]))
    assert classifier.predict({"x": "b"}).joint["one"] == -math.inf  # each of its texts has a
    assert classifier.predict({"x": "b"}).class_ == "two"


def test_priors_are_counted_or_given() -> None:
    table = of("x", "a a a b", "yes yes yes no")
    for priors, expected in (
        ("map", 4 / 6), ("empirical", 3 / 4), ("equal", 1 / 2), ({"yes": 0.9, "no": 0.1}, 0.9),
    ):  # fmt: skip
        classifier = TableClassifier(priors=priors)  # type: ignore[arg-type]  # of the names
        classifier.train(table)
        assert posterior(classifier)["yes"] == pytest.approx(expected)


TEXTS = Table(("x",), [{"x": "a a b"}, {"x": "a c"}, {"x": "d"}], ["one", "two", "two"])


@pytest.mark.parametrize(
    ("options", "known"),
    [
        pytest.param(Options(), {"a", "b", "c", "d"}, id="all"),
        pytest.param(Options(vocabulary=frozenset("ad")), {"a", "d"}, id="listed"),
        pytest.param(Options(most_frequent=1), {"a"}, id="most-frequent"),
        pytest.param(Options(least_count=2), {"a"}, id="least-count"),
        pytest.param(Options(fake_document=True), {"a", "b", "c", "d"}, id="fake-document"),
    ],
)
def test_the_vocabulary_can_be_limited(options: Options, known: set[str]) -> None:
    classifier = TableClassifier({"x": "text"}, replace(options, likelihood="bernoulli"))
    classifier.train(TEXTS)
    base = posterior(classifier, x="none of them")
    assert {word for word in "abcd" if posterior(classifier, x=word) != base} == known


def test_a_fake_document_has_all_words_in_each_class() -> None:
    classifier = TableClassifier({"x": "text"}, Options(0, likelihood="bernoulli", fake_document=True), "equal")
    classifier.train(TEXTS)
    joint = classifier.predict({"x": "a b c d"}).joint
    assert math.exp(joint["one"]) == pytest.approx(1 / 2 * (2 / 2) * (2 / 2) * (1 / 2) * (1 / 2))
    assert math.exp(joint["two"]) == pytest.approx(1 / 2 * (2 / 3) * (1 / 3) * (2 / 3) * (2 / 3))


def test_one_rule_is_that_of_the_book(weather: Table) -> None:
    rule = rule_of(weather)
    assert (rule.errors, rule.rows) == (3, 14)
    assert rule.lines() == [
        "humidity: below 82.5 -> yes", "humidity: 82.5 to 95.5 -> no", "humidity: from 95.5 -> yes",
    ]  # fmt: skip
    assert [rule.predict({"humidity": value}) for value in ("70", "90", "99")] == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        # Cut after the third a; the second interval is one of a, too.
        pytest.param("a a a b a a a", ["x: any number -> a"], id="joined"),
        pytest.param("a a a b b b b", ["x: below 3.5 -> a", "x: from 3.5 -> b"], id="apart"),
    ],
)
def test_neighbouring_intervals_of_one_class_are_one(labels: str, rule: list[str]) -> None:
    assert rule_of(of("x", "1 2 3 4 5 6 7", labels)).lines() == rule


def test_a_rule_names_its_bounds_with_all_their_digits() -> None:
    rule = rule_of(of("x", "20261001 20261002 20261003 20261008 20261009 20261010", "a a a b b b"))
    assert rule.lines() == ["x: below 20261005.5 -> a", "x: from 20261005.5 -> b"]
    assert rule_of(of("x", ".1 .1 .1 .2 .2 .2", "a a a b b b")).lines() == ["x: below 0.15 -> a", "x: from 0.15 -> b"]


def test_a_missing_value_is_a_value_of_one_rule() -> None:
    rule = rule_of(of("x", "a a . . b", "yes yes no no yes"))
    assert rule.lines() == ["x: a -> yes", "x: b -> yes", "x: missing -> no"]
    assert (rule.predict({}), rule.predict({"x": "new"})) == ("no", "yes")
    called = rule_of(of("x", "missing missing . .", "yes yes no no"))
    assert (called.errors, called.lines()) == (0, ["x: missing -> yes", "x: missing -> no"])


def test_in_cross_validation_each_row_is_judged_once_by_the_others() -> None:
    table = of("x", " ".join("ab" * 20), " ".join(["one", "two"] * 20))
    judging: list[int] = []

    def train(known: Table) -> object:
        assert known.labels.count("one") == known.labels.count("two") == 18
        judging.append(len(known.rows))
        return lambda row: {"a": "one", "b": None}[row["x"]]

    outcome = cross_validated(table, train, 10, seed=1)  # type: ignore[arg-type]  # a function is enough
    assert judging == [36] * 10
    assert outcome.confusion == {("one", "one"): 20, ("two", None): 20}
    assert (outcome.right, outcome.rows, outcome.accuracy) == (20, 40, 50)


def test_a_learning_curve_is_trained_on_more_and_more_of_one_half(weather: Table) -> None:
    def train(known: Table) -> object:
        return lambda row: "yes"

    points = list(learning_curve(weather, train, seed=1))  # type: ignore[arg-type]  # a function is enough
    assert [point.rows for point in points] == [7] * len(points)
    assert points[-1].trained_on == 7
    assert [point.trained_on for point in points] == [4, 5, 6, 7]


def test_what_was_learnt_can_be_judged(weather: Table) -> None:
    rule = rule_of(weather)
    assert TableOutcome(judged(lambda known: rule.predict, weather, weather)).right == 11


def test_lines_of_each_class_in_a_file(tmp_path: Path) -> None:
    for name, text in (("mac", "apple\n\nquadra\n"), ("pc", "dos\n")):
        (tmp_path / name).write_text(text)
    table = read_classes({"mac": tmp_path / "mac", "pc": tmp_path / "pc"})
    assert list(zip(table.labels, table.rows, strict=True)) == [
        ("mac", {"text": "apple"}), ("mac", {"text": "quadra"}), ("pc", {"text": "dos"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "classifier", "said"),
    [
        pytest.param(of("x", "a b", "one one"), TableClassifier(), "two at least are needed", id="one-class"),
        pytest.param(
            of("x", "a b", "one two"), TableClassifier({"y": "text"}), "--column 'y': no such column", id="column"
        ),
        pytest.param(of("x", "a b", "one two"), TableClassifier({"x": "colour"}), "'colour' is no kind", id="kind"),
        pytest.param(of("x", "a b", "one two"), TableClassifier({"x": "number"}), "'a' is no number", id="number"),
        pytest.param(of("x", "1 -2", "one two"), TableClassifier({"x": "poisson"}), "'-2' is no count", id="count"),
        pytest.param(of("x", "a b", "one two"), TableClassifier({"*": "ignore"}), "no column is left", id="none"),
        pytest.param(
            of("x", "a b", "one two"), TableClassifier(priors={"one": 1.0}), "--prior names one", id="priors"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_learnt_is_named(table: Table, classifier: TableClassifier, said: str) -> None:
    with pytest.raises(InputError, match=said):
        classifier.train(table)


@pytest.mark.parametrize(
    ("name", "text", "format", "said"),
    [
        pytest.param("a.csv", "a,class\n1,2,3\n", None, "line 2: 3 cells, and the table has 2 columns", id="cells"),
        pytest.param("a.csv", "a,b\n1,2\n", None, "no column 'class'; its columns: a, b", id="no-label-column"),
        pytest.param("a.csv", "a,class\n1,\n", None, "line 2: no label", id="no-label"),
        pytest.param("a.csv", "a,a\n1,2\n", None, "names a column twice", id="twice"),
        pytest.param("a.csv", "", None, "an empty file", id="empty"),
        pytest.param("a.csv", 'a,class\n"1,2\n', None, "line 2: ", id="quote"),
        pytest.param("a.csv", "a\0", None, "a binary file", id="binary"),
        pytest.param("a.txt", "a b\n", None, "say what it is with --format", id="ending"),
        pytest.param("a.txt", "a b\n", "label-text", "line 1: no tab between label and text", id="no-tab"),
        pytest.param("a.csv", "document,term,class\n1,a,x\n", "counts", "no column 'count'", id="no-counts"),
        pytest.param(
            "a.csv", "document,term,count,class\n1,a,x,x\n", "counts", "line 2: count 'x' is no whole number", id="x"
        ),
        pytest.param(
            "a.csv", "document,term,count,class\n1,a,1,x\n1,b,1,y\n", "counts", "has two labels", id="two-labels"
        ),
        pytest.param("none.csv", None, None, "No such file", id="missing"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_it_was_said_to_be_is_refused(
    tmp_path: Path, name: str, text: str | None, format: str | None, said: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read(file, "class", format)  # type: ignore[arg-type]  # of the names
    assert str(file) in str(error.value)
