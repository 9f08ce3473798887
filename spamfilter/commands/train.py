"""train."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from spamfilter.bayes import compiled
from spamfilter.commands.command import as_json_option, opened_filter, tell_problems, user
from spamfilter.learning import labelled_mail
from spamfilter.reports import rendering
from spamfilter.system.escaping import harmless
from spamfilter.system.screen import note, sentence


@click.command()
@click.option("--spam", multiple=True, type=click.Path(path_type=Path), help="Maildir, mbox, .eml or folder of spam.")
@click.option("--ham", multiple=True, type=click.Path(path_type=Path), help="Maildir, mbox, .eml or folder of ham.")
@click.option("--index", multiple=True, type=click.Path(path_type=Path), help="File of lines 'spam PATH', 'ham PATH'.")
@click.option(
    "--repeats",
    type=click.Choice(["once", "count"]),
    default="once",
    show_default=True,
    help="Whether equal messages count once, or as often as they come, as short texts do.",
)
@as_json_option
@click.pass_obj
def train(
    file: Path | None,
    spam: tuple[Path, ...],
    ham: tuple[Path, ...],
    index: tuple[Path, ...],
    repeats: str,
    as_json: bool,
) -> None:
    """Learn from sorted mail, in bulk. May be stopped and started again; no message counts twice.

    Goes over the mail up to five times, and learns again what is still judged wrongly or narrowly.

    Example: spamfilter train --spam ~/Maildir/.Junk --ham ~/Maildir/.Archive
    """
    from spamfilter.learning.bulk_training import STEPS, Outcome
    from spamfilter.learning.bulk_training import train as run
    from spamfilter.learning.reading_ahead import processes_here
    from spamfilter.learning.training_rounds import ROUNDS

    if not (spam or ham or index):
        raise click.UsageError("name some mail: --spam PATH and --ham PATH, or --index FILE")
    mails = [item for path in index for item in labelled_mail.find_indexed(path)]
    mails += labelled_mail.find_piles(spam, ham, note)
    outcome = Outcome()
    with opened_filter(file, whole=True) as (filter, settings):
        sentence(f"learning into {harmless(filter.store.where)}", err=True)
        try:
            with click.progressbar(
                length=STEPS * len(mails), label=f"Learning, {ROUNDS} rounds", file=sys.stderr
            ) as bar:
                run(filter, mails, user(), bar.update, outcome, processes_here(), repeats == "count")
        except KeyboardInterrupt:
            click.echo(err=True)
            sentence("stopped; what was learnt is kept. Run the same command to continue", err=True)
            raise
        finally:
            if as_json:
                click.echo(rendering.to_json(asdict(outcome)))
            else:
                click.echo(
                    f"learnt {outcome.learnt['ham']} ham and {outcome.learnt['spam']} spam;"
                    f" {outcome.known} were already learnt, {outcome.relabelled} changed their label"
                )
                if compiled.WHY_PLAIN:
                    sentence(f"judging here is {compiled.in_words()}", err=True)
        sentence(f"the relay {settings.policy().rejecting(filter.store.state({}).learnt)}", err=True)
    tell_problems(outcome.problems)
