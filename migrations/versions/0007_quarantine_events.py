"""What became of the mails in quarantine, remembered when their files are gone."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "quarantine_events",
        sa.Column("id", INTEGER, primary_key=True),
        sa.Column("mail", TEXT, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("recipients", sa.JSON, nullable=False),
        sa.Column("by", TEXT, nullable=False),
    )
    op.create_index("quarantine_events_mail", "quarantine_events", ["mail"])


def downgrade() -> None:
    op.drop_table("quarantine_events")
