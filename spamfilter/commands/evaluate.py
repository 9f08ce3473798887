"""evaluate."""

import sys
from pathlib import Path
from typing import Any

import click

from spamfilter.commands.command import as_json_option, opened_store, settings_of
from spamfilter.errors import InputError
from spamfilter.evaluation.protocols import PROTOCOLS, Trial, steps
from spamfilter.evaluation.runs import (
    CONFIGURED,
    at_thresholds,
    by_arrival,
    entrants,
    of_journal,
    of_ledger,
    of_mails,
    outcome,
    write_scores,
)
from spamfilter.evaluation.runs import evaluate as run
from spamfilter.learning import labelled_mail
from spamfilter.mail import mailboxes
from spamfilter.reports import rendering

_PATH = click.Path(path_type=Path)


def _percent(context: click.Context, parameter: click.Parameter, value: float) -> float:
    return value / 100


@click.command()
@click.argument("index", nargs=-1, type=_PATH)
@click.option("--spam", multiple=True, type=_PATH, help="Maildir, mbox, .eml or folder of spam.")
@click.option("--ham", multiple=True, type=_PATH, help="Maildir, mbox, .eml or folder of ham.")
@click.option("--live", is_flag=True, help="What this installation has learnt, and the verdicts in its journal.")
@click.option(
    "--likelihood",
    "names",
    multiple=True,
    metavar="NAME",
    help="'configured' (default), a likelihood, 'one_rule', or as fields=soft,body=bernoulli; may be repeated.",
)
@click.option("--protocol", type=click.Choice(list(PROTOCOLS)), default="prequential", show_default=True)
@click.option(
    "--feedback",
    type=click.Choice(["full", "delayed", "partial", "errors-and-unsure"]),
    default="full",
    show_default=True,
    help="Which labels the filter gets after its verdict (prequential).",
)
@click.option(
    "--delay",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Messages between a verdict and its label (--feedback delayed).",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 100),
    default=10,
    show_default=True,
    callback=_percent,
    help="Per cent of messages that get a label (--feedback partial).",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 50),
    default=0,
    show_default=True,
    callback=_percent,
    help="Per cent of labels that are made wrong.",
)
@click.option(
    "--split",
    type=click.Choice(["time", "random", "alternate"]),
    default="time",
    show_default=True,
    help="How trained-once and learning-curve divide the mail.",
)
@click.option("--folds", type=click.IntRange(2, 100), default=10, show_default=True)
@click.option("--first", type=click.IntRange(min=1), help="Use only the first messages, at most this many.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all random choices.")
@click.option(
    "--resamples",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    help="Bootstrap samples for the intervals; 0: no intervals.",
)
@click.option(
    "--wrong-labels",
    "suspects",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Name the N labels that look most wrong.",
)
@click.option("--scores", type=_PATH, help="Write label, log-odds and class of each message to this file.")
@click.option("--plot", type=_PATH, help="Draw ROC and calibration, or the learning curve: .svg or .png.")
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
    names = tuple(dict.fromkeys(names or (CONFIGURED,)))
    if scores and (len(names) > 1 or protocol == "learning-curve"):
        raise click.UsageError("--scores holds one run: one --likelihood, and no learning-curve")
    for target in filter(None, (scores, plot)):
        if not target.parent.is_dir():
            raise InputError(f"{target}: there is no folder {target.parent}")
    if plot:
        from spamfilter.evaluation.plots import check, draw

        check(plot)
    settings = settings_of(file)
    voices, enter = entrants(names, settings.learn)
    trial = at_thresholds(Trial(**varied), settings.policy())
    past = []
    if live:
        with opened_store(settings) as store:
            examples = of_ledger(store, voices)
            judged = of_journal(store)
            past = [outcome(judged, "as judged", resamples)] if judged else []
    else:
        mails = [item for path in index for item in labelled_mail.find_indexed(path)]
        piles = [[mail for path in paths for mail in mailboxes.find(path)] for paths in (spam, ham)]
        examples = of_mails([*mails, *by_arrival(labelled_mail.interleaved(*piles))], voices)
    examples = examples[:first]
    if len(examples) < trial.folds and protocol == "cross-validation":
        raise InputError(f"{len(examples)} messages cannot be divided into {trial.folds} folds")
    length = steps(protocol, len(examples), len(names), trial)
    with click.progressbar(length=length, label="Evaluating", file=sys.stderr) as bar:
        outcomes = past + run(examples, enter, protocol, trial, bar.update, resamples)
    if scores:
        write_scores(scores, outcomes[-1].run)
    if plot:
        draw(plot, outcomes, f"{protocol}, {len(examples):,} messages")
    for found in outcomes:
        if as_json:
            click.echo(rendering.to_json(rendering.outcome_json(found, suspects)))
    if not as_json:
        click.echo(rendering.outcomes_text(outcomes, suspects))
