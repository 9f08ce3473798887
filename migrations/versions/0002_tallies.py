"""How many words have each count, for likelihoods that speak of absent words."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0002"
down_revision = "0001"

HAM = """INSERT INTO tallies (voice, class, count, words)
    SELECT voice, 'ham', ham, count(*) FROM words WHERE voice = :voice AND ham > 0 GROUP BY voice, ham"""
SPAM = """INSERT INTO tallies (voice, class, count, words)
    SELECT voice, 'spam', spam, count(*) FROM words WHERE voice = :voice AND spam > 0 GROUP BY voice, spam"""


def upgrade() -> None:
    op.create_table(
        "tallies",
        sa.Column("voice", TEXT, primary_key=True),
        sa.Column("class", TEXT, primary_key=True),
        sa.Column("count", INTEGER, primary_key=True),
        sa.Column("words", INTEGER, nullable=False),
        sa.CheckConstraint("count > 0 AND words >= 0", name="tallies_not_negative"),
    )
    # Those who come back from this revision have learnt meanwhile.
    bind = op.get_bind()
    rules = bind.scalar(sa.text("SELECT value FROM settings WHERE name = 'rules'").columns(value=sa.JSON))
    for voice, likelihood in rules["voices"].items() if rules else ():
        if likelihood in ("bernoulli", "binomial", "complement"):
            for counting in (HAM, SPAM):
                bind.execute(sa.text(counting), {"voice": voice})


def downgrade() -> None:
    op.drop_table("tallies")
