"""The command `classify`: its output for programs, and errors that name what is wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from spamfilter.cli import main

DOCS = Path(__file__).parents[2] / "docs" / "textbook"
WEATHER = str(DOCS / "weather.csv")
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
    found = json.loads(run(WEATHER, "--label", "play", "--itself", "--json"))["multinomial"]
    assert [(one["rows"], one["right"]) for one in found] == [(14, 13)]
    assert sum(each["rows"] for each in found[0]["confusion"]) == 14


def test_impossible_predictions_for_programs() -> None:
    said = run(*MAILS, "--smoothing", "0", "--predict", str(DOCS / "new-mail.txt"), "--json")
    assert json.loads(said) == {
        "class": None, "posterior": {"bad": None, "good": None}, "log_joint": {"bad": None, "good": None},
    }  # fmt: skip


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
        pytest.param((WEATHER, "--label", "play", "--prior", "yes=x,no=1"), "'x' is no number", id="prior-word"),
        pytest.param((WEATHER, "--label", "play", "--folds", "15"), "--folds 15: the table has 14 rows", id="folds"),
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
        pytest.param(("--class", "a=none.txt", "--class", "b=none.txt"), "none.txt: No such file", id="class"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(words: tuple[str, ...], said: str) -> None:
    assert said in run(*words, code=2)
