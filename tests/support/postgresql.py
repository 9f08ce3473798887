"""A real PostgreSQL for the tests of this process, and a new database in it for each test.

Guarantee: it listens on a socket in its own folder only, and ends with the process that started it.
"""

import atexit
import contextlib
import functools
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from spamfilter.stores import open_store
from spamfilter.stores.schema import metadata
from tests.support.real import missing, require

ROLE, TEMPLATE = "spamfilter", "made"
KIND = "postgresql+psycopg"


class Server:
    """One server. durable: with fsync, for tests that kill it. primary: it is a standby of this one."""

    def __init__(self, durable: bool = False, primary: "Server | None" = None) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        if not programs and not shutil.which("initdb"):
            missing("initdb is not installed: apt-get install postgresql")
        self.programs = str(programs[-1]) if programs else ""
        self.folder = Path(tempfile.mkdtemp(prefix="spamfilter-postgresql-"))
        self._as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("nobody")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.data = self.folder / "data"
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        if primary is not None:
            command = [require("pg_basebackup", "postgresql", self.programs), "-D", self.data, "-U", "admin", "-R"]
            command += ["-h", primary.folder, "--checkpoint=fast", "--no-sync"]
        else:
            command = [require("initdb", "postgresql", self.programs), "-D", self.data, "-U", "admin", "-A", "trust"]
            command += ["-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        if self._popen([*map(str, command)]).wait(120):
            raise RuntimeError(f"{command[0]} failed: {(self.folder / 'log').read_text()}")
        fast = [] if durable else ["-c", "fsync=off", "-c", "full_page_writes=off"]
        self.options = ["-c", "max_connections=200", *fast]
        self.port = 5432  # of its socket, which is a file of its own folder
        self.start()
        if primary is not None:
            return
        self.execute(f"CREATE ROLE {ROLE} LOGIN")
        self.execute(f"CREATE DATABASE {TEMPLATE} OWNER {ROLE}")
        open_store(self.url(TEMPLATE)).close()

    def _popen(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [require("setpriv", "util-linux"), *self._as, "--pdeathsig", "QUIT", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        program = require("postgres", "postgresql", self.programs)
        listen = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}"]
        listen += ["-c", f"port={self.port}"]
        self.process = self._popen([program, "-D", str(self.data), *listen, *self.options])
        end = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT ends it at once, as a crash does; SIGINT in good order."""
        self.process.send_signal(how)
        self.process.wait(60)

    def promote(self) -> None:
        """Make a standby a primary, with what it has."""
        self.execute("SELECT pg_promote()")

    def fall_behind(self) -> None:
        """Let a standby hear no more of its primary."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + 30
        while self.execute("SELECT count(*) FROM pg_stat_wal_receiver WHERE pid IS NOT NULL") != [(0,)]:
            if time.monotonic() > end:
                raise RuntimeError("the standby still hears its primary")
            time.sleep(0.02)

    def remove(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """As the superuser; each statement is its own transaction."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, user="admin", dbname=database, autocommit=True, connect_timeout=5
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str) -> str:
        return f"{KIND}://{ROLE}@/{database}?host={self.folder}"

    @contextlib.contextmanager
    def database(self, empty: bool = False) -> Iterator[str]:
        """The URL of a new database; empty: without tables."""
        name = f"test{next(self._numbers)}"
        template = "template1" if empty else TEMPLATE
        self.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.contextmanager
    def emptied(self) -> Iterator[str]:
        """As `database`, but one that an earlier test may have filled: a tenth of the time, for hundreds of them."""
        name = self._free.pop() if self._free else ""
        if name:
            tables = ", ".join(metadata.tables)
            self.execute(f"TRUNCATE {tables} RESTART IDENTITY", name)
        else:
            name = f"kept{next(self._numbers)}"
            self.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {TEMPLATE}")
        try:
            yield self.url(name)
        finally:
            self._free.append(name)


@functools.cache
def server() -> Server:
    """The server of this process; the first call starts it."""
    made = Server()
    atexit.register(made.remove)
    return made


def name_in(url: str) -> str:
    """The database in the URL."""
    return url.partition("?")[0].rpartition("/")[2]
