"""Find judged mail by its Message-ID, when a copy comes back that was altered on its way."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # its indexes hold no text of any length, but hashes
        op.create_index("journal_message_id", "journal", ["message_id"], postgresql_using="hash")
    else:
        op.create_index("journal_message_id", "journal", ["message_id", "id"])


def downgrade() -> None:
    op.drop_index("journal_message_id", "journal")
