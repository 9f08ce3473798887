"""mark-spam, mark-ham, forget: over the feedback socket of a running relay, or else on the database itself.

A mail program runs them at every click, so nothing heavy is imported before it is known to be needed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spamfilter.commands.command import as_json_option, names_argument, opened_filter, standard_input, user
from spamfilter.errors import InputError
from spamfilter.places import configured_socket
from spamfilter.socket_client import NoRelay, SocketClient

if TYPE_CHECKING:
    from spamfilter.counts import Label

_by = click.option("--by", help="Whom this mark is of, where a mail server asks for its user; [feedback] proxies.")
_source = click.option("--source", type=click.Choice(["cli", "imap"]), default="cli", help="The way it came.")


def _mark(
    label: "Label | None", file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str
) -> None:
    """mark-spam, mark-ham, and with None forget."""
    try:
        client = SocketClient(configured_socket(file))
    except NoRelay:
        answers = _of_database(label, file, names or ("-",), by, source)
    else:
        answers = _of_relay(client, label, names or ("-",), by, source)
    for answer in answers:
        text = answer.pop("text")
        if as_json:
            import json

            click.echo(json.dumps(answer, ensure_ascii=False))
        else:
            click.echo(text)


def _of_relay(
    client: SocketClient, label: "Label | None", names: tuple[str, ...], by: str | None, source: str
) -> Iterator[dict[str, Any]]:
    """What a running relay answers to each mark."""
    request: dict[str, object] = {"command": "mark", "label": label, "source": source}
    if by is not None:
        request["by"] = by
    with closing(client):
        for name in names:
            if name == "-":
                yield client.ask({**request, "name": "standard input"}, standard_input())
            elif os.path.lexists(name):
                from spamfilter import mailboxes

                for found in mailboxes.find(Path(name)):
                    yield client.ask({**request, "name": found.name}, found.read())
            elif not name:
                raise InputError("an empty name: name an id, a file or a folder, or - for standard input")
            else:
                from spamfilter.ids import id_in

                id = id_in(name)
                if not id:
                    raise InputError(f"{name}: no such file or folder, and no id (26 letters and digits)")
                yield client.ask({**request, "id": id})


def _of_database(
    label: "Label | None", file: Path | None, names: tuple[str, ...], by: str | None, source: str
) -> Iterator[dict[str, Any]]:
    """The same without a relay: whoever can open the database owns it, and may change what others have taught."""
    from spamfilter import feedback, rendering
    from spamfilter.commands.subjects import named, subjects

    author = feedback.Author(user() if by is None else by, source, master=by is None)
    with opened_filter(file, whole=False) as (filter, settings):
        for subject in subjects(filter, names):
            change = feedback.mark(filter, subject, label, author, settings.feedback.marks_a_day)
            yield {
                **rendering.change_json(named(subject), change),
                "text": rendering.change_text(subject.name, label, change),
            }


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (click.pass_obj, as_json_option, _source, _by, names_argument):
        function = option(function)
    return function


@click.command("mark-spam")
@_options
def mark_spam(file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str) -> None:
    """Say that messages are spam, and learn that.

    Names are ids from X-Spamfilter-Id, files, folders or Maildirs; - is standard input. A repeat changes
    nothing; a ham that was learnt is taken back exactly before.

    Example: spamfilter mark-spam 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark("spam", file, names, as_json, by, source)


@click.command("mark-ham")
@_options
def mark_ham(file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str) -> None:
    """Say that messages are ham, and learn that; the mirror of mark-spam.

    Example: spamfilter mark-ham < message.eml
    """
    _mark("ham", file, names, as_json, by, source)


@click.command()
@_options
def forget(file: Path | None, names: tuple[str, ...], as_json: bool, by: str | None, source: str) -> None:
    """Take back what was learnt of messages, exactly.

    Example: spamfilter forget 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark(None, file, names, as_json, by, source)
