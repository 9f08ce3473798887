"""The command `classify`: its output for programs, and errors that name what is wrong."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from spamfilter.cli import main

DOCS = Path(__file__).parents[2] / "docs" / "textbook"
WEATHER = str(DOCS / "weather.csv")
NUMBERS = str(DOCS / "weather-numbers.csv")
MAILS = (str(DOCS / "mails.txt"), "--format", "label-text")


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["classify", *words])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_predictions_for_programs() -> None:
    today = str(DOCS / "today.csv")
    said = run(WEATHER, "--label", "play", "--smoothing", "0", "--prior", "empirical", "--predict", today, "--json")
    sunny, _, overcast = map(json.loads, said.splitlines())
    assert sunny["class"] == "no"
    assert sunny["posterior"] == pytest.approx({"no": 0.7954, "yes": 0.2046}, abs=5e-5)
    assert sunny["log_joint"] == pytest.approx({"no": -3.8839, "yes": -5.2417}, abs=5e-5)
    assert overcast["log_joint"]["no"] is None  # which JSON has no number for


def test_outcomes_for_programs() -> None:
    both = ("--likelihood", "multinomial", "--likelihood", "one_rule")
    said = json.loads(run(WEATHER, "--label", "play", "--itself", "--json", *both))
    assert said["rule"] == ["outlook: overcast -> yes", "outlook: rainy -> yes", "outlook: sunny -> no"]
    found = said["naive_bayes"]
    assert [(one["rows"], one["right"]) for one in found] == [(14, 13)]
    assert sum(each["rows"] for each in found[0]["confusion"]) == 14


def test_impossible_predictions_for_programs() -> None:
    said = run(*MAILS, "--smoothing", "0", "--predict", str(DOCS / "new-mail.txt"), "--json")
    assert json.loads(said) == {
        "row": 1, "class": None, "unknown": [],
        "posterior": {"bad": None, "good": None}, "log_joint": {"bad": None, "good": None},
    }  # fmt: skip


def test_values_that_were_not_learnt_are_named(tmp_path: Path) -> None:
    days = tmp_path / "days.csv"
    days.write_text("outlook,temperature,humidity,windy\nfoggy,hot,high,false\n")
    assert "not learnt: foggy" in run(WEATHER, "--label", "play", "--predict", str(days))


def test_kinds_that_were_guessed_are_said() -> None:
    said = run(WEATHER, "--label", "play", "--itself", "--column", "windy=presence")
    assert said.startswith("guessed: category outlook, temperature, humidity\n")


def test_a_class_that_is_never_said_has_its_column(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,class\n" + "x,often\n" * 9 + "x,seldom\n")
    assert "often       seldom" in run(str(table), "--itself")


def test_semicolons_may_separate_cells(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text((DOCS / "weather.csv").read_text().replace(",", ";"))
    assert run(str(table), "--label", "play", "--itself") == run(WEATHER, "--label", "play", "--itself")
    table.write_text('"outlook, seen";play\nsunny;no\nrainy;yes\n')
    assert "outlook, seen" in run(str(table), "--label", "play", "--itself")


@pytest.mark.parametrize("digits", [16, 5_000])
def test_a_count_that_cannot_be_kept_is_named_with_its_line(tmp_path: Path, digits: int) -> None:
    table = tmp_path / "counts.csv"
    table.write_text(f"document,term,count,class\nd1,a,1,x\nd2,a,{'9' * digits},y\n")
    result = CliRunner().invoke(main, ["classify", str(table), "--format", "counts"])
    assert result.exit_code == 2
    assert "counts.csv: line 3: count 999999999999999... is none that can be kept" in result.stderr


def test_smoothing_of_a_kind() -> None:
    unsmoothed = ("--smoothing", "category=0", "--prior", "empirical", "--predict", str(DOCS / "today.csv"))
    assert "no 0.7954" in run(WEATHER, "--label", "play", *unsmoothed)
    assert "no 0.7954" not in run(WEATHER, "--label", "play", "--smoothing", "number=0", *unsmoothed[2:])


@pytest.mark.parametrize(
    ("cell", "kind"), [("many", "number"), ("many", "binned"), ("1.5", "poisson")]
)  # fmt: skip
def test_a_cell_of_another_kind_is_named_by_its_line(tmp_path: Path, cell: str, kind: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"a,class\n1,x\n2,y\n{cell},x\n3,y\n")
    assert f"table.csv: line 4: column 'a': '{cell}'" in run(str(table), "--itself", "--column", f"a={kind}", code=2)


@pytest.mark.parametrize("plot", ["curve.svg", "curve.png"])
def test_a_learning_curve_is_drawn(tmp_path: Path, plot: str) -> None:
    run(*MAILS, "--learning-curve", "--plot", str(tmp_path / plot))
    assert (tmp_path / plot).stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param((), "name a table, or a file of texts for each class", id="nothing"),
        pytest.param((WEATHER,), "no column 'class'; its columns: outlook", id="label"),
        pytest.param((WEATHER, "--label", "play", "--column", "windy"), "--column 'windy': wanted is", id="column"),
        pytest.param((WEATHER, "--label", "play", "--column", "w=text"), "no such column", id="no-column"),
        pytest.param((WEATHER, "--label", "play", "--prior", "yes=2,no=1"), "each is between 0 and 1", id="prior"),
        pytest.param((WEATHER, "--label", "play", "--prior", "uniform"), "wanted is map, empirical", id="prior-name"),
        pytest.param((WEATHER, "--label", "play", "--prior", "a=.5,b=.5"), "learnt from are no, yes", id="prior-class"),
        pytest.param((WEATHER, "--label", "play", "--smoothing", "words=1"), "'words' is no kind", id="smoothing-kind"),
        pytest.param((WEATHER, "--label", "play", "--smoothing", "-1"), "wanted is 0 to", id="smoothing"),
        pytest.param((WEATHER, "--label", "play", "--smoothing", "a"), "'a' is no number", id="smoothing-word"),
        pytest.param((*MAILS, "--itself", "--folds", "2"), "--itself and --folds: choose one", id="two-tasks"),
        pytest.param(
            (WEATHER, "--label", "play", "--likelihood", "bernoulli", "--likelihood", "poisson"),
            "no column is any; give one a kind", id="likelihoods-of-nothing",
        ),
        pytest.param(
            (NUMBERS, "--label", "play", "--column", "temperature=count"), "is no bag of words", id="one-count",
        ),
        pytest.param((*MAILS, "--predict", "/dev/null"), "--predict: no row; if the first line", id="no-row"),
        pytest.param((WEATHER, "--label", "play", "--prior", "yes=x,no=1"), "'x' is no number", id="prior-word"),
        pytest.param((WEATHER, "--label", "play", "--folds", "15"), "15 folds, and the table has 14 rows", id="folds"),
        pytest.param((WEATHER, "--label", "play", "--words", "none.txt"), "none.txt: No such file", id="words"),
        pytest.param(
            (*MAILS, "--likelihood", "one_rule", "--show", "the"), "not one_rule", id="show"
        ),
        pytest.param((*MAILS, "--likelihood", "one_rule", "--itself"), "1R needs a column", id="one-rule"),
        pytest.param((WEATHER, "--label", "play", "--plot", "a.svg"), "--plot draws", id="nothing-to-plot"),
        pytest.param(
            (WEATHER, "--label", "play", "--predict", str(DOCS / "great.txt"), "--format", "csv"),
            "--predict: no column 'outlook', which was learnt; the columns are great", id="other-columns",
        ),
        pytest.param((*MAILS, "--learning-curve", "--plot", "a.gif"), "a plot ends in .svg or .png", id="plot"),
        pytest.param(
            ("none.csv", "--learning-curve", "--plot", "a.gif"), "a plot ends in .svg or .png", id="plot-first"
        ),
        pytest.param(("none.csv", "--learning-curve", "--plot", "none/a.svg"), "no folder none", id="plot-place"),
        pytest.param(("none.csv", "--learning-curve", "--plot", str(DOCS)), "is a folder", id="plot-folder"),
        pytest.param(("--class", "a=none.txt", "--class", "b=none.txt"), "none.txt: No such file", id="class"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(words: tuple[str, ...], said: str) -> None:
    assert said in run(*words, code=2)


def table(folder: Path, name: str, *lines: str) -> str:
    file = folder / name
    file.write_bytes("\n".join(lines).encode())
    return str(file)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 3e-5, 1e-8])
def test_numbers_of_any_size_have_the_posteriors_of_the_formula(tmp_path: Path, unit: float) -> None:
    def rows(mean: float, label: str) -> list[str]:
        return [f"{(mean + 0.1 * at) * unit},{label}" for at in (-1, -0.5, 0, 0.5, 1)]

    known = table(tmp_path, "known.csv", "x,class", *rows(1, "no"), *rows(3, "yes"))
    new = table(tmp_path, "new.csv", "x", f"{2.001 * unit}", f"{1.5 * unit}")
    first, second = map(json.loads, run(known, "--predict", new, "--json").splitlines())
    assert first["posterior"]["yes"] == pytest.approx(1 / (1 + math.exp((0.999**2 - 1.001**2) / (2 * 0.005))))
    assert (first["class"], second["class"]) == ("yes", "no")


def test_what_is_too_large_for_a_float_has_its_logarithm(tmp_path: Path) -> None:
    columns = ",".join(f"c{at}" for at in range(90))
    zeros = ",".join("0" * 90)
    known = table(tmp_path, "known.csv", f"{columns},class", f"{zeros},a", f"{zeros},b")
    new = table(tmp_path, "new.csv", columns, zeros)
    assert "0.5000 (joint exp(" in run(known, "--predict", new)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_where_text_files_end_them(tmp_path: Path, end: str) -> None:
    lines = [f"x\x85\x0c{at} \u2028 \x0b" for at in range(4)]
    known = tmp_path / "known.csv"
    known.write_bytes(end.join(["x,class", *(f'"{line}",{"ab"[at % 2]}' for at, line in enumerate(lines))]).encode())
    assert "of 4 right" in run(str(known), "--itself", "--column", "x=text")
    classes = []
    for label in "ab":
        (tmp_path / label).write_bytes((end.join(lines) + end).encode())
        classes += ["--class", f"{label}={tmp_path / label}"]
    assert "of 8 right" in run(*classes, "--itself")


@pytest.mark.parametrize("likelihood", ["multinomial", "one_rule"])
def test_a_kind_is_guessed_by_all_rows_and_not_by_a_fold(tmp_path: Path, likelihood: str) -> None:
    cells = [*range(10), "x", *range(9)]
    known = table(tmp_path, "known.csv", "x,class", *(f"{cell},{'ab'[at % 2]}" for at, cell in enumerate(cells)))
    assert "of 20 right" in run(known, "--likelihood", likelihood)


def test_the_probabilities_of_the_complement_are_those_of_the_other_classes() -> None:
    said = json.loads(run(*MAILS, "--likelihood", "complement", "--show", "money", "--json"))
    (column,) = said["probabilities"]["money"].values()
    multinomial = json.loads(run(*MAILS, "--show", "money", "--json"))
    (other,) = multinomial["probabilities"]["money"].values()
    assert column == pytest.approx({"bad": other["good"], "good": other["bad"]})


def test_the_most_frequent_words_are_those_of_the_named_ones(tmp_path: Path) -> None:
    known = table(tmp_path, "known.csv", "x,class", "the the the cat,a", "the the the dog,b")
    (tmp_path / "words").write_text("cat dog")
    limits = ("--words", str(tmp_path / "words"), "--most-frequent", "2", "--column", "x=text")
    assert "2 of 2 right" in run(known, "--itself", *limits)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("\ufeffdog\n", id="byte-order-mark"),
        pytest.param("Dog\r\n", id="capital"),
        pytest.param("\u00c9TAT\n", id="capital-beyond-ascii"),
        pytest.param("\u4e2d\u6587\n", id="script-without-spaces"),
    ],
)
def test_words_are_listed_as_a_text_has_them(tmp_path: Path, words: str) -> None:
    known = table(tmp_path, "known.csv", "x,class", "the cat,a", "the dog \u00c9TAT \u4e2d\u6587,b", "the cat,a")
    (tmp_path / "words").write_text(words, encoding="utf-8", newline="")
    limits = ("--words", str(tmp_path / "words"), "--likelihood", "bernoulli", "--column", "x=text")
    assert "3 of 3 right" in run(known, "--itself", "--prior", "equal", *limits)


def test_a_term_of_two_words_is_listed_on_a_line(tmp_path: Path) -> None:
    rows = ("1,New York,3,a", "1,York,2,a", "2,York,1,b", "2,New York,1,b")
    counts = table(tmp_path, "counts.csv", "document,term,count,class", *rows)
    (tmp_path / "words").write_text("New York\n")
    said = run(counts, "--format", "counts", "--words", str(tmp_path / "words"), "--show", "New York", "--show", "York")
    assert ("New York in terms: a 1.0000, b 1.0000" in said, "York: not learnt" in said) == (True, True)


def test_a_word_is_shown_however_it_is_written(tmp_path: Path) -> None:
    known = table(tmp_path, "known.csv", "x,class", "Money \u00c9TAT,a", "none,b")
    for word in ("money", "MONEY", "\u00c9TAT"):
        assert "not learnt" not in run(known, "--column", "x=text", "--show", word)


def test_a_probability_that_is_possible_is_not_shown_as_0(tmp_path: Path) -> None:
    rows = [f"{number},w{number},9000,a" for number in range(4000)]
    counts = table(tmp_path, "counts.csv", "document,term,count,class", *rows, "x,rare,1,b")
    said = run(counts, "--format", "counts", "--show", "rare", "--prior", "empirical")
    assert said.splitlines() == [
        "a: 4000 rows, prior 1.000",
        "b: 1 row, prior 0.00025",
        "rare in terms: a 2.8e-08, b 0.0005",  # 1 / 36,004,001 and 2 / 4,002
    ]


@pytest.mark.parametrize("likelihood", ["multinomial", "bernoulli", "binomial", "poisson"])
def test_a_probability_of_0_is_0(likelihood: str) -> None:
    way = (*MAILS, "--smoothing", "0", "--likelihood", likelihood, "--show", "jumps")
    assert "jumps in text: bad 0.0000, good " in run(*way)
    assert json.loads(run(*way, "--json"))["probabilities"]["jumps"]["text"]["bad"] == 0


def test_a_number_with_a_comma_between_semicolons(tmp_path: Path) -> None:
    known = table(tmp_path, "known.csv", "x;class", "1,5;a", "2,5;b", "1,25;a", "3,5;b")
    assert "guessed: number x" in run(known, "--itself")


@pytest.mark.parametrize("words", [("--label", "c3", "--no-header"), ("--label", "class")])
def test_a_row_of_decimal_commas_is_separated_by_semicolons(tmp_path: Path, words: tuple[str, ...]) -> None:
    header = [] if "--no-header" in words else ["x;y;class"]
    rows = ("1,5e0;2,3;yes", "2,5;1,3;no", "1,7;2,2;yes", "2,9;1,1;no")
    known = table(tmp_path, "known.csv", *header, *rows)
    said = run(known, *words, "--itself")
    assert ("guessed: number" in said, "  no  " in said) == (True, True)


def test_a_rule_ignores_the_columns_that_are_to_be_ignored() -> None:
    rule = ("--label", "play", "--likelihood", "one_rule", "--itself")
    assert "humidity: " in run(NUMBERS, *rule)
    assert "humidity: " not in run(NUMBERS, *rule, "--column", "humidity=ignore")
    said = run(WEATHER, *rule, "--column", "outlook=number", code=2)
    assert "line 2: column 'outlook': 'sunny' is no number; choose another kind" in said
    assert "--column 'nonsense': no such column" in run(NUMBERS, *rule, "--column", "nonsense=ignore", code=2)


def test_a_column_with_the_signs_of_a_pattern_has_a_kind(tmp_path: Path) -> None:
    known = table(tmp_path, "known.csv", "x[1],class", *["1,a", "2,b"] * 5)
    assert "right" in run(known, "--column", "x[1]=category", "--itself")


def test_terms_are_as_they_are_written(tmp_path: Path) -> None:
    rows = ("1,NA,3,a", "1,?,2,a", "2,NA,1,b", "2,x,1,b", "3,x,5,a")
    counts = table(tmp_path, "counts.csv", "document,term,count,class", *rows)
    assert "NA in terms: a 0.3077, b 0.4000" in run(counts, "--format", "counts", "--show", "NA")
    known = table(tmp_path, "known.csv", "Upon,Of,class", "3,2,a", "1,4,b", "3,3,a", "0,5,b")
    (tmp_path / "words").write_text("Upon\nOf\n")
    listed = ("--words", str(tmp_path / "words"), "--column", "*=count")
    assert "4 of 4 right" in run(known, "--itself", *listed)


def test_a_presence_that_is_not_there_is_nothing_unknown(tmp_path: Path) -> None:
    known = table(tmp_path, "known.csv", "x,y,class", "0,1,a", "0,0,b")
    new = table(tmp_path, "new.csv", "x,y", "0,1")
    assert "not learnt" not in run(known, "--column", "*=presence", "--predict", new)


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        (["1e200,a", "1,b", "2,a", "3,b"], ["--itself"], "line 2: column 'x': '1e200' is more than 1e+100"),
        ([f"{'9' * 400},a", "1,b"], ["--itself", "--column", "x=poisson"], "line 2: column 'x': 999999999999999..."),
        ([*["1,yes"] * 20, "2,no"], [], "class 'no' has one row, without which there is one class; say --itself"),
        (["1,a", "2,b"], [], "10 folds, and the table has 2 rows"),
        (["1,a", "2,b"], ["--learning-curve"], "--learning-curve: 2 rows are too few"),
        (["1,a", "2,b"], ["--prior", "a=.5,a=.5", "--itself"], "--prior 'a=.5': 'a' is named twice"),
    ],
)
def test_a_table_that_cannot_be_learnt_is_named(tmp_path: Path, rows: list[str], words: list[str], said: str) -> None:
    assert said in run(table(tmp_path, "known.csv", "x,class", *rows), *words, code=2)


def test_two_files_of_one_class_are_an_error(tmp_path: Path) -> None:
    file = table(tmp_path, "a", "word")
    said = run("--class", f"a={file}", "--class", f"a={file}", "--class", f"b={file}", "--itself", code=2)
    assert f"--class 'a={file}': 'a' is named twice" in said
