"""The tables, as SQLAlchemy Core metadata, and the two column types of our own.

Invariant: this metadata equals what the migrations make; a test compares them.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    text,
)

from spamfilter.bayes.voices import Packed, VoiceTokens, pack, pack_seen

HEAD = "0004"
"""The newest revision under migrations/; kept here so that a command need not load Alembic to check."""


class Utc(TypeDecorator[datetime]):
    """A moment in UTC; a datetime without a time zone is refused."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs a time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class PackedTokens(TypeDecorator[VoiceTokens]):
    """Tokens of a message by voice, packed; they are unpacked when they are asked for."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: VoiceTokens | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> VoiceTokens | None:
        return None if value is None else Packed(value)


class PackedView(PackedTokens):
    """As PackedTokens; what is seen of a message, as long as it need not be exact for ever, by the message itself."""

    cache_ok = True

    def process_bind_param(self, value: VoiceTokens | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack_seen(value)


metadata = MetaData()


def _table(name: str, *columns: Any, **options: Any) -> Table:
    return Table(name, metadata, *columns, **options)


words = _table(
    "words",
    Column("voice", Text, primary_key=True),
    Column("word", Text, primary_key=True),
    Column("ham", Integer, nullable=False),
    Column("spam", Integer, nullable=False),
    Column("touched", Integer, nullable=False),
    CheckConstraint("ham >= 0 AND spam >= 0", name="words_not_negative"),
    sqlite_with_rowid=False,
)
classes = _table(
    "classes",
    Column("voice", Text, primary_key=True),
    Column("class", Text, primary_key=True),
    Column("messages", Integer, nullable=False),
    Column("words", Integer, nullable=False),
    CheckConstraint("messages >= 0 AND words >= 0", name="classes_not_negative"),
)
vocabularies = _table(
    "vocabularies",
    Column("voice", Text, primary_key=True),
    Column("words", Integer, nullable=False),
)
tallies = _table(
    "tallies",
    Column("voice", Text, primary_key=True),
    Column("class", Text, primary_key=True),
    Column("count", Integer, primary_key=True),
    Column("words", Integer, nullable=False),
    CheckConstraint("count > 0 AND words >= 0", name="tallies_not_negative"),
)
ledger = _table(
    "ledger",
    Column("id", Integer, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("label", Text, nullable=False),
    Column("added", JSON, nullable=False),
    Column("calibrated", JSON, nullable=False),
    Column("tokens", PackedTokens),
    Column("source", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("undoes", Integer, ForeignKey("ledger.id")),
    Index("ledger_digest", "digest"),
    # Partial, or SQLite takes "undoes IS NULL" for a narrow search and reads the whole ledger.
    Index("ledger_undoes", "undoes", unique=True, sqlite_where=text("undoes IS NOT NULL")),
    # With what a report counts of a learning, so that it reads none of their tokens.
    Index("ledger_at", "at", "source", "by", "label", "digest", "undoes"),
    sqlite_autoincrement=True,
)
journal = _table(
    "journal",
    Column("id", Text, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("message_id", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("recipients", JSON, nullable=False),
    Column("subject", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("client", Text, nullable=False),
    Column("log_odds", Float, nullable=False),
    Column("score", Float, nullable=False),
    Column("class", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Column("judge_us", Integer, nullable=False),
    Column("total_us", Integer, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("tokens", PackedView),
    Index("journal_at", "at"),
    Index("journal_class", "class", "at"),
    Index("journal_digest", "digest"),
    # With the id, or the latest few of a Message-ID that a sender repeats are sought among all of its entries.
    Index("journal_message_id", "message_id", "id"),
)
summaries = _table(
    "summaries",
    Column("day", Date, primary_key=True),
    Column("body", JSON, nullable=False),
)
settings = _table(
    "settings",
    Column("name", Text, primary_key=True),
    Column("value", JSON, nullable=False),
)
