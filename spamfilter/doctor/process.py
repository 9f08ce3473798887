"""Checks of the process: does the relay run, in this version; do its sockets answer; does it hit limits."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from spamfilter import __version__
from spamfilter.doctor.examination import CLOSED, OPEN, Examination, Finding, NotTried, failed, ok, warning
from spamfilter.errors import Refused, StoreError
from spamfilter.stores.sql.connection import place_of, same_place
from spamfilter.system.file_access import ANYBODY, may, user_named
from spamfilter.system.paths import LONGEST_SOCKET

BACKLOG_WARNING = 0.1
"""Share of [limits] journal_backlog that waits: a busy relay has some entries, but a tenth is a real delay."""
MEMORY_WARNING, MEMORY_FAILED = 0.5, 0.8
"""Shares of the host's memory that the relay uses: beyond a half it cannot double."""
ROOM = ("connections", "memory_megabytes", "feedback_connections")
"""Limits of the whole relay, which usually defer mail of clients that did nothing wrong."""
RESTART = "restart the relay: systemctl restart spamfilter"


def process(examined: Examination) -> Iterator[Finding]:
    """Whether a relay runs, with this version, this database and this configuration."""
    status = examined.status
    if isinstance(status, Refused):
        yield warning(f"a relay runs, but {status}", "run this as root, or as the user of the relay")
        return
    if isinstance(status, Exception):
        if examined.greeted:
            raise NotTried("a relay greets, but its feedback socket does not answer")
        yield failed("no relay is running", "start it: systemctl start spamfilter; its log says why it ended")
        return
    stale = list(_stale(examined, status))
    for difference, advice in stale:
        yield failed(f"pid {status['pid']} {difference}", advice)
    if waits := status.get("changed"):
        yield warning(
            f"the configuration has changed since the relay read it: {', '.join(waits)}",
            "systemctl reload spamfilter, or restart where its log says so",
        )
    elif not stale:
        config = examined.config or "no configuration file"
        yield ok(f"version {__version__}, pid {status['pid']}, as {examined.user.name}, by {config}")


def _stale(examined: Examination, status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How the running relay differs from this program and its configuration, each with what to do."""
    theirs, ours = status.get("config", examined.config), examined.config
    other = os.path.realpath(theirs) != os.path.realpath(ours)
    advice = f"run this command with --config {theirs}" if theirs and other else RESTART
    if status["version"] != __version__:
        yield f"runs version {status['version']}; this program is {__version__}", RESTART
    with suppress(StoreError):
        if not same_place(status["database"], database := place_of(examined.settings.store_url())):
            yield f"uses the database {status['database']}; the configuration names {database}", advice
    if other:
        named = [file or "no configuration file" for file in (theirs, ours)]
        yield f"was started with {named[0]}, and this command with {named[1]}", advice


def judging(examined: Examination) -> Iterator[Finding]:
    """Whether the relay judges with the compiled helpers."""
    relay = examined.relay
    if "plain" not in relay:
        yield failed("the relay is of an older version than this program", RESTART)
        return
    if not relay["plain"]:
        yield ok("by compiled helpers")
        return
    found = f"in plain Python, four times slower: {relay['plain']}"
    advice = "install a C compiler and Python's headers, then spamfilter again, and restart the relay"
    yield warning(found, advice) if relay["refused"] else ok(found)


def smtp(examined: Examination) -> Iterator[Finding]:
    """Whether the relay greets on each of its addresses, or agrees to speak milter there."""
    if isinstance(examined.status, Exception) and not examined.greeted:
        raise NotTried("no relay is running")
    for address, said in examined.greetings.items():
        yield ok(f"{address} greets with {said}") if said.startswith("220 ") else _silent(address, said)
    for address, agreed in examined.milters.items():
        agrees = agreed.startswith(("speaks milter", OPEN))
        yield ok(f"{address} {agreed}") if agrees else _silent(address, agreed)


def _silent(address: str, said: str) -> Finding:
    return failed(f"{address}: {said}", f"see the relay's log; {RESTART}")


def feedback_socket(examined: Examination) -> Iterator[Finding]:
    """Which local users can mark mail."""
    path, status = examined.settings.socket_path(), examined.status
    if isinstance(status, Exception) and not isinstance(status, Refused):
        if not examined.greeted:
            raise NotTried("no relay is running")
        if examined.by_another_user and isinstance(status.__cause__, PermissionError):
            raise NotTried(CLOSED)
        advice = (
            f"it was removed, belongs to another relay, or [feedback] socket has changed since the start: {RESTART}"
        )
        if len(os.fsencode(path)) > LONGEST_SOCKET:
            advice = f"set [feedback] socket to a path of at most {LONGEST_SOCKET} bytes, and restart the relay"
        yield failed(f"no answer: {status}", advice)
        return
    feedback = examined.settings.feedback
    named = [(name, user_named(name)) for name in (*feedback.users, *feedback.proxies)]
    if unknown := [name for name, user in named if user is None]:
        yield failed(
            f"this host has no user {', '.join(unknown)}", "correct [feedback] users or proxies, or create the user"
        )
        return
    if shut_out := [name for name, user in named if user and not may(user, path, os.R_OK | os.W_OK)]:
        yield failed(
            f"{path}: {', '.join(shut_out)} may not reach it",
            "set [feedback] socket to a folder that all may enter, as /run/spamfilter",
        )
        return
    if feedback.users:
        who = ", ".join(name for name, _ in named)
    else:
        everybody = may(ANYBODY, path, os.R_OK | os.W_OK)
        few = " and ".join(dict.fromkeys(("root", examined.user.name)))
        who = "every local user" if everybody else f"{few} alone"
    yield ok(f"{path} answers {who}")


def journal(examined: Examination) -> Iterator[Finding]:
    """Whether the journal is written, or its entries wait in memory."""
    status, backlog = examined.relay, examined.settings.limits.journal_backlog
    failing, error = status.get("journal_failing", False), status.get("journal_error", "")
    yield from journal_backlog(status["journal_waiting"], status["journal_dropped"], backlog, failing, error)


def journal_backlog(
    waiting: int, dropped: int, backlog: int, failing: bool = False, error: str = ""
) -> Iterator[Finding]:
    """The findings for this many waiting and dropped entries. backlog: how many may wait.

    failing: whether the relay could not write them at its last try. error: why not, if it says so.
    """
    last = f"; the last try failed{f': {error}' if error else ''}" if failing else ""
    late = waiting >= BACKLOG_WARNING * backlog or failing
    if late:
        yield Finding(
            "failed" if waiting >= backlog or failing else "warning",
            f"{waiting} entries wait to be written, of at most {backlog}{last}",
            "see the check of the database and the relay's log; what [limits] journal_backlog does not hold is lost",
        )
    if dropped:
        yield warning(
            f"{dropped} entries were dropped since the relay started",
            "its log says when the database could not be written, and why; a restart sets this to 0",
        )
    elif not late:
        yield ok(f"{waiting} entries wait to be written, none was dropped")


def limits(examined: Examination) -> Iterator[Finding]:
    """The limits that were hit since the relay started."""
    yield limit_hits(examined.relay["limits_hit"])


def limit_hits(hits: Mapping[str, int]) -> Finding:
    """The finding for these numbers of hits. Only the limits in ROOM are a warning; others stop single clients."""
    said = ", ".join(f"{limit} {number} time{'s' * (number > 1)}" for limit, number in sorted(hits.items()))
    found = f"hit since the relay started: {said}" if said else "none was hit since the relay started"
    tight = [limit for limit in ROOM if limit in hits]
    if not tight:
        return ok(found)
    advice = f"its log says when; where that was usual traffic, raise {' and '.join(tight)} in [limits], and restart"
    return warning(found, advice)


def memory(examined: Examination) -> Iterator[Finding]:
    """How much of the host's memory the relay uses."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield memory_use(examined.relay["resident_bytes"], total)


def memory_use(resident: int, total: int) -> Finding:
    """The finding for this many bytes of a host's memory."""
    share = resident / total
    found = f"{resident / 1e6:.0f} MB, {100 * share:.1f} % of this host's memory"
    if share < MEMORY_WARNING:
        return ok(found)
    advice = "lower [limits] memory_megabytes and connections, or give the host more memory"
    return Finding("failed" if share >= MEMORY_FAILED else "warning", found, advice)
