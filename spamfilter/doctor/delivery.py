"""Checks of delivery: the next hop, outages, the quarantine, free disk space."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from spamfilter.config.addresses import maildir_of
from spamfilter.config.settings import Settings
from spamfilter.doctor.examination import Examination, Finding, failed, ok, warning
from spamfilter.errors import NextHopError, StoreError
from spamfilter.relay.next_hops import next_hop_of
from spamfilter.reports.outages import downtimes, hosts, messages_text
from spamfilter.reports.outages import outages as outages_of
from spamfilter.reports.text import downtime_text, size_text
from spamfilter.stores.sql.connection import file_of
from spamfilter.system.escaping import printable
from spamfilter.system.file_access import denied, may, owner
from spamfilter.system.moments import span_text

LOOK_BACK = timedelta(hours=24)
FREE_WARNING = (0.10, 5 * 10**9)
FREE_FAILED = (0.03, 10**9)
"""Too little free space on a file system: a share of it, or a number of bytes if that is less. A tenth leaves time to
act; 3 % may be filled by the next backup or a day of quarantine."""


def next_hop(examined: Examination) -> Iterator[Finding]:
    """Whether the next hop answers EHLO, or its Maildir can be written."""
    url = examined.settings.next_hop_url()
    if maildir := maildir_of(url):
        yield _writable(examined, maildir)
        return
    try:
        keywords = asyncio.run(_announced(examined.settings))
    except (NextHopError, OSError) as error:
        refused = isinstance(error.__cause__ or error, ConnectionRefusedError)
        found = f"the next hop {url.partition('://')[2]} refuses connections" if refused else str(error)
        until = examined.settings.relay.without_next_hop
        yield failed(found, f"start it, or correct [relay] next_hop; until then {until}")
        return
    yield ok(f"{url} answers, and announces {', '.join(keywords) or 'nothing'}")


async def _announced(settings: Settings) -> list[str]:
    hop = next_hop_of(settings)
    conversation = await hop.open()
    try:
        await conversation.command(b"QUIT")
        return list(conversation.keywords)
    finally:
        conversation.abort()
        hop.close()


def outages(examined: Examination) -> Iterator[Finding]:
    """Whether mail was deferred, or the relay did not run, in the last day."""
    since, store = examined.now - LOOK_BACK, examined.store
    found = outages_of(store, since, examined.now)
    for one in found:
        yield warning(
            f"{span_text(one.begin, one.end)}: {messages_text([one])} deferred: {printable(one.reply, 200)}",
            "senders try again; the logs of the relay and of the next hop say why;"
            " spamfilter stats --since 24h has the replies",
        )
    members = hosts(store)
    for down in downtimes(store, since, examined.now):
        runs = down.host == examined.settings.hostname() and not isinstance(examined.status, Exception)
        if down.end is None and runs:
            continue  # it cannot note it in the database
        yield warning(downtime_text(down, members), "journalctl -u spamfilter says why")
    if not found:
        yield ok("no mail was deferred in the last 24 hours")


def quarantine(examined: Examination) -> Iterator[Finding]:
    """Whether the relay can write to the quarantine, and read the mails in it."""
    maildir, user = examined.settings.quarantine_path(), examined.user
    yield (found := _writable(examined, maildir))
    if found.status != "ok":
        return
    files = (file for part in ("new", "cur") for file in sorted((maildir / part).iterdir()))
    closed = [file for file in denied(user, [*files], os.R_OK) if file.exists()]
    if closed:
        more = f" and {len(closed) - 1} more" if closed[1:] else ""
        yield warning(
            f"{closed[0]}{more}: {user.name} may not read this mail, so nobody can release it, and it does not expire",
            f"chown -R {user.name} {maildir}",
        )


def _writable(examined: Examination, maildir: Path) -> Finding:
    user = examined.user
    for folder in (maildir, *(maildir / part for part in ("tmp", "new", "cur"))):
        if not folder.is_dir():
            return failed(f"{folder}: no such folder", "restart the relay, which makes it")
        if folder != maildir and not may(user, folder, os.W_OK | os.X_OK):
            return failed(f"{folder}: {user.name} may not write there", f"chown -R {user.name} {maildir}")
    return ok(f"{maildir} of {owner(maildir)}; {user.name} may write it")


def disk(examined: Examination) -> Iterator[Finding]:
    """Whether the file systems of database, quarantine and Maildir have free space."""
    places: dict[Path, str] = {}
    with suppress(StoreError):
        if (path := file_of(examined.settings.store_url())) is not None:
            places[path.parent] = "database"
    places[examined.settings.quarantine_path()] = "quarantine"
    if maildir := maildir_of(examined.settings.next_hop_url()):
        places[maildir] = "next hop"
    seen: dict[int, tuple[Path, list[str]]] = {}
    for place, what in places.items():
        if place.exists():
            seen.setdefault(place.stat().st_dev, (place, []))[1].append(what)
    for place, names in seen.values():
        found = os.statvfs(place)
        yield free_space(
            f"{place} ({', '.join(names)})", found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        )
        if found.f_files and found.f_favail < FREE_FAILED[0] * found.f_files:
            yield failed(f"{place}: only {found.f_favail} more files fit", "delete files there")


def free_space(name: str, free: int, size: int) -> Finding:
    """The finding for this much free space on a file system of this size."""
    if not size:
        return ok(f"{name}: of this file system no size is known")
    found = f"{name}: {size_text(free)} free, {100 * free / size:.1f} %"
    if free >= _least(FREE_WARNING, size):
        return ok(found)
    advice = (
        "make room: lower [verdict] quarantine_days; lower [report] journal_days and [feedback] window_megabytes, so"
        " that the database stops growing: docs/operation.md"
    )
    return Finding("failed" if free < _least(FREE_FAILED, size) else "warning", found, advice)


def _least(bound: tuple[float, int], size: int) -> float:
    share, enough = bound
    return min(share * size, enough)
