"""The journal in SQL: writing, finding and expiring its entries. Searches are in searching."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Delete, Update, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from spamfilter.stores.journal import NAMED, JournalEntry
from spamfilter.stores.schema import journal
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.queries import converted, execute_many
from spamfilter.system.batches import batches

EXPIRE = 1000
"""Rows emptied or deleted in one transaction: a tenth of a second of write lock."""

COLUMNS = tuple(journal.c[field.name.rstrip("_")] for field in fields(JournalEntry))
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


def of_host(host: str) -> list[ColumnElement[bool]]:
    """The condition that an entry is of this relay's host; '': none. No index has it: a fleet has few hosts."""
    return [journal.c.host == host] if host else []


def within(since: datetime, until: datetime, host: str = "") -> list[ColumnElement[bool]]:
    """The conditions that an entry is of a period, and of this relay's host; '': of any."""
    return [journal.c.at >= since, journal.c.at < until, *of_host(host)]


class SqlJournal(Database):
    """The methods of `stores.journal.Journal` but for those of searching and reporting."""

    def write_journal(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        # Before the lock is taken, as it takes the longest.
        rows = converted(self.engine.dialect, COLUMNS, map(_values, entries))
        with self.writing() as connection:
            execute_many(connection, _ADD, tuple(column.name for column in COLUMNS), rows)

    def find_journal(self, id: str) -> JournalEntry | None:
        with self.reading() as connection:
            row = connection.execute(select(*COLUMNS).where(journal.c.id == id)).one_or_none()
            return None if row is None else journal_entry_of(row)

    def journal(self, since: datetime, until: datetime, host: str = "") -> list[JournalEntry]:
        query = select(*SUMMARY).where(*within(since, until, host)).order_by(journal.c.id)
        return [journal_entry_of(row) for row in self.rows(query)]

    def journal_of(self, digests: Collection[bytes]) -> dict[bytes, JournalEntry]:
        latest = select(func.max(journal.c.id)).group_by(journal.c.digest)
        ids = [id for (id,) in self.rows_of(latest, journal.c.digest, digests)]
        return {row.digest: journal_entry_of(row) for row in self.rows_of(select(*SUMMARY), journal.c.id, ids)}

    def in_journal(self, digests: Collection[bytes], message_ids: Collection[str]) -> set[bytes | str]:
        asked = ((journal.c.digest, digests), (journal.c.message_id, message_ids))
        return {found for column, values in asked for (found,) in self.rows_of(select(column), column, values)}

    def journal_named(self, message_id: str) -> list[JournalEntry]:
        if not message_id:
            return []
        query = select(*COLUMNS).where(journal.c.message_id == message_id).order_by(journal.c.id.desc()).limit(NAMED)
        return [journal_entry_of(row) for row in self.rows(query)]

    def remove_journal(self, id: str) -> None:
        with self.writing() as connection:
            connection.execute(delete(journal).where(journal.c.id == id))

    def date_journal_anew(self, after: datetime, now: datetime) -> int:
        later = journal.c.at > after
        with self.reading() as connection:
            ids = [*connection.scalars(select(journal.c.id).where(later))]
        return self._in_batches(update(journal).where(later).values(at=now), ids)

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
        emptying = update(journal).where(packed).values(tokens=None)
        return self._in_batches(emptying, emptied), self._in_batches(delete(journal), deleted)

    def _in_batches(self, change: Update | Delete, ids: Sequence[str]) -> int:
        """Change these entries; returns how many there were. Other processes may write between two batches."""
        changed = 0
        for some in batches(ids, EXPIRE):
            with self.writing() as connection:
                changed += connection.execute(change.where(journal.c.id.in_(some))).rowcount
        return changed
