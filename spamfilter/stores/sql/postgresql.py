"""Connections to PostgreSQL by psycopg 3, and its errors as ours.

Guarantee: writers wait for each other, as in SQLite, by a lock that they hold to the end of their transaction, so no
two of them can deadlock; it works behind pgbouncer in transaction mode, too. A reader sees one moment of the database.
A server that does not answer is given up; one that cannot be connected is left alone for a moment. No text of an error
has a password.
"""

import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from spamfilter.errors import CountError, StoreBusy, StoreConflict, StoreDamaged, StoreError, StoreFull, StoreRefused
from spamfilter.stores.schema import OTHER

CONNECT_SECONDS = 10
RETRY_SECONDS = 2.0
"""After a connection that failed, or a server that was given up, none is tried for so long; what needs one then fails
with the same error. A relay asks the database many times a second, and at each try libpq may write a line to the log,
and the server, too."""
ANSWER_SECONDS = 30.0
"""A server that says nothing for so long is gone or stopped: half of the supervisor's patience with a process that
hangs. A rebuild of a large database sends many statements and may take longer; a migration waits for each."""
STATEMENT_SECONDS = 25.0
"""The server itself ends a statement of a writer after so long: one that we gave up would go on, and hold the lock."""
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""By these a migration notices that its server is gone, after a minute."""
LOCK = 0x7370616D
"""The number of the writers' lock, an advisory lock of this database."""
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {}"
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {};"
    " SELECT pg_advisory_xact_lock({})"
)
"""The lock is a statement before those of the caller, each of which sees what was committed before it began. Under
another isolation a writer would see the database as it was before it waited: ids of the ledger would collide."""
PLACE = """(SELECT oid FROM pg_database WHERE datname = current_database()), CASE WHEN pg_is_in_recovery()
    THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"""
"""The database, and the server's timeline, which grows when a standby is promoted. Of a running server, because the
control file names the old timeline until the checkpoint after the promotion."""
SYSTEM = "SELECT current_setting('server_encoding'), (SELECT system_identifier FROM pg_control_system())"

MEANT: dict[str, tuple[type[StoreError], str]] = {
    "25P04": (StoreBusy, "{}; raise the server's transaction_timeout, or try again"),
    "23514": (CountError, "{}: the counts do not hold what was to be taken away"),  # the tables' only checks
    "25006": (StoreError, "the server is read-only, a standby for instance; name the primary in [store] url"),
    "40001": (StoreConflict, "{}; try again"),  # serialization_failure, deadlock_detected: writers of ours wait for
    "40P01": (StoreConflict, "{}; try again"),  # each other before they lock a row; other programs may not
    "42703": (StoreError, f"{{}}; {OTHER}"),
    "42P01": (StoreError, f"{{}}; {OTHER}"),
    "42501": (StoreError, "{}; the user of [store] url must own the tables"),
    "53100": (StoreFull, "{}; make room on the server's disk"),
    "55P03": (StoreBusy, "another process holds the database; try again"),  # lock_not_available
    "57014": (StoreBusy, "{}; try again"),  # query_canceled: too long, or ended by an administrator
    "XX001": (StoreDamaged, "{}; keep the data folder, and restore a backup"),
    "XX002": (StoreDamaged, "{}; keep the data folder, and restore a backup"),
}
"""Code of an error -> what it means, with the server's words in place of {}."""
AWAY = ("08", "57P", "53300", "25P03", "25P04")
"""The connection is lost or over its time, the server is shutting down or starting, or has too many connections."""
PASSWORD = ("authentication failed", "no password supplied")
NO_PASSWORD = ("Ident", "GSSAPI", "SSPI", "certificate", "OAuth", '"trust"')
"""Methods of authentication that ask for no password."""
REFUSED = (*PASSWORD, "no pg_hba.conf entry", "does not exist")
"""What a server says that is well and refuses the connection."""
WRONG = ("does not exist", "Peer authentication failed")
"""Refusals that mean another role, database or user than the right one: trying again does not help. All others end once
an administrator has mended a password or the server's rules, which happens while relays run."""
SILENT = "the server does not answer"
BROKEN = (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError)
"""What the driver raises if a connection breaks: with a code of AWAY, or none if it could not read the answer."""
STANDBY = ("session is read-only", "server is in hot standby mode")
"""What a failed connection says of a server that answers, but that `target_session_attrs` of the URL does not want."""
LISTED = "All failures were:\n"
"""After this psycopg lists the failures of several servers or addresses; before it is the last one."""
LISTED_HOST = re.compile(r"- host: (?:None|'([^']*)'), port: (?:None|'([^']*)'), hostaddr: (?:None|'([^']*)'): (.*)")
FAILED = re.compile(r'connection to server (?:at|on socket) "([^"]*)"[^"]*? failed: (?:FATAL: |fe_sendauth: )? *(.*)')
"""How libpq names the address of a server and the reason."""

logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each batch that fails, which we say once
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # it replaces a connection that broke, as we said


class _Patient(psycopg.Connection[Any]):
    """A connection that waits for a silent server only so many seconds."""

    patience = ANSWER_SECONDS

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        end = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    end = time.monotonic() + self.patience
                elif time.monotonic() > end:
                    self.pgconn.finish()  # what it says later must not be taken for the next answer
                    raise psycopg.OperationalError(SILENT)
                wanted = gen.send(ready)
        except StopIteration as end_of_it:
            return end_of_it.value


def connect(
    url: URL, where: str, busy_seconds: float, replaced: Callable[[], None]
) -> tuple[Engine, Callable[[str], Sequence[Any]]]:
    """An engine for this URL, and what asks for one row as `Database.row` does. where: its name in messages.

    replaced: called when the database is another one than at the transaction before, as after a fail-over or when a
    backup was put in its place. Each transaction looks, because a pooler keeps our connection when the server behind it
    changes.
    """
    try:
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_pre_ping=True,
            paramstyle="format",
            hide_parameters=True,  # they are words of mail
            use_native_hstore=False,
            # The server of a name prepared earlier may be another one behind pgbouncer.
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "spamfilter"}
            | KEEPALIVES
            | dict(url.query)
            | {"client_encoding": "utf8", "prepare_threshold": None},
        )
    except (ArgumentError, TypeError) as error:
        raise StoreError(f"{where}: {error}") from error
    system: list[object] = []
    place: list[object] = []
    failed, failed_at = StoreError(where), -math.inf

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: object, record: object, args: Any, options: Any) -> Any:
        nonlocal failed, failed_at
        if time.monotonic() < failed_at + RETRY_SECONDS:
            raise type(failed)(*failed.args)
        try:
            return _Patient.connect(*args, **options)
        except psycopg.OperationalError as error:
            failed, failed_at = _not_connected(where, str(error), options), time.monotonic()
            raise type(failed)(*failed.args) from error

    @event.listens_for(engine, "connect")
    def _connected(connection: psycopg.Connection[Any], record: object) -> None:
        connection.autocommit = True  # the driver must not begin transactions itself
        encoding, *found = connection.execute(SYSTEM).fetchone() or ("",)
        if encoding != "UTF8":
            connection.close()
            raise StoreError(f"{where}: has the encoding {encoding}; create it with ENCODING 'UTF8'")
        _compare(system, found)

    @event.listens_for(engine, "handle_error")
    def _failed(context: ExceptionContext) -> None:
        error = context.original_exception
        # The driver may think that the connection is well, and take what is left of an answer for the next one.
        context.is_disconnect |= _is_broken(error)
        if isinstance(error, psycopg.Error):
            _note(error)

    def _note(error: psycopg.Error) -> None:
        nonlocal failed, failed_at
        if str(error) == SILENT:
            failed, failed_at = meant(where, error), time.monotonic()  # a new connection would wait as long again

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        migrating = options.get("migrating", False)
        driver: Any = connection.connection.driver_connection
        driver.patience = math.inf if migrating else ANSWER_SECONDS
        limits = [round(1000 * seconds) for seconds in (busy_seconds, 0 if migrating else STATEMENT_SECONDS)]
        connection.exec_driver_sql((WRITE if options.get("writing") else READ).format(*limits, LOCK))
        _compare(place, list(connection.exec_driver_sql(f"SELECT {PLACE}").one()))

    def _row(columns: str) -> Sequence[Any]:
        text = f"{READ.format(round(1000 * busy_seconds))}; SELECT {PLACE}, {columns}; COMMIT"
        with closing(engine.raw_connection()) as connection:
            driver: Any = connection.driver_connection
            driver.patience = ANSWER_SECONDS
            try:
                answers = driver.execute(text)
            except psycopg.Error as error:
                if _is_broken(error):
                    connection.invalidate(error)
                _note(error)
                raise meant(where, error) from error
        while not answers.description:
            answers.nextset()
        row: Sequence[Any] = answers.fetchone()
        _compare(place, list(row[:2]))
        return row[2:]

    def _compare(known: list[object], found: list[object]) -> None:
        if known not in ([], found):
            replaced()
        known[:] = found

    return engine, _row


def meant(where: str, error: psycopg.Error) -> StoreError:
    """What an exception of the driver means, but for those of a connection that could not be made."""
    code = error.sqlstate or ""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if code in MEANT:
        kind, said = MEANT[code]
        return kind(f"{where}: {said.format(reason)}")
    if _is_broken(error):
        said = f"cannot be reached: {reason}" if code or reason == SILENT else "the connection broke"
        return StoreBusy(f"{where}: {said}; try again")
    return StoreError(f"{where}: {reason}")


def _is_broken(error: BaseException) -> bool:
    """Whether a connection broke, by an exception of the driver. Any other error of the server has a code."""
    return isinstance(error, BROKEN) and (not error.sqlstate or error.sqlstate.startswith(AWAY))


def _not_connected(where: str, text: str, options: Mapping[str, Any]) -> StoreError:
    """What it means that no connection could be made. options: those of the connection.

    Of several servers each is named with its reason. A refusal counts only if all that might be the wanted server
    refuse: while the primary is down, it is of no importance what a standby says.
    """
    by = "hostaddr" if options.get("hostaddr") else "host"
    reasons, named = _reasons(text, by), [host for host in str(options.get(by, "")).split(",") if host]
    if len(named) > max(1, len(reasons)):  # psycopg leaves out a host whose name is not found
        reasons["the other hosts"] = "not found"
    said = "; ".join(f"{host}: {reason}" for host, reason in reasons.items())
    wanted = [reason for reason in reasons.values() if reason not in STANDBY]
    if not wanted or not all(map(_refuses, wanted)):
        first = text.partition("\n")[0].removeprefix("connection failed: ").removeprefix("connection is bad: ")
        return StoreBusy(f"{where}: cannot be reached: {said if len(reasons) > 1 else first}; try again")
    if len(reasons) == 1:
        (said,) = wanted
    kind = StoreError if all(_says(WRONG, reason) for reason in wanted) else StoreRefused
    return kind(f"{where}: {said}; {_advice(said, options)}")


def _advice(said: str, options: Mapping[str, Any]) -> str:
    """What to do about a refusal."""
    if said.startswith("Peer"):
        return "run this as that user, or let root in, as docs/postgresql.md does"
    file = options.get("passfile") or os.environ.get("PGPASSFILE")
    if "password" in options or _says(NO_PASSWORD, said) or not _says(PASSWORD, said):
        return "see [store] url"
    if os.environ.get("PGPASSWORD"):
        return f"see PGPASSWORD in the environment, which overrides {file or 'a passfile'}"
    return f"see {file}, which must have mode 0600 and a line for this server and user" if file else "see [store] url"


def _reasons(text: str, by: str) -> dict[str, str]:
    """Host -> why it was not connected, from the text of psycopg's error. by: what names the hosts, host or hostaddr.

    Of the addresses of a host one that refuses counts, as where `localhost` has two and the server listens on one. An
    address that is tried with TLS and without refuses only if it does so both times.
    """
    tries: dict[str, dict[str, list[str]]] = {}
    host = ""
    for line in (text.partition(LISTED)[2] or text).splitlines():
        if listed := LISTED_HOST.match(line):
            name, port, address, reason = listed.groups()
            host = ":".join(part for part in (address if by == "hostaddr" else name, port) if part)
        if failed := FAILED.search(line):
            tries.setdefault(host or failed[1], {}).setdefault(failed[1], []).append(failed[2])
        elif listed:
            tries.setdefault(host, {}).setdefault("", []).append(reason)
    each = {host: [min(said, key=_refuses) for said in addresses.values()] for host, addresses in tries.items()}
    return {host: next(filter(_refuses, said), said[-1]) for host, said in each.items()}


def _refuses(reason: str) -> bool:
    return _says(REFUSED, reason)


def _says(any_of: Collection[str], reason: str) -> bool:
    return any(words in reason for words in any_of)
