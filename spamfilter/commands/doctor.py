"""The command `doctor`: the findings as text or JSON, with an exit code for monitoring."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from spamfilter.commands.command import as_json_option
from spamfilter.config import settings
from spamfilter.doctor import CHECKS, STATUSES, Diagnosis, Examination, examine
from spamfilter.reports import rendering
from spamfilter.system.escaping import harmless
from spamfilter.system.screen import coloured, sentence

WIDTH = max(map(len, CHECKS))
INDENT = 7 + 2 + WIDTH + 2
"""Columns before a finding: those of its status and its check."""


@click.command()
@click.option("--verify", "deep", is_flag=True, help="Check every page and recompute every count; this takes time.")
@click.option("--no-canary", is_flag=True, help="Send no probe through the relay.")
@click.option(
    "--dovecot",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of Dovecot's configuration, if it is neither /etc/dovecot nor /usr/local/etc/dovecot.",
)
@as_json_option
@click.pass_context
def doctor(context: click.Context, deep: bool, no_canary: bool, dovecot: Path | None, as_json: bool) -> None:
    """Is the relay running, and is it learning? Below each problem stands what to do.

    Run it as root or as the user of the relay. Exit code for monitoring: 0 all is well, 1 there are
    warnings, 2 something has failed.

    Example: spamfilter doctor
    """
    examined = Examination(settings.load(context.obj), context.obj, deep, dovecot)
    diagnosis = examine(examined, ("canary",) if no_canary else ())
    if as_json:
        click.echo(rendering.to_json(asdict(diagnosis)))
    else:
        _print(diagnosis)
    context.exit(diagnosis.exit_code)


def _print(diagnosis: Diagnosis) -> None:
    for line in diagnosis.lines:
        sentence(f"{coloured(line.status, 7)}  {_named(line.check):<{WIDTH}}  {harmless(line.found)}", indent=INDENT)
        if line.status != "ok":
            sentence(f"{'':<{INDENT}}-> {harmless(line.advice)}", indent=INDENT + 3)
    counted = Counter(line.status for line in diagnosis.lines)
    summary = ", ".join(f"{counted[status]} {coloured(status)}" for status in STATUSES if counted[status])
    reasons = ", ".join(f"{_named(name)} ({harmless(reason)})" for name, reason in diagnosis.not_tried.items())
    sentence(f"{summary}; not tried: {reasons}" if reasons else summary)


def _named(check: str) -> str:
    return check.replace("_", " ")
