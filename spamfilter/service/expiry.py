"""What is too old is deleted: mail in quarantine, entries of the journal, traces of probes, rules on senders.

Guarantee: a wrong clock deletes nothing at once. The database keeps the latest time that was seen, which follows the
clock by at most STEP from look to look, and of several hosts by no more than of one; everything expires by that time,
where the clock is behind it, by the clock. While the disk is full, the relay keeps that time in memory, by the same
steps: what expires makes room. Nothing expires within GRACE_SECONDS of a start. A mail in quarantine is deleted at the
second of two looks that both find it too old, EXPIRE_EVERY apart, and never more than a tenth of the quarantine at
once. A mail that is new since the last look, but whose name is older than that, came while the clock was behind, and is
dated anew once the clock is right; but not where the folder was away meanwhile. So are mails and entries of the journal
that are dated more than LEAP after a clock that is right: they came while it was ahead, and would stay for years.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spamfilter.bayes.labels import CANARY
from spamfilter.config.settings import Settings
from spamfilter.errors import SpamfilterError, StoreFull
from spamfilter.relay.quarantine import Quarantine
from spamfilter.reports import daily_summaries
from spamfilter.stores import Store, Wanted
from spamfilter.system.moments import moment_text

log = logging.getLogger(__name__)

EXPIRE_EVERY = 3600.0
"""Seconds between two looks: often enough, because the periods are days."""
GRACE_SECONDS = 600.0
"""Seconds from the start to the first look: a host that has just booted has set its clock by then."""
STEP = timedelta(hours=6)
"""With a clock that is a year ahead, mail of today that is kept for 30 days stays for five, in which `doctor` warns. A
relay that runs for 30 hours a week still keeps up with the calendar."""
HISTORY_KEPT = timedelta(days=30)
"""Time for which events of the quarantine are kept after journal and mail: what a digest has announced must be known
while the mail is there, and a large quarantine expires by parts."""
LEAP = timedelta(days=1)
"""Difference between the clock and the latest time seen that is said."""
CANARY_KEPT = timedelta(days=1)
"""Time for which ledger entries of probes are kept: longer than any process needs to read the ledger."""
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""No relay has run before: a clock that says less was not set yet, as after a boot without a battery. If what it says
were noted as the latest time at the very first start, nothing would expire for years."""
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
SEEN = "latest_time"
"""The name of the database's setting with the latest time seen."""


def latest_time(store: Store) -> datetime | None:
    """The latest time that a relay has seen at a look; None before the first start with a clock that is set."""
    noted = store.get_setting(SEEN)
    seen = datetime.fromisoformat(noted) if isinstance(noted, str) else None
    return seen if seen is not None and seen >= EARLIEST else None


def begin(store: Store) -> None:
    """Note a first latest time: that of the last entry, because the clock may be wrong at the very first start, too."""
    if latest_time(store) is None:
        _note(store, known_time(store, datetime.now(UTC)))


def known_time(store: Store, now: datetime) -> datetime:
    """The time by which to expire: the clock's, but not after the latest time that the database knows."""
    seen = latest_time(store)
    if seen is None:
        judged = [entry.at for entry in store.search(Wanted(), 1)]
        learnt = [last for _, last in store.times_of_sources().values()]
        seen = max((at for at in (*judged, *learnt) if at >= EARLIEST), default=now)
    return min(now, seen)


def _note(store: Store, seen: datetime) -> None:
    store.put_setting(SEEN, seen.isoformat())


class Expiry:
    """The looks of one relay. settings: returns those in use, which may change."""

    def __init__(self, store: Store, quarantine: Path, settings: Callable[[], Settings]) -> None:
        self._store = store
        self._quarantine = Quarantine(quarantine, store)
        self._settings = settings
        self._noted: frozenset[str] | None = None
        self._known: frozenset[str] | None = None
        self._folder = _identity(quarantine / "new")
        with suppress(OSError):  # the looks say it
            self._known = self._quarantine.names()
        self._warned_ahead: bool | None = None
        self._seen: datetime | None = None
        self._unnoted: datetime | None = None

    def look(self) -> None:
        """One look: delete what has expired. It waits for the database, so it belongs into a thread."""
        try:
            now = self._now()
        except SpamfilterError as error:
            log.warning("nothing expires: %s", error)
            return
        for what, expire in (("quarantine", self._mails), ("journal", self._entries)):
            try:
                expire(now)
            except (OSError, SpamfilterError) as error:
                log.warning("%s: cannot expire: %s", what, error)

    def _now(self) -> datetime:
        """Let the latest time seen follow the clock; returns the time by which to expire."""
        clock = datetime.now(UTC)
        before = latest_time(self._store) or known_time(self._store, clock)
        if self._unnoted is not None:
            before = max(before, self._unnoted)
        last = min(self._seen or before, before)  # steps of other hosts that are ahead, too, do not add up
        self._seen = seen = max(before, min(clock, last + STEP))
        try:
            _note(self._store, seen)
            self._unnoted = None
        except StoreFull as error:
            log.warning("the latest time seen is kept in memory: %s", error)
            self._unnoted = seen
        warning = leap(clock, before)
        ahead = clock > before if warning else None
        if warning and ahead != self._warned_ahead:  # once, until it is over
            log.warning("the clock is %s; %s", *warning)
        self._warned_ahead = ahead
        return min(clock, seen)

    def _mails(self, now: datetime) -> None:
        days = self._settings().verdict.quarantine_days
        before = now - timedelta(days=days)
        if (seen := self._seen_if_not_behind(now)) is not None:
            wrong = seen - STEP - LEAP
            folder = _identity(self._quarantine.path / "new")
            known = self._known if folder == self._folder else None  # not where it was not mounted, or moved away
            if known is not None and (number := self._quarantine.date_anew(FIRST, wrong, now, known)):
                log.warning("quarantine: %d mails came while the clock was behind; they count as new", number)
            clock = datetime.now(UTC)
            if number := self._quarantine.date_anew(clock + LEAP, LAST, clock):
                log.warning("quarantine: %d mails came while the clock was ahead; they count as new", number)
            self._known, self._folder = self._quarantine.names(), folder
        noted, self._noted = self._noted, frozenset(path.name for path in self._quarantine.older(before))
        if noted is not None and (number := self._quarantine.expire(before, now, noted)):
            log.info("quarantine: %d expired mails deleted", number)

    def _seen_if_not_behind(self, now: datetime) -> datetime | None:
        """The latest time seen, if the clock is set and less than LEAP behind it."""
        return self._seen if self._seen is not None and self._seen - now < LEAP and now >= EARLIEST else None

    def _entries(self, now: datetime) -> None:
        feedback, report = self._settings().feedback, self._settings().report
        # Whole days, so that the summary of a day is made from all of its entries.
        entries_before = datetime.combine((now - timedelta(days=report.journal_days)).date(), datetime.min.time(), UTC)
        daily_summaries.keep(self._store, now, entries_before)
        self._store.expire(
            now - timedelta(days=feedback.window_days), entries_before, feedback.window_megabytes * 10**6
        )
        self._store.sweep(CANARY, now - CANARY_KEPT)
        self._store.end_expired_rules(now)
        longest = max(report.journal_days, self._settings().verdict.quarantine_days)
        self._store.expire_quarantine_events(now - timedelta(days=longest) - HISTORY_KEPT)
        clock = datetime.now(UTC)
        right = self._seen_if_not_behind(now) is not None
        if right and (number := self._store.date_journal_anew(clock + LEAP, clock)):  # last: on a full disk it fails
            log.warning("journal: %d entries were made while the clock was ahead; they count as new", number)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Device and inode of a folder, None if it is not there."""
    with suppress(OSError):
        found = folder.stat()
        return found.st_dev, found.st_ino
    return None


def leap(clock: datetime, seen: datetime) -> tuple[str, str] | None:
    """How far the clock is from the latest time seen, and what follows; None if that is less than LEAP."""
    if abs(clock - seen) < LEAP:
        return None
    days = f"{abs(clock - seen) / LEAP:.0f} days"
    last = f"the latest time that this database has seen, {moment_text(seen)}"
    if clock < seen:
        return f"{days} behind {last}", "less expires until the clock is set"
    hours = STEP // timedelta(hours=1)
    advice = (
        f"if the relay was off, or the database could not be written, for that long, expiry catches up by {hours} hours"
        " each hour; otherwise set the clock"
    )
    return f"{days} ahead of {last}", advice
