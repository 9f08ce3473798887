"""The command `judge`: the verdicts on mails, and why."""

from pathlib import Path

import click

from spamfilter.commands.command import as_json_option, names_argument, opened_filter
from spamfilter.commands.mail_arguments import subjects
from spamfilter.learning.explanation import judgement_json, judgement_text
from spamfilter.learning.provenance import provenance
from spamfilter.reports import rendering
from spamfilter.system.garbage_collection import unsearched

FEW = 10
"""Up to this many messages, the words of each are read from the database. For more, all counts are loaded at once:
loading 300,000 words takes as long as looking up those of ten messages (benchmarks/judge_speed.py)."""


@click.command()
@names_argument
@click.option(
    "--explain",
    is_flag=True,
    help="Show the words that made the score, who taught them, and what would change the verdict.",
)
@as_json_option
@click.pass_obj
def judge(file: Path | None, names: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """Judge messages without delivering or learning them.

    With --explain: the most influential words, their counts and log-odds; the trainings that gave these counts
    (#: the number in the ledger), with id and subject if they are in the journal; and what would change the
    verdict.

    Example: spamfilter judge --explain message.eml
    """
    with unsearched(), opened_filter(file, whole=len(names) > FEW) as (filter, settings):
        policy = settings.policy()
        for number, subject in enumerate(subjects(filter, names or ("-",))):
            if number == FEW:  # a folder has more mails than there are names
                filter.hold_all()
            reading = subject.reading
            score, evidence = filter.explained(reading, None if explain else 0)
            tokens = sum(len(tokens) for tokens in reading.tokens.values())
            class_ = policy.classify(score, filter.learnt)
            because = provenance(filter, policy, reading, score, evidence) if explain else None
            if as_json:
                judged = judgement_json(
                    rendering.name_json(subject), score, class_, tokens, evidence, because, subject.written
                )
                click.echo(rendering.to_json(judged))
            else:
                told = judgement_text(subject.name, score, class_, tokens, evidence, because, subject.written)
                click.echo(told)
