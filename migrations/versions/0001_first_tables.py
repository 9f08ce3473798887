"""The first tables: words, classes, vocabularies, ledger, journal, settings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "words",
        sa.Column("voice", sa.Text, primary_key=True),
        sa.Column("word", sa.Text, primary_key=True),
        sa.Column("ham", sa.Integer, nullable=False),
        sa.Column("spam", sa.Integer, nullable=False),
        sa.Column("touched", sa.Integer, nullable=False),
        sa.CheckConstraint("ham >= 0 AND spam >= 0", name="words_not_negative"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "classes",
        sa.Column("voice", sa.Text, primary_key=True),
        sa.Column("class", sa.Text, primary_key=True),
        sa.Column("messages", sa.Integer, nullable=False),
        sa.Column("words", sa.Integer, nullable=False),
        sa.CheckConstraint("messages >= 0 AND words >= 0", name="classes_not_negative"),
    )
    op.create_table(
        "vocabularies",
        sa.Column("voice", sa.Text, primary_key=True),
        sa.Column("words", sa.Integer, nullable=False),
    )
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("added", sa.JSON, nullable=False),
        sa.Column("calibrated", sa.JSON, nullable=False),
        sa.Column("tokens", sa.LargeBinary),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("undoes", sa.Integer, sa.ForeignKey("ledger.id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ledger_digest", "ledger", ["digest"])
    op.create_index("ledger_undoes", "ledger", ["undoes"], unique=True, sqlite_where=sa.text("undoes IS NOT NULL"))
    op.create_index("ledger_at", "ledger", ["at"])
    op.create_table(
        "journal",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("recipients", sa.JSON, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("log_odds", sa.Float, nullable=False),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("class", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("judge_us", sa.Integer, nullable=False),
        sa.Column("total_us", sa.Integer, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
        sa.Column("tokens", sa.LargeBinary),
    )
    op.create_index("journal_at", "journal", ["at"])
    op.create_index("journal_digest", "journal", ["digest"])
    op.create_table(
        "settings",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    for table in ("settings", "journal", "ledger", "vocabularies", "classes", "words"):
        op.drop_table(table)
