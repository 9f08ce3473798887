"""Connections to SQLite that do what the store promises: real transactions, synced, private files."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.pool import QueuePool

from spamfilter.errors import CountError, StoreBusy, StoreDamaged, StoreError
from spamfilter.system.file_access import is_trap, make_file, owner

BUSY_SECONDS = 10.0
"""Longer than any batch of `train` holds the lock, shorter than a user's patience."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes, the lowest eight bits of what SQLite says: https://www.sqlite.org/rescode.html."""


def connect(url: str) -> Engine:
    """An engine whose transactions are real: BEGIN is ours, IMMEDIATE where a writer asks for it."""
    path = file_of(url)
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; create it, or set [store] url")
    with store_errors(url), suppress(FileExistsError):
        if is_trap(path):
            raise StoreError(f"{path}: a link of {owner(folder)}, which root does not follow; name what it leads to")
        make_file(path)
    engine = create_engine(url, poolclass=QueuePool, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, record: object) -> None:
        try:
            _prepare(connection)
        except sqlite3.Error:
            connection.close()  # nobody else would
            raise

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _prepare(connection: sqlite3.Connection) -> None:
    connection.isolation_level = None  # the driver shall not begin transactions on its own
    # What another program has made is refused soon, and stays as it is until then.
    (ours,) = connection.execute("SELECT max(name = 'alembic_version') FROM sqlite_master").fetchone()
    if ours in (None, 1):
        with suppress(sqlite3.OperationalError):  # a read-only file keeps the mode it has
            connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def file_of(url: str) -> Path:
    """The file that a URL of SQLite names. Raises StoreError."""
    path = url.removeprefix("sqlite:///")
    if not url.startswith("sqlite:///") or path in ("", ":memory:") or "?" in path:
        raise StoreError(f"{url}: name a file, as in sqlite:////var/lib/spamfilter/spamfilter.db")
    return Path(path).absolute()


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """The driver's exceptions as ours."""
    try:
        yield
    except IntegrityError as error:
        raise CountError(f"{where}: {error.orig}: the counts do not hold what was to be taken away") from error
    except (DBAPIError, sqlite3.Error, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = getattr(cause, "strerror", None) or str(cause)
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
            raise StoreDamaged(f"{where}: {reason}; keep the file, and put a backup in its place") from error
        if "readonly database" in reason:
            reason = "no permission to write; run this as the owner of the database"
        if isinstance(error, OperationalError | sqlite3.OperationalError) and "locked" in reason:
            raise StoreBusy(f"{where}: another process holds the database; try again") from error
        raise StoreError(f"{where}: {reason}") from error
