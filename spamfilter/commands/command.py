"""Parts that commands share: opening configuration, store and filter, times, the option --json.

Heavy modules are imported only where they are used: a mark over the feedback socket needs none of them.
"""

import getpass
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spamfilter.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from spamfilter.config.settings import Settings
    from spamfilter.learning.filter import Filter
    from spamfilter.stores import Store

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
names_argument = click.argument("names", nargs=-1, metavar="[ID|FILE|DIR|-]...")


def moment(option: str, text: str, now: "datetime") -> "datetime":
    """The begin of a span like 7d that ends now, or a date. Raises InputError, which names the option."""
    import re
    from datetime import UTC, datetime, timedelta

    spans = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    try:
        if match:
            return now - int(match.group(1)) * spans[match.group(2)]
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{option} {text!r}: neither a span (24h, 7d, 4w) nor a date (2026-01-31)") from None
    if found >= now:
        raise InputError(f"{option} {text!r}: lies in the future")
    return found


def user() -> str:
    """The login name of the user who runs this command, '' if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def standard_input() -> bytes:
    """The mail on standard input. Raises InputError if it is empty."""
    mail = sys.stdin.buffer.read()
    if not mail.strip():
        raise InputError("standard input: no mail; name an id, a file or a Maildir, or pipe a mail in")
    return mail


def settings_of(file: Path | None) -> "Settings":
    """The configuration. Makes the state directory if the database is there by default."""
    from spamfilter.config.settings import load
    from spamfilter.system.file_access import make_folder
    from spamfilter.system.paths import state_directory

    settings = load(file)
    if not settings.store.url:
        try:
            make_folder(state_directory())
        except OSError as error:
            raise InputError(f"{state_directory()}: {error.strerror}; set [store] url") from error
    return settings


@contextmanager
def opened_store(settings: "Settings") -> "Iterator[Store]":
    """The store of the configuration."""
    from spamfilter.stores import open_store

    with closing(open_store(settings.store_url())) as store:
        yield store


@contextmanager
def opened_filter(file: Path | None, whole: bool) -> "Iterator[tuple[Filter, Settings]]":
    """The filter of the configuration, on its store."""
    from spamfilter.learning.filter import Filter

    settings = settings_of(file)
    with opened_store(settings) as store:
        yield Filter(store, settings.voices(), whole=whole), settings
