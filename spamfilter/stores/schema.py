"""The tables, as SQLAlchemy Core metadata, and their column types for numbers, texts, times and tokens.

Invariant: this metadata equals what the migrations make; a test compares them, on each kind of database.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
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
    UniqueConstraint,
    text,
)

from spamfilter.bayes.token_codec import Packed, pack, pack_seen
from spamfilter.bayes.voices import VoiceTokens

HEAD = "0012"
"""The newest revision under migrations/; here too, so that a command can check it without loading Alembic."""
NEWER = f"made by a newer version (schema {{}}, this one knows {HEAD})"
"""What is wrong with a database of a newer revision, which stands in place of {}."""
OTHER = "another schema: run `spamfilter migrate`, or upgrade and restart the relay"
"""What is wrong where a table or a column is missing: another version has changed them meanwhile."""


ESCAPE, NUL, ESCAPED = "\x1a", "\x1a0", "\x1a1"


class AnyText(TypeDecorator[str]):
    """Text of a PostgreSQL that may hold NUL, which PostgreSQL's own cannot; compared by its bytes, as in SQLite."""

    impl = Text
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(collation="C")

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (ESCAPE not in value and "\0" not in value):
            return value
        return value.replace(ESCAPE, ESCAPED).replace("\0", NUL)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or ESCAPE not in value:
            return value
        return value.replace(NUL, "\0").replace(ESCAPED, ESCAPE)


TEXT = Text().with_variant(AnyText(), "postgresql")
INTEGER = Integer().with_variant(BigInteger(), "postgresql")
"""64 bits, as SQLite's."""


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
EDITION = "edition"
"""The setting that names the edition of the counts that judges; without it that is edition 0. A rebuilding writes the
next edition, and then changes the setting."""
_UNDOING = text("undoes IS NOT NULL")
_DEFERRED = text("reply >= '4' AND reply < '5'")


def _table(name: str, *columns: Any, **options: Any) -> Table:
    return Table(name, metadata, *columns, **options)


def _counts(name: str, *columns: Any, **options: Any) -> Table:
    """A table of counts by edition and voice."""
    key = Column("edition", INTEGER, primary_key=True), Column("voice", TEXT, primary_key=True)
    return _table(name, *key, *columns, **options)


words = _counts(
    "words",
    Column("word", TEXT, primary_key=True),
    Column("ham", INTEGER, nullable=False),
    Column("spam", INTEGER, nullable=False),
    CheckConstraint("ham >= 0 AND spam >= 0", name="words_not_negative"),
    sqlite_with_rowid=False,
)
classes = _counts(
    "classes",
    Column("class", TEXT, primary_key=True),
    Column("messages", INTEGER, nullable=False),
    Column("words", INTEGER, nullable=False),
    CheckConstraint("messages >= 0 AND words >= 0", name="classes_not_negative"),
)
vocabularies = _counts("vocabularies", Column("words", INTEGER, nullable=False))
tallies = _counts(
    "tallies",
    Column("class", TEXT, primary_key=True),
    Column("count", INTEGER, primary_key=True),
    Column("words", INTEGER, nullable=False),
    CheckConstraint("count > 0 AND words >= 0", name="tallies_not_negative"),
)
ledger = _table(
    "ledger",
    Column("id", INTEGER, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("label", TEXT, nullable=False),
    Column("tokens", PackedTokens),
    Column("source", TEXT, nullable=False),
    Column("by", TEXT, nullable=False),
    Column("undoes", INTEGER, ForeignKey("ledger.id")),
    Index("ledger_digest", "digest"),
    # Partial, or SQLite would use the index for "undoes IS NULL", which nearly all entries are.
    Index("ledger_undoes", "undoes", unique=True, sqlite_where=_UNDOING, postgresql_where=_UNDOING),
    # With all columns that a report counts, so that it reads no row, where the tokens are.
    Index("ledger_at", "at", "source", "by", "label", "digest", "undoes"),
    sqlite_autoincrement=True,
)
amounts = _table(
    "amounts",
    Column("entry", INTEGER, ForeignKey("ledger.id", ondelete="CASCADE"), primary_key=True),
    Column("edition", INTEGER, primary_key=True),
    Column("added", JSON, nullable=False),
    Column("calibrated", JSON, nullable=False),
    sqlite_with_rowid=False,
)
"""What the entries of the ledger add to the counts of an edition; those without a row add nothing."""
journal = _table(
    "journal",
    Column("id", TEXT, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("message_id", TEXT, nullable=False),
    Column("sender", TEXT, nullable=False),
    Column("recipients", JSON, nullable=False),
    Column("subject", TEXT, nullable=False),
    Column("size", INTEGER, nullable=False),
    Column("client", TEXT, nullable=False),
    Column("log_odds", Float, nullable=False),
    Column("score", Float, nullable=False),
    Column("class", TEXT, nullable=False),
    Column("action", TEXT, nullable=False),
    Column("reply", TEXT, nullable=False),
    Column("judge_us", INTEGER, nullable=False),
    Column("total_us", INTEGER, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("tokens", PackedView),
    Column("listed", TEXT, nullable=False, server_default=text("''")),
    Column("host", TEXT, nullable=False, server_default=text("''")),
    Index("journal_at", "at"),
    Index("journal_class", "class", "at"),
    Index("journal_digest", "digest"),
    # With the id, or the latest entries of a Message-ID that a sender repeats would be sorted out of all of them.
    Index("journal_message_id", "message_id", "id").ddl_if(dialect="sqlite"),
    # An index of PostgreSQL holds no text that is longer than 2,700 bytes, but the hash of any.
    Index("journal_message_id", "message_id", postgresql_using="hash").ddl_if(dialect="postgresql"),
    # Few entries, which an outage of the next hop is found by.
    Index("journal_put_off", "at", "reply", sqlite_where=_DEFERRED).ddl_if(dialect="sqlite"),
    Index("journal_put_off", "at", postgresql_where=_DEFERRED).ddl_if(dialect="postgresql"),
    # What a search looks at, in the order of its list, so that it reads no row, where evidence and tokens are. Not on
    # PostgreSQL, for the length of the texts; it keeps long evidence and tokens outside of the row.
    Index(
        "journal_search", "id", "at", "class", "action", "score", "client", "sender", "subject", "reply", "recipients"
    ).ddl_if(dialect="sqlite"),
)
rules = _table(
    "rules",
    Column("kind", TEXT, nullable=False),
    Column("what", TEXT, nullable=False),
    Column("whom", TEXT, nullable=False),
    Column("expires", Utc),
    Column("by", TEXT, nullable=False),
    Column("at", Utc, nullable=False),
    Column("note", TEXT, nullable=False),
    Column("id", INTEGER, primary_key=True),
    UniqueConstraint("what", "whom", name="rules_what_whom"),
    sqlite_autoincrement=True,
)
former_rules = _table(
    "former_rules",
    *(Column(one.name, one.type, primary_key=one.primary_key, nullable=one.nullable) for one in rules.columns),
    Column("ended", Utc, nullable=False),
    Column("ended_by", TEXT, nullable=False),
    Column("ending", TEXT, nullable=False),
)
summaries = _table("summaries", Column("day", Date, primary_key=True), Column("body", JSON, nullable=False))
quarantine_events = _table(
    "quarantine_events",
    Column("id", INTEGER, primary_key=True),
    Column("mail", TEXT, nullable=False),
    Column("at", Utc, nullable=False),
    Column("outcome", TEXT, nullable=False),
    Column("recipients", JSON, nullable=False),
    Column("by", TEXT, nullable=False),
    Index("quarantine_events_mail", "mail"),
)
settings = _table("settings", Column("name", TEXT, primary_key=True), Column("value", JSON, nullable=False))
