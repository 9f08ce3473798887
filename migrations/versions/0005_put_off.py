"""An index of what was put off, by which an outage is found."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    deferred = sa.text("reply >= '4' AND reply < '5'")
    columns = ["at"] if op.get_bind().dialect.name == "postgresql" else ["at", "reply"]
    op.create_index("journal_put_off", "journal", columns, sqlite_where=deferred, postgresql_where=deferred)


def downgrade() -> None:
    op.execute("DELETE FROM journal WHERE class = 'unjudged'")
    op.drop_index("journal_put_off", "journal")
