"""A transaction of learning in SQL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, Update, bindparam, delete, literal_column, update

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Growth, move
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.model import State, messages
from spamfilter.bayes.tokens import Token
from spamfilter.errors import CountError
from spamfilter.stores.schema import classes, ledger, tallies, vocabularies, words
from spamfilter.stores.sql import queries
from spamfilter.stores.sql.dialects import last_id
from spamfilter.stores.sql.editions import WordRow, write_rest
from spamfilter.stores.sql.queries import has_key, new_values, numbers_of
from spamfilter.stores.store import Entry, Learning, Rewriting

WAITING = 100
"""Entries of a transaction that are kept to be written together. With its words one takes 0.1 MB, and the import of
a ledger appends tens of thousands."""

_Changes = dict[Label, dict[Token, int]]
"""What a transaction changes of the words of a voice: class -> word -> its change."""


def _rows(edition: int, voice: str, changes: _Changes) -> list[WordRow]:
    """Rows of the words table, in its order, of the words that count more or less than before."""
    words = sorted(changes["ham"].keys() | changes["spam"].keys())
    ham, spam = (map(changes[label].get, words, repeat(0)) for label in LABELS)
    rows = zip(repeat(edition), repeat(voice), map(bytes.decode, words), ham, spam, strict=False)
    return [row for row in rows if row[3] or row[4]]


class SqlLearning(queries.SqlLedger, Learning):
    """One write transaction; the changes of words are summed, and written at its end or before a look at them."""

    def __init__(self, connection: Connection, edition: int) -> None:
        self._connection, self._edition = connection, edition
        self._entries: list[tuple[Entry, int | None]] = []
        self._words: dict[str, _Changes] = {}
        self._classes: dict[tuple[str, Label], list[int]] = {}
        self._vocabulary: dict[str, int] = {}
        self._tallies: dict[tuple[str, Label], dict[int, int]] = {}
        self._learnt: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self._calibration: Calibration | None = None
        self._last = -1  # not known yet

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        self.flush()
        return queries.part_state(self._connection, words)

    def look_up(self, state: State, words: Mapping[str, Iterable[Token]]) -> None:
        queries.look_up(self._connection, state.counts, words)

    @contextmanager
    def ledger_reading(self) -> Iterator[Connection]:
        self._write_entries()
        yield self._connection

    def history(self, digest: bytes) -> list[Entry]:
        query = queries.entries(ledger.c.tokens).where(ledger.c.digest == digest).order_by(ledger.c.id)
        with self.ledger_reading() as connection:
            return [queries.entry_of(row, row.tokens or {}) for row in connection.execute(query)]

    def append(self, entry: Entry, like: int | None = None) -> Entry:
        if self._last < 0:
            self._last = last_id(self._connection, ledger)
        self._last += 1
        entry = replace(entry, id=self._last)
        if len(self._entries) == WAITING:
            self._write_entries()
        self._entries.append((entry, like))
        for label, number in messages(entry).items():
            self._learnt[label] += -number if entry.undoes else number
        return entry

    def _write_entries(self) -> None:
        queries.append_entries(self._connection, self._edition, self._entries)
        self._entries.clear()

    def change(self, voice: str, label: Label, deltas: Mapping[Token, int], messages: int, growth: Growth) -> None:
        changed = self._words.setdefault(voice, {"ham": {}, "spam": {}})[label]
        for word, delta in deltas.items():
            changed[word] = changed.get(word, 0) + delta
        totals = self._classes.setdefault((voice, label), [0, 0])
        totals[0] += messages
        totals[1] += sum(deltas.values())
        self._vocabulary[voice] = self._vocabulary.get(voice, 0) + growth.vocabulary
        move(self._tallies.setdefault((voice, label), {}), growth.tallies)

    def calibrate(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def rebuild(self, edition: int, state: State, rest: Rewriting) -> None:
        self._clear()  # what this transaction has changed before is replaced, too
        self._calibration = None
        self._write_entries()
        write_rest(self._connection, edition, state, rest)
        self._edition = edition
        self._learnt = dict.fromkeys(LABELS, 0)  # the state has what this transaction has appended, too
        self.put_setting("learnt", state.learnt)
        self.put_setting("calibration", list(state.calibration))
        self.load_anew()

    def load_anew(self) -> None:
        self.put_setting(queries.REBUILT, (queries.setting(self._connection, queries.REBUILT) or 0) + 1)

    def put_setting(self, name: str, value: object) -> None:
        queries.put_setting_row(self._connection, name, value)

    def flush(self) -> None:
        self._write_entries()
        for voice, changes in self._words.items():
            self._add(words, _rows(self._edition, voice, changes))
        self._add(classes, [(self._edition, *key, *added) for key, added in self._classes.items()])
        self._add(vocabularies, [(self._edition, *grown) for grown in self._vocabulary.items()])
        moved = [
            (self._edition, voice, label, count, number)
            for (voice, label), moved in self._tallies.items()
            for count, number in moved.items()
        ]
        self._add(tallies, moved)
        if any(self._learnt.values()):
            learnt = queries.setting(self._connection, "learnt") or dict.fromkeys(LABELS, 0)
            self.put_setting("learnt", {label: learnt[label] + self._learnt[label] for label in LABELS})
            self._learnt = dict.fromkeys(LABELS, 0)
        if self._calibration is not None:
            self.put_setting("calibration", list(self._calibration))
        self._clear()

    def _clear(self) -> None:
        for changes in (self._words, self._classes, self._vocabulary, self._tallies):
            changes.clear()

    def _add(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add to the numbers of rows, which follow their key: of words for one voice.

        A row that gets more is made where it is missing. Words and tallies that count nothing any more go, so that
        undoing leaves no trace.
        """
        key = len(table.primary_key)
        less = [row for row in rows if min(row[key:]) < 0]
        more = [row for row in rows if min(row[key:]) >= 0] if less else rows
        queries.add_rows(self._connection, table, more)
        if queries.execute_many(self._connection, _LESS[table], new_values(table.columns), less) != len(less):
            raise CountError(f"the {table.name} table lacks rows of the learning that is to be taken back")
        if table in _DROP:
            queries.execute_many(self._connection, _DROP[table], new_values(table.primary_key), less)


def _adding(table: Table) -> Update:
    changed = {name: table.c[name] + bindparam(f"new_{name}") for name in numbers_of(table)}
    return update(table).where(has_key(table)).values(changed)


_NOTHING: ColumnElement[int] = literal_column("0")
_LESS = {table: _adding(table) for table in (words, classes, vocabularies, tallies)}
_DROP = {
    table: delete(table).where(has_key(table), *(table.c[name] == _NOTHING for name in numbers_of(table)))
    for table in (words, tallies)
}
