"""Plots of an evaluation: both formats, curves checked by hand, and errors that name their cause."""

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import InputError
from spamfilter.evaluation.plots import FORMATS, draw, draw_points, roc
from spamfilter.evaluation.protocols import Example, Run
from spamfilter.evaluation.runs import RunOutcome, outcome

PNG = b"\x89PNG\r\n\x1a\n"
END = b"IEND\xaeB`\x82"


def made(name: str, odds: list[float], labels: list[Label], part: str = "", resamples: int = 0) -> RunOutcome:
    """An outcome with these scores."""
    examples = [Example(str(at), label, dict) for at, label in enumerate(labels)]
    posteriors = [1 / (1 + math.exp(-max(-700.0, value))) for value in odds]
    return outcome(Run(name, part, examples, odds, posteriors), "prequential", resamples)


def several(*names: str, part: str = "", resamples: int = 0) -> list[RunOutcome]:
    chance = np.random.default_rng(3)
    labels = list(LABELS * 20)
    return [
        made(name, [float(chance.normal(1 if label == "spam" else -1)) for label in labels], labels, part, resamples)
        for name in names
    ]


def curve(*names: str, resamples: int = 20) -> list[RunOutcome]:
    return [found for size in (10, 20, 40) for found in several(*names, part=str(size), resamples=resamples)]


def texts(file: Path) -> str:
    """What a picture says: matplotlib writes each text beside its glyphs as a comment."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.parse(file, parser).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return " ".join(node.text or "" for node in root.iter() if not isinstance(node.tag, str))


@pytest.mark.parametrize("name", ["x.svg", "x.SVG"])
def test_an_svg_is_xml_that_names_each_contender(tmp_path: Path, name: str) -> None:
    draw(tmp_path / name, several("soft", "one_rule", "fields=soft,body=eddc"), "40 messages")
    said = texts(tmp_path / name)
    for text in ("soft (", "one_rule (", "fields=soft,body=eddc (", "40 messages", "ROC", "Reliability"):
        assert text in said


@pytest.mark.parametrize("name", ["x.png", "x.PNG"])
def test_a_png_is_whole(tmp_path: Path, name: str) -> None:
    draw(tmp_path / name, several("soft"), "40 messages")
    content = (tmp_path / name).read_bytes()
    assert content.startswith(PNG)
    assert content.endswith(END)
    assert len(content) > 10_000


@pytest.mark.parametrize("resamples", [0, 20], ids=["without-intervals", "with-intervals"])
def test_a_learning_curve_names_each_contender_once(tmp_path: Path, resamples: int) -> None:
    draw(tmp_path / "x.svg", curve("soft", "eddc", resamples=resamples), "learning")
    said = texts(tmp_path / "x.svg")
    assert (said.count("soft"), said.count("eddc")) == (1, 1)
    assert "Learning curve" in said
    assert "ROC" not in said


def test_more_contenders_than_colours_are_drawn_too(tmp_path: Path) -> None:
    names = [f"contender{number}" for number in range(30)]
    draw(tmp_path / "x.svg", several(*names), "many")
    said = texts(tmp_path / "x.svg")
    assert all(f"{name} (" in said for name in names)


def test_a_picture_of_the_same_figures_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(tmp_path / f"{name}.svg", several("soft"), "40 messages")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("odds", "labels"),
    [
        pytest.param([1.0, -1.0], ["spam", "ham"], id="two-messages"),
        pytest.param([0.0] * 4, ["spam", "ham", "ham", "spam"], id="all-tied"),
        pytest.param([900.0, -900.0, 500.0], ["ham", "spam", "spam"], id="upside-down-and-sure"),
    ],
)
def test_few_and_odd_scores_make_a_picture_without_a_warning(
    tmp_path: Path, odds: list[float], labels: list[Label]
) -> None:
    for format in FORMATS:
        draw(tmp_path / f"x{format}", [made("soft", odds, labels)], "few")
        assert (tmp_path / f"x{format}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["x.pdf", "x", "x.svg.gz", ".svg"])
def test_an_unknown_format_is_refused_and_the_known_ones_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"a plot ends in \.svg or \.png"):
        draw(tmp_path / name, several("soft"), "x")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for name, reason in (("none/x.svg", "No such file or directory"), ("folder.png", "Is a directory")):
        with pytest.raises(InputError) as raised:
            draw(tmp_path / name, several("soft"), "x")
        assert str(raised.value) == f"{tmp_path / name}: {reason}"


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from pathlib import Path
from spamfilter.errors import InputError
from spamfilter.evaluation.plots import draw
try:
    draw(Path("x.svg"), [], "x")
except InputError as error:
    print(error)
"""


def test_without_the_library_the_extra_to_install_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env={"PYTHONPATH": str(Path(__file__).parents[2])}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "plots need matplotlib: in the checkout, .venv/bin/pip install '.[plots]'\n"
    assert list(tmp_path.iterdir()) == []


def test_the_points_of_the_curve_are_those_counted_by_hand() -> None:
    found = made("x", [3.0, 2.0, 2.0, 1.0, 0.0, -1.0], ["spam", "spam", "ham", "spam", "ham", "ham"])
    lost, missed = roc(found)
    # Thresholds 3, 2 (one of each), 1, 0, -1; of three ham and three spam each; clipped to half a message.
    assert lost.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 3, 2 / 3, 5 / 6])
    assert missed.tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 6, 1 / 6, 1 / 6])


@pytest.mark.parametrize("seed", range(5))
def test_the_curve_falls_and_encloses_the_area_that_is_measured(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = list(LABELS * 300)
    found = made("x", [round(float(chance.normal(1.2 * (y == "spam"))), 1) for y in labels], labels)
    lost, missed = roc(found)
    assert (np.diff(lost) >= 0).all()
    assert (np.diff(missed) <= 0).all()
    corners = [(0.0, 1.0), *zip(lost.tolist(), missed.tolist(), strict=True), (1.0, 0.0)]
    area = sum((right - left) * (above + below) / 2 for (left, above), (right, below) in pairwise(corners))
    # Clipping moves each end by half a message of three hundred.
    assert 100 * area == pytest.approx(found.metrics.roca, abs=0.4)


@pytest.mark.parametrize("name", ["$^$", "$5", "_b", "a"])
def test_a_class_of_a_table_is_named_as_it_is_written(tmp_path: Path, name: str) -> None:
    draw_points(tmp_path / "x.svg", {name: [0.5, 0.1], "other": [0.5, 0.9]}, "row", "P(class)")
    assert {name, "other"} <= {*texts(tmp_path / "x.svg").split()}
