"""What is asked of the tables, on a connection whose transaction is somebody else's."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    Executable,
    LargeBinary,
    Select,
    Text,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    type_coerce,
)
from sqlalchemy.dialects.sqlite import insert as upsert

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import LABELS, Counts, HashedTable, Label, Tallies
from spamfilter.bayes.model import State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.voices import VoiceTokens, pack, unpack_with
from spamfilter.errors import StoreError
from spamfilter.stores import schema
from spamfilter.stores.schema import classes, journal, ledger, settings, tallies, vocabularies, words
from spamfilter.stores.store import ENTRIES, Entry, Holders, JournalEntry

LOOK_UP = 500
"""Words of one SELECT: well below SQLite's bound on variables, and few round trips for a mail."""

LOADED = 200_000
"""Words that are read at a time, when all are: some megabytes."""

EXPIRE = 1000
"""Rows of the journal emptied or deleted in one transaction: a tenth of a second of write lock."""

TOGETHER = 32
"""Rows of words that one statement adds: a third less time than one by one, and no less with more."""

REBUILT = "rebuilt"
"""The setting that counts how often the counts were made anew."""

undone = ledger.alias("undone")
FACTS = [column for column in ledger.columns if column.name != "tokens"]
SUMMARY = [column for column in journal.columns if column.name != "tokens"]
"""The columns of ledger and journal but for their bulk."""


def execute_many(
    connection: Connection, statement: Executable, names: tuple[str, ...], rows: Sequence[Sequence[Any]]
) -> int:
    """Execute a statement, which must be a constant, with rows of texts, numbers and bytes; how many rows it found.

    As `Connection.execute`, without looking at each value by its type, which took longer than the database does.
    """
    sql, order = _compiled(statement, connection.dialect, names)
    data: Any = rows
    if not order:
        data = [dict(zip(names, row, strict=True)) for row in rows]
    elif order != [*range(len(names))]:
        data = [tuple(row[at] for at in order) for row in rows]
    return connection.exec_driver_sql(sql, data).rowcount if data else 0


@cache
def _compiled(statement: Any, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, list[int]]:
    """A statement for the driver, and in which order it wants these values; none if it takes them by name."""
    compiled = statement.compile(dialect=dialect, column_keys=names)
    return str(compiled), [names.index(name) for name in compiled.positiontup or ()]


_setting = upsert(settings)
_PUT_SETTING = _setting.on_conflict_do_update(index_elements=[settings.c.name], set_={"value": _setting.excluded.value})


def put_setting_row(connection: Connection, name: str, value: object) -> None:
    connection.execute(_PUT_SETTING, {"name": name, "value": value})


_words = upsert(words)
_ADD_WORDS = _words.on_conflict_do_update(
    index_elements=[words.c.voice, words.c.word],
    set_={**{name: words.c[name] + _words.excluded[name] for name in LABELS}, "touched": _words.excluded.touched},
)


@cache
def _add_words(dialect: Dialect, rows: int) -> str:
    """The statement that adds so many rows of words: the one of a row, with more values."""
    sql, order = _compiled(_ADD_WORDS, dialect, tuple(words.columns.keys()))
    values = f"({', '.join('?' * len(order))})"
    begin, _, end = sql.partition(f"VALUES {values}")
    return f"{begin}VALUES {', '.join([values] * rows)}{end}"


def add_words(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Add to the counts of words: rows with the values of all columns."""
    groups = [rows[at : at + TOGETHER] for at in range(0, len(rows), TOGETHER)]
    for some in filter(None, (groups[:-1], groups[-1:])):
        values: Any = [tuple(chain.from_iterable(group)) for group in some]
        connection.exec_driver_sql(_add_words(connection.dialect, len(some[0])), values)


def entry_of(row: Any, tokens: VoiceTokens) -> Entry:
    step = tuple(row.calibrated)
    return Entry(row.at, row.digest, row.label, row.added, step, tokens, row.source, row.by, row.undoes, row.id)


def journal_entry_of(row: Any) -> JournalEntry:
    """row: of SUMMARY, or of all columns, which come in the order of an entry."""
    *facts, evidence = row[: len(SUMMARY)]
    tokens = row[-1] if len(row) > len(SUMMARY) else None
    facts += [[(token, weight) for token, weight in evidence], tokens]
    return JournalEntry(*facts)


def only_active(query: Select[Any]) -> Select[Any]:
    """Learnings that no later entry takes back."""
    taken_back = exists().where(undone.c.undoes == ledger.c.id)
    return query.where(ledger.c.undoes.is_(None), ~taken_back)


_ACTIVE = only_active(select(ledger)).where(ledger.c.digest == bindparam("asked", type_=ledger.c.digest.type))
_LEARNT = only_active(select(*FACTS)).where(ledger.c.digest.in_(bindparam("asked", expanding=True)))


def last_id(connection: Connection) -> int:
    """The largest id that an entry of the ledger has, or has had; 0 if there was none."""
    found = connection.exec_driver_sql(
        "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'ledger'), 0),"
        " coalesce((SELECT max(id) FROM ledger), 0))"
    )
    return int(found.scalar_one())


_ROW = tuple(column for column in ledger.columns if column.name != "tokens")
_LIKE = select(undone.c.tokens).where(undone.c.id == bindparam("like")).scalar_subquery()
_APPEND = insert(ledger).values(tokens=func.coalesce(bindparam("own_tokens"), _LIKE, type_=ledger.c.tokens.type))
_NAMES = (*(column.name for column in _ROW), "own_tokens", "like")


_facts = attrgetter(*(column.name for column in _ROW))


@cache
def _processors(dialect: Dialect, columns: tuple[Column[Any], ...]) -> list[tuple[int, Callable[[Any], Any]]]:
    """What is to be made of some values of a row for the driver: their places, and how."""
    found = [(at, column.type.dialect_impl(dialect).bind_processor(dialect)) for at, column in enumerate(columns)]
    return [(at, process) for at, process in found if process is not None]


def _process(dialect: Dialect, columns: tuple[Column[Any], ...], rows: Sequence[list[Any]]) -> None:
    for at, process in _processors(dialect, columns):
        for row in rows:
            row[at] = process(row[at])


def entry_row(entry: Entry, like: int | None) -> list[Any]:
    """An entry for `append_entries`. like: the entry, if not this one, that brings its tokens."""
    if entry.undoes:
        return [*_facts(entry), None, None]  # its tokens stand in the row that is undone
    return [*_facts(entry), pack(entry.tokens) if like is None else None, like]


def append_entries(connection: Connection, rows: Sequence[list[Any]]) -> None:
    """Write rows of `entry_row`, in their order; changes them."""
    _process(connection.dialect, _ROW, rows)
    execute_many(connection, _APPEND, _NAMES, rows)


_SEEN = tuple(journal.columns)
_seen = attrgetter(*(field.name for field in fields(JournalEntry)))
_NOTE = upsert(journal).on_conflict_do_nothing()


def journal_rows(dialect: Dialect, entries: Sequence[JournalEntry]) -> list[tuple[Any, ...]]:
    """Entries for `append_journal`."""
    rows = [[*_seen(entry)] for entry in entries]
    _process(dialect, _SEEN, rows)
    return [*map(tuple, rows)]


def append_journal(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows of `journal_rows`; those whose id is there already change nothing."""
    execute_many(connection, _NOTE, tuple(journal.columns.keys()), rows)


def active(connection: Connection, digest: bytes) -> Entry | None:
    """The learning of this message that no later entry takes back."""
    row = connection.execute(_ACTIVE, {"asked": digest}).one_or_none()
    return None if row is None else entry_of(row, row.tokens)


def learnt(connection: Connection, digests: Collection[bytes]) -> dict[bytes, Entry]:
    """Such learnings of these messages, without their tokens."""
    found = connection.execute(_LEARNT, {"asked": [*digests]})
    return {row.digest: entry_of(row, {}) for row in found}


def history(connection: Connection, digest: bytes) -> list[Entry]:
    """All entries of this message, oldest first."""
    query = select(ledger).where(ledger.c.digest == digest).order_by(ledger.c.id)
    return [entry_of(row, row.tokens or {}) for row in connection.execute(query)]


def last_words(by: str, since: datetime | None) -> Select[Any]:
    """Entries of this author that no other one of their message follows."""
    followed = exists().where(undone.c.digest == ledger.c.digest, undone.c.id > ledger.c.id)
    query = select(*FACTS).where(ledger.c.by == by, ~followed).order_by(ledger.c.id)
    return query if since is None else query.where(ledger.c.at >= since)


def holders(connection: Connection, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
    packed = type_coerce(ledger.c.tokens, LargeBinary).label("packed")
    older = only_active(select(*FACTS, packed)).where(ledger.c.id < before).order_by(ledger.c.id.desc())
    found, looked_at, last = [], 0, 0
    for row in connection.execute(older.limit(limit)):
        looked_at, last = looked_at + 1, row.id
        learnt = [word for voice, some in words.items() if row.added.get(voice) for word in some]
        # Most learnings of a filter that errs rarely have added nothing, and are not unpacked.
        tokens = unpack_with(row.packed, learnt) if learnt else None
        if tokens is not None and (entry := entry_of(row, tokens)).holds(words):
            found.append(entry)
    more = looked_at and connection.execute(only_active(select(ledger.c.id)).where(ledger.c.id < last).limit(1)).first()
    return Holders(found, looked_at, last if more else 0)


def entries_after(connection: Connection, last: int) -> list[Entry]:
    tokens = func.coalesce(ledger.c.tokens, undone.c.tokens, type_=schema.PackedTokens).label("tokens")
    query = (
        select(*FACTS, tokens)
        .outerjoin_from(ledger, undone, ledger.c.undoes == undone.c.id)
        .where(ledger.c.id > last)
        .order_by(ledger.c.id)
        .limit(ENTRIES)
    )
    return [entry_of(row, row.tokens) for row in connection.execute(query)]


def totals(connection: Connection, voice: str) -> Counts:
    """Counts without words, but with the totals and the tallies of the voice."""
    counts = Counts()
    for row in connection.execute(select(classes).where(classes.c.voice == voice)):
        label: Label = row._mapping["class"]
        counts.messages[label], counts.occurrences[label] = row.messages, row.words
    query = select(vocabularies.c.words).where(vocabularies.c.voice == voice)
    counts.vocabulary = connection.execute(query).scalar() or 0
    kept: Tallies = {label: {} for label in LABELS}
    for row in connection.execute(select(tallies).where(tallies.c.voice == voice)):
        kept[row._mapping["class"]][row._mapping["count"]] = row.words
    counts.tallies = kept
    return counts


def fill(counts: Counts, rows: Iterable[Any]) -> None:
    """Put rows of (word, ham, spam) into the counts, whose totals know them already."""
    rows = list(rows)
    tokens = [word.encode() for word, _, _ in rows]
    for at, label in enumerate(LABELS, 1):
        counts.kept.put(tokens, label, np.array([row[at] for row in rows], np.int64))


def load_words(connection: Connection, voice: str, vocabulary: int) -> HashedTable:
    """All words of a voice. Raises StoreError where they are damaged.

    The database joins them to a few long strings: as a row each they would take four times as long. What counts is
    joined as JSON, which writes a number in a third of the time of what joins text.
    """
    kept = HashedTable(vocabulary)
    after: str | None = ""
    counted = [func.json_group_array(column, type_=Text) for column in (words.c.ham, words.c.spam)]
    joined = select(func.aggregate_strings(words.c.word, "\n"), *counted)
    while after is not None:
        here = [words.c.voice == voice, words.c.word >= after]
        after = None
        if vocabulary > LOADED:
            ends = select(words.c.word).where(*here).order_by(words.c.word).offset(LOADED).limit(1)
            if (after := connection.scalar(ends)) is not None:
                here.append(words.c.word < after)
        spelt, *counts = connection.execute(joined.where(*here)).one()
        if spelt is not None:
            try:
                ham, spam = (np.fromstring(listed.strip("[]"), np.int64, sep=",") for listed in counts)
                kept.fill(spelt.encode(), ham, spam)
            except ValueError as error:
                raise StoreError(f"the words of voice {voice} are damaged: {error}") from error
    return kept


def part_state(connection: Connection, some: Mapping[str, Iterable[Token]]) -> State:
    counts = {}
    for voice, wanted in some.items():
        counts[voice] = totals(connection, voice)
        names = [token.decode() for token in wanted]
        for start in range(0, len(names), LOOK_UP):
            batch = names[start : start + LOOK_UP]
            query = select(words.c.word, words.c.ham, words.c.spam)
            fill(counts[voice], connection.execute(query.where(words.c.voice == voice, words.c.word.in_(batch))))
    return whole_state(connection, counts)


def whole_state(connection: Connection, counts: dict[str, Counts]) -> State:
    """A state with these counts, and the totals as they are now."""
    learnt = setting(connection, "learnt") or dict.fromkeys(LABELS, 0)
    calibration = setting(connection, "calibration")
    last = connection.execute(select(func.max(ledger.c.id))).scalar() or 0
    return State(counts, learnt, Calibration(*calibration) if calibration else Calibration(), last)


def setting(connection: Connection, name: str) -> Any:
    """A value of the settings table, None if there is none."""
    return connection.execute(select(settings.c.value).where(settings.c.name == name)).scalar()


def expired(
    connection: Connection, tokens_before: datetime, entries_before: datetime, tokens_bytes: int
) -> tuple[list[str], list[str]]:
    """Ids of journal entries whose tokens are to go, and of those that are to go themselves.

    tokens_bytes: what the tokens of an entry and of all later ones may take together; those from before the moments
    count nothing.
    """
    kept = journal.c.at >= max(tokens_before, entries_before)
    taken = func.sum(func.length(journal.c.tokens)).over(order_by=journal.c.id.desc()).label("taken")
    running = select(journal.c.id, taken).where(kept, journal.c.tokens.is_not(None)).subquery()
    beyond = select(running.c.id).where(running.c.taken > tokens_bytes)
    old = select(journal.c.id).where(
        journal.c.at < tokens_before, journal.c.at >= entries_before, journal.c.tokens.is_not(None)
    )
    gone = select(journal.c.id).where(journal.c.at < entries_before)
    emptied = [*connection.scalars(old), *connection.scalars(beyond)]
    return emptied, list(connection.scalars(gone))


def sweep(connection: Connection, source: str, before: datetime) -> int:
    """Delete the pairs of entries of a source, one taking back the other, from before this moment."""
    own = select(ledger.c.undoes).join(undone, ledger.c.undoes == undone.c.id).where(undone.c.source == source)
    pairs = list(connection.scalars(own.where(ledger.c.source == source, ledger.c.at < before)))
    for start in range(0, len(pairs), LOOK_UP):
        some = pairs[start : start + LOOK_UP]
        connection.execute(delete(ledger).where(ledger.c.undoes.in_(some)))
        connection.execute(delete(ledger).where(ledger.c.id.in_(some)))
    return 2 * len(pairs)
