"""The commands `mark-spam`, `mark-ham` and `forget`: over the feedback socket of a running relay, else on the database.

A mail program runs them at every click, so heavy modules are imported only where they are used.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from spamfilter.commands.command import (
    as_json_option,
    moment,
    named_mails,
    names_argument,
    opened_filter,
    opened_store,
    settings_of,
    subjects,
    tell_problems,
    user,
)
from spamfilter.errors import InputError, Refused, StoreError, TryAgain
from spamfilter.mail.special_folders import kind_of
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import moment_text
from spamfilter.system.paths import configured_database, configured_quarantine, configured_socket
from spamfilter.system.screen import coloured, complain, sentence

if TYPE_CHECKING:
    from spamfilter.bayes.labels import Label
    from spamfilter.commands.command import NamedMail
    from spamfilter.learning.undoing import Taught

MANY = 100
"""Marks of one class by one command from which on it says what they do to the filter."""

_by = click.option(
    "--by", help="The user who made the mark, if a mail server marks for its users; see [feedback] proxies."
)
_source = click.option("--source", type=click.Choice(["cli", "imap"]), default="cli", help="Where the mark comes from.")


def _mark(
    label: "Label | None", file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str
) -> None:
    """Mark messages with a label, or with None forget them, and print what has changed.

    A mark that is refused keeps no other one from being made, nor does a name that means no message.
    """
    problems: list[str] = []
    refused = False
    mails = named_mails(names or ("-",), problems, _left_out(label, names))
    try:
        client = SocketClient(configured_socket(file))
    except NoRelay as error:
        if source == "imap":
            # A mail server runs this as its own user; a database that this user can open is not the relay's.
            raise TryAgain(f"no relay on the feedback socket, nothing was learnt: {error}") from None
        answers = _of_database(label, file, mails, problems, by, source)
    else:
        # A mail server's mark is for the relay on its socket, and nobody would see it refused.
        database = configured_database(file) if source == "cli" else ""
        request = {"label": label, "source": source, "by": by, "database": database}
        answers = _of_relay(client, request, mails, problems)
    learnt = 0
    for answer in answers:
        if isinstance(answer, Refused):
            complain(str(answer))
            refused = True
            continue
        learnt += bool(answer.get("changed")) and answer.get("was") != label
        text = answer.pop("text")
        if as_json:
            click.echo(json.dumps(answer))
        else:
            sentence(text.replace(f"learnt as {label}", f"learnt as {coloured(str(label))}", 1))
            if label == "ham":
                tell_if_kept(configured_quarantine(file), answer.get("id", ""))
    if label is not None and learnt >= MANY:
        sentence(
            f"{learnt:,} marks of {label} alone: run `spamfilter retrain`, which mixes them with all else that was"
            " learnt, or the filter is tuned to them",
            err=True,
        )
    tell_problems(problems)
    if refused:
        sys.exit(Refused.exit_code)


def _left_out(label: "Label | None", names: Sequence[str]) -> Callable[[Path], bool]:
    """Says which folders below a named one to leave out: as ham those of junk, deleted and sent mail, and drafts, as
    `train` does."""
    if label != "ham" or not any(map(os.path.isdir, names)):
        return lambda _: False
    from spamfilter.learning.bulk.labelled_mail import not_ham

    return not_ham(partial(sentence, err=True))


def tell_if_kept(folder: Path, id: str) -> None:
    """Say of a mail that was marked as ham if this quarantine still has it; nothing where this user may not look."""
    try:
        kept = bool(id) and any(id in name for part in ("new", "cur") for name in os.listdir(folder / part))
    except OSError:
        return
    if kept:
        sentence(f"{id}: is in quarantine; `spamfilter quarantine release {id}` delivers it")


def _of_relay(
    client: SocketClient, request: Mapping[str, object], mails: "Iterable[NamedMail]", problems: list[str]
) -> Iterator[dict[str, Any] | Refused]:
    """The answers of a running relay to a request to mark, or its refusal, one for each message that is found."""
    with closing(client):
        for name, mail in mails:
            try:
                answer = client.ask({**request, "command": "mark", "id" if mail is None else "name": name}, mail)
            except Refused as error:
                yield error
            except InputError as error:
                problems.append(str(error))
            else:
                if "file" in answer:
                    answer["file"] = name  # the relay has it as terminals may show it
                yield answer


def _of_database(
    label: "Label | None",
    file: Path | None,
    mails: "Iterable[NamedMail]",
    problems: list[str],
    by: str | None,
    source: str,
) -> Iterator[dict[str, Any] | Refused]:
    """The same without a relay, by the database itself. A user that can open it may change the marks of others."""
    from spamfilter.learning import marks
    from spamfilter.relay.quarantine.history import kept_elsewhere
    from spamfilter.reports import rendering

    author = marks.Author(user() if by is None else marks.author_name(by), source, master=by is None)
    with opened_filter(file, whole=False) as (filter, settings):
        found = subjects(filter, mails, settings.subject_prefixes(), problems, author.user)
        for number, subject in enumerate(found):
            if not number:
                where = harmless(f"no relay at {settings.socket_path()}; the marks go into {filter.store.where}")
                sentence(where, err=True)
            kept_on = ""
            if label == "ham" and subject.id:
                kept_on = kept_elsewhere(filter.store, settings.hostname(), settings.quarantine_path(), subject.id)
            try:
                change = marks.mark(filter, subject, label, author, settings.feedback)
            except Refused as error:
                yield error
            else:
                yield rendering.change_json(subject, label, change, kept_on)


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (click.pass_obj, as_json_option, _source, _by, names_argument):
        function = option(function)
    return function


@click.command("mark-spam")
@_options
def mark_spam(file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str) -> None:
    """Mark messages as spam, and learn them.

    Names are ids from X-Spamfilter-Id, files, folders or Maildirs; - is standard input. A repeat changes
    nothing. If a message was learnt as ham, that is taken back exactly first. A mark that is refused keeps no
    other one from being made, nor does a name that means no message; the command then exits with 1 or more.

    Example: spamfilter mark-spam 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark("spam", file, names, as_json, by, source)


@click.command("mark-ham")
@_options
@click.option("--into", default="", help="The folder that a mail server has moved it into; into the trash is no mark.")
def mark_ham(file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str, into: str) -> None:
    """Mark messages as ham (not spam), and learn them; the opposite of mark-spam.

    Below a folder, those of junk, deleted mail, sent mail and drafts are left out, as `train` does; name them to
    mark them, too.

    Example: spamfilter mark-ham < message.eml
    """
    if kind := kind_of(into):
        if not names:
            sys.stdin.buffer.read()  # or the program that pipes the mail in complains
        if not as_json:
            sentence(f"{harmless(into)}: holds {kind}, so a mail that is moved there is no mark")
    else:
        _mark("ham", file, names, as_json, by, source)


@click.command()
@_options
@click.option("--since", help="With --by alone: only marks since then; a span (24h, 7d), a date, or a time.")
@click.option("--yes", is_flag=True, help="With --by alone: undo the marks, and do not only show them.")
def forget(
    file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str, since: str | None, yes: bool
) -> None:
    """Undo what was learnt from messages, exactly.

    With --by NAME and no message: all marks of NAME that still count, with --source those of it alone. They are shown
    first, and undone with --yes. You must own the database. It works in batches: if it is stopped, run the same command
    again. What `train` or a rule had learnt before NAME changed it is learnt again; messages that other users had
    marked otherwise are then not learnt at all. What others have taught since stays as it was measured; `spamfilter
    retrain` measures it again, without NAME.

    import-N, as `spamfilter import` names it, is the whole of an import; you must own the database.

    \b
    Example: spamfilter forget 01KAH3V5E8M6Q2T0J9Z4R7X1CN
             spamfilter forget import-17
             spamfilter forget --by mallory --since 7d
    """
    imports = [name for name in names if re.fullmatch(r"import-[0-9]+", name)]
    if by is not None and not names:
        named = click.get_current_context().get_parameter_source("source") == ParameterSource.COMMANDLINE
        _forget_all(file, by, since, source if named else None, yes, as_json)
    elif since is not None or yes:
        raise click.UsageError("--since and --yes go with --by NAME and no message: what NAME has taught")
    elif imports and len(imports) < len(names):
        raise click.UsageError(f"{imports[0]} is an import: forget imports and messages by one command each")
    elif imports:
        _forget_imports(file, imports, as_json, by)
    else:
        _mark(None, file, names, as_json, by, source)


def _forget_imports(file: Path | None, ids: Sequence[str], as_json: bool, by: str | None) -> None:
    from spamfilter.bayes.model import messages
    from spamfilter.learning.transfer.imports import forget

    problems: list[str] = []
    with opened_filter(file, whole=True, existing=True) as (filter, _):
        for id in ids:
            try:
                entry = forget(filter, id, "cli", user() if by is None else by)
            except InputError as error:
                problems.append(str(error))
                continue
            if as_json:
                click.echo(json.dumps({"id": id, "changed": True, "was": entry.label}))
            else:
                learnt = messages(entry)
                sentence(
                    f"{id}: forgotten, with what was learnt from {learnt['ham']:,} ham and {learnt['spam']:,} spam"
                )
    tell_problems(problems)


def _forget_all(file: Path | None, by: str, since: str | None, source: str | None, yes: bool, as_json: bool) -> None:
    """Show, and with `yes` undo, all marks of an author. source: only those of it."""
    from spamfilter.learning.filter import Filter
    from spamfilter.learning.undoing import learnt_with, needs_all, taught_by, undo
    from spamfilter.reports import rendering

    begin = None if since is None else moment("--since", since, datetime.now(UTC))
    settings = settings_of(file)
    done: set[int] = set()
    with opened_store(settings, existing=True) as store:
        taught = taught_by(store, by, begin, source)
        counterparts = learnt_with(store, taught, begin)
        if not as_json:
            limits = "" if source is None else f", of the source {source}"
            limits += "" if begin is None else f", since {moment_text(begin)}"
            click.echo(_taught_text(by, taught, counterparts, limits))
        if yes and taught:
            try:
                filter = Filter(store, settings.voices(), whole=needs_all(taught))
                undo(filter, taught, "cli", user(), done.update)
            except StoreError as error:
                so_far = f"{error}; {len(done)} of {len(taught)} are forgotten; run the same command again for the rest"
                raise type(error)(so_far) from error
    if as_json:
        for each in taught:
            click.echo(rendering.to_json(_taught_json(each, each.entry.id in done, counterparts)))
    elif yes and taught:
        again = sum(each.before is not None for each in taught if each.entry.id in done)
        text = f"{len(done)} forgotten" + (f", {again} of them learnt again as before" if again else "")
        changed = f"; {len(taught) - len(done)} were changed by others meanwhile" if len(done) < len(taught) else ""
        click.echo(text + changed)
    elif taught:
        click.echo("nothing is undone yet; add --yes to undo it")


def _taught_text(by: str, taught: "Sequence[Taught]", counterparts: "Counter[datetime]", limits: str) -> str:
    """The marks of an author: period, numbers by source and label, and how many counterparts, by moment, are theirs.

    limits: which of them were asked for, in words; '': all.
    """
    name = harmless(by) or "nobody"
    if not taught:
        return f"{name} has no marks that count{limits}"
    entries = [each.entry for each in taught]
    first, last = min(entry.at for entry in entries), max(entry.at for entry in entries)
    marks = "1 mark that counts" if len(entries) == 1 else f"{len(entries)} marks that count"
    lines = [f"{name} has {marks}, from {moment_text(first)} to {moment_text(last)}"]
    numbers = Counter((entry.source, "taken back" if entry.undoes else entry.label) for entry in entries)
    lines += [f"  {source:<10} {label:<5} {number:>8}" for (source, label), number in sorted(numbers.items())]
    if counterparts:
        lines.append(f"  counterparts of these, learnt as ham: {counterparts.total()}")
    again = Counter(each.before.label for each in taught if each.before is not None)
    lines += [f"  will be learnt again: {number} as {label}" for label, number in sorted(again.items())]
    return "\n".join(lines)


def _taught_json(taught: "Taught", undone: bool, counterparts: "Counter[datetime]") -> dict[str, Any]:
    entry = taught.entry
    return {
        "at": entry.at,
        "label": None if entry.undoes else entry.label,
        "source": entry.source,
        "by": entry.by,
        "id": taught.id,
        "subject": taught.subject,
        "before": taught.before.label if taught.before else None,
        "undone": undone,
        "counterparts": counterparts[entry.at],
    }
