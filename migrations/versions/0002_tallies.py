"""How many words have each count, for likelihoods that speak of absent words."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "tallies",
        sa.Column("voice", sa.Text, primary_key=True),
        sa.Column("class", sa.Text, primary_key=True),
        sa.Column("count", sa.Integer, primary_key=True),
        sa.Column("words", sa.Integer, nullable=False),
        sa.CheckConstraint("count > 0 AND words >= 0", name="tallies_not_negative"),
    )


def downgrade() -> None:
    op.drop_table("tallies")
