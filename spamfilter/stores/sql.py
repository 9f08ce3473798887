"""The store in a SQL database: SQLite through SQLAlchemy Core.

Guarantee: one learning is one transaction, begun with the write lock held, so that what it reads
is what it changes. Commits reach the disk (synchronous=FULL). The file is made with mode 0600.
Readers never wait (WAL); a writer waits at most BUSY_SECONDS and then raises StoreBusy.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    create_engine,
    delete,
    event,
    exists,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.pool import QueuePool

from spamfilter.calibration import Calibration
from spamfilter.counts import LABELS, Counts, Label
from spamfilter.errors import CountError, StoreBusy, StoreError
from spamfilter.features import Token
from spamfilter.stores import schema
from spamfilter.stores.schema import classes, journal, ledger, settings, vocabularies, words
from spamfilter.stores.store import ENTRIES, Entry, JournalEntry, Learning, State, Store
from spamfilter.voices import VoiceTokens

BUSY_SECONDS = 10.0
"""Longer than any batch of `train` holds the lock, shorter than a user's patience."""
LOOK_UP = 500
"""Words of one SELECT: well below SQLite's bound on variables, and few round trips for a mail."""

_undone = ledger.alias("undone")
_FACTS = [column for column in ledger.columns if column.name != "tokens"]


def connect(url: str) -> Engine:
    """An engine whose transactions are real: BEGIN is ours, IMMEDIATE where a writer asks for it."""
    path = _path(url)
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; create it, or set [store] url")
    with store_errors(url), suppress(FileExistsError, PermissionError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    engine = create_engine(url, poolclass=QueuePool, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver shall not begin transactions on its own
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        with suppress(sqlite3.OperationalError):  # a read-only file keeps the mode it has
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _path(url: str) -> Path:
    """The file that a URL of SQLite names. Raises StoreError."""
    path = url.removeprefix("sqlite:///")
    if not url.startswith("sqlite:///") or path in ("", ":memory:") or "?" in path:
        raise StoreError(f"{url}: name a file, as in sqlite:////var/lib/spamfilter/spamfilter.db, or use memory:")
    return Path(path).absolute()


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """The driver's exceptions as ours."""
    try:
        yield
    except IntegrityError as error:
        raise CountError(f"{where}: {error.orig}: the counts do not hold what was to be taken away") from error
    except (DBAPIError, sqlite3.Error, OSError) as error:
        reason = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        if isinstance(error, OperationalError | sqlite3.OperationalError) and "locked" in reason:
            raise StoreBusy(f"{where}: another process holds the database; try again") from error
        raise StoreError(f"{where}: {reason}") from error


class SqlStore(Store):
    """One database. Its schema must be at `schema.HEAD`; `stores.migrate` brings it there."""

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        self._path = _path(url)
        self._file = self._identity()

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
        """The revision the schema is at; None for a database without tables."""
        with self._reading() as connection:
            if not self._engine.dialect.has_table(connection, "alembic_version"):
                return None
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            return str(found) if found else None

    @property
    def engine(self) -> Engine:
        """For migrations, which change tables and not rows."""
        return self._engine

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        with self._writing() as connection:
            learning = _SqlLearning(connection)
            yield learning
            learning.flush()

    def load(self, voices: Iterable[str]) -> State:
        with self._reading() as connection:
            counts = {}
            for voice in voices:
                counts[voice] = _totals(connection, voice)
                found = connection.execution_options(yield_per=10_000).execute(
                    select(words.c.word, words.c.ham, words.c.spam).where(words.c.voice == voice)
                )
                _fill(counts[voice], found)
            return _state(connection, counts)

    def state(self, tokens: VoiceTokens) -> State:
        with self._reading() as connection:
            return _part(connection, tokens)

    def entries_after(self, last: int) -> list[Entry]:
        with self._reading() as connection:
            return _entries_after(connection, last)

    def learnings(self, since: datetime | None = None) -> list[Entry]:
        query = _active(select(*_FACTS)).order_by(ledger.c.id)
        if since is not None:
            query = query.where(ledger.c.at >= since)
        with self._reading() as connection:
            return [_entry(row, {}) for row in connection.execute(query)]

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        rows = [{key.rstrip("_"): value for key, value in _fields(entry).items()} for entry in entries]
        with self._writing() as connection:
            connection.execute(upsert(journal).on_conflict_do_nothing(), rows)

    def find_journal(self, id: str) -> JournalEntry | None:
        with self._reading() as connection:
            row = connection.execute(select(journal).where(journal.c.id == id)).one_or_none()
            return None if row is None else _journal_entry(row)

    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        columns = [column for column in journal.columns if column.name != "tokens"]
        query = select(*columns).where(journal.c.at >= since, journal.c.at < until).order_by(journal.c.id)
        with self._reading() as connection:
            return [_journal_entry(row) for row in connection.execute(query)]

    def expire(self, tokens_before: datetime, entries_before: datetime) -> tuple[int, int]:
        with self._writing() as connection:
            gone = connection.execute(delete(journal).where(journal.c.at < entries_before)).rowcount
            emptied = connection.execute(
                update(journal).where(journal.c.at < tokens_before, journal.c.tokens.is_not(None)).values(tokens=None)
            ).rowcount
            return emptied, gone

    def get_setting(self, name: str) -> object:
        with self._reading() as connection:
            return connection.execute(select(settings.c.value).where(settings.c.name == name)).scalar()

    def put_setting(self, name: str, value: object) -> None:
        with self._writing() as connection:
            _put(connection, name, value)

    def verify(self) -> list[str]:
        with self._reading() as connection:
            found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(10)")]
        return [f"{self.where}: {line}" for line in found if line != "ok"]

    def backup(self, target: Path) -> None:
        if target.exists():
            raise StoreError(f"{target}: exists already; name a new file")
        partial = target.with_name(target.name + ".partial")
        with store_errors(str(target)):
            os.close(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
            try:
                with self._engine.connect() as connection:
                    source = connection.connection.driver_connection
                    assert isinstance(source, sqlite3.Connection)
                    copy = sqlite3.connect(partial)
                    try:
                        source.backup(copy)
                        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal beside it
                    finally:
                        copy.close()
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                partial.rename(target)
            finally:
                partial.unlink(missing_ok=True)

    def size(self) -> int:
        files = (self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        self._engine.dispose()


class _SqlLearning(Learning):
    """One write transaction; the changes of words are summed, and written at its end or before a look at them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._words: dict[tuple[str, Token], dict[Label, int]] = {}
        self._classes: dict[tuple[str, Label], list[int]] = {}
        self._vocabulary: dict[str, int] = {}
        self._calibration: Calibration | None = None
        self._last = 0

    def state(self, tokens: VoiceTokens) -> State:
        self.flush()
        return _part(self._connection, tokens)

    def active(self, digest: bytes) -> Entry | None:
        query = _active(select(ledger)).where(ledger.c.digest == digest)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else _entry(row, row.tokens)

    def entries_after(self, last: int) -> list[Entry]:
        return _entries_after(self._connection, last)

    def append(self, entry: Entry) -> Entry:
        row = {key: value for key, value in _fields(entry).items() if key != "id"}
        if entry.undoes:
            row["tokens"] = None  # they stand in the row that is undone
        written = self._connection.execute(insert(ledger).values(**row)).inserted_primary_key
        assert written is not None
        self._last = int(written[0])
        return Entry(**{**_fields(entry), "id": self._last})

    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, vocabulary: int) -> None:
        for word, delta in deltas.items():
            change = self._words.setdefault((voice, word), dict.fromkeys(LABELS, 0))
            change[label] += delta
        totals = self._classes.setdefault((voice, label), [0, 0])
        totals[0] += messages
        totals[1] += sum(deltas.values())
        self._vocabulary[voice] = self._vocabulary.get(voice, 0) + vocabulary

    def calibrate(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def flush(self) -> None:
        changed = [
            {"voice": voice, "word": word.decode(), **change, "touched": self._last}
            for (voice, word), change in self._words.items()
            if any(change.values())
        ]
        more = [row for row in changed if row["ham"] >= 0 and row["spam"] >= 0]
        less = [row for row in changed if row["ham"] < 0 or row["spam"] < 0]
        if more:
            adding = upsert(words)
            sums = {name: words.c[name] + adding.excluded[name] for name in LABELS}
            self._connection.execute(
                adding.on_conflict_do_update(
                    index_elements=[words.c.voice, words.c.word],
                    set_={**sums, "touched": adding.excluded.touched},
                ),
                more,
            )
        if less:
            self._take_away(less)
        for (voice, label), (messages, total) in self._classes.items():
            _bump(self._connection, classes, {"voice": voice, "class": label}, {"messages": messages, "words": total})
        for voice, count in self._vocabulary.items():
            _bump(self._connection, vocabularies, {"voice": voice}, {"words": count})
        if self._calibration is not None:
            _put(self._connection, "calibration", list(astuple(self._calibration)))
        self._words.clear()
        self._classes.clear()
        self._vocabulary.clear()

    def _take_away(self, less: list[dict[str, Any]]) -> None:
        """Changes below zero; words that count nothing any more go, so that undoing leaves no trace."""
        rows = [{f"new_{key}": value for key, value in row.items()} for row in less]
        here = (words.c.voice == bindparam("new_voice")) & (words.c.word == bindparam("new_word"))
        sums = {name: words.c[name] + bindparam(f"new_{name}") for name in LABELS}
        subtracting = update(words).where(here).values(**sums, touched=bindparam("new_touched"))
        if self._connection.execute(subtracting, rows).rowcount != len(rows):
            raise CountError("the words table lacks words of the learning that is to be taken back")
        self._connection.execute(delete(words).where(here, words.c.ham == 0, words.c.spam == 0), rows)


def _bump(connection: Connection, table: Table, key: dict[str, str], amounts: dict[str, int]) -> None:
    """Add to the totals of one row, making it first where it is missing."""
    connection.execute(upsert(table).on_conflict_do_nothing(), {**key, **dict.fromkeys(amounts, 0)})
    sums = {name: table.c[name] + amount for name, amount in amounts.items()}
    connection.execute(update(table).where(*(table.c[name] == value for name, value in key.items())).values(**sums))


def _put(connection: Connection, name: str, value: object) -> None:
    putting = upsert(settings)
    connection.execute(
        putting.on_conflict_do_update(index_elements=[settings.c.name], set_={"value": putting.excluded.value}),
        {"name": name, "value": value},
    )


def _fields(row: Entry | JournalEntry) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _entry(row: Any, tokens: VoiceTokens) -> Entry:
    found = {column.name: row._mapping[column.name] for column in _FACTS}
    return Entry(**{**found, "calibrated": tuple(found["calibrated"]), "tokens": tokens})


def _journal_entry(row: Any) -> JournalEntry:
    found = dict(row._mapping)
    found["class_"] = found.pop("class")
    found["evidence"] = [(token, weight) for token, weight in found["evidence"]]
    return JournalEntry(**{"tokens": None, **found})


def _active(query: Select[Any]) -> Select[Any]:
    """Learnings that no later entry takes back."""
    taken_back = exists().where(_undone.c.undoes == ledger.c.id)
    return query.where(ledger.c.undoes.is_(None), ~taken_back)


def _entries_after(connection: Connection, last: int) -> list[Entry]:
    tokens = func.coalesce(ledger.c.tokens, _undone.c.tokens, type_=schema.PackedTokens).label("tokens")
    query = (
        select(*_FACTS, tokens)
        .outerjoin_from(ledger, _undone, ledger.c.undoes == _undone.c.id)
        .where(ledger.c.id > last)
        .order_by(ledger.c.id)
        .limit(ENTRIES)
    )
    return [_entry(row, row.tokens) for row in connection.execute(query)]


def _totals(connection: Connection, voice: str) -> Counts:
    """Counts without words, but with the totals of the voice."""
    counts = Counts()
    for row in connection.execute(select(classes).where(classes.c.voice == voice)):
        label: Label = row._mapping["class"]
        counts.messages[label], counts.occurrences[label] = row.messages, row.words
    query = select(vocabularies.c.words).where(vocabularies.c.voice == voice)
    counts.vocabulary = connection.execute(query).scalar() or 0
    return counts


def _fill(counts: Counts, rows: Iterable[Any]) -> None:
    ham, spam = counts.words["ham"], counts.words["spam"]
    for word, in_ham, in_spam in rows:
        token = word.encode()
        if in_ham:
            ham[token] = in_ham
        if in_spam:
            spam[token] = in_spam


def _part(connection: Connection, tokens: VoiceTokens) -> State:
    counts = {}
    for voice, wanted in tokens.items():
        counts[voice] = _totals(connection, voice)
        names = [token.decode() for token in wanted]
        for start in range(0, len(names), LOOK_UP):
            some = names[start : start + LOOK_UP]
            query = select(words.c.word, words.c.ham, words.c.spam)
            _fill(counts[voice], connection.execute(query.where(words.c.voice == voice, words.c.word.in_(some))))
    return _state(connection, counts)


def _state(connection: Connection, counts: dict[str, Counts]) -> State:
    learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
    query = select(ledger.c.label, ledger.c.undoes.is_not(None), func.count()).group_by(ledger.c.label, text("2"))
    found: Iterable[Any] = connection.execute(query)
    for label, undoing, count in found:
        learnt[label] += -count if undoing else count
    kept = connection.execute(select(settings.c.value).where(settings.c.name == "calibration")).scalar()
    last = connection.execute(select(func.max(ledger.c.id))).scalar() or 0
    return State(counts, learnt, Calibration(*kept) if kept else Calibration(), last)
