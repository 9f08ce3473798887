"""Connections to SQLite, and the errors of any store as ours.

Guarantee: a transaction begins where the caller begins it, a commit reaches the disk, and a new file has mode 0600.
"""

import errno
import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import QueuePool

from spamfilter.errors import CountError, StoreBusy, StoreDamaged, StoreError, StoreFull, file_errors
from spamfilter.stores.schema import OTHER
from spamfilter.system.file_access import is_trap, make_file, owner, user_of

BUSY_SECONDS = 10.0
"""How long a writer waits for the lock: longer than any batch of `train` holds it."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Primary result codes, the lowest eight bits of an error code: https://www.sqlite.org/rescode.html."""
NO_TEXT = "Could not decode to UTF-8"
"""What the driver says of damaged text, before the column and that text, which may be all words that are known."""
ROOM = "make room on its disk"
LOCKS = "its file system has no locks, as NFS without its lock service; put it on a local one, or set [store] url"
DISK = {
    sqlite3.SQLITE_FULL: ROOM,
    sqlite3.SQLITE_IOERR_SHMSIZE: ROOM,
    sqlite3.SQLITE_IOERR_LOCK: LOCKS,
    sqlite3.SQLITE_IOERR_RDLOCK: LOCKS,
    sqlite3.SQLITE_IOERR_SHMLOCK: LOCKS,
    sqlite3.SQLITE_IOERR: "see to its disk",
}
"""Error codes, or the primary ones of others -> what to do."""
AS_OWNER = "run this as the owner of the database"
LACKING = ("no such table", "no such column", "has no column")
"""What SQLite says where another version has changed the tables."""

POSTGRESQL = "postgresql+psycopg"


def connect(url: str, replaced: Callable[[], None]) -> tuple[Engine, Callable[[str], Sequence[Any]]]:
    """An engine for this URL, and what asks for one row as `Database.row` does; a missing file of SQLite is made.

    A transaction with the execution option `writing` begins with the write lock held. replaced: called when PostgreSQL
    has another database than before.
    """
    where = place_of(url)
    if (path := file_of(url)) is None:
        try:
            from spamfilter.stores.sql import postgresql
        except ImportError as error:
            missing = f"{POSTGRESQL} needs psycopg: in the checkout, .venv/bin/pip install '.[postgresql]'"
            raise StoreError(missing) from error
        return postgresql.connect(make_url(url), where, BUSY_SECONDS, replaced)
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; create it, or set [store] url")
    with file_errors(url, StoreError), suppress(FileExistsError):
        if is_trap(path):
            raise StoreError(f"{path}: a link of {owner(folder)}, which root does not follow; name what it leads to")
        make_file(path)

    def read_json(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise damaged(where, f"a value is no JSON ({error})") from error

    engine = create_engine(
        URL.create("sqlite", database=str(path)),  # not the text, in which SQLAlchemy 2.1 takes %20 for a space
        poolclass=QueuePool,
        hide_parameters=True,  # words of mail do not belong in a log
        json_deserializer=read_json,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, record: object) -> None:
        try:
            _prepare(connection)
        except sqlite3.Error:
            connection.close()  # SQLAlchemy never gets this connection and cannot close it
            raise

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")

    def _row(columns: str) -> Sequence[Any]:
        with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"SELECT {columns}")
            row: Sequence[Any]
            (row,) = cursor.fetchall()
            return row

    return engine, _row


def _prepare(connection: sqlite3.Connection) -> None:
    connection.isolation_level = None  # the driver must not begin transactions itself
    # A database of another program must stay unchanged: `Database.revision` raises for it soon.
    (ours,) = connection.execute("SELECT max(name = 'alembic_version') FROM sqlite_master").fetchone()
    if ours in (None, 1):
        with suppress(sqlite3.OperationalError):  # a read-only file keeps its mode
            connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def file_of(url: str) -> Path | None:
    """The file that a URL of SQLite names, None for PostgreSQL. Raises StoreError."""
    if url.startswith(f"{POSTGRESQL}:"):
        return None
    path = url.removeprefix("sqlite:///")
    if not url.startswith("sqlite:///") or path in ("", ":memory:") or set(path) & {"?", "\0"}:
        raise StoreError(f"{url}: name a file, as in sqlite:////var/lib/spamfilter/spamfilter.db")
    return Path(path).absolute()


def files_of(path: Path) -> dict[Path, os.stat_result]:
    """The files of a database of SQLite that exist now: SQLite makes the -wal and -shm, and removes them."""
    found = {}
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            found[file] = file.stat()
    return found


def forbidden(path: Path, want: int) -> str:
    """Which file of a database of SQLite this process has no permission for, and what to do; '' if there is none.

    want: os.R_OK, os.W_OK or both.
    """
    for file, found in files_of(path).items():
        if _is_denied(file, want):
            whose = f"{file.name} belongs to {user_of(found.st_uid).name} ({found.st_mode & 0o7777:04o})"
            if found.st_uid == os.geteuid():
                return f"{whose}; chmod u+rw it"
            return f"{whose}; {AS_OWNER}, or chown its files to the user of the relay"
    return ""


def _is_denied(path: Path, want: int) -> bool:
    """Whether this process has no permission. A file system that is mounted read-only is not a matter of it, nor is a
    file that is gone."""
    with suppress(FileNotFoundError):
        return not os.access(path, want, effective_ids=True) and not os.statvfs(path).f_flag & os.ST_RDONLY
    return False


def _without_locks(folder: Path) -> bool:
    """Whether the file system of a folder has no locks now, which SQLite calls locked (ENOLCK).

    Tried with another file: to close the database's would end the locks that this process has on it.
    """
    with suppress(OSError), TemporaryFile(dir=folder) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.ENOLCK
    return False


def place_of(url: str) -> str:
    """The name of a store in messages to people, without a password. Raises StoreError."""
    if (path := file_of(url)) is not None:
        return str(path)
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError("[store] url: not a URL; docs/postgresql.md has examples") from None
    host = ",".join(hosts_of(url)) or parts.query.get("service", "local")
    return f"postgresql://{host}{f':{parts.port}' if parts.port else ''}/{parts.database or ''}"


def same_place(one: str, other: str) -> bool:
    """Whether two names of `place_of` are of one store, whose path may lead through symbolic links."""
    return os.path.realpath(one) == os.path.realpath(other)


def has_password(url: str) -> bool:
    """Whether the URL has a password, which then may get into logs and lists of processes. Raises StoreError."""
    place_of(url)
    return file_of(url) is None and (make_url(url).password is not None or "password" in make_url(url).query)


def hosts_of(url: str) -> list[str]:
    """The hosts of PostgreSQL's servers, as libpq finds them; none for a socket on this machine, and for SQLite."""
    if file_of(url) is not None:
        return []
    parts = make_url(url)
    # No key is named twice: `config.sections` says so.
    addresses, names = str(parts.query.get("hostaddr", "")), str(parts.query.get("host") or parts.host or "")
    pairs = zip_longest(addresses.split(","), names.split(","), fillvalue="")
    hosts = [re.sub(r"^([\w.-]+):\d*$", r"\1", address or name) for address, name in pairs]
    return [host for host in hosts if host and not host.startswith(("/", "@"))]


def service_of(url: str) -> str:
    """The entry of PostgreSQL's service file that a URL names, which may name the host; '' if it names none."""
    return "" if file_of(url) is not None else str(make_url(url).query.get("service", ""))


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Raises the driver's exceptions as StoreError or its subclasses. where: the name of the store in their texts.

    No other exception is changed: callers run their own code in a transaction.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise _meant(where, error.orig if isinstance(error, DBAPIError) else error) from error


def damaged(where: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"{where}: {reason}; move it away with its -wal and -shm, and put a backup in its place")


def _meant(where: str, error: BaseException | None) -> StoreError:
    if not isinstance(error, sqlite3.Error):
        from spamfilter.stores.sql.postgresql import meant

        return meant(where, error)  # type: ignore[arg-type]  # SQLAlchemy's errors have the driver's
    reason, code = str(error), getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_CONSTRAINT_CHECK:  # the tables' only checks are that no count is below zero
        return CountError(f"{where}: {reason}: the counts do not hold what was to be taken away")
    if code & 0xFF in DAMAGED:
        return damaged(where, reason)
    if reason.startswith(NO_TEXT):
        return damaged(where, reason.partition(" with text ")[0])
    if hint := DISK.get(code) or DISK.get(code & 0xFF):
        return StoreFull(f"{where}: {reason}; {hint}")
    if "readonly database" in reason:
        file = forbidden(Path(where), os.W_OK)
        if not file and not _is_denied(Path(where).parent, os.W_OK):  # the kernel has shut its file system down
            return StoreFull(f"{where}: {reason}; {DISK[sqlite3.SQLITE_IOERR]}")
        reason = f"no permission to write{f': {file}' if file else f'; {AS_OWNER}, who must own its folder, too'}"
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN and (file := forbidden(Path(where), os.R_OK | os.W_OK)):
        reason = f"no permission: {file}"
    if isinstance(error, sqlite3.OperationalError) and "locked" in reason:
        if _without_locks(Path(where).parent):
            return StoreFull(f"{where}: {LOCKS}")
        return StoreBusy(f"{where}: another process holds the database; try again")
    if any(lacking in reason for lacking in LACKING):
        reason = f"{reason}; {OTHER}"
    return StoreError(f"{where}: {reason}")
