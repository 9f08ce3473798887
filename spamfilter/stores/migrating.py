"""Bring a database to the newest schema, by the Alembic scripts that are shipped with the package."""

from alembic import command
from alembic.config import Config

from spamfilter.errors import StoreError
from spamfilter.shipped import shipped
from spamfilter.stores.sql import SqlStore


def migrate(url: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade, or downgrade to an older `revision` ('base': no tables); returns the revisions before and after.

    The change of the tables and the record of it are one transaction. Raises StoreError where the
    database is newer than this program.
    """
    store = SqlStore(url)
    try:
        before = store.revision()
        config = Config()
        config.set_main_option("script_location", str(shipped("migrations")))
        with store.engine.connect() as connection:
            connection = connection.execution_options(begin="BEGIN IMMEDIATE")
            with connection.begin():
                config.attributes["connection"] = connection
                back = revision == "base" or (revision != "head" and revision < (before or ""))
                move = command.downgrade if back else command.upgrade
                try:
                    move(config, revision)
                except Exception as error:
                    raise StoreError(f"{store.where}: cannot migrate from {before} to {revision}: {error}") from error
        return before, store.revision()
    finally:
        store.close()
