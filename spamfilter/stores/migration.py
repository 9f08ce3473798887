"""Bring a database to the newest schema, by the Alembic scripts that are shipped with the package."""

from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from spamfilter.errors import StoreBusy, StoreError
from spamfilter.stores.sql import SqlStore, store_errors
from spamfilter.system.packaged_files import shipped


def migrate(url: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade, or downgrade to an older `revision` ('base': no tables); returns the revisions before and after.

    The change of the tables and the record of it are one transaction. Raises StoreError where the
    database is newer than this program.
    """
    store = SqlStore(url)
    try:
        before = store.revision()
        try:
            with store_errors(store.where):
                _run(store, before, revision)
        except StoreBusy:
            raise
        except (CommandError, StoreError) as error:
            reason = str(error).removeprefix(f"{store.where}: ")
            raise StoreError(f"{store.where}: cannot migrate from {before} to {revision}: {reason}") from error
        return before, store.revision()
    finally:
        store.close()


def _run(store: SqlStore, before: str | None, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    back = revision == "base" or (revision != "head" and revision < (before or ""))
    with store.engine.connect() as connection:
        connection = connection.execution_options(begin="BEGIN IMMEDIATE")
        with connection.begin():
            config.attributes["connection"] = connection
            (command.downgrade if back else command.upgrade)(config, revision)
