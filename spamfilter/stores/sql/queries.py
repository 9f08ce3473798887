"""Queries of ledger, counts and settings, on a connection whose transaction the caller has begun."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    Select,
    Table,
    TableClause,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    func,
    insert,
    select,
    true,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.dialects.postgresql import insert as upsert

from spamfilter.bayes.calibration import NO_STEP, Calibration, Step, restored
from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import Counts, Tallies
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.model import State
from spamfilter.bayes.token_codec import pack
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.errors import StoreError
from spamfilter.stores import schema
from spamfilter.stores.schema import EDITION, INTEGER, amounts, classes, ledger, settings, tallies, vocabularies, words
from spamfilter.stores.sql.database import TOGETHER
from spamfilter.stores.sql.dialects import SEPARATOR, each_number, each_text, numbers_listed
from spamfilter.stores.store import ENTRIES, Entry, Ledger
from spamfilter.system.batches import batches

LOADED = 200_000
"""Words read at a time by `load_words`: some megabytes."""

LISTED = 10_000
"""Words of one list for PostgreSQL: a tenth of a second, far below the patience with a server that says nothing."""

REBUILT = "rebuilt"
"""The setting that counts how often the counts were rebuilt."""

FACTS = tuple(column for column in ledger.columns if column.name != "tokens")
undone = ledger.alias("undone")

CURRENT = func.coalesce(
    select(cast(cast(settings.c.value, Text), INTEGER)).where(settings.c.name == EDITION).scalar_subquery(), 0
)
"""The edition of the counts that judges."""


def execute_many(
    connection: Connection, statement: Executable, names: tuple[str, ...], rows: Iterable[Sequence[Any]]
) -> int:
    """Execute a constant statement with rows of texts, numbers and bytes; returns how many rows it changed.

    names: of the values that each row begins with. `Connection.execute` would look at the type of each value: `train`
    would take a fifth more processor time.
    """
    sql, in_order = _compiled(statement, connection.dialect, names)
    data = [*map(in_order, rows)]
    return connection.exec_driver_sql(sql, data).rowcount if data else 0


@cache
def _compiled(statement: Any, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Callable[[Any], Any]]:
    """A statement for the driver, and what puts a row's values in the order in which it takes them."""
    compiled = statement.compile(dialect=dialect, column_keys=names)
    return str(compiled), itemgetter(*(names.index(name) for name in compiled.positiontup))


@cache
def _converters(dialect: Dialect, columns: tuple[Column[Any], ...]) -> list[tuple[int, Callable[[Any], Any]]]:
    found = [(at, column.type.dialect_impl(dialect).bind_processor(dialect)) for at, column in enumerate(columns)]
    return [(at, converter) for at, converter in found if converter is not None]


def converted(dialect: Dialect, columns: tuple[Column[Any], ...], rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """Rows that begin with values for these columns, with those that the driver takes for them."""
    made = [[*row] for row in rows]
    for at, converter in _converters(dialect, columns):
        for row in made:
            row[at] = converter(row[at])
    return made


def written_over(new: Insert, adding: Collection[str] = ()) -> Insert:
    """Rows take the place of those with their key. adding: columns of which the numbers are added to those there."""
    old = new.table.c
    values = {
        name: old[name] + new.excluded[name] if name in adding else new.excluded[name] for name in numbers_of(new.table)
    }
    return new.on_conflict_do_update(index_elements=list(new.table.primary_key), set_=values)


def numbers_of(table: TableClause) -> tuple[str, ...]:
    """The names of the columns that are not of the key."""
    return tuple(column.name for column in table.columns if not column.primary_key)


def new_values(columns: Iterable[Column[Any]]) -> tuple[str, ...]:
    """The parameters of a statement that changes rows, with the values of these columns."""
    return tuple(f"new_{column.name}" for column in columns)


def has_key(table: Table) -> ColumnElement[bool]:
    """The condition that a row has the key of `new_values`."""
    return and_(*(column == bindparam(f"new_{column.name}") for column in table.primary_key))


_PUT_SETTING = written_over(upsert(settings))


def put_setting_row(connection: Connection, name: str, value: object) -> None:
    connection.execute(_PUT_SETTING, {"name": name, "value": value})


def setting(connection: Connection, name: str) -> Any:
    """A value of the settings table, None if there is none."""
    return connection.scalar(select(settings.c.value).where(settings.c.name == name))


# The ledger


def entries(*more: ColumnElement[Any]) -> Select[Any]:
    """Rows of the ledger with what they add now, without their tokens."""
    now = and_(amounts.c.entry == ledger.c.id, amounts.c.edition == CURRENT)
    return select(*FACTS, amounts.c.added, amounts.c.calibrated, *more).outerjoin_from(ledger, amounts, now)


def entry_of(row: Any, tokens: VoiceTokens) -> Entry:
    added, step = row.added or {}, tuple(row.calibrated or NO_STEP)
    return Entry(row.label, added, step, tokens, row.at, row.digest, row.source, row.by, row.undoes, row.id)


def only_active(query: Select[Any]) -> Select[Any]:
    """Only learnings that no later entry undoes."""
    is_undone = exists().where(undone.c.undoes == ledger.c.id)
    return query.where(ledger.c.undoes.is_(None), ~is_undone)


_LEARNT = only_active(entries(ledger.c.tokens)).where(ledger.c.digest.in_(bindparam("asked", expanding=True)))


class SqlLedger(Ledger):
    """The reads that are the same in a transaction of learning and outside."""

    @abstractmethod
    def ledger_reading(self) -> AbstractContextManager[Connection]:
        """A connection that sees all entries."""

    def learnt(self, digests: Collection[bytes]) -> dict[bytes, Entry]:
        found: dict[bytes, Entry] = {}
        with self.ledger_reading() as connection:
            for some in batches([*digests], TOGETHER):
                rows = connection.execute(_LEARNT, {"asked": some})
                found |= {row.digest: entry_of(row, row.tokens) for row in rows}
        return found

    def learnt_at(self, at: datetime) -> list[Entry]:
        query = only_active(entries(ledger.c.tokens)).where(ledger.c.at == at).order_by(ledger.c.id)
        with self.ledger_reading() as connection:
            return [entry_of(row, row.tokens) for row in connection.execute(query)]

    def entries_after(self, last: int) -> list[Entry]:
        with self.ledger_reading() as connection:
            return entries_after(connection, last)


_tokens = func.coalesce(ledger.c.tokens, undone.c.tokens, type_=schema.PackedTokens).label("tokens")
_AFTER = (
    entries(_tokens)
    .outerjoin(undone, ledger.c.undoes == undone.c.id)
    .where(ledger.c.id > bindparam("last"))
    .order_by(ledger.c.id)
    .limit(ENTRIES)
)


def entries_after(connection: Connection, last: int) -> list[Entry]:
    """As `Ledger.entries_after`."""
    return [entry_of(row, row.tokens) for row in connection.execute(_AFTER, {"last": last})]


_facts = attrgetter(*(column.name for column in FACTS))
_LIKE = select(undone.c.tokens).where(undone.c.id == bindparam("like")).scalar_subquery()
_APPEND = insert(ledger).values(tokens=func.coalesce(bindparam("own_tokens"), _LIKE, type_=ledger.c.tokens.type))
_NAMES = (*(column.name for column in FACTS), "own_tokens", "like")


def append_entries(connection: Connection, edition: int, new: Sequence[tuple[Entry, int | None]]) -> None:
    """Write entries, in their order, each with the id of the entry to copy the tokens from, None for its own tokens."""
    rows = ((*_facts(entry), *_tokens_of(entry, like)) for entry, like in new)
    execute_many(connection, _APPEND, _NAMES, converted(connection.dialect, FACTS, rows))
    put_amounts(connection, edition, [(entry.id, entry.added, entry.calibrated) for entry, _ in new])


def _tokens_of(entry: Entry, like: int | None) -> tuple[bytes | None, int | None]:
    if entry.undoes:
        return None, None  # its tokens are those of the row that it undoes
    return (pack(entry.tokens) if like is None else None), like


_AMOUNTS = tuple(amounts.columns)
_PUT_AMOUNTS = written_over(upsert(amounts))


def put_amounts(connection: Connection, edition: int, new: Sequence[tuple[int, Mapping[str, int], Step]]) -> None:
    """Write what entries of the ledger add: the id, its amounts, its step of the calibration."""
    rows = ((id, edition, dict(added), list(step)) for id, added, step in new)
    execute_many(connection, _PUT_AMOUNTS, tuple(amounts.columns.keys()), converted(connection.dialect, _AMOUNTS, rows))


# The counts


_ADD = {table: written_over(upsert(table), numbers_of(table)) for table in (words, classes, vocabularies, tallies)}
_listed = [each_text("words"), *(each_number(name) for name in LABELS)]
_given = [bindparam("edition", type_=INTEGER), bindparam("voice", type_=words.c.voice.type), *_listed]
_ADD_LISTED = written_over(upsert(words).from_select(words.columns.keys(), select(*_given)), LABELS)
"""Of one voice, for PostgreSQL: a list for each column takes it less than half of the time that rows of values take it
(benchmarks/fleet.py: 37 milliseconds of processor to learn 900 words, now 15 to 19)."""


def add_rows(connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Add to the numbers of rows with the values of all columns, and make those that are missing. Words are those of
    one voice."""
    if table is words and connection.dialect.name == "postgresql":
        for some in batches(rows, LISTED):
            editions, voices, *listed = zip(*some, strict=True)
            names = ("words", *LABELS)
            lists = {name: SEPARATOR.join(map(str, values)) for name, values in zip(names, listed, strict=True)}
            connection.execute(_ADD_LISTED, {"edition": editions[0], "voice": voices[0], **lists})
        return
    execute_many(connection, _ADD[table], tuple(table.columns.keys()), rows)


_TOTALS, _VOCABULARIES, _TALLIES = (
    select(table).where(table.c.edition == CURRENT, table.c.voice.in_(bindparam("asked", expanding=True)))
    for table in (classes, vocabularies, tallies)
)


def totals(connection: Connection, voices: Iterable[str]) -> dict[str, Counts]:
    """Counts of each voice without words, but with its totals and its tallies."""
    counts = {voice: Counts() for voice in voices}
    asked = {"asked": [*counts]}
    for _, voice, label, messages, occurrences in connection.execute(_TOTALS, asked):
        counts[voice].messages[label], counts[voice].occurrences[label] = messages, occurrences
    for _, voice, vocabulary in connection.execute(_VOCABULARIES, asked):
        counts[voice].vocabulary = vocabulary
    kept: dict[str, Tallies] = {voice: {label: {} for label in LABELS} for voice in counts}
    for _, voice, label, count, number in connection.execute(_TALLIES, asked).all():  # thousands in a large database
        kept[voice][label][count] = number
    for voice, tally in kept.items():
        counts[voice].tallies = tally
    return counts


def load_words(connection: Connection, voice: str, vocabulary: int) -> HashedTable:
    """All words of a voice. Raises StoreError if they are damaged.

    The database joins them to a few long strings, in a quarter of the time of a row for each word. It joins the counts
    as JSON, where it writes a number in a third of the time of joining text.
    """
    kept = HashedTable(vocabulary)
    after: str | None = ""
    counted = [numbers_listed(column) for column in (words.c.ham, words.c.spam)]
    joined = select(type_coerce(func.aggregate_strings(words.c.word, "\n"), words.c.word.type), *counted)
    while after is not None:
        here = [words.c.edition == CURRENT, words.c.voice == voice, words.c.word >= after]
        after = None
        if vocabulary > LOADED:
            ends = select(words.c.word).where(*here).order_by(words.c.word).offset(LOADED).limit(1)
            if (after := connection.scalar(ends)) is not None:
                here.append(words.c.word < after)
        listed, *counts = connection.execute(joined.where(*here)).one()
        if listed is not None:
            try:
                ham, spam = (np.fromstring(numbers.strip("[]"), np.int64, sep=",") for numbers in counts)
                kept.fill(listed.encode(), ham, spam)
            except ValueError as error:
                raise StoreError(f"the words of voice {voice} are damaged: {error}") from error
    return kept


_of_voice = words.c.edition == CURRENT, words.c.voice == bindparam("asked_voice")
_counted = select(words.c.word, words.c.ham, words.c.spam).where(*_of_voice)
_asked = each_text("asked").table_valued("word").render_derived()
_each = _counted.where(words.c.word == _asked.c.word.collate("C")).limit(1).lateral()
_LOOK_UP = {
    "sqlite": _counted.where(words.c.word.in_(bindparam("asked", expanding=True))),
    # Word by word: from a list PostgreSQL reads all words of the voice, until it has statistics of the table.
    "postgresql": select(_each).select_from(_asked.join(_each, true())),
}


def part_state(connection: Connection, some: Mapping[str, Iterable[Token]]) -> State:
    state = whole_state(connection, totals(connection, some))
    look_up(connection, state.counts, some)
    return state


def look_up(connection: Connection, counts: Mapping[str, Counts], some: Mapping[str, Iterable[Token]]) -> None:
    """Put the counts of these words into the tables."""
    for voice, wanted in some.items():
        names = [token.decode() for token in wanted]
        sqlite = connection.dialect.name == "sqlite"
        for part in batches(names, TOGETHER if sqlite else LISTED):
            asked = {"asked_voice": voice, "asked": part if sqlite else SEPARATOR.join(part)}
            rows = connection.execute(_LOOK_UP[connection.dialect.name], asked).all()
            tokens = [word.encode() for word, _, _ in rows]
            for at, label in enumerate(LABELS, 1):
                counts[voice].kept.put(tokens, label, np.array([row[at] for row in rows], np.int64))


_REST = select(
    select(settings.c.value).where(settings.c.name == "learnt").scalar_subquery(),
    select(settings.c.value).where(settings.c.name == "calibration").scalar_subquery(),
    select(func.max(ledger.c.id)).scalar_subquery(),
)


def whole_state(connection: Connection, counts: dict[str, Counts]) -> State:
    """A state with these counts, and what else it has in the database."""
    learnt, calibration, last = connection.execute(_REST).one()
    calibrated = restored(calibration) if calibration else Calibration()
    return State(counts, learnt or dict.fromkeys(LABELS, 0), calibrated, last or 0)
