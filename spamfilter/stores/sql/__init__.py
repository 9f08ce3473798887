"""The store in a SQL database: SQLite or PostgreSQL through SQLAlchemy Core.

Guarantee: one learning is one transaction, begun with the write lock held. Commits reach the disk.
Start with database, its transactions; connection and postgresql connect to it, dialects has what
they spell differently. journal, searching, reporting, quarantine_events and sender_lists stand on it.
ledger_writing has a transaction of learning, editions the rebuilding of all counts, and
queries what they and the store ask.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    LargeBinary,
    Text,
    case,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
    type_coerce,
)

from spamfilter.bayes.calibration import ERROR_ENERGY, SURPRISING
from spamfilter.bayes.model import State
from spamfilter.bayes.token_codec import unpack_with
from spamfilter.bayes.tokens import Token
from spamfilter.errors import StoreError
from spamfilter.stores import schema
from spamfilter.stores.schema import EDITION, amounts, ledger
from spamfilter.stores.sql import queries
from spamfilter.stores.sql.connection import damaged
from spamfilter.stores.sql.database import TOGETHER
from spamfilter.stores.sql.dialects import LAST_ID, has_text, keep_last_id, last_id
from spamfilter.stores.sql.editions import SqlEditions
from spamfilter.stores.sql.journal import SqlJournal
from spamfilter.stores.sql.ledger_writing import SqlLearning
from spamfilter.stores.sql.quarantine_events import SqlQuarantineEvents
from spamfilter.stores.sql.reporting import SqlReporting
from spamfilter.stores.sql.searching import SqlSearch
from spamfilter.stores.sql.sender_lists import SqlSenderLists
from spamfilter.stores.store import Entry, Holders, Learning, Store
from spamfilter.system.batches import batches

_SETTING = "(SELECT value FROM settings WHERE name = '{}')"
_NOTICED = ", ".join(["(SELECT version_num FROM alembic_version)", *map(_SETTING.format, (queries.REBUILT, EDITION))])
"""Columns of one row, which a look at the ledger and each learning begin with."""


def _on_day(by: str, since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return ledger.c.by == by, ledger.c.at.between(since, since + timedelta(days=1))


class SqlStore(
    SqlEditions, SqlJournal, SqlSearch, SqlQuarantineEvents, SqlReporting, SqlSenderLists, queries.SqlLedger, Store
):
    """One database. Its schema must be at `schema.HEAD`; `stores.migration` brings it there."""

    _rebuilt: int | None = None

    def look(self) -> None:
        """Know from here on whether the counts are rebuilt; the schema must be at HEAD."""
        self._notice(self.row(_NOTICED))

    def _notice(self, found: Sequence[Any]) -> int:
        """Notice that the counts were rebuilt, by a row of _NOTICED; returns the edition that judges. Raises StoreError
        if the tables are those of another version."""
        version, *numbers = found
        if version != schema.HEAD:
            raise StoreError(f"{self.where}: has {schema.OTHER}")
        try:
            rebuilt, edition = (int(number or 0) for number in numbers)
        except (TypeError, ValueError) as error:
            raise damaged(self.where, f"a setting is no number ({error})") from error
        if self._rebuilt is not None and rebuilt != self._rebuilt:
            self.generation += 1
        self._rebuilt = rebuilt
        return edition

    def _notice_in(self, connection: Connection) -> int:
        return self._notice(connection.exec_driver_sql(f"SELECT {_NOTICED}").one())

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        with self.writing() as connection:
            learning = SqlLearning(connection, self._notice_in(connection))
            yield learning
            learning.flush()

    def load(self, voices: Iterable[str]) -> State:
        with self.reading() as connection:
            counts = queries.totals(connection, voices)
            for voice in counts:
                counts[voice].kept = queries.load_words(connection, voice, counts[voice].vocabulary)
                if not any((counts[voice].tallies or {}).values()):
                    counts[voice].tallies = None  # this voice's likelihood does not need them
            return queries.whole_state(connection, counts)

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        with self.reading() as connection:
            return queries.part_state(connection, words)

    @contextmanager
    def ledger_reading(self) -> Iterator[Connection]:
        with self.reading() as connection:
            self._notice_in(connection)
            yield connection

    def news(self, last: int) -> tuple[list[Entry], int]:
        *noticed, newest = self.row(f"{_NOTICED}, ({LAST_ID[self.engine.dialect.name].format(ledger.name)})")
        self._notice(noticed)
        if newest <= last:
            return [], newest
        with self.reading() as connection:
            return queries.entries_after(connection, last), newest

    def holders(self, words: Mapping[str, Collection[Token]], before: int, limit: int) -> Holders:
        packed = type_coerce(ledger.c.tokens, LargeBinary).label("packed")
        older = queries.only_active(queries.entries(packed)).where(ledger.c.id < before).order_by(ledger.c.id.desc())
        found, looked_at, last = [], 0, 0
        with self.reading() as connection:
            for row in connection.execute(older.limit(limit)):
                looked_at, last = looked_at + 1, row.id
                added = row.added or {}
                learnt = [word for voice, some in words.items() if added.get(voice) for word in some]
                # Most learnings of a filter that errs rarely have added nothing, and are not unpacked.
                tokens = unpack_with(row.packed, learnt) if learnt else None
                if tokens is not None and (entry := queries.entry_of(row, tokens)).holds(words):
                    found.append(entry)
            rest = queries.only_active(select(ledger.c.id)).where(ledger.c.id < last).limit(1)
            more = looked_at and connection.execute(rest).first()
        return Holders(found, looked_at, last if more else 0)

    def learnings(self, since: datetime | None = None, source: str | None = None) -> list[Entry]:
        query = queries.only_active(queries.entries())
        if since is not None:
            query = query.where(ledger.c.at >= since)
        if source is not None:
            query = query.where(ledger.c.source == source)
        # If SQLite were to sort by id, it would read the whole ledger in that order, and not use the index of times.
        return sorted((queries.entry_of(row, {}) for row in self.rows(query)), key=attrgetter("id"))

    def last_entries_by(self, by: str, since: datetime | None = None) -> list[Entry]:
        followed = exists().where(queries.undone.c.digest == ledger.c.digest, queries.undone.c.id > ledger.c.id)
        query = queries.entries().where(ledger.c.by == by, ~followed).order_by(ledger.c.id)
        if since is not None:
            query = query.where(ledger.c.at >= since)
        return [queries.entry_of(row, {}) for row in self.rows(query)]

    def histories(self, digests: Collection[bytes]) -> dict[bytes, list[Entry]]:
        found: dict[bytes, list[Entry]] = {digest: [] for digest in digests}
        for row in self.rows_of(queries.entries().order_by(ledger.c.id), ledger.c.digest, found):
            found[row.digest].append(queries.entry_of(row, {}))
        return found

    def marks_by(self, by: str, since: datetime) -> int:
        learnings = *_on_day(by, since), ledger.c.undoes.is_(None)
        return self.number(select(func.count()).select_from(ledger).where(*learnings))

    def surprises_by(self, by: str, since: datetime, most: int) -> list[Entry]:
        surprising = cast(amounts.c.calibrated[ERROR_ENERGY].as_string(), BigInteger) >= SURPRISING
        mine = *_on_day(by, since), ledger.c.label == "spam"
        query = queries.only_active(queries.entries(ledger.c.tokens)).where(*mine, surprising)
        return [queries.entry_of(row, row.tokens) for row in self.rows(query.order_by(ledger.c.at).limit(most))]

    def marks_on_mail(self, by: str, since: datetime, recipient: str, domain: str) -> tuple[int, int]:
        mail = schema.journal.c
        received = has_text(cast(mail.recipients, Text), json.dumps(recipient.lower()))
        sent = or_(
            func.lower(mail.sender).endswith(f"@{domain.lower()}", autoescape=True), func.lower(mail.sender) == domain
        )
        numbers = (func.count(case((found, ledger.c.digest)).distinct()) for found in (received, sent))
        query = select(*numbers).select_from(ledger).join(schema.journal, mail.digest == ledger.c.digest)
        with self.reading() as connection:
            found = connection.execute(query.where(*_on_day(by, since), ledger.c.undoes.is_(None))).one()
            return int(found[0]), int(found[1])

    def times_of_sources(self) -> dict[str, tuple[datetime, datetime]]:
        ends = [function(ledger.c.at, type_=ledger.c.at.type) for function in (func.min, func.max)]
        found = self.rows(select(ledger.c.source, *ends).group_by(ledger.c.source))
        return {source: (first, last) for source, first, last in found}

    def sweep(self, source: str, before: datetime) -> int:
        own = (
            select(ledger.c.undoes)
            .join(queries.undone, ledger.c.undoes == queries.undone.c.id)
            .where(queries.undone.c.source == source)
        )
        with self.writing() as connection:
            pairs = list(connection.scalars(own.where(ledger.c.source == source, ledger.c.at < before)))
            if last := last_id(connection, ledger):
                keep_last_id(connection, ledger, last)
            for some in batches(pairs, TOGETHER):
                connection.execute(delete(ledger).where(ledger.c.undoes.in_(some)))
                connection.execute(delete(ledger).where(ledger.c.id.in_(some)))
        return 2 * len(pairs)

    def get_setting(self, name: str) -> object:
        with self.reading() as connection:
            return queries.setting(connection, name)

    def settings_of(self, kind: str) -> dict[str, object]:
        names = schema.settings.c.name
        query = select(schema.settings).where(names.startswith(f"{kind} ", autoescape=True)).order_by(names)
        return {row.name.removeprefix(f"{kind} "): row.value for row in self.rows(query)}

    def put_setting(self, name: str, value: object) -> None:
        with self.writing() as connection:
            queries.put_setting_row(connection, name, value)
