"""Checks of the database: path, owner, permissions, schema, integrity, counts."""

import os
from collections.abc import Iterator
from pathlib import Path

from spamfilter.bayes.voices import everybodys
from spamfilter.doctor.examination import Examination, Finding, NotTried, failed, ok, warning
from spamfilter.errors import SpamfilterError, StoreBusy, StoreFull, StoreRefused
from spamfilter.learning.filter import RULES, Filter, rules, rules_text, usable
from spamfilter.stores import GONE
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sql.connection import file_of, files_of
from spamfilter.system.file_access import ANYBODY, User, may, owner, user_of
from spamfilter.system.paths import SYSTEM_STATE

SHOWN = 3
"""Problems that are shown: one is reason enough to act, and a corrupt file has thousands."""
CROWDED = ("too many connections", "too many clients", "connection slots are reserved")
"""What a server of PostgreSQL says when its connections are used up."""
MORE_CONNECTIONS = "raise the server's max_connections, or the CONNECTION LIMIT of the role or database"
START = "start or restart the server that accepts writes, or correct [store] url"
RESTORE = "stop the relay, move the file away with its -wal and -shm, and put a backup in its place: docs/operation.md"
MEND = f"mend that first, and leave the file where it is: it may be whole. If it is not: {RESTORE}"


def database(examined: Examination) -> Iterator[Finding]:
    """Whether the database exists, and the relay may read and write it."""
    path, user = file_of(examined.settings.store_url()), examined.user
    if path is None:
        yield _server(examined)
        return
    if not path.parent.is_dir():
        made = "start the service, which makes it" if path.parent == SYSTEM_STATE else f"create it, for {user.name}"
        yield failed(f"{path.parent}: no such folder", f"{made}, or set [store] url")
        return
    if not path.exists():
        lost = isinstance(examined.status, dict) and any(examined.status["learnt"].values())
        yield failed(f"{path}: no such file", GONE if lost else "the relay makes it when it starts; see [store] url")
        return
    troubles = list(_troubles(path, user))
    if isinstance(examined.database, SpamfilterError):
        error, reasons = examined.database, [found for found in troubles if found.status == "failed"]
        yield from reasons
        if isinstance(error, StoreBusy):
            yield warning(str(error), "another command is running; try again when it has ended")
        elif isinstance(error, StoreFull) and not reasons:
            yield failed(f"{path} cannot be opened: {error}", MEND)
        elif not reasons:
            yield failed(f"{path} cannot be opened: {error}", RESTORE)
        return
    yield from troubles
    if not troubles:
        size = examined.database.size()
        yield ok(
            f"{path}, {size / 1e6:.1f} MB, of {owner(path)} ({_mode(path)}) in a folder of {owner(path.parent)}"
            f" ({_mode(path.parent)}); {user.name} may read and write it"
        )


def _server(examined: Examination) -> Finding:
    store = examined.database
    if isinstance(store, StoreBusy) and not isinstance(store, StoreRefused):
        crowded = any(said in str(store) for said in CROWDED)
        return failed(str(store), MORE_CONNECTIONS if crowded else START)
    if isinstance(store, SpamfilterError):
        return failed(str(store), "docs/postgresql.md says what it needs")
    if examined.revision == HEAD and not store.may_write():
        return failed(f"{store.where}: its user may not write", "name the user who owns the tables in [store] url")
    return ok(f"{store.where}, {store.size() / 1e6:.1f} MB")


def _troubles(path: Path, user: User) -> Iterator[Finding]:
    files = files_of(path)
    strange = {file.name: user_of(state.st_uid).name for file, state in files.items() if state.st_uid != user.uid}
    if strange:
        yield failed(
            f"{path.parent}: {', '.join(f'{name} belongs to {who}' for name, who in strange.items())}, but the relay"
            f" runs as {user.name}",
            f"chown {user.name} {path}*",
        )
    elif os.statvfs(path).f_flag & os.ST_RDONLY:
        yield failed(f"{path}: its file system is mounted read-only", "mount it for writing")
    elif not may(user, path.parent, os.W_OK | os.X_OK):
        yield failed(
            f"{path.parent}: {user.name} may not write in this folder, as SQLite must",
            f"chown {user.name} {path.parent}; chmod u+rwx {path.parent}",
        )
    elif denied := [file.name for file in files if not may(user, file, os.R_OK | os.W_OK)]:
        yield failed(f"{path.parent}: {user.name} may not write {', '.join(denied)}", f"chmod u+rw {path}*")
    if may(ANYBODY, path.parent, os.W_OK | os.X_OK):
        yield warning(f"{path.parent}: every user of this host may replace files in it", f"chmod go= {path.parent}")
    if may(ANYBODY, path, os.R_OK):
        yield warning(f"{path}: every user of this host may read what was learnt", f"chmod go= {path}*")


def _mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:04o}"


def schema(examined: Examination) -> Iterator[Finding]:
    """Whether the database has the schema of this version."""
    if isinstance(examined.database, Exception):
        raise NotTried("no database to read")
    revision = examined.revision
    if revision == HEAD:
        yield ok(f"schema {HEAD}")
    elif revision is None:
        yield failed("the database has no tables", "spamfilter migrate")
    elif revision < HEAD:
        yield failed(f"schema {revision} is old; this version needs {HEAD}", "spamfilter migrate")
    else:
        yield failed(f"schema {revision} is of a newer version; this one knows {HEAD}", "upgrade spamfilter")


def integrity(examined: Examination) -> Iterator[Finding]:
    """Whether the database is intact; deep: every page and every index."""
    store = examined.store
    found = store.verify(quickly=not examined.deep)
    if found:
        rest = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield failed("; ".join(found[:SHOWN]).replace("\n", " ") + rest, RESTORE)
    else:
        yield ok("no damage found" + ("" if examined.deep else " by a quick check; --verify checks every page"))


def counting(examined: Examination) -> Iterator[Finding]:
    """Whether the counts were learnt by the rules of the configuration."""
    voices = examined.settings.voices()
    kept, asked = examined.store.get_setting(RULES), rules(voices)
    if kept is None or kept == asked:
        yield ok(", ".join(f"{voice.name} by {voice.likelihood.name}" for voice in everybodys(voices)))
    elif usable(kept, voices):
        yield warning(
            f"learnt by an earlier version, with {rules_text(kept)}; this one has {rules_text(asked)}",
            "run `spamfilter retrain`, after which it judges better",
        )
    else:
        yield failed(
            f"the database was learnt with {rules_text(kept)}; the configuration says {rules_text(asked)}; the relay"
            " judges by the first",
            "run `spamfilter retrain`, or change [learn] back",
        )


def ledger(examined: Examination) -> Iterator[Finding]:
    """Whether the counts are the sum of the ledger; deep only."""
    if not examined.deep:
        return
    examined.require("integrity", "counting")
    store = examined.store
    if store.get_setting(RULES) is None:
        yield ok("nothing was learnt yet")
    elif found := Filter(store, examined.settings.voices()).verify():
        yield failed("; ".join(found[:SHOWN]), "spamfilter retrain, which rebuilds the counts")
    else:
        yield ok(f"words and totals are the sum of the ledger's {store.state({}).last} entries")
