"""The command `stats`: the report as text, JSON, HTML or mail."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from spamfilter.bayes.verdict import CLASSES
from spamfilter.commands.command import moment, opened_store, settings_of
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.reports import rendering
from spamfilter.reports.daily_summaries import is_whole
from spamfilter.reports.html import report_html
from spamfilter.reports.mail import address_of, report_mail, send
from spamfilter.reports.report import Report, build
from spamfilter.reports.text import report_text
from spamfilter.system.moments import hour_zone
from spamfilter.system.screen import coloured, complain, warn
from spamfilter.system.terminal import WIDTH, columns

ATTENTION = ("  CHANGED", "Advice", "Outages", "Not delivered", "Needs review")
"""Begins of lines that ask for something to be done."""


@click.command()
@click.option(
    "--since", default="7d", show_default=True, help="A span (24h, 7d, 4w), or a date or time (2026-01-31, yesterday)."
)
@click.option("--until", default="", help="The end of the period, likewise: of a date its end; by default now.")
@click.option("--host", default="", metavar="NAME", help="Only the mail of the relay with this [relay] hostname.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="For a terminal, for programs, or a page for a browser.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--mail-to", "addresses", multiple=True, metavar="ADDRESS", help="Mail it through the next hop instead.")
@click.option("--mail", is_flag=True, help="Mail it to [report] mail_to; if that is empty, print it.")
@click.pass_obj
def stats(
    file: Path | None,
    since: str,
    until: str,
    host: str,
    form: str,
    as_json: bool,
    addresses: tuple[str, ...],
    mail: bool,
) -> None:
    """Report: mail, verdicts, errors that users corrected, processing time, what was learnt, and what to do.

    Each figure is compared with the period of the same length before.

    Example: spamfilter stats --since 24h
    """
    if as_json and click.get_current_context().get_parameter_source("form") == click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--json and --format exclude each other")
    if as_json:
        form = "json"
    now = datetime.now(UTC)
    end = moment("--until", until, now, end=True) if until else now
    begin = moment("--since", since, end)
    settings = settings_of(file)
    if (addresses or mail) and form != "text":
        raise InputError("--mail-to and --mail send text and HTML: leave --format and --json out")
    recipients = [address_of("--mail-to", address) for address in addresses]
    if mail:
        recipients += settings.report.mail_to
    with opened_store(settings, existing=True) as store:
        zone = UTC if form == "json" else hour_zone(now)
        report = build(store, list(settings.learn.kinds()), begin, end, zone=zone, host=host)
        if host and host not in report.hosts:
            known = ", ".join(report.hosts) or "none"
            raise InputError(f"--host {host!r}: no relay of this name has used {store.where}; known: {known}")
        if host and not is_whole(store, report.before_since.date(), end.date()):
            warn("of one host there is only what the journal still has: see [report] journal_days")
    if recipients:
        _send(settings, report, [*dict.fromkeys(recipients)], now)
    elif form == "json":
        click.echo(rendering.to_json(rendering.report_json(report)))
    elif form == "html":
        click.echo(report_html(report, settings.hostname()).encode())
    else:
        width = columns(sys.stdout) or WIDTH
        for line in report_text(report, width, sys.stdout.encoding).split("\n"):
            click.echo(_coloured(line))


def _coloured(line: str) -> str:
    """A line of the report: titles bold, classes and what needs attention in colours."""
    if line.startswith("  judged  "):
        for class_ in CLASSES:
            line = line.replace(f" {class_} (", f" {coloured(class_)} (")
        return line
    attention = next((title for title in ATTENTION if line.startswith(title)), None)
    if attention is not None:
        return click.style(attention, fg="yellow", bold=True) + line.removeprefix(attention)
    title, gap, rest = line.partition("  ")
    return click.style(title, bold=True) + gap + rest if line[:1].isupper() else line


def _send(settings: Settings, report: Report, recipients: list[str], now: datetime) -> None:
    """Mail the report to each of them, whatever becomes of the others; only if nobody has it, it may be tried again."""
    host = settings.hostname()
    sender = address_of("[report] mail_from", settings.report.mail_from or f"spamfilter@{host}")
    mail = report_mail(report, sender, recipients, host, now)
    sent, failed = [], []
    for recipient in recipients:
        try:
            asyncio.run(send(next_hop_of(settings), mail, sender, recipient))
            sent.append(recipient)
        except SpamfilterError as error:
            complain(f"{recipient}: {error}")
            failed.append(error.exit_code)
    if sent:
        click.echo(f"sent to {', '.join(sent)}")
    if failed:
        raise SystemExit(1 if sent else max(failed))
