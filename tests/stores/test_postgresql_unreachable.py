"""A connection to PostgreSQL that cannot be made: which server said what, and whether trying again may help."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import psycopg
import pytest

from spamfilter.errors import StoreBusy, StoreError, StoreRefused
from spamfilter.stores import open_store
from spamfilter.stores.sql import postgresql
from spamfilter.stores.sql.database import Database
from tests.integration.servers import wait_until
from tests.load.process import paused
from tests.support.postgresql import KIND, ROLE, TEMPLATE, Server

REFUSED, NO_ENTRY = "Connection refused", 'no pg_hba.conf entry for host "10.0.0.2", user "spamfilter", no encryption'
WRONG_PASSWORD = 'password authentication failed for user "spamfilter"'
MISSING = 'database "made" does not exist'
FULL = "sorry, too many clients already"
STANDBY = "session is read-only"


def failed(address: str, reason: str, fatal: bool = True) -> str:
    """As libpq says it."""
    return f'connection to server at "{address}", port 5432 failed: {"FATAL:  " * fatal}{reason}'


def said(*tries: tuple[str, str]) -> str:
    """As psycopg lists several: host and what libpq said."""
    each = [(host, text if "time" in text else f"connection failed: {text}") for host, text in tries]
    listed = "".join(f"\n- host: '{host}', port: None, hostaddr: '10.0.0.1': {text}" for host, text in each)
    return f"{each[-1][1]}\nMultiple connection attempts failed. All failures were:{listed}"


DOWN = failed("10.0.0.1", REFUSED, fatal=False) + "\n\tIs the server running on that host and accepting connections?"
NO_PASSWORD = failed("10.0.0.1", "fe_sendauth: no password supplied", fatal=False)


@pytest.mark.parametrize(
    ("hosts", "text", "kind", "reason"),
    [
        pytest.param(
            "a,b",
            said(("a", DOWN), ("b", failed("10.0.0.2", NO_ENTRY))),
            StoreBusy,
            f"cannot be reached: a: {REFUSED}; b: {NO_ENTRY}; try again",
            id="the primary is down and the standby refuses the role",
        ),
        pytest.param(
            "a,b",
            said(("a", "connection timeout expired"), ("b", failed("10.0.0.2", STANDBY, fatal=False))),
            StoreBusy,
            f"cannot be reached: a: connection timeout expired; b: {STANDBY}; try again",
            id="the primary is paused",
        ),
        pytest.param(
            "a,b",
            said(("a", failed("10.0.0.1", FULL)), ("b", failed("10.0.0.2", STANDBY, fatal=False))),
            StoreBusy,
            f"cannot be reached: a: {FULL}; b: {STANDBY}; try again",
            id="the primary is full",
        ),
        pytest.param(
            "a,b",
            said(("a", failed("10.0.0.1", WRONG_PASSWORD)), ("b", failed("10.0.0.2", STANDBY, fatal=False))),
            StoreRefused,
            f"a: {WRONG_PASSWORD}; b: {STANDBY}; see [store] url",
            id="the primary refuses the role",
        ),
        pytest.param(
            "a,b",
            failed("10.0.0.2", NO_ENTRY),
            StoreBusy,
            f"cannot be reached: 10.0.0.2: {NO_ENTRY}; the other hosts: not found; try again",
            id="the name of one is not found",
        ),
        pytest.param(
            "localhost",
            said(("localhost", DOWN), ("localhost", failed("127.0.0.1", WRONG_PASSWORD))),
            StoreRefused,
            f"{WRONG_PASSWORD}; see [store] url",
            id="one of two addresses refuses the role",
        ),
        pytest.param(
            "a",
            failed("10.0.0.1", NO_ENTRY),
            StoreRefused,
            f"{NO_ENTRY}; see [store] url",
            id="the server has no rule for the role",
        ),
        pytest.param(
            "a,b",
            said(("a", failed("10.0.0.1", MISSING)), ("b", failed("10.0.0.2", NO_ENTRY))),
            StoreRefused,
            f"a: {MISSING}; b: {NO_ENTRY}; see [store] url",
            id="one lacks the database and the other refuses the role",
        ),
        pytest.param(
            "a,b",
            said(("a", failed("10.0.0.1", MISSING)), ("b", failed("10.0.0.2", STANDBY, fatal=False))),
            StoreError,
            f"a: {MISSING}; b: {STANDBY}; see [store] url",
            id="the primary lacks the database",
        ),
        pytest.param(
            "a",
            f"connection failed: {failed('10.0.0.1', FULL)}\n{failed('10.0.0.1', NO_ENTRY)}",
            StoreBusy,
            f"cannot be reached: {failed('10.0.0.1', FULL)}; try again",
            id="with TLS it is full and without it refuses",
        ),
    ],
)
def test_trying_again_is_of_no_use_only_where_each_server_lacks_what_the_url_names(
    monkeypatch: pytest.MonkeyPatch, hosts: str, text: str, kind: type[StoreError], reason: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(text)

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    with pytest.raises(StoreError) as raised:
        open_store(f"{KIND}://{ROLE}@/made?host={hosts}")
    where = f"postgresql://{hosts}/made: "
    assert (type(raised.value), str(raised.value)) == (kind, where + reason)


def test_servers_that_are_named_by_their_addresses_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = ("10.0.0.1", DOWN.partition("\n")[0]), ("10.0.0.2", failed("10.0.0.2", NO_ENTRY))
    listed = "".join(f"\n- host: None, port: '5432', hostaddr: '{address}': {text}" for address, text in tries)

    def fails(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f"last\nMultiple connection attempts failed. All failures were:{listed}")

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    with pytest.raises(StoreBusy, match=f"10.0.0.1:5432: {REFUSED}; 10.0.0.2:5432: no pg_hba"):
        open_store(f"{KIND}://{ROLE}@/made?hostaddr=10.0.0.1,10.0.0.2&port=5432")


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    made = Server()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def standby(primary: Server) -> Iterator[Server]:
    """Its pg_hba.conf lacks the role, as on Debian, where it is outside of what pg_basebackup copies."""
    made = Server(primary=primary)
    made.stop(signal.SIGINT)
    (made.data / "pg_hba.conf").write_text("local all admin trust\n", encoding="utf-8")
    made.start()
    yield made
    made.remove()


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.stop(signal.SIGINT)
    try:
        yield
    finally:
        server.start()


@contextmanager
def crowded(server: Server) -> Iterator[None]:
    """All connections that the role may have are in use."""
    server.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT 1")
    taken = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'spamfilter'"
    wait_until(lambda: server.execute(taken) == [(0,)], "earlier connections to end")
    try:
        with psycopg.connect(host=str(server.folder), user=ROLE, dbname=TEMPLATE):
            yield
    finally:
        server.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(stopped, "No such file or directory", id="down"),
        pytest.param(lambda server: paused(server.process.pid), "connection timeout expired", id="paused"),
        pytest.param(crowded, 'too many connections for role "spamfilter"', id="crowded"),
    ],
)
def test_what_fails_at_the_primary_passes_though_the_standby_refuses_the_role(
    primary: Server, standby: Server, fault: Callable[[Server], AbstractContextManager[None]], reason: str
) -> None:
    url = f"{KIND}://{ROLE}@/{TEMPLATE}?host={primary.folder},{standby.folder}&target_session_attrs=read-write"
    open_store(url).close()
    with fault(primary), pytest.raises(StoreBusy) as raised:
        open_store(f"{url}&connect_timeout=2")
    assert f"cannot be reached: {primary.folder}: {reason}; {standby.folder}: no pg_hba" in str(raised.value)
    open_store(url).close()


def test_after_a_connection_that_failed_none_is_tried_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, now = [], 1000.0

    def fails(*_: object, **__: object) -> None:
        tries.append(now)
        raise psycopg.OperationalError(DOWN)

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with closing(Database(f"{KIND}://{ROLE}@a/made")) as database:
        for _ in range(50):
            with pytest.raises(StoreBusy, match=r"cannot be reached: .* Connection refused; try again"):
                database.revision()
            now += 0.1
    assert tries == pytest.approx([1000.0, 1002.0, 1004.0], abs=0.11)


@pytest.mark.parametrize("named", ["url", "environment"])
@pytest.mark.parametrize(
    "reason",
    [failed("10.0.0.1", WRONG_PASSWORD), NO_PASSWORD, failed("10.0.0.1", "SASL authentication failed")],
    ids=["wrong", "none", "pgbouncer"],
)
@pytest.mark.parametrize("overridden", [False, True])
def test_a_password_that_is_wrong_or_missing_names_where_it_is_from(
    monkeypatch: pytest.MonkeyPatch, named: str, reason: str, overridden: bool
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f"connection failed: {reason}")

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    url = f"{KIND}://{ROLE}@a/made"
    if named == "url":
        url += "?passfile=/etc/spamfilter/pgpass"
    else:
        monkeypatch.setenv("PGPASSFILE", "/etc/spamfilter/pgpass")
    if overridden:
        monkeypatch.setenv("PGPASSWORD", "hush")
    with pytest.raises(StoreRefused, match=r"password|authentication") as raised:
        open_store(url)
    assert str(raised.value).endswith(
        "; see PGPASSWORD in the environment, which overrides /etc/spamfilter/pgpass"
        if overridden
        else "; see /etc/spamfilter/pgpass, which must have mode 0600 and a line for this server and user"
    )
    assert "fe_sendauth" not in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("method", "passwords"),
    [("LDAP", True), ("PAM", True), ("RADIUS", True), ("Ident", False), ("GSSAPI", False), ("certificate", False)],
)
def test_a_passfile_is_named_where_it_may_hold_the_password(
    monkeypatch: pytest.MonkeyPatch, method: str, passwords: bool
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(failed("10.0.0.1", f'{method} authentication failed for user "spamfilter"'))

    monkeypatch.setattr(postgresql._Patient, "connect", fails)
    with pytest.raises(StoreRefused) as raised:
        open_store(f"{KIND}://{ROLE}@a/made?passfile=/etc/spamfilter/pgpass")
    assert ("/etc/spamfilter/pgpass" in str(raised.value)) == passwords


@pytest.mark.parametrize("error", [psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout])
def test_what_a_server_ends_because_of_its_time_is_tried_again(error: type[psycopg.Error]) -> None:
    said = postgresql.meant("postgresql://a/made", error("terminating connection due to its time"))
    assert type(said) is StoreBusy
    assert postgresql._is_broken(error("terminating connection due to its time"))
