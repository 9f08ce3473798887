"""The host of each entry of the journal: several relays may share one database."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import TEXT

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("journal", sa.Column("host", TEXT, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("journal", "host")
