"""Brings a database to another version of the schema, by the Alembic scripts under migrations/."""

from contextlib import closing

from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from spamfilter.errors import StoreBusy, StoreError
from spamfilter.stores.schema import HEAD, NEWER
from spamfilter.stores.sql.database import Database
from spamfilter.system.packaged_files import shipped


def migrate(url: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade, or downgrade to an older `revision` ('base': no tables); returns the revisions before and after.

    The change of the tables and the record of it are one transaction. Raises StoreError if the database is newer than
    this program.
    """
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    with closing(Database(url)) as database:
        before = database.revision()
        if before is not None and before > HEAD:
            raise StoreError(f"{database.where}: {NEWER.format(before)}")
        back = revision == "base" or (revision != "head" and revision < (before or ""))
        try:
            with database.writing(migrating=True) as connection:
                config.attributes["connection"] = connection
                (command.downgrade if back else command.upgrade)(config, revision)
        except StoreBusy:
            raise
        except (CommandError, StoreError) as error:
            reason = str(error).removeprefix(f"{database.where}: ")
            kind = type(error) if isinstance(error, StoreError) else StoreError  # a full disk is tried again
            raise kind(f"{database.where}: cannot migrate from {before} to {revision}: {reason}") from error
        return before, database.revision()
