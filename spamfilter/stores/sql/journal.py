"""The journal in SQL: writing, finding, searching and expiring its entries."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Delete, Select, Update, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from spamfilter.stores.journal import NAMED, JournalEntry, Wanted
from spamfilter.stores.schema import journal
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.queries import convert, execute_many

EXPIRE = 1000
"""Rows emptied or deleted in one transaction: a tenth of a second of write lock."""

COLUMNS = tuple(journal.columns)
"""In the order of the fields of JournalEntry."""
SUMMARY = [column for column in COLUMNS if column.name != "tokens"]

_values = attrgetter(*(field.name for field in fields(JournalEntry)))
_ADD = upsert(journal).on_conflict_do_nothing()


def journal_entry_of(row: Any) -> JournalEntry:
    """An entry from a row of SUMMARY or of COLUMNS."""
    *facts, evidence = row[: len(SUMMARY)]
    tokens = row[-1] if len(row) == len(COLUMNS) else None
    facts += [[(token, weight) for token, weight in evidence], tokens]
    return JournalEntry(*facts)


class SqlJournal(Database):
    """The methods of `stores.journal.Journal` but for those of reporting."""

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        rows = [[*_values(entry)] for entry in entries]
        convert(self.engine.dialect, COLUMNS, rows)  # before the lock is taken, as it takes the longest
        with self.writing() as connection:
            execute_many(connection, _ADD, tuple(journal.columns.keys()), [*map(tuple, rows)])

    def find_journal(self, id: str) -> JournalEntry | None:
        with self.reading() as connection:
            row = connection.execute(select(journal).where(journal.c.id == id)).one_or_none()
            return None if row is None else journal_entry_of(row)

    def journal(self, since: datetime, until: datetime) -> list[JournalEntry]:
        query = select(*SUMMARY).where(journal.c.at >= since, journal.c.at < until).order_by(journal.c.id)
        with self.reading() as connection:
            return [journal_entry_of(row) for row in connection.execute(query)]

    def search(self, wanted: Wanted, limit: int, before: str = "") -> list[JournalEntry]:
        query = _matching(wanted).order_by(journal.c.id.desc())
        unsure = journal.c["class"] == "unsure"
        with self.reading() as connection:
            if not wanted.unsure_first:
                return _page(connection, query, limit, before)
            # Two searches that each follow an index, instead of one that sorts all entries.
            found = []
            if not before or connection.scalar(select(unsure).where(journal.c.id == before)):
                found = _page(connection, query.where(unsure), limit, before)
                before = ""
            return found + _page(connection, query.where(~unsure), limit - len(found), before)

    def journal_of(self, digests: Sequence[bytes]) -> dict[bytes, JournalEntry]:
        latest = select(func.max(journal.c.id)).where(journal.c.digest.in_(digests)).group_by(journal.c.digest)
        query = select(*SUMMARY).where(journal.c.id.in_(latest))
        with self.reading() as connection:
            return {row.digest: journal_entry_of(row) for row in connection.execute(query)}

    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        with self.reading() as connection:
            return {
                found
                for column, asked in ((journal.c.digest, digests), (journal.c.message_id, message_ids))
                for found in connection.scalars(select(column).where(column.in_(asked)))
            }

    def journal_named(self, message_id: str) -> list[JournalEntry]:
        if not message_id:
            return []
        query = select(journal).where(journal.c.message_id == message_id).order_by(journal.c.id.desc()).limit(NAMED)
        with self.reading() as connection:
            return [journal_entry_of(row) for row in connection.execute(query)]

    def remove_journal(self, id: str) -> None:
        with self.writing() as connection:
            connection.execute(delete(journal).where(journal.c.id == id))

    def expire(self, tokens_before: datetime, entries_before: datetime, tokens_bytes: int = 2**62) -> tuple[int, int]:
        packed = journal.c.tokens.is_not(None)
        old = select(journal.c.id).where(journal.c.at < tokens_before, journal.c.at >= entries_before, packed)
        gone = select(journal.c.id).where(journal.c.at < entries_before)
        # What the tokens of an entry and of all later ones take; without those that expire by their time.
        taken = func.sum(func.length(journal.c.tokens)).over(order_by=journal.c.id.desc()).label("taken")
        kept = select(journal.c.id, taken).where(journal.c.at >= max(tokens_before, entries_before), packed).subquery()
        beyond = select(kept.c.id).where(kept.c.taken > tokens_bytes)
        with self.reading() as connection:
            emptied = [*connection.scalars(old), *connection.scalars(beyond)]
            deleted = [*connection.scalars(gone)]
        return self._in_batches(update(journal).where(packed).values(tokens=None), emptied), self._in_batches(
            delete(journal), deleted
        )

    def _in_batches(self, change: Update | Delete, ids: Sequence[str]) -> int:
        """Change these entries; returns how many there were. Other processes may write between two batches."""
        changed = 0
        for start in range(0, len(ids), EXPIRE):
            with self.writing() as connection:
                changed += connection.execute(change.where(journal.c.id.in_(ids[start : start + EXPIRE]))).rowcount
        return changed


def _page(connection: Connection, query: Select[Any], limit: int, before: str) -> list[JournalEntry]:
    if before:
        query = query.where(journal.c.id < before)
    return [journal_entry_of(row) for row in connection.execute(query.limit(limit))]


def _matching(wanted: Wanted) -> Select[Any]:
    """The query of a search. What a user has typed is a value in it and never a pattern."""
    query = select(*SUMMARY)
    if wanted.class_:
        query = query.where(journal.c["class"] == wanted.class_)
    if wanted.action:
        query = query.where(journal.c.action == wanted.action)
    if wanted.sender:
        query = query.where(journal.c.sender.icontains(wanted.sender, autoescape=True))
    for word in wanted.subject.split():
        query = query.where(journal.c.subject.icontains(word, autoescape=True))
    if wanted.least > 0:
        query = query.where(journal.c.score >= wanted.least)
    if wanted.most < 1:
        query = query.where(journal.c.score <= wanted.most)
    return query
