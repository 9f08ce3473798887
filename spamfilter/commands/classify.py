"""The command `classify`: tables and lines of text by the likelihoods of the filter, without a mailbox."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from spamfilter.commands.command import PATH, as_json_option, check_target
from spamfilter.errors import InputError
from spamfilter.system.escaping import printable
from spamfilter.tables.arguments import Arguments
from spamfilter.tables.classifier import Prediction, TableClassifier
from spamfilter.tables.columns import COUNT, KINDS, OF_TEXT, check
from spamfilter.tables.one_rule import kinds_for_rule, one_rule
from spamfilter.tables.reading import FORMATS, TEXT, Row, Table, read
from spamfilter.tables.trials import TableOutcome, cross_validated, judged, learning_curve

ONE_RULE = "one_rule"
LEAST, MOST = math.log(math.ulp(0.0)), math.log(sys.float_info.max)
"""Logarithms of numbers that a float can hold."""


@click.command()
@click.argument("table", type=PATH, required=False)
@click.option("--class", "classes", multiple=True, metavar="NAME=FILE", help="Texts of a class, one a line.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="What TABLE is; by its ending if not said.")
@click.option("--label", default="class", show_default=True, help="The column that has the class.")
@click.option("--no-header", is_flag=True, help="The first line is a row; columns are c1, c2 and so on.")
@click.option(
    "--column", "columns", multiple=True, metavar="NAME=KIND",
    help=f"What a column, or each that fits a pattern, holds: {', '.join(KINDS)}, best (chosen by the data) or ignore;"
    " guessed if not said.",
)  # fmt: skip
@click.option(
    "--likelihood", "likelihoods", multiple=True, type=click.Choice((*OF_TEXT, ONE_RULE)), metavar="NAME",
    help=f"Of texts and counts: {', '.join(OF_TEXT)}; one_rule: the baseline of a single column. Several are compared.",
)  # fmt: skip
@click.option(
    "--smoothing", "smoothings", multiple=True, metavar="M|KIND=M", help="1 if not said; 0: unsmoothed; or of a kind."
)
@click.option("--prior", default="map", show_default=True, help="map, empirical, equal, or yes=0.6,no=0.4.")
@click.option("--words", type=PATH, help="A file of the words that count, one a line; no others do.")
@click.option("--most-frequent", type=click.IntRange(1), help="Only so many words count, the most frequent.")
@click.option("--least-count", type=click.IntRange(1), default=1, help="Only words count that occur so often.")
@click.option("--fake-document", is_flag=True, help="Add a document of all words to each class.")
@click.option("--unbiased", is_flag=True, help="Divide variances by n - 1.")
@click.option("--bins", type=click.IntRange(2, 1000), default=10, show_default=True, help="Bins of a binned column.")
@click.option("--predict", "new", type=PATH, help="Print the class of each row of this file.")
@click.option("--show", "shown", multiple=True, metavar="WORD", help="Print P(WORD in a class); and the priors.")
@click.option("--itself", is_flag=True, help="Judge what was learnt.")
@click.option("--folds", type=click.IntRange(2, 100_000), help="Of cross-validation; 10 if not said.")
@click.option("--learning-curve", "curve", is_flag=True, help="Train on more and more of one half, judge the other.")
@click.option("--plot", type=PATH, help="Write the learning curve, or P(class) of each row, as .svg or .png.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the order of the rows.")
@as_json_option
def classify(table: Path | None, **options: Any) -> None:
    """Classify the rows of a table, or lines of text, by naive Bayes.

    TABLE is a CSV or TSV file with a column of labels; lines of a label, a tab and a text, or the other way round
    (--format label-text, text-label); or counts, a CSV file of document, term, count and label. Each column gets a
    distribution of its kind, a missing value (empty, ? or NA) leaves its factor out, and the logarithms are summed.
    The database of the relay is not touched.

    Without --predict, --itself or --learning-curve: 10-fold cross-validation.

    Example: spamfilter classify weather.csv --label play --predict today.csv
    """
    asked = Arguments(table, **options)
    tasks = {
        "--predict": asked.new is not None, "--show": bool(asked.shown), "--itself": asked.itself,
        "--learning-curve": asked.curve, "--folds": asked.folds is not None,
    }  # fmt: skip
    if len(said := [task for task, chosen in tasks.items() if chosen]) > 1:
        raise InputError(f"{' and '.join(said)}: choose one")
    if asked.plot is not None:
        if asked.new is None and not asked.curve:
            raise InputError("--plot draws --predict or --learning-curve")
        from spamfilter.evaluation import plots

        check_target(asked.plot)
        plots.check(asked.plot)
    counting = asked.counting()
    known = asked.known()
    names = asked.likelihoods or ("multinomial",)
    makers = {name: None if name == ONE_RULE else asked.maker(counting, name) for name in names}
    rule_kinds = kinds_for_rule(asked.maker(counting, "multinomial").chosen(known), known)
    if asked.shown:
        _show(_the_one(makers), known, asked.shown, asked.as_json)
    elif asked.new is not None:
        rows = read(asked.new, asked.label, asked.format_, not asked.no_header, labelled=False)
        _predict(_the_one(makers), known, rows, asked.plot, asked.as_json)
    else:
        _compare(asked, makers, rule_kinds, known)


def _compare(
    asked: Arguments, makers: Mapping[str, TableClassifier | None], rule_kinds: Mapping[str, str], known: Table
) -> None:
    """Print how well each likelihood does: by cross-validation, on what it has learnt, or by a learning curve."""
    titled = {  # where no column has texts or counts, no likelihood was chosen
        name if maker is None or maker.has_words(known) else "naive_bayes": maker for name, maker in makers.items()
    }
    if len(titled) < len(makers):
        raise InputError("likelihoods are of texts and counts, and no column is any; give one a kind with --column")
    rule = one_rule(known, rule_kinds) if ONE_RULE in makers else None
    outcomes = {name: list(_outcomes(asked, maker, rule_kinds, known)) for name, maker in titled.items()}
    if asked.plot is not None:
        from spamfilter.evaluation.plots import draw_lines

        lines = {
            name: [(one.trained_on, one.accuracy, *one.interval) for one in mine] for name, mine in outcomes.items()
        }
        draw_lines(asked.plot, lines, "rows trained on", "accuracy, %")
    first = next(filter(None, makers.values()), None)
    best = first.best(known, first.chosen(known)) if first else {}
    if asked.as_json:
        found: dict[str, Any] = {name: [one.as_json() for one in mine] for name, mine in outcomes.items()}
        if rule:
            found["rule"] = rule.lines()
        if best:
            found["best"] = best
        click.echo(json.dumps(found))
        return
    if guesses := _guesses(first, known):
        click.echo(f"guessed: {_by_kind(guesses)}")
    if best:
        click.echo(f"best, by all rows: {_by_kind(best)}")
    for name in titled:
        if rule and name == ONE_RULE:
            click.echo(f"1R of all rows, {rule.errors} of {rule.rows} wrong:")
            for line in rule.lines():
                click.echo(f"  {printable(line, 100)}")
        for outcome in outcomes[name]:
            click.echo("\n".join(outcome.lines(name, asked.curve)))


def _guesses(maker: TableClassifier | None, known: Table) -> dict[str, str]:
    """The kinds of a table's columns that nobody named."""
    if maker is None:
        return {}
    guesses = TableClassifier().chosen(known).items()
    return {column: kind for column, kind in guesses if not (kind == COUNT or column == TEXT or maker.names(column))}


def _by_kind(kinds: Mapping[str, str]) -> str:
    named: dict[str, list[str]] = {}
    for column, kind in kinds.items():
        named.setdefault(kind, []).append(printable(column, 24))
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in named.items())


def _outcomes(
    asked: Arguments, maker: TableClassifier | None, rule_kinds: Mapping[str, str], known: Table
) -> Iterator[TableOutcome]:
    """The outcomes of a likelihood, or of 1R if there is no maker."""
    kinds = rule_kinds if maker is None else maker.chosen(known)  # not anew by a part of the rows

    def train(table: Table) -> Callable[[Row], str | None]:
        if maker is None:
            return one_rule(table, kinds).predict
        maker.train(table, kinds)
        return lambda row: maker.predict(row).class_

    if asked.curve:
        points = list(learning_curve(known, train, asked.seed))
        if not points:
            raise InputError(f"--learning-curve: {len(known.rows)} rows are too few")
        yield from points
    elif asked.itself:
        yield TableOutcome(judged(train, known, known))
    else:
        yield cross_validated(known, train, asked.folds or 10, asked.seed)


def _the_one(makers: Mapping[str, TableClassifier | None]) -> TableClassifier:
    maker = next(iter(makers.values()))
    if len(makers) != 1 or maker is None:
        raise InputError("--predict and --show take one --likelihood, and not one_rule")
    return maker


def _show(maker: TableClassifier, known: Table, words: tuple[str, ...], as_json: bool) -> None:
    maker.train(known)
    priors = maker.priors_used()
    found = {word: maker.probabilities(word) for word in words}
    if as_json:
        click.echo(json.dumps({"learnt": maker.learnt, "priors": priors, "probabilities": found}))
        return
    for label, prior in priors.items():
        number = maker.learnt[label]
        click.echo(f"{printable(label, 24)}: {number} row{'s' * (number != 1)}, prior {_chance(prior, 3)}")
    for word, columns in found.items():
        if not columns:
            click.echo(f"{printable(word, 32)}: not learnt")
        for column, chances in columns.items():
            each = ", ".join(f"{printable(label, 24)} {_chance(p, 4)}" for label, p in chances.items())
            click.echo(f"{printable(word, 32)} in {printable(column, 32)}: {each}")


def _chance(p: float, digits: int) -> str:
    """A probability with so many digits after the point, but none that is possible as 0."""
    return f"{p:.{digits}f}" if round(p, digits) or not p else f"{p:.2g}"


def _predict(maker: TableClassifier, known: Table, new: Table, plot: Path | None, as_json: bool) -> None:
    maker.train(known)
    learnt = [column for part in maker.parts for column in part.columns]
    if missing := [column for column in learnt if column not in new.columns]:
        raise InputError(
            f"--predict: no column {missing[0]!r}, which was learnt; the columns are {', '.join(new.columns)}"
        )
    if not new.rows:
        raise InputError("--predict: no row; if the first line is one, say --no-header")
    check({column: kind for column, kind in maker.used.items() if column in new.columns}, new)
    found = [maker.predict(row) for row in new.rows]
    if plot is not None:
        from spamfilter.evaluation.plots import draw_points

        chances = {label: [one.posterior[label] for one in found] for label in found[0].posterior}
        draw_points(plot, chances, "row", "P(class)")
    for number, one in enumerate(found, start=1):
        if as_json:
            click.echo(json.dumps({"row": number, **_prediction_json(one)}))
        else:
            click.echo(f"{number}: {_prediction_text(one)}")


def _prediction_text(one: Prediction) -> str:
    if one.class_ is None:
        return "no classification possible: by m = 0 each class is impossible"
    each = ", ".join(
        f"{printable(label, 24)} {p:.4f} (joint {_joint(one.joint[label])})" for label, p in one.posterior.items()
    )
    unknown = [printable(name, 24) for name in one.unknown[:3]] + ["more"] * (len(one.unknown) > 3)
    return f"{printable(one.class_, 24)}; {each}{'; not learnt: ' * bool(unknown)}{', '.join(unknown)}"


def _joint(logarithm: float) -> str:
    """A number, and its logarithm; of a number that is too small or too large only this."""
    if -math.inf < logarithm < LEAST or logarithm > MOST:
        return f"exp({logarithm:.4f})"
    return f"{math.exp(logarithm):.4g}, ln {logarithm:.4f}"


def _prediction_json(one: Prediction) -> dict[str, Any]:
    def finite(values: Mapping[str, float]) -> dict[str, float | None]:
        return {label: value if math.isfinite(value) else None for label, value in values.items()}

    shares, joint = finite(one.posterior), finite(one.joint)
    return {"class": one.class_, "posterior": shares, "log_joint": joint, "unknown": one.unknown}
