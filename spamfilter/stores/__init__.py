"""STORES: where counts, ledger and journal are kept; the only room that knows SQL.

Guarantee: the counts are the sum of the ledger; a learning is one transaction; a repeat changes nothing.
Imports: errors, system, mail and bayes. Start with the contract: store, journal, quarantine_events and sender_lists;
schema has the tables, and sql/ the implementation for SQLite and PostgreSQL.
"""

from collections.abc import Callable

from spamfilter.errors import StoreError
from spamfilter.stores.journal import UNJUDGED, WANTED_CLASSES, Deferral, JournalEntry, Wanted, WantedClass
from spamfilter.stores.quarantine_events import QuarantineEvent
from spamfilter.stores.schema import HEAD, NEWER
from spamfilter.stores.sender_lists import Rule
from spamfilter.stores.sql import SqlStore
from spamfilter.stores.sql.connection import POSTGRESQL
from spamfilter.stores.store import Entry, Learning, Ledger, Relearnt, Rewriting, Store, Trainings

__all__ = [
    "NO_TABLES",
    "STORES",
    "UNJUDGED",
    "WANTED_CLASSES",
    "Deferral",
    "Entry",
    "JournalEntry",
    "Learning",
    "Ledger",
    "QuarantineEvent",
    "Relearnt",
    "Rewriting",
    "Rule",
    "Store",
    "Trainings",
    "Wanted",
    "WantedClass",
    "open_store",
]


GONE = (
    "put a backup in its place, with no -wal or -shm beside it; restart the relay only after that: it still judges by"
    " what it had learnt"
)
NO_TABLES = "no database yet; `serve`, `train` and marks make one; see [store] url"


def _sql(url: str, migrate: bool, create: bool) -> Store:
    store = SqlStore(url)
    try:
        _bring_to_head(store, url, migrate, create)
        if migrate:
            store.check_writable()
        store.look()
    except BaseException:
        store.close()
        raise
    return store


def _bring_to_head(store: SqlStore, url: str, migrate: bool, create: bool) -> None:
    revision = store.revision()
    if revision is None and not create:
        raise StoreError(f"{store.where}: {NO_TABLES}")
    if revision is not None and revision > HEAD:
        raise StoreError(f"{store.where}: {NEWER.format(revision)}")
    if revision is not None and revision < HEAD and not migrate:
        raise StoreError(f"{store.where}: schema {revision} is old; run `spamfilter migrate`, or restart the relay")
    if revision != HEAD and not (revision is None and store.create()):
        from spamfilter.stores.migration import migrate as run

        store.close()
        run(url)


STORES: dict[str, Callable[[str, bool, bool], Store]] = {"sqlite": _sql, POSTGRESQL: _sql}


def open_store(url: str, migrate: bool = False, create: bool = True) -> Store:
    """The store at a URL. A new database gets its tables with `create`; an old one is migrated only with `migrate`.

    migrate: the store is that of a relay, which must be able to write it.

    Raises StoreError if the database cannot be opened, has no tables and gets none, is newer than this program, is old
    and `migrate` is not set, or may not be written and `migrate` is set.
    """
    scheme = url.partition(":")[0]
    if scheme not in STORES:
        raise StoreError(f"unknown kind of store {scheme!r}; known: {', '.join(STORES)}")
    return STORES[scheme](url, migrate, create)
