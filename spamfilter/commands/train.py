"""The commands `train`, `import` and `export`: learning in bulk, from mail and from what others have learnt."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile

import click

from spamfilter.bayes import compiled
from spamfilter.bayes.labels import IMPORT, OTHER
from spamfilter.commands.command import (
    MORE_WORDS,
    PATH,
    as_json_option,
    opened_filter,
    opened_store,
    refuse_more_words,
    settings_of,
    tell_problems,
    user,
)
from spamfilter.errors import InputError, file_errors
from spamfilter.learning.bulk import labelled_mail, training
from spamfilter.learning.bulk.reading_ahead import processes_here
from spamfilter.learning.bulk.rounds import ROUNDS
from spamfilter.learning.filter import Filter
from spamfilter.learning.transfer import portable
from spamfilter.learning.transfer.dumps import read_dump
from spamfilter.learning.transfer.imports import ID, Import, filter_of, take_in, words_of
from spamfilter.reports import rendering
from spamfilter.system.escaping import harmless
from spamfilter.system.file_access import whole_file
from spamfilter.system.moments import moment_text
from spamfilter.system.process import ended_tidily
from spamfilter.system.screen import note, progress, sentence

STANDARD = "-"
"""The name of standard input and output."""


@click.command(context_settings=MORE_WORDS)
@click.option("--spam", multiple=True, type=PATH, help="A Maildir, mbox, .eml or folder of spam; may be repeated.")
@click.option("--ham", multiple=True, type=PATH, help="A Maildir, mbox, .eml or folder of ham; may be repeated.")
@click.option("--index", multiple=True, type=PATH, help="A file of lines 'spam PATH', 'ham PATH'; may be repeated.")
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
    refuse_more_words("--spam, --ham or --index")
    if not (spam or ham or index):
        raise click.UsageError("name some mail: --spam PATH and --ham PATH, or --index FILE")
    mails = [item for path in index for item in labelled_mail.find_indexed(path)]
    mails += labelled_mail.find_piles(spam, ham, note)
    if not mails:
        raise InputError(f"{', '.join(map(str, index))}: no mail in it")
    outcome = training.Outcome()
    with ended_tidily(), opened_filter(file, whole=True) as (filter, settings):
        mails = labelled_mail.as_they_came(mails, settings.subject_prefixes())
        sentence(f"learning into {harmless(filter.store.where)}", err=True)
        before = dict(filter.learnt)
        try:
            with progress(f"Learning, {ROUNDS} rounds", training.STEPS * len(mails)) as tell:
                training.train(filter, mails, user(), tell, outcome, processes_here(), repeats == "count")
        except (KeyboardInterrupt, SystemExit):
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
        learnt = filter.store.state({}).learnt
        for label, other in OTHER.items():
            new, at_hand = outcome.learnt[other], outcome.learnt[label] + outcome.went_over[label]
            known = min(learnt[label], before[label] + outcome.learnt[label])  # without what others learn meanwhile
            if known > at_hand < new:
                sentence(
                    f"this run learnt {new:,} {other} beside {at_hand:,} of {known:,} {label}: others are marks"
                    f" or an import, which no run goes over. Train {label}, too, or it may be taken for {other}",
                    err=True,
                )
        sentence(f"the relay {settings.policy().rejecting(learnt)}", err=True)
    tell_problems(outcome.problems)


@click.command("import")
@click.argument("dump", required=False, type=PATH, metavar="[FILE]")
@click.option("--list", "listed", is_flag=True, help="List the imports that count, and import nothing.")
@as_json_option
@click.pass_obj
def import_(file: Path | None, dump: Path | None, listed: bool, as_json: bool) -> None:
    """Take over what another filter, or another spamfilter, has learnt.

    FILE, - for standard input, is a dump of bogofilter (bogoutil -d), SpamAssassin (sa-learn --backup) or SpamBayes
    (sb_dbexpimp), or an export of this program; its first line tells. A dump is one entry of the ledger: `spamfilter
    forget` with the id that is printed takes it back exactly. A running relay judges by it within a second. Imported
    counts speak, more and more quietly, until 150 messages of each class have taught this filter something themselves.

    Example: spamfilter import words.txt
    """
    if listed:
        _list(file, as_json)
        return
    if dump is None:
        raise click.UsageError("name the file with the dump, - for standard input, or --list")
    with _on_disk(dump) as found:
        _import(file, found, as_json)


@contextmanager
def _on_disk(dump: Path) -> Iterator[Path]:
    """The file with a dump, which is read more than once: of what comes through a pipe, a copy without a name."""
    if dump.is_file() and str(dump) != STANDARD:
        yield dump
        return
    name = "standard input" if str(dump) == STANDARD else str(dump)
    try:
        copy = TemporaryFile()  # noqa: SIM115 - closed below, where other errors are caught
    except OSError as error:
        raise InputError(f"{name}: needs a copy: {error.strerror}; set TMPDIR to a folder you may write") from error
    with copy:
        with file_errors(name):
            with click.open_file(str(dump), "rb") as piped:
                shutil.copyfileobj(piped, copy)
            copy.flush()
        path = Path(f"/proc/self/fd/{copy.fileno()}")
        try:
            yield path
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None


def _import(file: Path | None, dump: Path, as_json: bool) -> None:
    with file_errors(dump), dump.open("rb") as begin:
        own = begin.read(len(portable.BEGIN)) == portable.BEGIN
    with opened_filter(file, whole=True) as (filter, settings):
        if not own:
            words = read_dump(dump)
            _import_counts(filter, Import.of_dump(words), words.filter, dump, as_json)
            if words.passed_over and not as_json:
                sentence(f"{words.passed_over} words were passed over: no mail can have them", err=True)
        else:
            export = portable.Export(dump)
            export.check_rules(filter.voices)
            if export.is_ledger:
                _import_ledger(filter, export, as_json)
            else:
                _import_counts(filter, export.counts(filter.voices), "spamfilter", dump, as_json)
        sentence(f"the relay {settings.policy().rejecting(filter.store.state({}).learnt)}", err=True)


def _import_counts(filter: Filter, counts: Import, of: str, file: Path, as_json: bool) -> None:
    """Learn the counts in a file, of the filter `of`, and say so."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).digest()
    taken = take_in(filter, counts, digest, user())
    ham, spam = counts.messages["ham"], counts.messages["spam"]
    if as_json:
        found = {"id": taken.id, "new": taken.new, "filter": of, "ham": ham, "spam": spam, "words": counts.words}
        click.echo(rendering.to_json(found))
    elif not taken.new:
        sentence(f"{taken.id}: this file is imported already; nothing has changed")
    else:
        sentence(
            f"{taken.id}: {counts.words:,} words of {of}, learnt from {ham:,} ham and {spam:,} spam, are in"
            f" {harmless(filter.store.where)}; `spamfilter forget {taken.id}` takes them back"
        )


def _import_ledger(filter: Filter, export: portable.Export, as_json: bool) -> None:
    entries = portable.take_in_ledger(filter, export)
    learnt = filter.learnt
    if as_json:
        click.echo(rendering.to_json({"entries": entries, "ham": learnt["ham"], "spam": learnt["spam"]}))
        return
    sentence(
        f"{harmless(filter.store.where)}: has all that the export has, {entries:,} entries;"
        f" {learnt['ham']:,} ham and {learnt['spam']:,} spam are learnt"
    )


def _list(file: Path | None, as_json: bool) -> None:
    with opened_store(settings_of(file), existing=True) as store:
        digests = [entry.digest for entry in store.learnings() if entry.label == IMPORT]
        found = [entry for entry in map(store.active, digests) if entry is not None]
    for entry in found:
        of, words, ham, spam = filter_of(entry), words_of(entry.tokens), entry.added["ham"], entry.added["spam"]
        if as_json:
            brought = {"filter": of, "ham": ham, "spam": spam, "words": words}
            click.echo(rendering.to_json({"id": f"{ID}{entry.id}", "at": entry.at, "by": entry.by, **brought}))
        else:
            by = f" by {harmless(entry.by)}" if entry.by else ""
            brought_text = f"{words:,} words of {of}, {ham:,} ham, {spam:,} spam"
            click.echo(f"{ID}{entry.id:<8} {moment_text(entry.at)}  {brought_text}{by}")
    if not found and not as_json:
        click.echo("nothing is imported")


@click.command("export")
@click.argument("target", type=PATH, metavar="FILE")
@click.option(
    "--counts-only", is_flag=True, help="Only the sum of what was learnt: no message, author or time stands in it."
)
@click.pass_obj
def export(file: Path | None, target: Path, counts_only: bool) -> None:
    """Write what was learnt into a new file, as lines of JSON, for `spamfilter import` on another machine.

    All learnings are in it with their words, so that each can still be undone there; who has sent mail to whom can be
    read from that. With --counts-only it has the count of each word and no message. The journal is not in it;
    `spamfilter backup` copies all of the database. FILE may be - for standard output.

    Example: spamfilter export --counts-only /root/spamfilter-counts.jsonl
    """
    with opened_filter(file, whole=False, existing=True) as (filter, _):
        if not filter.last:
            raise InputError(f"{filter.store.where}: has learnt nothing; there is nothing to export")
        if str(target) == STANDARD:
            for line in portable.export(filter, counts_only):
                click.echo(line.encode())  # in UTF-8, whatever the locale's characters are
            return
        with file_errors(target), whole_file(target) as partial, partial.open("w", encoding="utf-8") as written:
            written.writelines(f"{line}\n" for line in portable.export(filter, counts_only))
    click.echo(f"{target}: {target.stat().st_size:,} bytes")
