"""The commands; each one function, each with an example in its help.

Exit codes: 0 done, 2 wrong usage or input, 75 try again, 130 interrupted.
What a user can mend is one line on standard error, never a traceback.
"""

import errno
import getpass
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from spamfilter import __version__, config, mailboxes, rendering
from spamfilter.counts import Label
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.feedback import Subject, by_id, by_mail
from spamfilter.filter import Filter
from spamfilter.journal import is_id
from spamfilter.shipped import samples, shipped
from spamfilter.stores import Store, open_store

_SPANS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class _Commands(click.Group):
    """A group that says our errors in one line."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except SpamfilterError as error:
            for line in str(error).splitlines():
                click.echo(f"spamfilter: {line}", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # somebody has read enough; click ends quietly
            click.echo(f"spamfilter: {error.filename or 'output'}: {error.strerror}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="spamfilter")
@click.option("--config", "file", type=click.Path(path_type=Path), help="The configuration file; see sample-config.")
@click.pass_context
def main(context: click.Context, file: Path | None) -> None:
    """A spam filter in front of your mail server: relays, judges, explains, learns.

    Without --config: the file named by SPAMFILTER_CONFIG, else /etc/spamfilter/spamfilter.toml if there
    is one, else defaults. Any key can be set in the environment, as in SPAMFILTER_VERDICT__SPAM=0.95.
    """
    context.obj = file


_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def _by() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _settings(file: Path | None) -> config.Settings:
    """The configuration, with its state directory made where that is the default's place."""
    settings = config.load(file)
    if not settings.store.url:
        try:
            config.state_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{config.state_directory()}: {error.strerror}; set [store] url") from error
    return settings


@contextmanager
def _store(settings: config.Settings) -> Iterator[Store]:
    if settings.store_url().startswith("memory:"):
        raise InputError('[store] url = "memory:" keeps nothing between commands; name a database file')
    store = open_store(settings.store_url())
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _filter(file: Path | None, whole: bool) -> Iterator[tuple[Filter, config.Settings]]:
    settings = _settings(file)
    with _store(settings) as store:
        yield Filter(store, settings.voices(), whole=whole), settings


def _subjects(filter: Filter, names: Iterable[str]) -> Iterator[Subject]:
    """The messages that the arguments of a command name, one after the other."""
    for name in names:
        if name == "-":
            mail = sys.stdin.buffer.read()
            if not mail.strip():
                raise InputError("standard input: no mail in it; name an id, a file or a Maildir, or pipe a mail in")
            yield by_mail(filter, "standard input", mail)
        elif not name:
            raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
        elif is_id(name) and not Path(name).exists():
            yield by_id(filter.store, name)
        else:
            if not os.path.lexists(name):
                raise InputError(f"{name}: no such file or folder, and no id (26 letters and digits)")
            for found in mailboxes.find(Path(name)):
                yield by_mail(filter, found.name, found.read())


def _named(subject: Subject) -> dict[str, str]:
    return {"id": subject.id} if subject.id else {"file": subject.name}


@main.command()
@click.pass_obj
def serve(file: Path | None) -> None:
    """Run the relay until SIGTERM; SIGHUP reloads thresholds, lists and limits.

    Needs no configuration: listens on 127.0.0.1:10025, keeps its database under the state directory and
    delivers to a Maildir there until [relay] next_hop names your mail server.

    Example: spamfilter serve
    """
    from spamfilter.daemon import serve as run

    run(_settings(file), config.config_file(file))


@main.command()
@click.option("--spam", multiple=True, type=click.Path(path_type=Path), help="Maildir, mbox, .eml or folder of spam.")
@click.option("--ham", multiple=True, type=click.Path(path_type=Path), help="Maildir, mbox, .eml or folder of ham.")
@click.option("--index", multiple=True, type=click.Path(path_type=Path), help="File of lines 'spam PATH', 'ham PATH'.")
@_json
@click.pass_obj
def train(
    file: Path | None, spam: tuple[Path, ...], ham: tuple[Path, ...], index: tuple[Path, ...], as_json: bool
) -> None:
    """Learn from sorted mail, in bulk. May be stopped and started again; nothing counts twice.

    Goes over the mail up to five times: what is still judged badly is learnt again, within bounds.

    Example: spamfilter train --spam ~/Maildir/.Junk --ham ~/Maildir/.Archive
    """
    from spamfilter.training import ROUNDS, Outcome
    from spamfilter.training import train as run

    if not (spam or ham or index):
        raise click.UsageError("name some mail: --spam PATH and --ham PATH, or --index FILE")
    mails = [item for path in index for item in mailboxes.find_indexed(path)]
    piles = [[mail for path in paths for mail in mailboxes.find(path)] for paths in (spam, ham)]
    mails += mailboxes.interleaved(*piles)
    outcome = Outcome()
    with _filter(file, whole=True) as (filter, _):
        try:
            with click.progressbar(
                length=ROUNDS * len(mails), label=f"Learning, {ROUNDS} rounds", file=sys.stderr
            ) as bar:
                run(filter, mails, _by(), bar.update, outcome)
        except KeyboardInterrupt:
            click.echo("\nstopped; what is learnt is kept, the same command goes on from here", err=True)
            raise
        finally:
            if as_json:
                click.echo(rendering.to_json(asdict(outcome)))
            else:
                click.echo(
                    f"learnt {outcome.learnt['ham']} ham and {outcome.learnt['spam']} spam;"
                    f" {outcome.known} were known, {outcome.relabelled} changed their label"
                )
            for problem in outcome.problems:
                click.echo(f"spamfilter: {problem}", err=True)
    if outcome.problems:
        sys.exit(2)


def _mark(label: Label | None, file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """mark-spam, mark-ham, and with None forget."""
    with _filter(file, whole=False) as (filter, _):
        for subject in _subjects(filter, names or ("-",)):
            if label:
                change = filter.learn(subject.reading, label, source="cli", by=_by())
            else:
                change = filter.forget(subject.reading, source="cli", by=_by())
            if as_json:
                click.echo(rendering.to_json(rendering.change_json(_named(subject), change)))
            else:
                click.echo(rendering.change_text(subject.name, label, change))


_names = click.argument("names", nargs=-1, metavar="[ID|FILE|DIR|-]...")


@main.command("mark-spam")
@_names
@_json
@click.pass_obj
def mark_spam(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Say that messages are spam, and learn that.

    Names are ids from X-Spamfilter-Id, files, folders or Maildirs; - is standard input. A repeat changes
    nothing; a ham that was learnt is taken back exactly before.

    Example: spamfilter mark-spam 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark("spam", file, names, as_json)


@main.command("mark-ham")
@_names
@_json
@click.pass_obj
def mark_ham(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Say that messages are ham, and learn that; the mirror of mark-spam.

    Example: spamfilter mark-ham < message.eml
    """
    _mark("ham", file, names, as_json)


@main.command()
@_names
@_json
@click.pass_obj
def forget(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Take back what was learnt of messages, exactly.

    Example: spamfilter forget 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark(None, file, names, as_json)


@main.command()
@_names
@click.option("--explain", is_flag=True, help="Show the tokens that made the score, with their counts.")
@_json
@click.pass_obj
def judge(file: Path | None, names: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """Judge messages without delivering or learning them.

    Example: spamfilter judge --explain message.eml
    """
    with _filter(file, whole=False) as (filter, settings):
        policy = settings.policy()
        for subject in _subjects(filter, names or ("-",)):
            score, evidence = filter.explained(subject.reading, None if explain else 0)
            tokens = sum(len(tokens) for tokens in subject.reading.tokens.values())
            class_ = policy.classify(score.posterior, filter.learnt)
            if as_json:
                named = _named(subject)
                click.echo(rendering.to_json(rendering.judgement_json(named, score, class_, tokens, evidence)))
            else:
                click.echo(rendering.judgement_text(subject.name, score, class_, tokens, evidence))


def _since(text: str, now: datetime) -> datetime:
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    try:
        if match:
            return now - int(match.group(1)) * _SPANS[match.group(2)]
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"--since {text!r}: not a span as 24h, 7d, 4w, nor a date as 2026-01-31") from None


@main.command()
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
    begin = _since(since, now)
    if begin >= now:
        raise InputError(f"--since {since!r}: lies in the future")
    settings = _settings(file)
    with _store(settings) as store:
        report = build(store, list(settings.learn.kinds()), begin, now)
    if as_json or form == "json":
        click.echo(rendering.to_json(rendering.report_json(report)))
    else:
        click.echo(rendering.report_text(report))


@main.command()
@click.option("--revision", default="head", show_default=True, help="'head', or four digits; an older one goes back.")
@click.pass_obj
def migrate(file: Path | None, revision: str) -> None:
    """Bring the database to the schema of this version. `serve` does it, too; make a backup before.

    Example: spamfilter migrate
    """
    from spamfilter.stores.migrating import migrate as run

    if not re.fullmatch(r"head|[0-9]{4}", revision):
        raise InputError(f"--revision {revision!r}: neither 'head' nor four digits")
    settings = _settings(file)
    before, after = run(settings.store_url(), revision)
    change = f"schema {before or 'none'} -> {after}" if before != after else f"schema {after}, nothing to do"
    click.echo(f"{settings.store_url()}: {change}")


@main.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.pass_obj
def backup(file: Path | None, target: Path) -> None:
    """Copy the database into a new file while everything goes on.

    Example: spamfilter backup /var/backups/spamfilter-monday.db
    """
    with _store(_settings(file)) as store:
        store.backup(target)
    click.echo(f"{target}: {target.stat().st_size} bytes")


@main.command("check-config")
@click.pass_obj
def check_config(file: Path | None) -> None:
    """Check the configuration and say what it means.

    Exit code 2, with the reason, if it is wrong.

    Example: spamfilter --config /etc/spamfilter/spamfilter.toml check-config
    """
    settings = config.load(file)
    for warning in settings.warnings():
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"configuration  {config.config_file(file) or 'defaults and environment'}")
    click.echo(f"listens on     {', '.join(settings.relay.listen)} ({settings.relay.mode})")
    click.echo(f"next hop       {settings.next_hop_url()}")
    click.echo(f"database       {settings.store_url()}")
    click.echo("ok")


@main.command("sample-config")
@click.argument("name", default="config/spamfilter.toml")
@click.option("--list", "names", is_flag=True, help="Name all samples: for Postfix, Exim and systemd, too.")
def sample_config(name: str, names: bool) -> None:
    """Print the sample configuration, or another sample that came with this version.

    Example: spamfilter sample-config > /etc/spamfilter/spamfilter.toml
    """
    if names:
        click.echo("\n".join(samples()))
        return
    if name not in samples():
        raise InputError(f"{name}: no such sample; `spamfilter sample-config --list` names them")
    click.echo(shipped(name).read_text(encoding="utf-8"), nl=False)
