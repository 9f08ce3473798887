"""The first tables: words, classes, vocabularies, ledger, journal, settings."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "words",
        sa.Column("voice", TEXT, primary_key=True),
        sa.Column("word", TEXT, primary_key=True),
        sa.Column("ham", INTEGER, nullable=False),
        sa.Column("spam", INTEGER, nullable=False),
        sa.Column("touched", INTEGER, nullable=False),
        sa.CheckConstraint("ham >= 0 AND spam >= 0", name="words_not_negative"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "classes",
        sa.Column("voice", TEXT, primary_key=True),
        sa.Column("class", TEXT, primary_key=True),
        sa.Column("messages", INTEGER, nullable=False),
        sa.Column("words", INTEGER, nullable=False),
        sa.CheckConstraint("messages >= 0 AND words >= 0", name="classes_not_negative"),
    )
    op.create_table(
        "vocabularies",
        sa.Column("voice", TEXT, primary_key=True),
        sa.Column("words", INTEGER, nullable=False),
    )
    op.create_table(
        "ledger",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("label", TEXT, nullable=False),
        sa.Column("added", sa.JSON, nullable=False),
        sa.Column("calibrated", sa.JSON, nullable=False),
        sa.Column("tokens", sa.LargeBinary),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("undoes", INTEGER, sa.ForeignKey("ledger.id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ledger_digest", "ledger", ["digest"])
    undoing = sa.text("undoes IS NOT NULL")
    op.create_index("ledger_undoes", "ledger", ["undoes"], unique=True, sqlite_where=undoing, postgresql_where=undoing)
    op.create_index("ledger_at", "ledger", ["at"])
    op.create_table(
        "journal",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("sender", TEXT, nullable=False),
        sa.Column("recipients", sa.JSON, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("size", INTEGER, nullable=False),
        sa.Column("client", TEXT, nullable=False),
        sa.Column("log_odds", sa.Float, nullable=False),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("class", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("reply", TEXT, nullable=False),
        sa.Column("judge_us", INTEGER, nullable=False),
        sa.Column("total_us", INTEGER, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
        sa.Column("tokens", sa.LargeBinary),
    )
    op.create_index("journal_at", "journal", ["at"])
    op.create_index("journal_digest", "journal", ["digest"])
    op.create_table(
        "settings",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    for table in ("settings", "journal", "ledger", "vocabularies", "classes", "words"):
        op.drop_table(table)
