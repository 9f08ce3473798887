"""Plots of an evaluation: ROC on logit axes and reliability, or the learning curve.

Needs the extra `plots`. The ending of the file's name says the format: SVG or PNG.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spamfilter.bayes.labels import Label
from spamfilter.errors import InputError, file_errors
from spamfilter.evaluation.confidence_intervals import wilson
from spamfilter.evaluation.error_rates import BINS, bins_of, is_spam
from spamfilter.evaluation.runs import RunOutcome

FORMATS = (".svg", ".png")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""The palette of Okabe and Ito, which colour-blind readers can tell apart."""
_STYLES = ("-", "--", "-.", ":")


def check(file: Path) -> None:
    """Raise InputError for an unknown format, or if matplotlib is missing."""
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"{file}: a plot ends in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise InputError("plots need matplotlib: in the checkout, .venv/bin/pip install '.[plots]'") from error


def draw(file: Path, outcomes: Sequence[RunOutcome], title: str) -> None:
    """Write the picture. Raises InputError for an unknown format, a missing library, a file that cannot be written."""
    curves: dict[str, list[tuple[float, ...]]] = {}
    for one in outcomes:
        if one.run.part:  # those from the journal have no training size
            point = int(one.run.part), one.metrics.accuracy, *one.intervals.get("accuracy", ())
            curves.setdefault(one.likelihood, []).append(point)
    series = [(f"{one.likelihood} ({one.metrics.ece:.4f})", one.run.posteriors, one.run.labels) for one in outcomes]

    def plots(figure: Any) -> None:
        if curves:
            axes = figure.subplots()
            _lines(axes, curves, "messages trained on", "accuracy, %")
            axes.set_title("Learning curve")
        else:
            left, right = figure.subplots(1, 2)
            _roc(left, outcomes)
            _reliability(right, series)

    _write(file, (6.4, 4.4) if curves else (11, 5), plots, title)


def draw_reliability(file: Path, series: Sequence["Series"], title: str) -> None:
    """Write the picture of what was said against what was true alone. Raises InputError as `draw`."""
    _write(file, (6.4, 5), lambda figure: _reliability(figure.subplots(), series), title)


Series = tuple[str, Sequence[float], Sequence[Label]]
"""Name in the legend, probabilities of spam, true labels."""


def _write(file: Path, size: tuple[float, float], plots: Callable[[Any], None], title: str) -> None:
    check(file)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "spamfilter", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        plots(figure)
        figure.suptitle(title)
        with file_errors(file):
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)


def _style(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _STYLES[number // len(_COLOURS) % len(_STYLES)],
        "linewidth": 1.4,
    }


def roc(outcome: RunOutcome) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of ham lost and of spam missed at each threshold, from the highest, clipped to half a message."""
    odds = np.array(outcome.run.log_odds)
    spam = is_spam(outcome.run.labels)
    hams, spams = (~spam).sum(), spam.sum()
    order = np.argsort(-odds, kind="stable")
    last_of_ties = np.append(np.diff(odds[order]) != 0, True)
    lost = np.cumsum(~spam[order])[last_of_ties] / hams
    missed = 1 - np.cumsum(spam[order])[last_of_ties] / spams
    return np.clip(lost, 0.5 / hams, 1 - 0.5 / hams), np.clip(missed, 0.5 / spams, 1 - 0.5 / spams)


def _roc(axes: Any, outcomes: Sequence[RunOutcome]) -> None:
    for number, outcome in enumerate(outcomes):
        lost, missed = roc(outcome)
        name = f"{outcome.likelihood} ({outcome.metrics.roca:.4f})"
        axes.plot(lost, missed, drawstyle="steps-post", label=name, **_style(number))
    axes.set(xscale="logit", yscale="logit")
    ticks = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 70]
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks([tick / 100 for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlim=(1e-4, 0.7), ylim=(0.7, 1e-4), xlabel="ham lost, %", ylabel="spam missed, %", title="ROC, logit axes")
    axes.grid(alpha=0.25)
    axes.legend(title="1-ROCA%", fontsize=8)


def _reliability(axes: Any, series: Sequence[Series]) -> None:
    axes.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=0.8)
    for number, (name, posteriors, labels) in enumerate(series):
        p = np.array(posteriors)
        spam, place = is_spam(labels), bins_of(p)
        full = [at for at in range(BINS) if (place == at).any()]
        said = np.array([p[place == at].mean() for at in full])
        counted = [(int(spam[place == at].sum()), int((place == at).sum())) for at in full]
        true = np.array([some / of for some, of in counted])
        bounds = np.array([wilson(some, of) for some, of in counted])
        colour = _style(number)["color"]
        beside = said + 0.006 * (number - len(series) / 2)  # so that bars do not hide each other
        around = np.abs(bounds.T - true)
        axes.errorbar(beside, true, yerr=around, fmt="o", markersize=4, label=name, color=colour, elinewidth=0.9)
    axes.set(
        xlabel="probability of spam, as said",
        ylabel="share of spam, as it was",
        title="Reliability, with 95 % intervals",
    )
    axes.grid(alpha=0.25)
    axes.legend(title="ECE", fontsize=8)


Lines = Mapping[str, Sequence[tuple[float, ...]]]
"""Name -> place, value, and the least and the most of its interval, if it has one."""


def draw_lines(file: Path, lines: Lines, across: str, upwards: str) -> None:
    """Write lines with a band around each. Raises as `draw`."""
    _write(file, (6.4, 4.4), lambda figure: _lines(figure.subplots(), lines, across, upwards), "")


def draw_points(file: Path, points: Mapping[str, Sequence[float]], across: str, upwards: str) -> None:
    """Write a point for each value, in their order. Raises as `draw`."""

    def plots(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, values) in enumerate(points.items()):
            # A pair of $ would be a formula, and a name that begins with _ is left out.
            label = " " * name.startswith("_") + name.replace("$", r"\$")
            axes.plot(range(1, len(values) + 1), values, "o", label=label, color=_style(number)["color"])
        _named(axes, across, upwards)

    _write(file, (6.4, 4.4), plots, "")


def _lines(axes: Any, lines: Lines, across: str, upwards: str) -> None:
    for number, (name, points) in enumerate(lines.items()):
        places, values, *bounds = zip(*points, strict=True)
        style = _style(number)
        axes.plot(places, values, marker="o", markersize=4, label=name, **style)
        if bounds:
            axes.fill_between(places, *bounds, color=style["color"], alpha=0.12, linewidth=0)
    _named(axes, across, upwards)


def _named(axes: Any, across: str, upwards: str) -> None:
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=across, ylabel=upwards)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
