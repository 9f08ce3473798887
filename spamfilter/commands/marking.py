"""mark-spam, mark-ham, forget, judge: what is done with messages that the arguments name."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from spamfilter import mailboxes, rendering
from spamfilter.commands.command import as_json_option, opened_filter, user
from spamfilter.counts import Label
from spamfilter.errors import InputError
from spamfilter.feedback import Subject, by_id, by_mail
from spamfilter.filter import Filter
from spamfilter.journal import is_id


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
            subject = by_id(filter.store, name)
            if not any(voice.name in subject.reading.tokens for voice in filter.voices):
                raise InputError(f"{name}: judged by other voices than today's; name its file instead")
            yield subject
        else:
            if not os.path.lexists(name):
                raise InputError(f"{name}: no such file or folder, and no id (26 letters and digits)")
            for found in mailboxes.find(Path(name)):
                yield by_mail(filter, found.name, found.read())


def _named(subject: Subject) -> dict[str, str]:
    return {"id": subject.id} if subject.id else {"file": subject.name}


def _mark(label: Label | None, file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """mark-spam, mark-ham, and with None forget."""
    with opened_filter(file, whole=False) as (filter, _):
        for subject in _subjects(filter, names or ("-",)):
            if label:
                change = filter.learn(subject.reading, label, source="cli", by=user())
            else:
                change = filter.forget(subject.reading, source="cli", by=user())
            if as_json:
                click.echo(rendering.to_json(rendering.change_json(_named(subject), change)))
            else:
                click.echo(rendering.change_text(subject.name, label, change))


_names = click.argument("names", nargs=-1, metavar="[ID|FILE|DIR|-]...")


@click.command("mark-spam")
@_names
@as_json_option
@click.pass_obj
def mark_spam(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Say that messages are spam, and learn that.

    Names are ids from X-Spamfilter-Id, files, folders or Maildirs; - is standard input. A repeat changes
    nothing; a ham that was learnt is taken back exactly before.

    Example: spamfilter mark-spam 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark("spam", file, names, as_json)


@click.command("mark-ham")
@_names
@as_json_option
@click.pass_obj
def mark_ham(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Say that messages are ham, and learn that; the mirror of mark-spam.

    Example: spamfilter mark-ham < message.eml
    """
    _mark("ham", file, names, as_json)


@click.command()
@_names
@as_json_option
@click.pass_obj
def forget(file: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Take back what was learnt of messages, exactly.

    Example: spamfilter forget 01KAH3V5E8M6Q2T0J9Z4R7X1CN
    """
    _mark(None, file, names, as_json)


@click.command()
@_names
@click.option("--explain", is_flag=True, help="Show the tokens that made the score, with their counts.")
@as_json_option
@click.pass_obj
def judge(file: Path | None, names: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """Judge messages without delivering or learning them.

    Example: spamfilter judge --explain message.eml
    """
    with opened_filter(file, whole=False) as (filter, settings):
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
