"""Rules that allow or block senders, and in the journal which of them a mail met."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "rules",
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("whom", TEXT, nullable=False),
        sa.Column("expires", sa.DateTime),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("id", INTEGER, primary_key=True),
        sa.UniqueConstraint("what", "whom", name="rules_what_whom"),
        sqlite_autoincrement=True,
    )
    op.add_column("journal", sa.Column("listed", TEXT, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("journal", "listed")
    op.drop_table("rules")
