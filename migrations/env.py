"""Alembic's entry: runs on the connection and in the transaction of whoever migrates."""

from alembic import context

from spamfilter.stores.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
