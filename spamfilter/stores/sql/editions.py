"""Rebuilding all counts in another edition, which replaces the one that judges in one step.

Each row of counts, and of what an entry of the ledger adds, is of an edition. A rebuilding writes its own in short
transactions, between which others learn; the last one has only what was learnt meanwhile, and names the new edition.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from shutil import disk_usage
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.model import State
from spamfilter.errors import StoreBusy, StoreFull
from spamfilter.stores.schema import EDITION, amounts, classes, ledger, tallies, vocabularies, words
from spamfilter.stores.sql import queries
from spamfilter.stores.sql.connection import damaged
from spamfilter.stores.sql.database import Database
from spamfilter.stores.store import Relearnt, Rewriting
from spamfilter.system.batches import paused

BATCH = 5000
"""Rows written, or deleted, in one transaction: a tenth or two of a second of write lock."""
ROOM = 16 * 2**20
"""Bytes that a rebuilding leaves free for marks, journal and quarantine: four times what SQLite's log grows to before
its pages go into the file, without which nothing more can be written, and nothing deleted either."""
BEGUN = "edition begun"
"""The setting with the number of the newest edition, which judges already or is being written."""

_UNUSED = ("freelist_count", "page_size")

_PUT_WORDS = queries.written_over(upsert(words))
_DROP_WORD = delete(words).where(queries.has_key(words))
_PUT_TOKENS = update(ledger).where(ledger.c.id == bindparam("entry")).values(tokens=bindparam("new_tokens"))

Row = TypeVar("Row")
WordRow = tuple[int, str, str, int, int]
"""Edition, voice, word, ham, spam."""


class SqlEditions(Database):
    """The part of the store that rebuilds its counts."""

    def new_edition(self) -> int:
        with self.writing() as connection:
            edition = 1 + max(queries.setting(connection, EDITION) or 0, queries.setting(connection, BEGUN) or 0)
            queries.put_setting_row(connection, BEGUN, edition)
        self.sweep_editions()
        return edition

    def write_beside(self, edition: int, state: State, some: Rewriting) -> None:
        for batch in _batches(_word_rows(edition, state, some)):
            self._check_room()
            with self.writing() as connection:
                _check(connection, edition)
                _write_words(connection, batch)
        for lessons in _batches(some.lessons):
            self._check_room()
            with self.writing() as connection:
                _check(connection, edition)
                _write_lessons(connection, edition, lessons)
        with self.writing() as connection:
            _forget(connection, edition, some.gone)

    def _check_room(self) -> None:
        """Raise StoreFull if the disk of SQLite's file, and what is unused in the file, leave less than ROOM."""
        if self._path is None or (free := disk_usage(self._path.parent).free) >= ROOM:
            return
        with self.reading() as connection:
            pages, size = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in _UNUSED)
        if free + pages * size < ROOM:
            left = f"only {free / 1e6:.1f} MB are left on its disk, which marks and mail need"
            raise StoreFull(f"{self.where}: {left}; make room for a second copy of the counts")

    def sweep_editions(self) -> None:
        for table in (words, tallies, vocabularies, classes):
            key = [column for column in table.primary_key if column.name != "edition"]
            for old in paused(self._unused(table)):
                with self.writing() as connection:
                    here = table.c.edition == old
                    end = connection.execute(select(*key).where(here).order_by(*key).offset(BATCH).limit(1)).first()
                    some = delete(table).where(here, *([tuple_(*key) < tuple(end)] if end else []))
                    if not connection.execute(some).rowcount and _first_unused(connection, table) == old:
                        raise damaged(self.where, f"rows of {table.name} are not found by their key")
        with self.reading() as connection:
            last = connection.scalar(select(func.max(amounts.c.entry))) or 0
        for start in paused(range(0, last + 1, BATCH)):
            with self.writing() as connection:
                here = amounts.c.entry.between(start, start + BATCH - 1)
                connection.execute(delete(amounts).where(here, amounts.c.edition.not_in(_used(connection))))

    def _unused(self, table: Table) -> Iterator[int]:
        """The first edition with rows that is not used, again and again until there is none."""
        while True:
            with self.reading() as connection:
                if (old := _first_unused(connection, table)) is None:
                    return
            yield old


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Lists of BATCH rows, with pauses."""
    rest = iter(rows)
    return paused(iter(lambda: list(islice(rest, BATCH)), []))


def write_rest(connection: Connection, edition: int, state: State, rest: Rewriting) -> None:
    """Write what an edition lacks, with all of its totals, and let it judge."""
    _check(connection, edition)
    _write_words(connection, list(_word_rows(edition, state, rest)))
    _write_lessons(connection, edition, list(rest.lessons))
    _forget(connection, edition, rest.gone)
    for table in (classes, vocabularies, tallies):
        connection.execute(delete(table).where(table.c.edition == edition))
    for voice, counts in state.counts.items():
        here = {"edition": edition, "voice": voice}
        connection.execute(insert(vocabularies), {**here, "words": counts.vocabulary})
        for label in LABELS:
            total = {"messages": counts.messages[label], "words": counts.occurrences[label]}
            connection.execute(insert(classes), {**here, "class": label, **total})
            tally = (counts.tallies or {}).get(label, {})
            if having := [{**here, "class": label, "count": count, "words": number} for count, number in tally.items()]:
                connection.execute(insert(tallies), having)
    queries.put_setting_row(connection, EDITION, edition)


def _first_unused(connection: Connection, table: Table) -> int | None:
    unused = table.c.edition.not_in(_used(connection))
    return connection.scalar(select(table.c.edition).where(unused).order_by(table.c.edition).limit(1))


def _used(connection: Connection) -> list[int]:
    """The editions that judge or are being written."""
    return [queries.setting(connection, EDITION) or 0, queries.setting(connection, BEGUN) or 0]


def _check(connection: Connection, edition: int) -> None:
    if queries.setting(connection, BEGUN) != edition:
        raise StoreBusy("another process has begun to rebuild the counts since; this one gives way to it")


def _word_rows(edition: int, state: State, some: Rewriting) -> Iterator[WordRow]:
    for voice, names in some.words.items():
        counts: Counts = state.counts[voice]
        in_ham, in_spam = counts.words["ham"], counts.words["spam"]
        for word in sorted(names):  # in the order of the table: each page is written once
            yield edition, voice, word.decode(), in_ham.get(word, 0), in_spam.get(word, 0)


def _write_words(connection: Connection, rows: list[WordRow]) -> None:
    kept, gone = ([row for row in rows if any(row[3:]) == counts] for counts in (True, False))
    queries.execute_many(connection, _PUT_WORDS, tuple(words.columns.keys()), kept)
    queries.execute_many(connection, _DROP_WORD, queries.new_values(words.primary_key), gone)


def _write_lessons(connection: Connection, edition: int, lessons: list[Relearnt]) -> None:
    queries.put_amounts(connection, edition, [(lesson.id, lesson.added, lesson.calibrated) for lesson in lessons])
    reread = [{"entry": one.id, "new_tokens": one.tokens} for one in lessons if one.tokens is not None]
    if reread:
        connection.execute(_PUT_TOKENS, reread)


def _forget(connection: Connection, edition: int, gone: Collection[int]) -> None:
    if gone:
        here = amounts.c.entry == bindparam("entry_gone"), amounts.c.edition == edition
        connection.execute(delete(amounts).where(*here), [{"entry_gone": id} for id in gone])
