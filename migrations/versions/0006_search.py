"""An index with what a search of the journal looks at."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        return  # its indexes hold no text of any length
    columns = ["id", "at", "class", "action", "score", "client", "sender", "subject", "reply", "recipients"]
    op.create_index("journal_search", "journal", columns)


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        op.drop_index("journal_search", "journal")
