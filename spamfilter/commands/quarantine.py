"""The commands `quarantine`: list, show, release and delete kept mail; and `digest`: tell users of it."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from spamfilter.commands.command import (
    CommandGroup,
    as_json_option,
    has_store,
    opened_filter,
    opened_store,
    settings_of,
    user,
)
from spamfilter.config.settings import Settings
from spamfilter.errors import ConfigError, InputError, Refused, SpamfilterError, StoreError, TryAgain
from spamfilter.learning import mark_lookup, marks
from spamfilter.relay.envelope_paths import mailbox_of
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.relay.quarantine import Quarantine, Quarantined, Released, event_text, readable
from spamfilter.reports import rendering
from spamfilter.reports.digest_links import held_key
from spamfilter.reports.digests import LAST, UNSENT, digest_mail, is_due, new_digests
from spamfilter.reports.mail import address_of, send
from spamfilter.service import expiry
from spamfilter.stores import QuarantineEvent, Store, open_store
from spamfilter.system.escaping import harmless
from spamfilter.system.ids import id_in
from spamfilter.system.moments import moment_text
from spamfilter.system.screen import complain, rows, sentence, warn

_ids = click.argument("names", nargs=-1, required=True, metavar="ID...")


@click.group(cls=CommandGroup)
def quarantine() -> None:
    """List, show, release or delete mail in quarantine ([verdict] on_spam = "quarantine").

    Run it as the user of the relay, who owns the folder.

    Example: spamfilter quarantine list
    """


@quarantine.command("list")
@as_json_option
@click.option("--history", is_flag=True, help="List what became of mails instead: delivered, deleted, expired.")
@click.pass_obj
def list_(file: Path | None, as_json: bool, history: bool) -> None:
    """List the mails, the oldest first, and what was done with each so far.

    \b
    Example: spamfilter quarantine list --json
             spamfilter quarantine list --history
    """
    with _opened(settings_of(file)) as (kept, store):
        if history:
            for event in store.all_quarantine_events() if store else ():
                if as_json:
                    click.echo(rendering.to_json(asdict(event)))
                else:
                    sentence(f"{event.mail}  {event_text(event)}", indent=28)
            return
        mails = kept.mails()
        events = kept.events([mail.id for mail in mails])
    for mail in mails:
        noted = events.get(mail.id, [])
        if as_json:
            click.echo(rendering.to_json(_json(mail, noted)))
        else:
            rows(_lines(mail, noted))
    if not mails and not as_json:
        click.echo(f"the quarantine {kept.path} is empty")


@quarantine.command()
@click.argument("name", metavar="ID")
@click.pass_obj
def show(file: Path | None, name: str) -> None:
    """Print a mail as it is; on a terminal, control characters are written out.

    What was done with it goes to standard error. If it is gone, the error says what became of it.

    Example: spamfilter quarantine show 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    with _opened(settings_of(file)) as (kept, _):
        id = _id(name)
        mail = kept.read(kept.find(id)).replace(b"\r\n", b"\n")
        for event in kept.events([id]).get(id, []):
            sentence(f"{id}: {event_text(event)}", err=True)
    if sys.stdout.isatty():
        click.echo(harmless(mail.decode("utf-8", "backslashreplace"), keep="\t\n"), nl=False)
    else:
        sys.stdout.buffer.write(mail)


@quarantine.command()
@_ids
@click.option("--no-learn", is_flag=True, help="Deliver only; do not learn it as ham.")
@click.option(
    "--to", "only", default="", metavar="ADDRESS", help="Deliver only to this recipient; it stays for others."
)
@click.pass_obj
def release(file: Path | None, names: tuple[str, ...], no_learn: bool, only: str) -> None:
    """Deliver mails through the next hop to their recipients, and learn them as ham.

    A mail leaves the quarantine only after the next hop has accepted it; for recipients that the next hop rejects, it
    stays. If a release is interrupted when nobody can know whether the mail has arrived, it stays, and `list` says so;
    a second release may deliver it twice. Its header then says that it was released, so that no mail server files it as
    spam.

    Example: spamfilter quarantine release 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    settings = settings_of(file)
    with _opened(settings) as (kept, _):

        def one(id: str) -> None:
            try:
                mail = kept.find(id)
            except InputError as error:
                if any(event.outcome == "delivered" for event in kept.events([id]).get(id, [])):
                    raise InputError(f"{error}; `spamfilter mark-ham {id}` learns it, if it is not learnt") from None
                raise
            if mail.broken_off:
                warn(f"{id}: an earlier release was interrupted; its recipients may get the mail twice")
            next_hop = next_hop_of(settings)  # of this event loop, as its connections are
            released = asyncio.run(kept.release(mail, next_hop, user(), mailbox_of(only) if only else ""))
            sentence(f"{id}: delivered to {', '.join(f'<{readable(path)}>' for path in released.delivered)}")
            if released.unnoted:
                warn(f"{id}: the delivery is not in the history: {released.unnoted}")
            try:
                if not no_learn:
                    _learn(file, id, released)
            except SpamfilterError as error:
                if not released.refused:
                    raise
                complain(str(error))
            _check_delivered(id, released)

        _each(names, one)


@quarantine.command()
@_ids
@click.pass_obj
def delete(file: Path | None, names: tuple[str, ...]) -> None:
    """Delete mails for ever. Nothing is learnt by this; to teach, use mark-spam.

    Example: spamfilter quarantine delete 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    with _opened(settings_of(file)) as (kept, _):

        def one(id: str) -> None:
            kept.delete(kept.find(id), user())
            click.echo(f"{id}: deleted")

        _each(names, one)


@quarantine.command()
@click.pass_obj
def expire(file: Path | None) -> None:
    """Delete what is older than [verdict] quarantine_days; a running relay does this every hour.

    It counts by the latest time that the relay has seen, so that a clock that is ahead deletes no mail.

    Example: spamfilter quarantine expire
    """
    settings = settings_of(file)
    days = settings.verdict.quarantine_days
    clock = datetime.now(UTC)
    with opened_store(settings, existing=True) as store:
        now = expiry.known_time(store, clock)
        if warning := expiry.leap(clock, now):
            warn(f"the clock is {'; '.join(warning)}")
        kept = Quarantine(settings.quarantine_path(), store)
        number = kept.expire(now - timedelta(days=days), clock, by=user())
    click.echo(f"{number} older than {days:g} days deleted from {kept.path}")


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Quarantine, Store | None]]:
    """The quarantine and its history. Without a database mail can be read and released all the same."""
    store, away = None, False
    with ExitStack() as stack:
        try:
            if has_store(settings.store_url()):
                store = stack.enter_context(closing(open_store(settings.store_url())))
        except StoreError as error:
            warn(f"the history of the quarantine cannot be read or written: {error}")
            away = True
        yield Quarantine(settings.quarantine_path(), store, settings.hostname(), away), store


def _id(name: str) -> str:
    if id := id_in(name):
        return id
    raise InputError(f"{name!r}: not an id (26 letters and digits); `spamfilter quarantine list` shows them")


def _each(names: Iterable[str], one: Callable[[str], None]) -> None:
    """Apply a function to each id. After an error it goes on with the next; the exit code is the highest."""
    worst = 0
    for id in [_id(name) for name in names]:
        try:
            one(id)
        except SpamfilterError as error:
            complain(str(error))
            worst = max(worst, error.exit_code)
    if worst:
        sys.exit(worst)


def _learn(file: Path | None, id: str, released: Released) -> None:
    author = marks.Author(user(), "release", master=True)
    try:
        with opened_filter(file, whole=False, existing=True) as (filter, settings):
            subject = mark_lookup.by_mail(filter, id, released.mail)
            change = marks.mark(filter, subject, "ham", author, settings.feedback)
    except SpamfilterError as error:
        failed = f"{id}: delivered, but not learnt: {error}; `spamfilter mark-ham {id}` learns it"
        raise type(error)(failed) from error
    sentence(rendering.change_text(id, "ham", change))


def _check_delivered(id: str, released: Released) -> None:
    """Raise an error if the next hop has rejected recipients."""
    if released.refused:
        kind = TryAgain if any(reply.code < 500 for _, reply in released.refused) else Refused
        said = "; ".join(f"<{readable(path)}>: {harmless(reply.text)}" for path, reply in released.refused)
        raise kind(f"{id}: stays in quarantine for {said}")


def _lines(mail: Quarantined, events: Sequence[QuarantineEvent]) -> list[str]:
    score = "  -  " if mail.score is None else f"{mail.score:.3f}"
    recipients = ", ".join(mail.recipients)
    lines = [
        f"{mail.id or '-':<26}  {moment_text(mail.at)}  score {score}  {mail.size:,} bytes",
        f"  <{harmless(mail.sender)}> to {harmless(recipients)}",
        f"  {harmless(mail.subject) or '(no subject)'}",
    ]
    if mail.broken_off:
        lines.append("  a release was interrupted: the mail may have been delivered")
    return [*lines, *(f"  {event_text(event)}" for event in events)]


def _json(mail: Quarantined, events: Sequence[QuarantineEvent]) -> dict[str, Any]:
    found = asdict(mail)
    del found["path"]
    return {**found, "broken_off": mail.broken_off, "history": [asdict(event) for event in events]}


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the mails; send and note nothing.")
@click.option("--due", is_flag=True, help="Only if an hour of [digest] hours has come since the last digests.")
@click.pass_obj
def digest(file: Path | None, dry_run: bool, due: bool) -> None:
    """Mail each user what the quarantine has kept since the last digest, with a link to read and deliver it.

    Each kept mail is listed once. The timer spamfilter-digest.timer runs this with --due each hour.

    Example: spamfilter digest --dry-run
    """
    settings = settings_of(file)
    if due and not settings.digest.hours:
        click.echo("digests are off: [digest] hours is empty")
        return
    if not settings.digest.url:
        raise ConfigError('digest.url = "": set it to where users reach the web page, as in "https://mail.example.org"')
    from_ = settings.digest.mail_from or settings.report.mail_from
    sender = address_of("[digest] mail_from", from_ or f"spamfilter@{settings.hostname()}")
    now = datetime.now(UTC)
    failed: dict[str, SpamfilterError] = {}
    deferred: list[str] = []
    with held_key() as key, opened_store(settings, existing=True) as store:
        # A quarantine is of one host, the database may be of several.
        noted, unsent = f"{LAST} {settings.hostname()}", f"{UNSENT} {settings.hostname()}"
        last, put_off = store.get_setting(noted), store.get_setting(unsent)
        before = datetime.fromisoformat(last).astimezone() if isinstance(last, str) else None
        everybody = not due or is_due(settings.digest.hours, before, now.astimezone())
        again = put_off if isinstance(put_off, list) else []
        if not everybody and not again:
            return
        digests = [one for one in new_digests(settings, store) if everybody or one.address in again]
        if not dry_run:
            # Before the first is sent: where nothing can be noted, the same users would get theirs each hour.
            store.put_setting(unsent, [one.address for one in digests])
            store.put_setting(noted, now.isoformat())
        for number, one in enumerate(digests, 1):
            mail = digest_mail(one, settings, sender, key, now)
            if dry_run:
                click.echo(mail)
                continue
            try:
                asyncio.run(send(next_hop_of(settings), mail, sender, one.address, "the digest"))
            except SpamfilterError as error:
                complain(f"{one.address}: {error}")
                failed[one.address] = error
                deferred += [one.address] * isinstance(error, TryAgain)
                continue
            try:
                store.note_quarantine(one.events(now))
            except StoreError as error:  # they have it; nothing would remember who has got the others
                waiting = [other.address for other in digests[number:]]
                others = "; the other digests wait" if waiting else ""
                complain(f"{one.address}: sent, but not noted{others}: {error}")
                failed[one.address] = error
                deferred += waiting
                break
            click.echo(f"{harmless(one.address)}: {len(one.mails)} announced")
        if not dry_run:
            try:
                store.put_setting(unsent, deferred)
            except StoreError:
                if not any(isinstance(error, StoreError) for error in failed.values()):
                    raise
    if failed:
        raise SystemExit(max(error.exit_code for error in failed.values()))
