"""Searching the journal. What a user has typed is a value, and no pattern."""

from sqlalchemy import Connection, Select, select

from spamfilter.stores.schema import journal
from spamfilter.stores.sql.queries import SUMMARY, journal_entry_of
from spamfilter.stores.store import JournalEntry, Wanted


def search(connection: Connection, wanted: Wanted, limit: int, before: str) -> list[JournalEntry]:
    query = _matching(wanted).order_by(journal.c.id.desc())
    if not wanted.unsure_first:
        return _some(connection, query.where(journal.c.id < before) if before else query, limit)
    # Two searches, each along an index, instead of one that sorts all there is.
    unsure = journal.c["class"] == "unsure"
    within = connection.execute(select(unsure).where(journal.c.id == before)).scalar() if before else True
    found = []
    if within:
        some = query.where(unsure)
        found = _some(connection, some.where(journal.c.id < before) if before else some, limit)
        before = ""
    if len(found) < limit:
        others = query.where(~unsure)
        found += _some(connection, others.where(journal.c.id < before) if before else others, limit - len(found))
    return found


def _some(connection: Connection, query: Select[tuple[object, ...]], limit: int) -> list[JournalEntry]:
    return [journal_entry_of(row) for row in connection.execute(query.limit(limit))]


def _matching(wanted: Wanted) -> Select[tuple[object, ...]]:
    query: Select[tuple[object, ...]] = select(*SUMMARY)
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
