"""Searches of the journal in SQL.

A part of a text can stand anywhere in it, so a search looks at every entry; for most conditions it does so in one index
of SQLite, journal_search, which has what they ask for and no more: some 250 bytes an entry, in the order of the list.
Of 200,000 entries that takes a tenth of a second: benchmarks/search.py.

Guarantee: what a user has typed is a value in a query and never a pattern.
"""

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, column, exists, extract, func, literal, select

from spamfilter.bayes.labels import NOBODYS
from spamfilter.stores.journal import UNJUDGED, JournalEntry, Wanted
from spamfilter.stores.schema import journal, ledger
from spamfilter.stores.sql.database import Database
from spamfilter.stores.sql.dialects import has_text, json_elements, unindexed
from spamfilter.stores.sql.journal import SUMMARY, journal_entry_of, of_host
from spamfilter.stores.sql.queries import only_active


class SqlSearch(Database):
    """The methods of `stores.journal.Journal` that search."""

    def search(self, wanted: Wanted, limit: int, before: str = "", after: str = "") -> list[JournalEntry]:
        id, unsure = journal.c.id, _class == "unsure"
        query = select(id).where(*_conditions(wanted)).order_by(id if after else id.desc())
        # Unsure first: two searches in the order of the index, instead of one that sorts all entries.
        parts = [query.where(unsure), query.where(~unsure)] if wanted.unsure_first else [query]
        place = before or after
        bound = id > after if after else id < before
        with self.reading() as connection:
            known = connection.scalar(select(unsure).where(id == place)) if place and wanted.unsure_first else None
            at = 0 if known else len(parts) - 1
            found: list[str] = []
            for number in range(at, -1, -1) if after else range(at if place else 0, len(parts)):
                part = parts[number].where(bound) if place and number == at else parts[number]
                found += connection.scalars(part.limit(limit - len(found)))
            rows = connection.execute(select(*SUMMARY).where(id.in_(found)))
            entries = {row.id: journal_entry_of(row) for row in rows}
        return [entries[id] for id in (reversed(found) if after else found)]

    def number_found(self, wanted: Wanted) -> int:
        return self.number(select(func.count()).select_from(journal).where(*_conditions(wanted)))


# With an index of these columns SQLite would read the rows of half of all mail.
_class, _at = unindexed(journal.c["class"]), unindexed(journal.c.at)


def _conditions(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    if wanted.class_ == "judged":
        yield _class != UNJUDGED
    elif wanted.class_:
        yield _class == wanted.class_
    if wanted.action:
        yield journal.c.action == wanted.action
    if wanted.sender:
        yield _has_address(journal.c.sender, wanted.sender)
    if wanted.recipient:
        # The first condition is only for speed: it spares most entries the second. JSON's escapes have no other case.
        if wanted.recipient.isascii():
            yield has_text(cast(journal.c.recipients, Text), json.dumps(wanted.recipient.strip("<>"))[1:-1])
        each = json_elements(journal.c.recipients).table_valued(column("value", Text))
        yield exists(select(each.c.value).where(_has_address(each.c.value, wanted.recipient)))
    for word in wanted.subject.split():
        yield has_text(journal.c.subject, word)
    if wanted.client_address:
        yield journal.c.client == wanted.client_address
    elif wanted.client:
        yield has_text(journal.c.client, wanted.client)
    if wanted.message_id:
        yield journal.c.message_id.in_(wanted.message_ids)
    if wanted.reply_code:
        yield journal.c.reply.startswith(wanted.reply_code, autoescape=True)
    elif wanted.reply:
        yield has_text(journal.c.reply, wanted.reply)
    if wanted.since is not None:
        yield _at >= wanted.since
    if wanted.until is not None:
        yield _at < wanted.until
    if wanted.hour is not None:
        yield extract("hour", journal.c.at) == wanted.hour
    if wanted.least > 0:
        yield journal.c.score >= wanted.least
    if wanted.most < 1:
        yield journal.c.score <= wanted.most
    yield from of_host(wanted.host)
    if wanted.marked:
        by_people = ledger.c.label == wanted.marked, ledger.c.source.not_in(NOBODYS)
        yield journal.c.digest.in_(only_active(select(ledger.c.digest)).where(*by_people))


def _has_address(address: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    return has_text(literal("<").concat(address).concat(">"), part)
