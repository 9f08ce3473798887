"""judge."""

from pathlib import Path

import click

from spamfilter import rendering
from spamfilter.commands.command import as_json_option, names_argument, opened_filter
from spamfilter.commands.subjects import named, subjects


@click.command()
@names_argument
@click.option("--explain", is_flag=True, help="Show the tokens that made the score, with their counts.")
@as_json_option
@click.pass_obj
def judge(file: Path | None, names: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """Judge messages without delivering or learning them.

    Example: spamfilter judge --explain message.eml
    """
    with opened_filter(file, whole=False) as (filter, settings):
        policy = settings.policy()
        for subject in subjects(filter, names or ("-",)):
            score, evidence = filter.explained(subject.reading, None if explain else 0)
            tokens = sum(len(tokens) for tokens in subject.reading.tokens.values())
            class_ = policy.classify(score.posterior, filter.learnt)
            if as_json:
                judged = rendering.judgement_json(named(subject), score, class_, tokens, evidence)
                click.echo(rendering.to_json(judged))
            else:
                click.echo(rendering.judgement_text(subject.name, score, class_, tokens, evidence))
