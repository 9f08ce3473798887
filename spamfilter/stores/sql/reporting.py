"""What reports ask of the tables: counts, which indexes answer without reading the rows."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, literal_column, select
from sqlalchemy.dialects.sqlite import insert as upsert

from spamfilter.stores.schema import journal, ledger
from spamfilter.stores.schema import summaries as kept
from spamfilter.stores.sql.queries import SUMMARY, entry_of, journal_entry_of, only_active
from spamfilter.stores.store import Entry, JournalEntry, Labelled, Trainings

DAY = timedelta(days=1)
MARKS_DEARER = 4
"""To find the message of a mark takes as long as to look at so many messages one after the other."""


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
    """From one day that has entries to the next, each counted in the index: a hundred times less than to group them."""
    found: dict[date, int] = {}
    begin, end = datetime.combine(first, time.min, UTC), datetime.combine(last, time.max, UTC)
    earliest = select(func.min(journal.c.at)).where(journal.c.at >= bindparam("begin"))
    count = select(func.count()).where(journal.c.at >= bindparam("begin"), journal.c.at <= bindparam("end"))
    while (at := connection.execute(earliest, {"begin": begin}).scalar_one()) is not None and at <= end:
        day = at.date()
        begin, over = datetime.combine(day, time.min, UTC), datetime.combine(day, time.max, UTC)
        found[day] = connection.execute(count, {"begin": begin, "end": over}).scalar_one()
        if day >= last:
            break
        begin += DAY
    return found


def labelled(connection: Connection, since: datetime, until: datetime, without: Collection[str]) -> list[Labelled]:
    by_people = ledger.c.source.not_in(without)
    marks = connection.execute(select(func.count()).where(by_people)).scalar_one()
    entries = connection.execute(select(func.count()).where(journal.c.at >= since, journal.c.at < until)).scalar_one()
    # With the sign SQLite cannot go along the index of moments, and looks for each mark's message instead.
    at = literal_column("+journal.at", journal.c.at.type) if MARKS_DEARER * marks < entries else journal.c.at
    query = only_active(select(journal.c.at, journal.c["class"], journal.c.score, ledger.c.label))
    query = query.join(ledger, ledger.c.digest == journal.c.digest).where(by_people, at >= since, at < until)
    return [Labelled(*row) for row in connection.execute(query)]


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
