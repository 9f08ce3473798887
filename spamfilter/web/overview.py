"""The first page: the report of a period that ends now."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from spamfilter.reports.html import facts
from spamfilter.reports.report import Report, build
from spamfilter.system.process import own_name
from spamfilter.web.site import Site, Visit, shown

PERIODS = {"day": 1, "week": 7, "month": 30, "year": 365}
"""Name -> days."""


def overview(visit: Visit) -> Response:
    """The report of a period."""
    period = period_of(visit, PERIODS)
    report = report_of(visit.site, PERIODS[period])
    host = visit.site.settings.relay.hostname or own_name()
    return shown(visit, "overview", period=period, periods=PERIODS, **facts(report, host))


def period_of(visit: Visit, periods: Mapping[str, int]) -> str:
    """The period that a visit asks for, or the default."""
    period = visit.query.get("period", "")
    return period if period in periods else "week"


def report_of(site: Site, days: int) -> Report:
    """The report of the last days. Reports are made one at a time, because each reads much of the database."""
    now = datetime.now(UTC)
    with site.busy:
        return build(site.store, [voice.name for voice in site.voices()], now - timedelta(days=days), now)
