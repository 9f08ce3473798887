"""One database: its transactions, the version of its tables, its checks and its copies.

Guarantee: a writer holds the write lock from its first read, so that what it reads is what it changes. Readers never
wait; a writer waits at most BUSY_SECONDS and then raises StoreBusy.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Executable,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)

from spamfilter.errors import StoreError, file_errors
from spamfilter.stores.schema import HEAD, metadata
from spamfilter.stores.sql.connection import (
    connect,
    damaged,
    file_of,
    files_of,
    forbidden,
    place_of,
    store_errors,
)
from spamfilter.system.batches import batches
from spamfilter.system.file_access import whole_file

TOGETHER = 500
"""Values of one IN: well below SQLite's limit on variables, and few round trips for a mail."""

versions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As Alembic makes it."""


class Database:
    """One file of SQLite, or one database of PostgreSQL. where: its name in messages to people.

    generation: grows when another one was put in its place.
    """

    generation: int = 0
    where: str = ""

    def __init__(self, url: str) -> None:
        self.where = place_of(url)
        self.engine, self._row = connect(url, self._replaced)
        self._path = file_of(url)
        self._file = self._identity()

    def _replaced(self) -> None:
        self.generation += 1

    def _identity(self) -> tuple[int, int] | None:
        """Device and inode of the file, None for PostgreSQL. Raises StoreError if the file is gone."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError as error:
            self.engine.dispose()  # open connections would write to a deleted file
            raise StoreError(f"{self.where}: the database is gone: {error.strerror}") from error
        return found.st_dev, found.st_ino

    def _check(self) -> None:
        """Notice a file that was deleted or replaced: open connections would go on with the old one."""
        identity = self._identity()
        if identity != self._file:
            self.engine.dispose()
            self._file = identity
            self._replaced()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        self._check()
        with store_errors(self.where), self.engine.connect() as connection, connection.begin():
            yield connection

    def row(self, columns: str) -> Sequence[Any]:
        """The row of a constant query, in a transaction that only reads; in a quarter of the time of `reading`, because
        a relay asks six times a second. columns: the query after SELECT. Values are those of the driver."""
        self._check()
        with store_errors(self.where):
            return self._row(columns)

    def number(self, query: Executable) -> int:
        """The one number that a query finds."""
        with self.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def rows(self, query: Select[Any]) -> Iterator[Any]:
        """The rows that a query finds, as they are read."""
        with self.reading() as connection:
            yield from connection.execute(query)

    def rows_of(self, query: Select[Any], column: ColumnElement[Any], values: Collection[Any]) -> Iterator[Any]:
        """The rows of a query whose column has one of these values, as they are read."""
        with self.reading() as connection:
            for some in batches([*values], TOGETHER):
                yield from connection.execute(query.where(column.in_(some)))

    @contextmanager
    def writing(self, migrating: bool = False) -> Iterator[Connection]:
        """A transaction that writes. migrating: each of its statements may take as long as it needs."""
        self._check()
        with store_errors(self.where), self.engine.connect() as connection:
            connection = connection.execution_options(writing=True, migrating=migrating)
            with connection.begin():
                yield connection

    def revision(self) -> str | None:
        """The revision of the schema; None for a database without tables. Raises StoreError for other tables."""
        with self.reading() as connection:
            if not self.engine.dialect.has_table(connection, "alembic_version"):
                if names := inspect(connection).get_table_names():
                    raise StoreError(
                        f"{self.where}: is not a database of spamfilter: it has {names[0]}; see [store] url"
                    )
                return None
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            return str(found) if found else None

    def create(self) -> bool:
        """Make the tables of an empty database, in a tenth of the migrations' time; False if it is not empty."""
        with self.writing() as connection:
            if inspect(connection).get_table_names():
                return False
            self.make_tables(connection)
        return True

    def make_tables(self, connection: Connection) -> None:
        metadata.create_all(connection, checkfirst=False)
        versions.create(connection, checkfirst=False)
        connection.execute(insert(versions), {"version_num": HEAD})

    def verify(self, quickly: bool = False) -> list[str]:
        if self._path is None:
            return []  # PostgreSQL looks at each page that it reads, and says so
        check = "quick_check" if quickly else "integrity_check"
        with self.reading() as connection:
            found = [str(row[0]) for row in connection.exec_driver_sql(f"PRAGMA {check}(10)")]
        return [f"{self.where}: {line}" for line in found if line != "ok"]

    def backup(self, target: Path) -> None:
        if self._path is None:
            raise StoreError(f"{self.where}: make backups of PostgreSQL by pg_dump; see docs/postgresql.md")
        with (
            file_errors(target, StoreError),
            store_errors(str(target)),
            whole_file(target) as partial,
            self.engine.connect() as connection,
            closing(sqlite3.connect(partial)) as copy,
        ):
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
            with store_errors(self.where):  # a damaged page is copied as it is
                (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise damaged(self.where, found.replace("\n", " "))

    def size(self) -> int:
        if self._path is None:
            return self.number(select(func.pg_database_size(func.current_database())))
        return sum(file.st_size for file in files_of(self._path).values())

    def may_write(self) -> bool:
        """Whether the user of a database of PostgreSQL may add rows."""
        return bool(self.number(select(func.has_table_privilege("ledger", "INSERT"))))

    def check_writable(self) -> None:
        """Raise StoreError if the user of this process, or of the database, may not add rows."""
        if self._path is None:
            if not self.may_write():
                advice = "name the user who owns the tables in [store] url"
                raise StoreError(f"{self.where}: its user may not write; {advice}")
        elif file := forbidden(self._path, os.W_OK):
            raise StoreError(f"{self.where}: no permission to write: {file}")

    def close(self) -> None:
        self.engine.dispose()
