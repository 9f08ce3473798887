"""stats."""

from datetime import UTC, datetime
from pathlib import Path

import click

from spamfilter import rendering
from spamfilter.commands.command import moment, opened_store, settings_of


@click.command()
@click.option("--since", default="7d", show_default=True, help="A span (24h, 7d, 4w) or a date (2026-01-31, UTC).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people, or for programs.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_obj
def stats(file: Path | None, since: str, form: str, as_json: bool) -> None:
    """Report: mail, verdicts, errors that users corrected, speed, what was learnt, words that mattered.

    Example: spamfilter stats --since 24h
    """
    from spamfilter.report import build

    now = datetime.now(UTC)
    begin = moment("--since", since, now)
    settings = settings_of(file)
    with opened_store(settings) as store:
        report = build(store, list(settings.learn.kinds()), begin, now)
    if as_json or form == "json":
        click.echo(rendering.to_json(rendering.report_json(report)))
    else:
        click.echo(rendering.report_text(report))
