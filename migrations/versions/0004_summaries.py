"""What a day of the journal came to, for reports of long periods, and indexes that answer what reports ask."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "summaries", sa.Column("day", sa.Date, primary_key=True), sa.Column("body", sa.JSON, nullable=False)
    )
    op.create_index("journal_class", "journal", ["class", "at"])
    op.drop_index("ledger_at", "ledger")
    op.create_index("ledger_at", "ledger", ["at", "source", "by", "label", "digest", "undoes"])


def downgrade() -> None:
    op.drop_index("ledger_at", "ledger")
    op.create_index("ledger_at", "ledger", ["at"])
    op.drop_index("journal_class", "journal")
    op.drop_table("summaries")
