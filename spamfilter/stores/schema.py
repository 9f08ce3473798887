"""The tables, as SQLAlchemy Core metadata, and their column types for times and tokens.

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
"""The newest revision under migrations/; here too, so that a command can check it without loading Alembic."""


class Utc(TypeDecorator[datetime]):
    """A time in UTC. Raises ValueError for a datetime without a time zone."""

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
    """Tokens of a message by voice, packed; unpacked at the first access."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: VoiceTokens | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> VoiceTokens | None:
        return None if value is None else Packed(value)


class PackedView(PackedTokens):
    """As PackedTokens, but where it can be the message is packed, from which later versions may find other tokens."""

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
    # Partial, or SQLite would use the index for "undoes IS NULL", which nearly all entries are.
    Index("ledger_undoes", "undoes", unique=True, sqlite_where=text("undoes IS NOT NULL")),
    # With all columns that a report counts, so that it reads no row, where the tokens are.
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
    # With the id, or the latest entries of a Message-ID that a sender repeats would be sorted out of all of them.
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
