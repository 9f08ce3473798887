"""Rules on senders that have ended: undone, replaced or expired, by whom and when."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "former_rules",
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("whom", TEXT, nullable=False),
        sa.Column("expires", sa.DateTime),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("ended", sa.DateTime, nullable=False),
        sa.Column("ended_by", TEXT, nullable=False),
        sa.Column("ending", TEXT, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("former_rules")
