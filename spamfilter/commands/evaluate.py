"""The command `evaluate`: measures filters on labelled mail."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from spamfilter.commands.command import PATH, as_json_option, check_target, opened_store, settings_of, tell_problems
from spamfilter.errors import InputError
from spamfilter.evaluation import plots, runs
from spamfilter.evaluation.protocols import PROTOCOLS, Feedback, Split, Trial, steps
from spamfilter.learning.bulk import labelled_mail
from spamfilter.reports import rendering
from spamfilter.system.screen import note, progress, sentence, table_width

_Option = Callable[[Callable[..., None]], Callable[..., None]]
_FEEDBACK = click.Choice(get_args(Feedback))
_SPLITS = click.Choice(get_args(Split))
_NATURAL, _FROM_ONE = click.IntRange(min=0), click.IntRange(min=1)
_UP_TO_HALF, _UP_TO_ALL = click.FloatRange(0, 50), click.FloatRange(0, 100)


def _option(name: str, kind: Any, default: str | float, help: str, **more: Any) -> _Option:
    """An option that shows its default. kind: a type of click."""
    return click.option(name, type=kind, default=default, show_default=True, help=help, **more)


def _percent(context: click.Context, parameter: click.Parameter, value: float) -> float:
    return value / 100


_GOES_WITH = {
    "feedback": ("protocol", ("prequential",)),
    "delay": ("feedback", ("delayed",)),
    "share": ("feedback", ("partial",)),
    "train_first": ("feedback", ("small-user",)),
    "a_day": ("feedback", ("small-user",)),
    "day": ("feedback", ("small-user",)),
    "split": ("protocol", ("trained-once", "learning-curve")),
    "folds": ("protocol", ("cross-validation",)),
}
"""Option -> the option that it goes with, and the values of that."""


def _check_options(given: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that would change nothing; figures would be taken for those of another trial."""
    source = click.get_current_context().get_parameter_source
    for name, (other, values) in _GOES_WITH.items():
        if source(name) == ParameterSource.COMMANDLINE and given[other] not in values:
            wanted = " or ".join(f"--{other} {value}" for value in values)
            raise click.UsageError(f"--{name.replace('_', '-')} goes with {wanted}")


@click.command()
@click.argument("index", nargs=-1, type=PATH)
@click.option("--spam", multiple=True, type=PATH, help="A Maildir, mbox, .eml or folder of spam; may be repeated.")
@click.option("--ham", multiple=True, type=PATH, help="A Maildir, mbox, .eml or folder of ham; may be repeated.")
@click.option("--live", is_flag=True, help="What this installation has learnt, and the verdicts in its journal.")
@click.option(
    "--likelihood",
    "names",
    multiple=True,
    metavar="NAME",
    help="'configured' (default), a likelihood, 'one_rule', or as fields=soft,body=bernoulli; may be repeated.",
)
@_option("--protocol", click.Choice(list(PROTOCOLS)), "prequential", "What is learnt before which message is judged.")
@_option("--feedback", _FEEDBACK, "full", "Which labels the filter gets after its verdict (prequential).")
@_option("--delay", _FROM_ONE, 500, "Messages between a verdict and its label (--feedback delayed).")
@_option("--share", _UP_TO_ALL, 10, "Per cent of messages that get a label (--feedback partial).", callback=_percent)
@_option("--train-first", _FROM_ONE, 50, "Messages of each class to train on (--feedback small-user).")
@_option("--a-day", _NATURAL, 10, "Marks a day at most, for wrong verdicts first (--feedback small-user).")
@_option("--day", _FROM_ONE, 100, "Messages that come in a day (--feedback small-user).")
@_option("--noise", _UP_TO_HALF, 0, "Per cent of labels that are made wrong.", callback=_percent)
@_option("--split", _SPLITS, "time", "How trained-once and learning-curve divide the mail.")
@_option("--folds", click.IntRange(2, 100), 10, "Parts of the mail (--protocol cross-validation).")
@click.option("--first", type=_FROM_ONE, help="Use only the first messages, at most this many.")
@_option("--seed", int, 1, "Seed of all random choices.")
@_option("--resamples", _NATURAL, 500, "Bootstrap samples for the intervals; 0: no intervals.")
@click.option(
    "--wrong-labels", "suspects", type=_NATURAL, default=0, metavar="N",
    help="Name the N labels that look most wrong.",
)  # fmt: skip
@click.option("--scores", type=PATH, help="Write label, score and class of each message to this file.")
@click.option("--plot", type=PATH, help="Draw ROC and calibration, or the learning curve: .svg or .png.")
@as_json_option
@click.pass_obj
def evaluate(
    file: Path | None,
    /,
    index: tuple[Path, ...],
    spam: tuple[Path, ...],
    ham: tuple[Path, ...],
    live: bool,
    names: tuple[str, ...],
    protocol: str,
    first: int | None,
    resamples: int,
    suspects: int,
    scores: Path | None,
    plot: Path | None,
    as_json: bool,
    **varied: Any,
) -> None:
    """Measure filters on your own labelled mail: an INDEX of lines 'spam PATH', 'ham PATH', or folders, or --live.

    Mail of folders is taken in the order in which it arrived. The database does not change.

    Example: spamfilter evaluate --spam ~/Maildir/.Junk --ham ~/Maildir/.Archive --likelihood configured
    --likelihood multinomial
    """
    if live == bool(index or spam or ham):
        raise click.UsageError("name some mail: an INDEX, or --spam PATH and --ham PATH, or else --live")
    _check_options({"protocol": protocol, **varied})
    names = tuple(dict.fromkeys(names or (runs.CONFIGURED,)))
    if scores and (len(names) > 1 or protocol == "learning-curve"):
        raise click.UsageError("--scores holds one run: one --likelihood, and no learning-curve")
    for target in filter(None, (scores, plot)):
        check_target(target)
    if plot:
        plots.check(plot)
    settings = settings_of(file)
    voices, enter = runs.entrants(names, settings.learn)
    trial = Trial(**varied, unsure=settings.policy().unsure, spam=settings.policy().spam)
    past = []
    problems: list[str] = []
    if live:
        with opened_store(settings, existing=True) as store:
            examples = runs.of_ledger(store, voices)
            judged = runs.of_journal(store)
            past = [runs.outcome(judged, "as judged", resamples)] if judged else []
    else:
        indexed = [item for path in index for item in labelled_mail.find_indexed(path)]
        piles = labelled_mail.find_piles(spam, ham, note)
        mails = [*runs.mails_alone(indexed, problems), *runs.by_arrival(runs.mails_alone(piles, problems))]
        examples = runs.of_mails(labelled_mail.as_they_came(mails, settings.subject_prefixes()), voices)
        tell_problems(problems, leave=False)
    examples = examples[:first]
    if len(examples) < trial.folds and protocol == "cross-validation":
        raise InputError(f"{len(examples)} messages cannot be divided into {trial.folds} folds")
    length = steps(protocol, len(examples), len(names), trial)
    with progress("Evaluating", length) as tell:
        outcomes = past + runs.evaluate(examples, enter, protocol, trial, tell, resamples)
    if as_json:
        for found in outcomes:
            click.echo(rendering.to_json(rendering.outcome_json(found, suspects)))
    else:
        for line in rendering.outcomes_text(outcomes, suspects, table_width()).split("\n"):
            sentence(line, indent=4)
    if scores:
        runs.write_scores(scores, outcomes[-1].run)
    if plot:
        plots.draw(plot, outcomes, f"{protocol}, {len(examples):,} messages")
    if problems:
        sys.exit(InputError.exit_code)
