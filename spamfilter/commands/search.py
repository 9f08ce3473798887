"""The commands `search` and `show`: find any mail that the relay judged; all that is known of one, or of a training."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from spamfilter.bayes.counts import MAX_COUNT
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.token_codec import message_of, subject_words
from spamfilter.bayes.verdict import ACTIONS
from spamfilter.commands.command import as_json_option, moment, opened_store, settings_of, tell_problems
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError
from spamfilter.learning.marks import history_of
from spamfilter.relay.quarantine import Quarantine, event_text
from spamfilter.reports import rendering
from spamfilter.stores import WANTED_CLASSES, Entry, JournalEntry, Store, Wanted
from spamfilter.system.escaping import harmless
from spamfilter.system.ids import id_in
from spamfilter.system.moments import hour_in_utc, moment_text
from spamfilter.system.screen import coloured, row, rows

_score = click.FloatRange(0, 1)


@click.command()
@click.option(
    "--recipient", default="", metavar="TEXT", help="A part of <anna@example.org>, so @example.org> a domain."
)
@click.option("--sender", default="", metavar="TEXT", help="Likewise; <> finds mail without a sender, as bounces.")
@click.option("--subject", default="", metavar="WORDS", help="Words of the subject, or parts of words.")
@click.option("--since", help="Mail since then: a span (24h, 7d, 4w), or a date or time (2026-01-31T13:00, yesterday).")
@click.option("--until", help="Mail until then, likewise: of a date its end.")
@click.option(
    "--hour",
    type=click.IntRange(0, 23),
    help="Only mail of this hour of each day, by the clock of today; of UTC where that differs by minutes, too.",
)
@click.option("--client", default="", metavar="ADDRESS", help="The IP address of the client, or a part of one.")
@click.option("--host", default="", metavar="NAME", help="Only mail of the relay with this [relay] hostname.")
@click.option("--message-id", default="", metavar="ID", help="The whole Message-ID.")
@click.option(
    "--reply", default="", metavar="TEXT", help="What the client heard: the code (451, 4) or a part of the text."
)
@click.option(
    "--class",
    "class_",
    type=click.Choice(WANTED_CLASSES),
    help="How the mail was judged; judged: in any way; unjudged: refused or deferred before its text.",
)
@click.option("--marked", type=click.Choice(LABELS), help="What people have marked it as.")
@click.option("--action", type=click.Choice(ACTIONS), help="What the relay did.")
@click.option("--least", type=_score, default=0.0, show_default=True, help="The lowest score.")
@click.option("--most", type=_score, default=1.0, show_default=True, help="The highest score.")
@click.option(
    "--limit", type=click.IntRange(1, 50_000), default=50, show_default=True, help="Maximum number of messages."
)
@as_json_option
@click.pass_obj
def search(
    file: Path | None, /, since: str | None, until: str | None, limit: int, as_json: bool, **conditions: Any
) -> None:
    """Find mail that the relay judged, the latest first; all conditions must hold.

    Upper and lower case do not matter but in a Message-ID. It finds what the journal has: [report] journal_days.

    Example: spamfilter search --recipient anna@example.org --since 7d
    """
    now = datetime.now(UTC)
    end = None if until is None else moment("--until", until, now, end=True)
    begin = None if since is None else moment("--since", since, end or now)
    if (hour := conditions["hour"]) is not None:
        conditions["hour"] = hour_in_utc(hour, now)
    wanted = Wanted(since=begin, until=end, **conditions)
    with opened_store(settings_of(file), existing=True) as store:
        found = store.search(wanted, limit)
        number = len(found) if len(found) < limit else store.number_found(wanted)
    if as_json:
        for entry in found:
            click.echo(rendering.to_json(rendering.journal_json(entry)))
        return
    for entry in found:
        rows(_lines(entry))
    shown = f", the latest {len(found):,} shown; --limit shows more" if number > len(found) else ""
    click.echo(f"{number:,} message{'' if number == 1 else 's'} found{shown}")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="ID|NUMBER...")
@as_json_option
@click.pass_obj
def show(file: Path | None, /, names: tuple[str, ...], as_json: bool) -> None:
    """Show what is known of messages: verdict, delivery, marks, the beginning of the text.

    A message is named by its id, or by the number of one of its trainings, as `judge --explain` and `stats` name them
    (#1138, in a shell 1138 or '#1138').

    Example: spamfilter show 1138
    """
    settings, problems = settings_of(file), []
    with opened_store(settings, existing=True) as store:
        for name in names:
            try:
                entry, subject, learnt = _known(store, name)
            except InputError as error:
                problems.append(str(error))
                continue
            message = message_of(entry.tokens) if entry and settings.web.excerpt else None
            text = message.beginning(settings.web.excerpt) if message else ""
            kept = _custody(settings, store, entry) if entry else ""
            if as_json:
                found = rendering.journal_json(entry) if entry else None
                history = [rendering.training_json(one) for one in learnt]
                known = {"message": found, "subject": subject, "quarantine": kept, "text": text}
                click.echo(rendering.to_json(known | {"history": history}))
                continue
            rows(_lines(entry) if entry else ("no longer in the journal", f"  {harmless(subject)}"))
            if entry:
                row(f"  {entry.size:,} bytes; Message-ID {harmless(entry.message_id) or 'none'}")
                if entry.listed:
                    row(f"  rule on its sender: {harmless(entry.listed)}")
            if kept:
                row(f"  quarantine: {kept}")
            for one, again in _gone_over(learnt):
                said = "taken back" if one.undoes else one.label
                by = f" by {harmless(one.by)}" if one.by else ""
                more = f", gone over again {again} time{'s' * (again > 1)}" if again else ""
                row(f"  #{one.id}  {moment_text(one.at)}  {said}  {one.source}{by}{more}")
            if not learnt:
                click.echo("  never learnt")
            for line in text.splitlines():
                row(f"  | {harmless(line)}")
    tell_problems(problems)


def _gone_over(history: Iterable[Entry]) -> list[tuple[Entry, int]]:
    """The entries of a history, each with 0. When bulk training goes over a message again, it takes its learning back
    and adds a larger one of the same author and time: of such a row only the last learning is here, with how often that
    was."""
    found: list[tuple[Entry, int]] = []
    for one in history:
        if len(found) > 1 and found[-1][0].undoes == found[-2][0].id and not one.undoes:
            before, again = found[-2]
            if (before.at, before.label, before.source, before.by) == (one.at, one.label, one.source, one.by):
                found[-2:] = [(one, again + 1)]
                continue
        found.append((one, 0))
    return found


def _known(store: Store, name: str) -> tuple[JournalEntry | None, str, list[Entry]]:
    """A message by its id, or by the number of a training: its entry in the journal, if it is there, its subject, and
    what was learnt of it, oldest first. Raises InputError."""
    number = name.removeprefix("#")
    if number.isdecimal() and len(number) < len(str(MAX_COUNT)):
        trained = next(iter(store.entries_after(int(number) - 1)), None)
        if trained is None or trained.id != int(number):
            raise InputError(f"{name}: no training of this number in the ledger")
        digest, words = trained.digest, subject_words(trained.tokens)
        found = store.journal_of([digest]).get(digest)
        entry = store.find_journal(found.id) if found else None
    elif id := id_in(name):
        entry = store.find_journal(id)
        if entry is None:
            raise InputError(f"{id}: no message of this id in the journal; it may be too old ([report] journal_days)")
        return entry, entry.subject, history_of(store, entry)
    else:
        raise InputError(f"{name}: neither an id (26 letters and digits) nor the number of a training")
    return entry, entry.subject if entry else words, store.histories([digest])[digest]


def _custody(settings: Settings, store: Store, entry: JournalEntry) -> str:
    """What became of a mail in quarantine, as a sentence; '' if it was never there."""
    custody = Quarantine(settings.quarantine_path(), store, settings.hostname()).custody(entry)
    return "; ".join([custody.state, *map(event_text, custody.events)]) if custody else ""


def _lines(entry: JournalEntry) -> tuple[str, ...]:
    """What was judged, whose mail it is, and how it went on."""
    judged = f"{coloured(entry.class_, 8)}  {entry.score:.3f}  {entry.action}"
    return (
        f"{entry.id}  {moment_text(entry.at)}  {judged}",
        f"  <{harmless(entry.sender)}> to {harmless(', '.join(entry.recipients))}",
        f"  {harmless(entry.subject) or '(no subject)'}",
        f"  {harmless(entry.client or 'no client')}: {harmless(entry.reply or 'no reply')}",
        *([f"  relay: {harmless(entry.host)}"] if entry.host else []),
    )
