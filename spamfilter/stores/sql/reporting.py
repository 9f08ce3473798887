"""The figures of reports in SQL: numbers that indexes give without reading the rows."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, exists, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from spamfilter.bayes.labels import COUNTERPART
from spamfilter.stores.journal import MANY, UNJUDGED, Deferral, JournalEntry, Labelled
from spamfilter.stores.schema import journal, ledger, summaries
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.dialects import unindexed
from spamfilter.stores.sql.journal import SUMMARY, journal_entry_of, of_host, within
from spamfilter.stores.sql.queries import entries, entry_of, only_active, written_over
from spamfilter.stores.store import Entry, Trainings

DAY = timedelta(days=1)

_IS_LABELLED = exists(
    only_active(select(ledger.c.id)).where(ledger.c.digest == journal.c.digest, ledger.c.source != COUNTERPART)
)
"""The message is learnt, and not as a counterpart, which nobody has labelled."""


def _of_period(query: Select[Any], since: datetime, until: datetime) -> Select[Any]:
    return only_active(query).where(ledger.c.at >= since, ledger.c.at < until)


class SqlReporting(Database):
    """The methods of `stores.store.Store` that only reports need."""

    def latest_learnings(self, since: datetime, until: datetime, limit: int) -> list[Entry]:
        query = _of_period(entries(ledger.c.tokens), since, until).order_by(ledger.c.at.desc(), ledger.c.id.desc())
        return [entry_of(row, row.tokens) for row in self.rows(query.limit(limit))]

    def trainings(self, since: datetime, until: datetime) -> list[Trainings]:
        key = ledger.c.source, ledger.c.by, ledger.c.label
        query = _of_period(select(*key, func.count()), since, until).group_by(*key).order_by(*key)
        return [Trainings(*row) for row in self.rows(query)]

    def journal_days(self, first: date, last: date, host: str = "") -> dict[date, int]:
        # From one day with entries to the next, each counted in the index, in a hundredth of the time of a GROUP BY.
        found: dict[date, int] = {}
        begin, end = datetime.combine(first, time.min, UTC), datetime.combine(last, time.max, UTC)
        earliest = select(func.min(journal.c.at)).where(journal.c.at >= bindparam("begin"), *of_host(host))
        of_day = journal.c.at >= bindparam("begin"), journal.c.at <= bindparam("end"), *of_host(host)
        count = select(func.count()).where(*of_day)
        with self.reading() as connection:
            while (at := connection.execute(earliest, {"begin": begin}).scalar_one()) is not None and at <= end:
                day = at.date()
                begin, over = datetime.combine(day, time.min, UTC), datetime.combine(day, time.max, UTC)
                found[day] = connection.execute(count, {"begin": begin, "end": over}).scalar_one()
                if day >= last:
                    break
                begin += DAY
        return found

    def deferrals(self, since: datetime, until: datetime, host: str = "") -> list[Deferral]:
        unasked = (journal.c["class"] == UNJUDGED) | (journal.c.action != "defer")
        deferred = text("reply >= '4' AND reply < '5'")  # word for word as in the index
        query = select(journal.c.at, journal.c.reply).where(*within(since, until, host), deferred, unasked)
        return [Deferral(*row) for row in self.rows(query.order_by(journal.c.at.desc()).limit(MANY))][::-1]

    def labelled(self, since: datetime, until: datetime, without: Collection[str], host: str = "") -> list[Labelled]:
        # With the index of times SQLite would read all entries of the period, instead of those of each learning: with
        # 20,000 marks and 200,000 entries in 60 days that takes 0.4 seconds instead of 0.1.
        at = unindexed(journal.c.at)
        query = only_active(select(journal.c.at, journal.c["class"], journal.c.score, ledger.c.label))
        query = query.join(ledger, ledger.c.digest == journal.c.digest).where(
            ledger.c.source.not_in(without), at >= since, at < until, *of_host(host)
        )
        return [Labelled(*row) for row in self.rows(query)]

    def unlearnt(self, since: datetime, until: datetime) -> list[JournalEntry]:
        judged = journal.c["class"] != UNJUDGED
        query = select(*SUMMARY).where(*within(since, until), judged, ~_IS_LABELLED).order_by(journal.c.id)
        return [journal_entry_of(row) for row in self.rows(query)]

    def unlabelled(
        self, since: datetime, until: datetime, limit: int, host: str = ""
    ) -> tuple[list[JournalEntry], int]:
        latest = (
            select(func.max(journal.c.id).label("id"))
            .where(journal.c["class"] == "unsure", *within(since, until, host), ~_IS_LABELLED)
            .group_by(journal.c.digest)
            .subquery()
        )
        listed = select(latest.c.id, func.count().over().label("number")).order_by(latest.c.id.desc()).limit(limit)
        with self.reading() as connection:
            found = connection.execute(listed).all()
            query = select(*SUMMARY).where(journal.c.id.in_([row.id for row in found])).order_by(journal.c.id.desc())
            return [journal_entry_of(row) for row in connection.execute(query)], found[0].number if found else 0

    def summaries(self, first: date, last: date) -> dict[date, Mapping[str, Any]]:
        query = select(summaries).where(summaries.c.day >= first, summaries.c.day <= last)
        return {row.day: row.body for row in self.rows(query)}

    def put_summary(self, day: date, body: Mapping[str, Any]) -> None:
        with self.writing() as connection:
            connection.execute(written_over(upsert(summaries)), {"day": day, "body": body})
