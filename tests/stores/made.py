"""Ledger entries as a filter writes them, for tests of stores."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime

from spamfilter.bayes.counts import Growth
from spamfilter.bayes.labels import Label
from spamfilter.stores import Entry, Learning, Store, open_store
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql.database import Database
from tests.support.made import NOON

STEP = (5, -3, 2, 1)
GREEN = "grün".encode()


def entry(number: int, label: Label = "spam", undoes: int | None = None, at: datetime = NOON) -> Entry:
    tokens = {"fields": {b"a": 1, GREEN: 2, b"number:%d" % number: 1}}
    return Entry(label, {"fields": 8}, STEP, tokens, at, b"%016d" % number, "cli", "ann", undoes)


def write(learning: Learning, entry: Entry, vocabulary: int = 0, messages: int = 1) -> Entry:
    """Write an entry and its counts, as a filter does."""
    sign = -1 if entry.undoes else 1
    deltas = dict.fromkeys(entry.tokens["fields"], 8 * sign)
    written = learning.append(entry)
    learning.change("fields", entry.message_label, deltas, sign * messages, Growth(vocabulary))
    return written


def learn(store: Store, *entries: Entry, vocabulary: int = 0) -> list[Entry]:
    with store.learning() as learning:
        return [write(learning, entry, vocabulary) for entry in entries]


def open_at_once(url: str) -> None:
    """Open the store of a URL in four threads at the same time, each of which must find the newest tables."""

    def tables(_: int) -> str | None:
        with closing(open_store(url)), closing(Database(url)) as database:
            return database.revision()

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(tables, range(4))] == [HEAD] * 4
