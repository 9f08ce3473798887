"""The first page: the report of a period that ends now."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from spamfilter.bayes.voices import everybodys
from spamfilter.errors import SpamfilterError
from spamfilter.reports.daily_summaries import DAY, HOUR, REPLIES
from spamfilter.reports.html import facts
from spamfilter.reports.report import Report, build
from spamfilter.reports.report_figures import Slot
from spamfilter.system.moments import hour_zone
from spamfilter.web.message_views import LONGEST
from spamfilter.web.site import Site, Visit, shown

log = logging.getLogger("spamfilter.web")

PERIODS = {"day": 1, "week": 7, "month": 30, "year": 365}
"""Name -> days."""
AHEAD = ("day", "week", "month")
"""Periods that are read ahead."""
CODES = {name: digit for digit, name in REPLIES.items()}
"""Kind of reply -> the begin of its codes."""


def overview(visit: Visit) -> Response:
    period = period_of(visit, PERIODS)
    report = report_of(visit.site, PERIODS[period], hour_zone(datetime.now(UTC)), visit.query.get("host", ""))
    host = visit.site.settings.hostname()
    return shown(visit, "overview", period=period, periods=PERIODS, search=Searches(report), **facts(report, host))


@dataclass(frozen=True, slots=True)
class Searches:
    """The addresses of searches that find the messages which the overview counts; '' where no search does."""

    report: Report

    def found(self, class_: str = "judged", **conditions: object) -> str:
        """Messages of the period that meet these conditions; only judged ones count but for the replies."""
        if self.report.host:
            conditions["host"] = self.report.host
        texts = {"since": _seconds(self.report.since)} | {key: str(it) for key, it in conditions.items()}
        if class_:
            texts["class"] = class_
        possible = all(0 < len(text) <= LONGEST for text in texts.values())
        return f"/messages?{urlencode(texts)}" if possible else ""

    def slot(self, slot: Slot) -> str:
        """A day, an hour, or an hour of each day. The period begins within the first day, or with it."""
        if len(slot.at) == 2:  # an hour of each day
            return self.found(hour=int(slot.at))
        begin = datetime.fromisoformat(slot.at).replace(tzinfo=self.report.zone)
        end = begin + (HOUR if ":" in slot.at else DAY)
        return self.found(since=_seconds(max(begin, self.report.since)), until=_seconds(end))

    def counted(self, title: str, name: str) -> str:
        """Messages of a class or an action, or with a reply."""
        if title == "judged":
            return self.found(class_=name)
        if title == "action":
            return self.found(action=name)
        return self.found(class_="unjudged" if title == "unjudged" else "judged", reply=CODES[name])

    def sender(self, domain: str) -> str:
        at = "@" * ("." in domain)  # a sender without an @ is counted by its whole name
        return self.found(sender=f"{at}{domain}>" if domain else "<>")

    def recipient(self, address: str) -> str:
        return self.found(recipient=f"<{address}>")

    def client(self, address: str) -> str:
        return self.found(client=address)

    def reply(self, text: str) -> str:
        return self.found(class_="", reply=text.partition("<>")[0].strip())  # without the address that was left out


def period_of(visit: Visit, periods: Mapping[str, int]) -> str:
    """The period that a visit asks for, or the default."""
    period = visit.query.get("period", "")
    return period if period in periods else "week"


def _seconds(at: datetime) -> str:
    return at.astimezone().isoformat(" ", "seconds")


def report_of(site: Site, days: int, zone: timezone = UTC, host: str = "") -> Report:
    """The report of the last days. Reports are made one at a time, because each reads much of the database."""
    voices = [voice.name for voice in everybodys(site.voices())]
    with site.busy:
        return build(site.store, voices, *last(days), site.parts, zone, host)


def last(days: int) -> tuple[datetime, datetime]:
    """Begin and end of the last days: to the end of this hour, so that the parts of days are kept until then."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return until - timedelta(days=days), until


async def read_ahead(site: Site) -> None:
    """Read what the overview sums up before anybody asks for it: at the start, and whenever an hour is over.

    The first look of a day would take a second or more otherwise, because it reads all of the day before. A year reads
    nothing more than a month.
    """
    while True:
        now = datetime.now(UTC)
        try:
            for period in AHEAD:
                await run_in_threadpool(report_of, site, PERIODS[period], hour_zone(now))
        except SpamfilterError as error:
            log.warning("the overview cannot be read ahead: %s", error)
        begun = now.replace(minute=0, second=0, microsecond=0)
        await asyncio.sleep((HOUR - (datetime.now(UTC) - begun) % HOUR).total_seconds())
