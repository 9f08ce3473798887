"""Moving all that is kept from one database into another, as from SQLite to PostgreSQL.

Guarantee: all or nothing. The new database is written in one transaction, which is committed only when it has the rows
of the old one; nobody writes to the old one meanwhile, and it is not changed.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import Column, Connection, CursorResult, LargeBinary, MetaData, Row, Table, inspect, select
from sqlalchemy.types import TypeEngine

from spamfilter.errors import StoreError
from spamfilter.stores.schema import HEAD, PackedTokens, metadata
from spamfilter.stores.sql.connection import file_of, store_errors
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.dialects import keep_last_id, last_id

BATCH = 1000
"""Rows that are read, and written, at once."""


def move(source: str, target: str, moved: Callable[[int], None]) -> dict[str, int]:
    """Copy all rows of one database into another that has none yet, or no tables. Returns table -> its rows.

    source, target: URLs. moved: told of each batch, how many rows it has. Raises StoreError, and leaves the target as
    it was, if either cannot be used, or if what the target has is not equal to what was read.
    """
    with closing(Database(source)) as old, closing(Database(target)) as new:
        file, other = file_of(source), file_of(target)
        if old.where == new.where or (file and other and file.samefile(other)):
            raise StoreError(f"{old.where}: is the old database and the new one; name another with --to")
        if (revision := old.revision()) != HEAD:
            raise StoreError(
                f"{old.where}: has schema {revision or 'none'}, not {HEAD}; run `spamfilter migrate` first"
            )
        new.revision()  # raises for a database of another program
        with old.writing(migrating=True) as reader, new.writing(migrating=True) as writer:
            _prepare(new, writer)
            return {
                table.name: _copy(table, reader, old.where, writer, new.where, moved)
                for table in metadata.sorted_tables
            }


def _prepare(new: Database, writer: Connection) -> None:
    """Make the tables if there are none. Raises StoreError if there is anything in them."""
    if not inspect(writer).get_table_names():
        new.make_tables(writer)
        return
    if (revision := writer.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()) != HEAD:
        raise StoreError(f"{new.where}: has schema {revision}, not {HEAD}; name an empty database")
    for table in metadata.sorted_tables:
        if writer.execute(select(table).limit(1)).first() is not None:
            raise StoreError(f"{new.where}: is not empty, there are rows in {table.name}; name an empty database")


def _copy(
    table: Table, reader: Connection, source: str, writer: Connection, where: str, moved: Callable[[int], None]
) -> int:
    plain = _plain(table)
    rows = sum_read = 0
    for batch in _batches(reader, plain, source):
        writer.execute(plain.insert(), [dict(row._mapping) for row in batch])
        rows += len(batch)
        sum_read += sum(map(_hash, batch))
        moved(len(batch))
    if table.autoincrement_column is not None and (last := last_id(reader, table)):
        keep_last_id(writer, table, last)
    with _all_rows(writer, plain) as all_rows:
        sum_written = sum(map(_hash, all_rows))
    if sum_written != sum_read:
        raise StoreError(f"{where}: {table.name} has not the rows that were written; nothing was moved")
    return rows


def _batches(reader: Connection, table: Table, source: str) -> Iterator[Sequence[Row[Any]]]:
    """The rows of the old database, whose damage is not that of the new one."""
    with store_errors(source), _all_rows(reader, table) as all_rows:
        yield from all_rows.partitions(BATCH)


def _plain(table: Table) -> Table:
    """The table, with packed tokens as the bytes that they are kept in."""

    def kept(type: TypeEngine[Any]) -> TypeEngine[Any]:
        return LargeBinary() if isinstance(type, PackedTokens) else type

    columns = [Column(column.name, kept(column.type), primary_key=column.primary_key) for column in table.columns]
    return Table(table.name, MetaData(), *columns)


def _all_rows(connection: Connection, table: Table) -> CursorResult[Any]:
    """In the order of the key: entries of the ledger after those that they undo."""
    return connection.execute(select(table).order_by(*table.primary_key), execution_options={"yield_per": BATCH})


def _hash(row: Row[Any]) -> int:
    """Of one row; the sum over a table does not depend on their order, which is not the same for all databases."""
    return int.from_bytes(hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest())
