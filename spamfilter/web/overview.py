"""The first page: the report, as it is now."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from starlette.responses import Response

from spamfilter.reports.html import facts
from spamfilter.reports.report import Report, build
from spamfilter.system.process import own_name
from spamfilter.web.site import Site, Visit, shown

PERIODS = {"day": 1, "week": 7, "month": 30, "year": 365}
"""Name -> days."""


def overview(visit: Visit) -> Response:
    """The page."""
    period = visit.query.get("period", "week")
    period = period if period in PERIODS else "week"
    settings = visit.site.settings
    report = report_of(visit.site, PERIODS[period])
    return shown(
        visit, "overview", period=period, periods=PERIODS, **facts(report, settings.relay.hostname or own_name())
    )


def report_of(site: Site, days: int) -> Report:
    """The report of the last days; one at a time, whoever asks."""
    now = datetime.now(UTC)
    voices = list(site.settings.learn.kinds())
    with site.busy:
        return build(site.store, voices, now - timedelta(days=days), now, _free_bytes(site.store.where))


def _free_bytes(where: str) -> int | None:
    try:
        return shutil.disk_usage(Path(where).parent).free
    except OSError:
        return None
