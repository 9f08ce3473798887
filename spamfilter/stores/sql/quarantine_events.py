"""The history of the quarantine in SQL."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import delete, insert, select

from spamfilter.stores.quarantine_events import QuarantineEvent
from spamfilter.stores.schema import quarantine_events
from spamfilter.stores.sql.database import Database

FACTS = [column for column in quarantine_events.columns if column.name != "id"]
"""In the order of the fields of QuarantineEvent."""


class SqlQuarantineEvents(Database):
    """The methods of `stores.quarantine_events.QuarantineEvents`."""

    def note_quarantine(self, events: Sequence[QuarantineEvent]) -> None:
        if not events:
            return
        with self.writing() as connection:
            connection.execute(insert(quarantine_events), [*map(asdict, events)])

    def quarantine_events(self, mails: Collection[str]) -> dict[str, list[QuarantineEvent]]:
        found: dict[str, list[QuarantineEvent]] = {}
        query = select(*FACTS).order_by(quarantine_events.c.id)
        for row in self.rows_of(query, quarantine_events.c.mail, mails):
            found.setdefault(row.mail, []).append(QuarantineEvent(*row))
        return found

    def all_quarantine_events(self) -> list[QuarantineEvent]:
        return [QuarantineEvent(*row) for row in self.rows(select(*FACTS).order_by(quarantine_events.c.id))]

    def expire_quarantine_events(self, before: datetime) -> int:
        with self.writing() as connection:
            return connection.execute(delete(quarantine_events).where(quarantine_events.c.at < before)).rowcount
