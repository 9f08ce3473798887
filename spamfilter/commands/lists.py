"""The commands `allow`, `block`, `lists` and `unlist`: senders whose mail passes, or is treated as spam."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from spamfilter.commands.command import as_json_option, has_store, opened_store, settings_of, user
from spamfilter.config import sender_rules
from spamfilter.errors import InputError
from spamfilter.reports import rendering
from spamfilter.stores.sender_lists import FormerRule, Kind, Rule
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import moment_text
from spamfilter.system.screen import coloured, sentence, warn

_for = click.option("--for", "whom", default="", help="Only for this recipient, an address or a domain.")
_days = click.option("--days", type=click.IntRange(1), help="Days until the rule expires; without it, never.")
_note = click.option("--note", default="", help="Why, for those who read the list.")


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (click.pass_obj, as_json_option, _note, _days, _for):
        function = option(function)
    return click.argument("sender", metavar="ADDRESS|DOMAIN|NETWORK")(function)


@click.command()
@_options
def allow(file: Path | None, sender: str, whom: str, days: int | None, note: str, as_json: bool) -> None:
    """Allow a sender: its mail passes untagged, whatever the filter finds.

    An address or a domain counts only where your mail server has proved it by SPF, DKIM or DMARC: [lists] results_from.
    A network is that of the client. A running relay obeys within a second. A rule on the same sender for the same
    recipients is replaced. docs/lists.md says which rule holds.

    Example: spamfilter allow news.example.org --days 90
    """
    _add("allow", file, sender, whom, days, note, as_json)


@click.command()
@_options
def block(file: Path | None, sender: str, whom: str, days: int | None, note: str, as_json: bool) -> None:
    """Block a sender: its mail is treated as [verdict] on_spam says, whatever the filter finds.

    Example: spamfilter block 192.0.2.0/24 --for me@example.org --note "sells lists"
    """
    _add("block", file, sender, whom, days, note, as_json)


@click.command()
@click.option("--history", is_flag=True, help="List rules that were undone or replaced, or have expired.")
@as_json_option
@click.pass_obj
def lists(file: Path | None, history: bool, as_json: bool) -> None:
    """List allowed and blocked senders: those of the configuration, then those that people have added.

    With --history: the rules that have ended, the latest first, by whom and when.

    Example: spamfilter lists --json
    """
    settings = settings_of(file)
    now = datetime.now(UTC)
    rules, ended = settings.rules(), []
    if has_store(settings.store_url()):
        with opened_store(settings) as store:
            rules, ended = [*rules, *store.rules()], store.former_rules() if history else []
    if history:
        for former in ended:
            _show_former(former, as_json, now)
        if not ended and not as_json:
            click.echo("no rule has ended")
        return
    for rule in rules:
        _show(rule, as_json, now)
    if not rules and not as_json:
        click.echo("no sender is allowed or blocked")


@click.command()
@click.argument("number")
@as_json_option
@click.pass_obj
def unlist(file: Path | None, number: str, as_json: bool) -> None:
    """Remove a rule by its number in `spamfilter lists`. Those of the configuration file are removed there.

    Example: spamfilter unlist 12
    """
    now = datetime.now(UTC)
    with opened_store(settings_of(file), existing=True) as store:
        id = int(number) if re.fullmatch("[0-9]{1,18}", number) else 0
        rule = store.remove_rule(id, user(), now)
    if rule is None:
        raise InputError(f"{harmless(number)}: no rule has this number; `spamfilter lists` shows them")
    if not as_json:
        click.echo("removed:")
    _show(rule, as_json, now)


def _add(kind: Kind, file: Path | None, sender: str, whom: str, days: int | None, note: str, as_json: bool) -> None:
    now = datetime.now(UTC)
    try:
        new = sender_rules.new_rule(kind, sender, whom, days, user(), now, note)
    except ValueError as error:
        raise InputError(str(error)) from None
    settings = settings_of(file)
    with opened_store(settings) as store:
        rule = store.add_rule(new, now)
    _show(rule, as_json, now)
    if sender_rules.waits_for_proof(rule, settings.lists.results_from):
        warn("not obeyed yet: nothing proves who the sender is; name your mail server in [lists] results_from")
    if sender_rules.blocks(rule, settings.relay.networks()):
        warn(f"blocks clients in [relay] trusted, and so your mail server, perhaps: spamfilter unlist {rule.id}")


def _show(rule: Rule, as_json: bool, now: datetime) -> None:
    if as_json:
        click.echo(rendering.to_json(_json(rule, now)))
    else:
        sentence(_text(rule, now), indent=14)


def _show_former(former: FormerRule, as_json: bool, now: datetime) -> None:
    if as_json:
        ended = {"ended": former.ended, "ended_by": former.ended_by, "ending": former.ending}
        click.echo(rendering.to_json(_json(former.rule, now) | ended))
    else:
        by = f" by {harmless(former.ended_by)}" if former.ended_by else ""
        click.echo(f"{_text(former.rule, now)}\n       {former.ending}{by}, {moment_text(former.ended)}")


def _text(rule: Rule, now: datetime) -> str:
    parts = [f"{rule.id or '-':>5}  {coloured(rule.kind, 5)}  {rule.what}"]
    if rule.whom:
        parts.append(f"for {rule.whom}")
    if rule.expires is not None:
        parts.append(f"{'expired' if rule.expires <= now else 'until'} {moment_text(rule.expires)}")
    if rule.at is None:
        parts.append("(configuration)")
    else:
        parts.append(f"({f'by {harmless(rule.by)}, ' if rule.by else ''}{moment_text(rule.at)})")
    return "  ".join([*parts, harmless(rule.note)]).rstrip()


def _json(rule: Rule, now: datetime) -> dict[str, Any]:
    return {
        "rule": rule.id or None,
        "kind": rule.kind,
        "sender": rule.what,
        "recipients": rule.whom,
        "expires": rule.expires,
        "expired": rule.expires is not None and rule.expires <= now,
        "by": rule.by,
        "at": rule.at,
        "note": rule.note,
    }
