"""The commands `migrate`, `retrain`, `backup`, `check-config` and `sample-config`."""

import os
import re
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from spamfilter.bayes.voices import view
from spamfilter.commands.command import (
    MORE_WORDS,
    PATH,
    as_json_option,
    check_exists,
    check_not_lost,
    has_store,
    opened_store,
    refuse_more_words,
    settings_of,
    status_of_relay,
)
from spamfilter.config import settings as config
from spamfilter.config.redaction import redacted
from spamfilter.config.sections import store_url
from spamfilter.errors import InputError, SpamfilterError, StoreDamaged
from spamfilter.learning import retraining
from spamfilter.learning.bulk.labelled_mail import as_it_came
from spamfilter.learning.bulk.reading_ahead import read_ahead, told_apart
from spamfilter.learning.bulk.rounds import ROUNDS
from spamfilter.learning.transaction import Reading
from spamfilter.mail import mailboxes
from spamfilter.mail.message import parse
from spamfilter.reports import rendering
from spamfilter.service.systemd_override import drop_in
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql.connection import file_of, place_of
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.moving import move
from spamfilter.system.escaping import harmless
from spamfilter.system.packaged_files import samples, shipped
from spamfilter.system.paths import config_file
from spamfilter.system.screen import coloured, complain, progress, sentence, warn
from spamfilter.web.accounts import read_accounts


@click.command()
@click.option("--revision", help="'head', which is the default, or four digits; an older one goes back.")
@click.option("--yes", is_flag=True, help="Go back to an older revision without asking.")
@click.option("--from", "source", metavar="URL", help="Move all from this database; stop its relays first.")
@click.option("--to", "target", metavar="URL", help="Move all into this one, which is empty.")
@click.pass_obj
def migrate(file: Path | None, revision: str | None, yes: bool, source: str | None, target: str | None) -> None:
    """Migrate the database to the schema of this version. `serve` does this, too; make a backup first.

    An older revision loses what only the newer one keeps: the command asks first, or needs --yes where there is no
    terminal.

    With --from or --to, or both, all that one database keeps is moved into another one, of another kind if you like.
    Where one is not given, it is that of [store] url. The rows are compared before anything is final; the old database
    stays as it is.

    Example: spamfilter migrate

    Example: spamfilter migrate --to postgresql+psycopg://spamfilter@/spamfilter
    """
    from spamfilter.stores.migration import migrate as run

    settings = settings_of(file)
    if source or target:
        if revision or yes:
            raise InputError("--from and --to move between databases; --revision and --yes do not go with them")
        _move(settings, _url(settings, "--from", source), _url(settings, "--to", target))
        return
    revision = revision or "head"
    if not re.fullmatch(r"head|[0-9]{4}", revision):
        raise InputError(f"--revision {revision!r}: neither 'head' nor four digits")
    if revision != "head" and not yes:
        _confirm_back(settings, revision)
    check_not_lost(settings)
    relay = status_of_relay(settings, place_of(settings.store_url()))
    before, after = run(settings.store_url(), revision)
    change = f"schema {before or 'none'} -> {after}" if before != after else f"schema {after}, nothing to do"
    sentence(f"{redacted(settings.store_url())}: {change}")
    if relay is None or before == after:
        return
    if relay.get("schema") == after:
        sentence("the relay that runs on it knows this schema, and goes on within seconds")
    elif after == HEAD:
        warn("a relay of an older version runs on it: restart it now, or it learns nothing")
    else:
        warn("a relay runs on it that needs another schema, and learns nothing: stop it, or run `spamfilter migrate`")


def _url(settings: config.Settings, option: str, url: str | None) -> str:
    """The URL of an option, or that of the configuration. Raises InputError."""
    if url is None:
        return settings.store_url()
    try:
        return store_url(url)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def _move(settings: config.Settings, source: str, target: str) -> None:
    if not has_store(source):
        raise InputError(f"{place_of(source)}: no such database; name it by --from or [store] url")
    if status_of_relay(settings, place_of(source)):
        raise InputError(
            f"{place_of(source)}: a relay learns into it; stop it first, or what it learns now is not moved"
        )
    with click.progressbar(length=0, label="Moving", file=sys.stderr, show_percent=False) as bar:
        rows = move(source, target, bar.update)
    for name, number in rows.items():
        click.echo(f"{number:>12,}  {name}")
    sentence(f"{place_of(target)}: has these rows of {place_of(source)}; each was compared")
    sentence(f'Now set [store] url = "{target}" and start the relay; what the old database learns is not taken over.')


def _confirm_back(settings: config.Settings, revision: str) -> None:
    """Ask before a migration to an older revision. Raises InputError where nobody can answer."""
    with closing(Database(settings.store_url())) as database:
        before = database.revision()
    if before is None or revision >= before:
        return
    back = (
        f"going back from schema {before} to {revision} loses what only the newer one keeps, and an older program"
        " cannot use what this one has learnt"
    )
    if not sys.stdin.isatty():
        raise InputError(f"{back}; make a backup, stop the relay, and add --yes")
    click.confirm(f"{back}. Is there a backup, and is the relay stopped?", abort=True, err=True)


@click.command(context_settings=MORE_WORDS)
@click.option(
    "--mail",
    "folders",
    multiple=True,
    type=PATH,
    help="A folder with learnt mail: read again for voices that the ledger has no words for; may be repeated.",
)
@as_json_option
@click.pass_obj
def retrain(file: Path | None, folders: tuple[Path, ...], as_json: bool) -> None:
    """Rebuild the counts from the ledger, after a change of [learn] or of the tokenizer.

    All or nothing. A running relay judges with the old counts until the new ones are complete.

    Example: spamfilter retrain --mail ~/Maildir
    """
    refuse_more_words("--mail")
    settings = settings_of(file)
    voices, prefixes = settings.voices(), settings.subject_prefixes()
    with opened_store(settings, existing=True) as store:
        mails = {}
        found = [as_it_came(mail, prefixes) for folder in folders for mail in mailboxes.find(folder)]
        readings = read_ahead(lambda mail: Reading(parse(mail.read()).digest(), {}), found, 0)
        for mail, reading in zip(found, told_apart(readings), strict=True):  # as `train` may have counted equal ones
            if isinstance(reading, InputError):  # it was moved meanwhile
                complain(str(reading))
            else:
                mails[reading.digest] = lambda mail=mail: view(voices, parse(mail.read()))
        entries = store.state({}).last
        with progress("Rebuilding", ROUNDS * entries) as tell:
            done = retraining.retrain(store, voices, mails, tell)
    if as_json:
        click.echo(rendering.to_json(asdict(done)))
        return
    files = f"{done.reread} mail files were read again" if done.reread else "the mail files were not needed"
    click.echo(f"rebuilt from {done.messages} messages; {files}")
    for problem in done.problems:
        complain(problem)
    for voice, number in done.silent.items():
        sentence(f"voice {voice} has learnt nothing from {number} messages: name the folders of that mail with --mail")


@click.command()
@click.argument("target", type=PATH)
@click.pass_obj
def backup(file: Path | None, target: Path) -> None:
    """Copy the database into a new file while the relay runs. PostgreSQL is backed up by pg_dump.

    No file is made if a quick check finds the database damaged.

    Example: spamfilter backup /var/backups/spamfilter-monday.db
    """
    settings = settings_of(file)
    check_exists(settings)
    # Of any schema: after an upgrade, too, the old database can be copied.
    with closing(Database(settings.store_url())) as database:
        database.revision()  # or why it has none
        database.backup(target)
    click.echo(f"{target}: {target.stat().st_size} bytes")


@click.command("check-config")
@click.option(
    "--systemd", is_flag=True, help="Print the systemd drop-in that this configuration needs; see docs/install.md."
)
@click.pass_obj
def check_config(file: Path | None, systemd: bool) -> None:
    """Check the configuration and show what it means.

    Exit code 2, with the reason, if it is wrong, or if mail would loop, be lost to all or be relayed for all.

    Example: spamfilter --config /etc/spamfilter/spamfilter.toml check-config
    """
    settings = config.load(file)
    relay, dangers = settings.relay, settings.relay.dangers()
    accounts, database = Path(settings.web.accounts), file_of(settings.store_url())
    if settings.web.listen and (not accounts.exists() or os.access(accounts, os.R_OK)) and not read_accounts(accounts):
        warn(f"web.accounts = {str(accounts)!r}: no account: nobody can sign in; `spamfilter web-password` makes one")
    if settings.store.url and database is not None and not database.parent.is_dir():
        warn(f"store.url = {settings.store.url!r}: {database.parent} is no folder; create it before the start")
    for warning in settings.warnings():
        (complain if warning in dangers else warn)(warning)
    if systemd:
        click.echo(drop_in(settings))
        sys.exit(InputError.exit_code if dangers else 0)
    click.echo(f"configuration  {config_file(file) or 'defaults and environment'}")
    sentence(f"listens on     {', '.join(relay.listen)} ({relay.mode})", indent=15)
    for places, what in ((relay.submission, "authenticated senders"), (relay.lmtp, "LMTP"), (relay.milter, "milter")):
        if places:
            sentence(f"               {', '.join(places)} ({what})", indent=15)
    if settings.recipients:
        sentence(f"recipients     {', '.join(settings.policies())} have a policy of their own", indent=15)
    if settings.learn.groups:
        sentence(f"groups         each {settings.learn.groups} has counts of its own", indent=15)
    click.echo(f"next hop       {settings.next_hop_url()}")
    click.echo(f"database       {redacted(settings.store_url())}")
    rejecting, is_damaged = _rejecting(settings)
    sentence(f"rejects        {rejecting}", indent=15)
    if dangers or is_damaged:
        sys.exit(InputError.exit_code)
    click.echo(coloured("ok"))


def _rejecting(settings: config.Settings) -> tuple[str, bool]:
    """A phrase for what the relay rejects by what it has learnt, or why that is unknown; and whether the database is
    damaged."""
    try:
        with opened_store(settings, existing=True) as store:
            return settings.policy().rejecting(store.state({}).learnt).removeprefix("rejects "), False
    except (SpamfilterError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        return f"unknown: {harmless(reason)}", isinstance(error, StoreDamaged)


@click.command("sample-config")
@click.argument("name", default="config/spamfilter.toml")
@click.option("--list", "names", is_flag=True, help="Name all samples: for mail servers, systemd and monitoring, too.")
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
