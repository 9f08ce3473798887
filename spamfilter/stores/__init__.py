"""STORES: where counts, ledger and journal are kept; the only room that knows SQL.

Guarantee: `words` is the sum of `ledger`; a learning is one transaction; a repeat changes nothing.
Imports: errors, system, mail and bayes. Start with store, the contract; schema has the tables, sql/ one implementation.
"""

from collections.abc import Callable
from contextlib import ExitStack

from spamfilter.errors import StoreError
from spamfilter.stores.schema import HEAD
from spamfilter.stores.store import Entry, Holders, JournalEntry, Labelled, Learning, Relearnt, Store, Trainings, Wanted

__all__ = [
    "STORES",
    "Entry",
    "Holders",
    "JournalEntry",
    "Labelled",
    "Learning",
    "Relearnt",
    "Store",
    "Trainings",
    "Wanted",
    "open_store",
]


def _sql(url: str, migrate: bool) -> Store:
    from spamfilter.stores.sql import SqlStore

    store = SqlStore(url)
    with ExitStack() as unless_it_is_returned:
        unless_it_is_returned.callback(store.close)
        revision = store.revision()
        if revision is not None and revision > HEAD:
            raise StoreError(f"{store.where}: made by a newer version (schema {revision}, this one knows {HEAD})")
        if revision is not None and revision < HEAD and not migrate:
            raise StoreError(f"{store.where}: schema {revision} is old; run `spamfilter migrate`, or restart the relay")
        if revision != HEAD and not (revision is None and store.create()):
            from spamfilter.stores.migration import migrate as run

            store.close()
            run(url)
        store.look()
        unless_it_is_returned.pop_all()
    return store


STORES: dict[str, Callable[[str, bool], Store]] = {"sqlite": _sql}


def open_store(url: str, migrate: bool = False) -> Store:
    """The store that a URL names. A new database gets its tables; an old one only with `migrate`.

    Raises StoreError where it cannot be opened, is of a newer version, or old and not to be migrated.
    """
    scheme = url.partition(":")[0]
    if scheme not in STORES:
        raise StoreError(f"{url}: unknown kind of store {scheme!r}; known: {', '.join(STORES)}")
    return STORES[scheme](url, migrate)
