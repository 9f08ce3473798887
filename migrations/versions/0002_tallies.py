"""How many words have each count, for likelihoods that speak of absent words."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

HAM = """INSERT INTO tallies (voice, class, count, words)
    SELECT voice, 'ham', ham, count(*) FROM words WHERE voice = :voice AND ham > 0 GROUP BY voice, ham"""
SPAM = """INSERT INTO tallies (voice, class, count, words)
    SELECT voice, 'spam', spam, count(*) FROM words WHERE voice = :voice AND spam > 0 GROUP BY voice, spam"""


def upgrade() -> None:
    op.create_table(
        "tallies",
        sa.Column("voice", sa.Text, primary_key=True),
        sa.Column("class", sa.Text, primary_key=True),
        sa.Column("count", sa.Integer, primary_key=True),
        sa.Column("words", sa.Integer, nullable=False),
        sa.CheckConstraint("count > 0 AND words >= 0", name="tallies_not_negative"),
    )
    # Those who come back from this revision have learnt meanwhile.
    bind = op.get_bind()
    rules = bind.scalar(sa.text("SELECT value FROM settings WHERE name = 'rules'"))
    for voice, likelihood in json.loads(rules)["voices"].items() if rules else ():
        if likelihood in ("bernoulli", "binomial", "complement"):
            for counting in (HAM, SPAM):
                bind.execute(sa.text(counting), {"voice": voice})


def downgrade() -> None:
    op.drop_table("tallies")
