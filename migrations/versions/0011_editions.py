"""Counts and what entries add in editions, so that a rebuilding writes its own beside those that judge."""

import sqlalchemy as sa
from alembic import op

from spamfilter.stores.schema import INTEGER, TEXT

revision = "0011"
down_revision = "0010"

COUNTED = {
    "words": (["voice", "word"], ["ham", "spam", "touched"], "ham >= 0 AND spam >= 0"),
    "classes": (["voice", "class"], ["messages", "words"], "messages >= 0 AND words >= 0"),
    "vocabularies": (["voice"], ["words"], None),
    "tallies": (["voice", "class", "count"], ["words"], "count > 0 AND words >= 0"),
}
"""Table -> its key without the edition, its other columns, and what they must be."""
NUMBER = "(SELECT CAST(CAST(value AS TEXT) AS BIGINT) FROM settings WHERE name = 'edition')"
CURRENT = f"coalesce({NUMBER}, 0)"


def upgrade() -> None:
    for name, (key, others, check) in COUNTED.items():
        columns = ", ".join([*key, *others])
        rows = f"SELECT 0, {columns} FROM {name}_before"  # noqa: S608 - names of ours
        _make_anew(name, ["edition", *key], others, check, rows)
    op.create_table(
        "amounts",
        sa.Column("entry", INTEGER, sa.ForeignKey("ledger.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("edition", INTEGER, primary_key=True),
        sa.Column("added", sa.JSON, nullable=False),
        sa.Column("calibrated", sa.JSON, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO amounts SELECT id, 0, added, calibrated FROM ledger")
    op.drop_column("ledger", "added")
    op.drop_column("ledger", "calibrated")


def downgrade() -> None:
    for column, nothing in (("added", "{}"), ("calibrated", "[0, 0, 0, 0]")):
        op.add_column("ledger", sa.Column(column, sa.JSON, nullable=False, server_default=nothing))
        found = f"SELECT {column} FROM amounts WHERE entry = ledger.id AND edition = {CURRENT}"  # noqa: S608
        op.execute(f"UPDATE ledger SET {column} = coalesce(({found}), {column})")  # noqa: S608
    op.drop_table("amounts")
    for name, (key, others, check) in COUNTED.items():
        columns = ", ".join([*key, *others])
        rows = f"SELECT {columns} FROM {name}_before WHERE edition = {CURRENT}"  # noqa: S608
        _make_anew(name, key, others, check, rows)
    op.execute("DELETE FROM settings WHERE name IN ('edition', 'edition begun')")


def _make_anew(name: str, key: list[str], others: list[str], check: str | None, rows: str) -> None:
    """Make a table again with another key, and fill it. SQLite cannot change the key of a table."""
    op.execute(f"CREATE TABLE {name}_before AS SELECT * FROM {name}")  # noqa: S608 - its keys' names are free then
    op.drop_table(name)
    texts = ("voice", "word", "class")
    keys = [sa.Column(one, TEXT if one in texts else INTEGER, primary_key=True) for one in key]
    values = [sa.Column(one, INTEGER, nullable=False) for one in others]
    checks = [sa.CheckConstraint(check, name=f"{name}_not_negative")] if check else []
    op.create_table(name, *keys, *values, *checks, sqlite_with_rowid=name != "words")
    op.execute(f"INSERT INTO {name} {rows}")
    op.drop_table(f"{name}_before")
