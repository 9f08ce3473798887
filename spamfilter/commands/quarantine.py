"""The command `quarantine`: list, show, release and delete mail in quarantine."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spamfilter.commands.command import as_json_option, opened_filter, opened_store, settings_of, user
from spamfilter.errors import InputError, SpamfilterError
from spamfilter.system.escaping import harmless
from spamfilter.system.ids import id_in

if TYPE_CHECKING:
    from spamfilter.relay.quarantine import Quarantine, Quarantined, Released

_ids = click.argument("names", nargs=-1, required=True, metavar="ID...")


@click.group()
def quarantine() -> None:
    """List, show, release or delete mail in quarantine ([verdict] on_spam = "quarantine").

    Run it as the user of the relay, who owns the folder.

    Example: spamfilter quarantine list
    """


@quarantine.command("list")
@as_json_option
@click.pass_obj
def list_(file: Path | None, as_json: bool) -> None:
    """List the mails, the oldest first.

    Example: spamfilter quarantine list --json
    """
    from spamfilter.reports import rendering

    kept = _quarantine(file)
    mails = kept.mails()
    for mail in mails:
        click.echo(rendering.to_json(_json(mail)) if as_json else _text(mail))
    if not mails and not as_json:
        click.echo(f"the quarantine {kept.path} is empty")


@quarantine.command()
@click.argument("name", metavar="ID")
@click.pass_obj
def show(file: Path | None, name: str) -> None:
    """Print a mail as it is; on a terminal, control characters are written out.

    Example: spamfilter quarantine show 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    kept = _quarantine(file)
    mail = kept.read(kept.find(_id(name))).replace(b"\r\n", b"\n")
    if sys.stdout.isatty():
        click.echo(harmless(mail.decode("utf-8", "backslashreplace"), keep="\t\n"), nl=False)
    else:
        sys.stdout.buffer.write(mail)


@quarantine.command()
@_ids
@click.option("--no-learn", is_flag=True, help="Deliver only; do not learn it as ham.")
@click.pass_obj
def release(file: Path | None, names: tuple[str, ...], no_learn: bool) -> None:
    """Deliver mails through the next hop to their recipients, and learn them as ham.

    A mail leaves the quarantine only after the next hop has accepted it; for recipients that the next hop rejects, it
    stays. If a release is interrupted when nobody can know whether the mail has arrived, it stays, and `list` says so;
    a second release may deliver it twice. It is delivered without X-Spam-Flag, so that no mail server files it as spam.

    Example: spamfilter quarantine release 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    import asyncio

    from spamfilter.relay.next_hops import next_hop_of
    from spamfilter.relay.quarantine import readable

    settings = settings_of(file)
    kept = _quarantine(file)
    next_hop = next_hop_of(settings)

    def one(id: str) -> None:
        mail = kept.find(id)
        if mail.broken_off:
            click.echo(f"{id}: an earlier release was interrupted; its recipients may get the mail twice", err=True)
        released = asyncio.run(kept.release(mail, next_hop))
        click.echo(f"{id}: delivered to {', '.join(f'<{readable(path)}>' for path in released.delivered)}")
        if not no_learn:
            _learn(file, id, released)
        _complain(id, released)

    _each(names, one)


@quarantine.command()
@_ids
@click.pass_obj
def delete(file: Path | None, names: tuple[str, ...]) -> None:
    """Delete mails for ever. Nothing is learnt by this; to teach, use mark-spam.

    Example: spamfilter quarantine delete 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    kept = _quarantine(file)

    def one(id: str) -> None:
        kept.delete(kept.find(id))
        click.echo(f"{id}: deleted")

    _each(names, one)


@quarantine.command()
@click.pass_obj
def expire(file: Path | None) -> None:
    """Delete what is older than [verdict] quarantine_days; a running relay does this every hour.

    It counts by the latest time that the relay has seen, so that a clock that is ahead deletes nothing.

    Example: spamfilter quarantine expire
    """
    from datetime import UTC, datetime, timedelta

    from spamfilter.service import expiry

    settings = settings_of(file)
    days = settings.verdict.quarantine_days
    kept = _quarantine(file)
    clock = datetime.now(UTC)
    with opened_store(settings) as store:
        now = expiry.known_time(store, clock)
    if warning := expiry.leap(clock, now):
        click.echo(f"the clock is {'; '.join(warning)}", err=True)
    number = kept.expire(now - timedelta(days=days), now)
    click.echo(f"{number} older than {days:g} days deleted from {kept.path}")


def _quarantine(file: Path | None) -> "Quarantine":
    from spamfilter.relay.quarantine import Quarantine

    return Quarantine(settings_of(file).quarantine_path())


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
            click.echo(f"spamfilter: {harmless(str(error))}", err=True)
            worst = max(worst, error.exit_code)
    if worst:
        sys.exit(worst)


def _learn(file: Path | None, id: str, released: "Released") -> None:
    """Learn a mail as ham that was delivered already."""
    from spamfilter.learning import marks
    from spamfilter.reports import rendering

    author = marks.Author(user(), "release", master=True)
    try:
        with opened_filter(file, whole=False) as (filter, settings):
            subject = marks.by_mail(filter, id, released.mail)
            change = marks.mark(filter, subject, "ham", author, settings.feedback.marks_a_day)
    except SpamfilterError as error:
        sentence = f"{id}: delivered, but not learnt: {error}; `spamfilter mark-ham {id}` learns it"
        raise type(error)(sentence) from error
    click.echo(rendering.change_text(id, "ham", change))


def _complain(id: str, released: "Released") -> None:
    """Raise an error if the next hop has rejected recipients."""
    from spamfilter.errors import Refused, TryAgain
    from spamfilter.relay.quarantine import readable

    if released.refused:
        kind = TryAgain if any(reply.code < 500 for _, reply in released.refused) else Refused
        said = "; ".join(f"<{readable(path)}>: {harmless(reply.text)}" for path, reply in released.refused)
        raise kind(f"{id}: stays in quarantine for {said}")


def _text(mail: "Quarantined") -> str:
    score = "  -  " if mail.score is None else f"{mail.score:.3f}"
    recipients = ", ".join(mail.recipients)
    lines = [
        f"{mail.id or '-':<26}  {mail.at:%Y-%m-%d %H:%M}  score {score}  {mail.size:,} bytes",
        f"  <{harmless(mail.sender)}> to {harmless(recipients)}: {harmless(mail.subject)}",
    ]
    if mail.broken_off:
        lines.append("  a release was interrupted: the mail may have been delivered")
    return "\n".join(lines)


def _json(mail: "Quarantined") -> dict[str, Any]:
    found = asdict(mail)
    del found["path"]
    return {**found, "broken_off": mail.broken_off}
