"""What commands share: opening configuration, store and filter, and the option --json."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from spamfilter import config
from spamfilter.errors import InputError
from spamfilter.filter import Filter
from spamfilter.stores import Store, open_store

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def user() -> str:
    """Who runs this."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def settings_of(file: Path | None) -> config.Settings:
    """The configuration, with its state directory made where that is the default's place."""
    settings = config.load(file)
    if not settings.store.url:
        try:
            config.state_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{config.state_directory()}: {error.strerror}; set [store] url") from error
    return settings


@contextmanager
def opened_store(settings: config.Settings) -> Iterator[Store]:
    """The store of the configuration."""
    if settings.store_url().startswith("memory:"):
        raise InputError('[store] url = "memory:" keeps nothing between commands; name a database file')
    store = open_store(settings.store_url())
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_filter(file: Path | None, whole: bool) -> Iterator[tuple[Filter, config.Settings]]:
    """The filter of the configuration, on its store."""
    settings = settings_of(file)
    with opened_store(settings) as store:
        yield Filter(store, settings.voices(), whole=whole), settings
