"""The store in a SQL database: SQLite through SQLAlchemy Core.

Guarantee: one learning is one transaction, begun with the write lock held, so that what it reads
is what it changes. Commits reach the disk (synchronous=FULL). The file is made with mode 0600.
Readers never wait (WAL); a writer waits at most BUSY_SECONDS and then raises StoreBusy.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Update,
    delete,
    func,
    insert,
    select,
    update,
)

from spamfilter.bayes.model import State
from spamfilter.bayes.tokens import Token
from spamfilter.errors import StoreError
from spamfilter.stores.schema import HEAD, journal, ledger, metadata
from spamfilter.stores.sql import journal_search, reporting
from spamfilter.stores.sql.connection import connect, file_of, store_errors
from spamfilter.stores.sql.ledger_writing import SqlLearning
from spamfilter.stores.sql.queries import (
    EXPIRE,
    FACTS,
    REBUILT,
    SUMMARY,
    active,
    append_journal,
    entries_after,
    entry_of,
    expired,
    holders,
    journal_entry_of,
    journal_rows,
    last_words,
    learnt,
    load_words,
    only_active,
    part_state,
    put_setting_row,
    setting,
    sweep,
    totals,
    whole_state,
)
from spamfilter.stores.store import NAMED, Entry, Holders, JournalEntry, Labelled, Learning, Store, Trainings, Wanted

__all__ = ["SqlStore", "store_errors"]


_versions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As Alembic makes it."""


class SqlStore(Store):
    """One database. Its schema must be at `schema.HEAD`; `stores.migrate` brings it there."""

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        self._path = file_of(url)
        self._file = self._identity()
        self._rebuilt: int | None = None

    @property
    def where(self) -> str:
        return str(self._path)

    def _identity(self) -> tuple[int, int]:
        """Device and inode of the file. Raises StoreError where it is gone."""
        try:
            found = self._path.stat()
        except OSError as error:
            self._engine.dispose()  # or what is written would go to a file without a name
            raise StoreError(f"{self.where}: the database is gone: {error.strerror}") from error
        return found.st_dev, found.st_ino

    def _check(self) -> None:
        """Notice a file that was deleted or replaced: the open connections would go on with the old one."""
        identity = self._identity()
        if identity != self._file:
            self._engine.dispose()
            self._file = identity
            self.generation += 1

    def look(self) -> None:
        """Know from here on whether the counts are rebuilt; the schema must be at HEAD."""
        with self._reading() as connection:
            self._notice(connection)

    def _notice(self, connection: Connection) -> None:
        """Notice that the counts were rebuilt."""
        rebuilt = setting(connection, REBUILT) or 0
        if self._rebuilt is not None and rebuilt != self._rebuilt:
            self.generation += 1
        self._rebuilt = rebuilt

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._check()
        with store_errors(self.where), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._check()
        with store_errors(self.where), self._engine.connect() as connection:
            connection = connection.execution_options(begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    def revision(self) -> str | None:
        """The revision the schema is at; None for a database without tables. Raises StoreError for other tables."""
        with self._reading() as connection:
            if not self._engine.dialect.has_table(connection, "alembic_version"):
                if found := connection.exec_driver_sql("SELECT name FROM sqlite_master LIMIT 1").scalar():
                    raise StoreError(f"{self.where}: is not a database of spamfilter: it has {found}; see [store] url")
                return None
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            return str(found) if found else None

    def create(self) -> bool:
        """Make the tables of an empty database, as the migrations do ten times slower; False if it is not empty."""
        with self._writing() as connection:
            if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
                return False
            metadata.create_all(connection, checkfirst=False)
            _versions.create(connection, checkfirst=False)
            connection.execute(insert(_versions), {"version_num": HEAD})
        return True

    @property
    def engine(self) -> Engine:
        """For migrations, which change tables and not rows."""
        return self._engine

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        with self._writing() as connection:
            self._notice(connection)
            learning = SqlLearning(connection)
            yield learning
            learning.flush()

    def load(self, voices: Iterable[str]) -> State:
        with self._reading() as connection:
            counts = {}
            for voice in voices:
                counts[voice] = totals(connection, voice)
                counts[voice].kept = load_words(connection, voice, counts[voice].vocabulary)
                if not any((counts[voice].tallies or {}).values()):
                    counts[voice].tallies = None  # this voice's likelihood does not ask for them
            return whole_state(connection, counts)

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        with self._reading() as connection:
            return part_state(connection, words)

    def entries_after(self, last: int) -> list[Entry]:
        with self._reading() as connection:
            self._notice(connection)
            return entries_after(connection, last)

    def active(self, digest: bytes) -> Entry | None:
        with self._reading() as connection:
            return active(connection, digest)

    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        with self._reading() as connection:
            return learnt(connection, digests)

    def holders(self, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
        with self._reading() as connection:
            return holders(connection, words, before, limit)

    def learnings(self, since: datetime | None = None, by: str | None = None) -> list[Entry]:
        query = only_active(select(*FACTS)).order_by(ledger.c.id)
        if since is not None:
            query = query.where(ledger.c.at >= since)
        if by is not None:
            query = query.where(ledger.c.by == by)
        with self._reading() as connection:
            return [entry_of(row, {}) for row in connection.execute(query)]

    def latest_learnings(self, since: datetime, until: datetime, limit: int) -> list[Entry]:
        with self._reading() as connection:
            return reporting.latest_learnings(connection, since, until, limit)

    def trainings(self, since: datetime, until: datetime) -> list[Trainings]:
        with self._reading() as connection:
            return reporting.trainings(connection, since, until)

    def last_words(self, by: str, since: datetime | None = None) -> list[Entry]:
        with self._reading() as connection:
            return [entry_of(row, {}) for row in connection.execute(last_words(by, since))]

    def histories(self, digests: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        found: dict[bytes, list[Entry]] = {digest: [] for digest in digests}
        query = select(*FACTS).where(ledger.c.digest.in_(digests)).order_by(ledger.c.id)
        with self._reading() as connection:
            for row in connection.execute(query):
                found[row.digest].append(entry_of(row, {}))
        return found

    def marks_by(self, by: str, since: datetime) -> int:
        with self._reading() as connection:
            query = select(func.count()).select_from(ledger).where(ledger.c.by == by, ledger.c.at >= since)
            return int(connection.execute(query.where(ledger.c.undoes.is_(None))).scalar_one())

    def last_of_sources(self) -> dict[str, datetime]:
        with self._reading() as connection:
            query = select(ledger.c.source, func.max(ledger.c.at, type_=ledger.c.at.type).label("at")).group_by(
                ledger.c.source
            )
            return {row.source: row.at for row in connection.execute(query)}

    def sweep(self, source: str, before: datetime) -> int:
        with self._writing() as connection:
            return sweep(connection, source, before)

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        rows = journal_rows(self._engine.dialect, entries)  # what takes longest, before others have to wait
        with self._writing() as connection:
            append_journal(connection, rows)

    def find_journal(self, id: str) -> JournalEntry | None:
        with self._reading() as connection:
            row = connection.execute(select(journal).where(journal.c.id == id)).one_or_none()
            return None if row is None else journal_entry_of(row)

    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        query = select(*SUMMARY).where(journal.c.at >= since, journal.c.at < until).order_by(journal.c.id)
        with self._reading() as connection:
            return [journal_entry_of(row) for row in connection.execute(query)]

    def search(self, wanted: Wanted, limit: int, before: str = "") -> list[JournalEntry]:
        with self._reading() as connection:
            return journal_search.search(connection, wanted, limit, before)

    def journal_days(self, first: date, last: date) -> dict[date, int]:
        with self._reading() as connection:
            return reporting.journal_days(connection, first, last)

    def labelled(self, since: datetime, until: datetime, without: Collection[str]) -> list[Labelled]:
        with self._reading() as connection:
            return reporting.labelled(connection, since, until, without)

    def unlabelled(self, since: datetime, until: datetime, limit: int) -> tuple[list[JournalEntry], int]:
        with self._reading() as connection:
            return reporting.unlabelled(connection, since, until, limit)

    def summaries(self, first: date, last: date) -> dict[date, Mapping[str, Any]]:
        with self._reading() as connection:
            return reporting.summaries(connection, first, last)

    def put_summary(self, day: date, body: Mapping[str, Any]) -> None:
        with self._writing() as connection:
            reporting.put_summary(connection, day, body)

    def journal_of(self, digests: Sequence[bytes]) -> dict[bytes, JournalEntry]:
        latest = select(func.max(journal.c.id)).where(journal.c.digest.in_(digests)).group_by(journal.c.digest)
        query = select(*SUMMARY).where(journal.c.id.in_(latest))
        with self._reading() as connection:
            return {row.digest: journal_entry_of(row) for row in connection.execute(query)}

    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        with self._reading() as connection:
            return {
                found
                for column, asked in ((journal.c.digest, digests), (journal.c.message_id, message_ids))
                for found in connection.scalars(select(column).where(column.in_(asked)))
            }

    def journal_named(self, message_id: str) -> list[JournalEntry]:
        if not message_id:
            return []
        query = select(journal).where(journal.c.message_id == message_id).order_by(journal.c.id.desc()).limit(NAMED)
        with self._reading() as connection:
            return [journal_entry_of(row) for row in connection.execute(query)]

    def remove_journal(self, id: str) -> None:
        with self._writing() as connection:
            connection.execute(delete(journal).where(journal.c.id == id))

    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        with self._reading() as connection:
            old, gone = expired(connection, tokens_before, entries_before, tokens_bytes)
        emptying = update(journal).where(journal.c.tokens.is_not(None)).values(tokens=None)
        return self._in_batches(emptying, old), self._in_batches(delete(journal), gone)

    def _in_batches(self, change: Update | Delete, ids: Sequence[str]) -> int:
        """Change these entries of the journal; how many there were. Others may write between two batches."""
        changed = 0
        for start in range(0, len(ids), EXPIRE):
            with self._writing() as connection:
                changed += connection.execute(change.where(journal.c.id.in_(ids[start : start + EXPIRE]))).rowcount
        return changed

    def get_setting(self, name: str) -> object:
        with self._reading() as connection:
            value: object = setting(connection, name)
            return value

    def put_setting(self, name: str, value: object) -> None:
        with self._writing() as connection:
            put_setting_row(connection, name, value)

    def verify(self) -> list[str]:
        return self._damage("PRAGMA integrity_check(10)")

    def verify_quickly(self) -> list[str]:
        return self._damage("PRAGMA quick_check(10)")

    def _damage(self, question: str) -> list[str]:
        with self._reading() as connection:
            found = [str(row[0]) for row in connection.exec_driver_sql(question)]
        return [f"{self.where}: {line}" for line in found if line != "ok"]

    def backup(self, target: Path) -> None:
        if target.exists():
            raise StoreError(f"{target}: exists already; name a new file")
        # A folder of our own, as the target's may be like /tmp, where others can lay links under names they foresee.
        with store_errors(str(target)), TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            partial = Path(folder) / target.name
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._engine.connect() as connection:
                source = connection.connection.driver_connection
                assert isinstance(source, sqlite3.Connection)
                with closing(sqlite3.connect(partial)) as copy:
                    source.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal beside it
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.rename(target)

    def size(self) -> int:
        files = (self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        self._engine.dispose()
