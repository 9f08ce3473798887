"""Without the last ledger entry that has changed a word, which nothing has ever read."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.drop_column("words", "touched")


def downgrade() -> None:
    op.add_column("words", sa.Column("touched", INTEGER, nullable=False, server_default="0"))
