"""What reports ask of the tables: counts, which indexes answer without reading the rows."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import Connection, Select, exists, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from spamfilter.stores.schema import journal, ledger
from spamfilter.stores.schema import summaries as kept
from spamfilter.stores.sql.queries import SUMMARY, entry_of, journal_entry_of, only_active
from spamfilter.stores.store import Entry, JournalEntry, Labelled, Trainings


def _of_period(query: Select[Any], since: datetime, until: datetime) -> Select[Any]:
    return only_active(query).where(ledger.c.at >= since, ledger.c.at < until)


def latest_learnings(connection: Connection, since: datetime, until: datetime, limit: int) -> list[Entry]:
    query = _of_period(select(ledger), since, until).order_by(ledger.c.at.desc(), ledger.c.id.desc()).limit(limit)
    return [entry_of(row, row.tokens) for row in connection.execute(query)]


def trainings(connection: Connection, since: datetime, until: datetime) -> list[Trainings]:
    told_apart = ledger.c.source, ledger.c.by, ledger.c.label
    query = _of_period(select(*told_apart, func.count()), since, until).group_by(*told_apart).order_by(*told_apart)
    return [Trainings(*row) for row in connection.execute(query)]


def journal_days(connection: Connection, first: date, last: date) -> dict[date, int]:
    day = func.date(journal.c.at, type_=kept.c.day.type).label("day")
    begin, end = datetime.combine(first, time.min, UTC), datetime.combine(last, time.max, UTC)
    # By moments, which are in an index; by days every entry of the journal would be looked at.
    query = select(day, func.count().label("number")).where(journal.c.at >= begin, journal.c.at <= end).group_by(day)
    return {row.day: row.number for row in connection.execute(query)}


def labelled(connection: Connection, since: datetime, until: datetime, without: Collection[str]) -> list[Labelled]:
    query = only_active(select(journal.c.at, journal.c["class"], journal.c.score, ledger.c.label))
    query = query.join(ledger, ledger.c.digest == journal.c.digest).where(ledger.c.source.not_in(without))
    return [Labelled(*row) for row in connection.execute(query.where(journal.c.at >= since, journal.c.at < until))]


def unlabelled(connection: Connection, since: datetime, until: datetime, limit: int) -> tuple[list[JournalEntry], int]:
    learnt = only_active(select(ledger.c.id)).where(ledger.c.digest == journal.c.digest)
    latest = (
        select(func.max(journal.c.id).label("id"))
        .where(journal.c["class"] == "unsure", journal.c.at >= since, journal.c.at < until, ~exists(learnt))
        .group_by(journal.c.digest)
        .subquery()
    )
    query = select(*SUMMARY).where(journal.c.id.in_(select(latest.c.id))).order_by(journal.c.id.desc()).limit(limit)
    number = connection.execute(select(func.count()).select_from(latest)).scalar_one()
    return [journal_entry_of(row) for row in connection.execute(query)], number


def summaries(connection: Connection, first: date, last: date) -> dict[date, Mapping[str, Any]]:
    query = select(kept).where(kept.c.day >= first, kept.c.day <= last)
    return {row.day: row.body for row in connection.execute(query)}


def put_summary(connection: Connection, day: date, body: Mapping[str, Any]) -> None:
    putting = upsert(kept)
    putting = putting.on_conflict_do_update(index_elements=[kept.c.day], set_={"body": putting.excluded.body})
    connection.execute(putting, {"day": day, "body": body})
