"""The page "Learning": recent learnings by author; administrators can undo all marks of one author."""

from datetime import datetime
from urllib.parse import urlencode

from starlette.responses import Response

from spamfilter.errors import InputError
from spamfilter.learning.undoing import learnt_with
from spamfilter.reports.report import latest
from spamfilter.web import marking, overview
from spamfilter.web.site import Visit, redirected, shown

PERIODS = overview.PERIODS | {"ever": 36_500}
LATEST = 100


def learning(visit: Visit) -> Response:
    """Learnings of a period by author and source, and the latest of them."""
    period = overview.period_of(visit, PERIODS)
    since, until = overview.last(PERIODS[period])
    store = visit.site.store
    return shown(
        visit, "learning", period=period, periods=PERIODS, trainings=store.trainings(since, until),
        latest=latest(store, since, until, LATEST),
    )  # fmt: skip


def _since(period: str) -> datetime:
    if period not in PERIODS:
        raise InputError(f"period: not one of {', '.join(PERIODS)}")
    return overview.last(PERIODS[period])[0]


def asked(visit: Visit) -> Response:
    """Ask before the marks of an author are undone; the page shows them."""
    by, period = visit.query.get("by", ""), visit.query.get("period", "week")
    if "by" not in visit.query:
        return learning(visit)  # after signing in again
    since = _since(period)
    taught = marking.taught(visit.site, by, since)
    counterparts = learnt_with(visit.site.store, taught, since).total()
    return shown(
        visit, "forget", by=by, period=period, taught=taught[:LATEST], number=len(taught), counterparts=counterparts,
        at_once=marking.AT_ONCE,
    )  # fmt: skip


def forget(visit: Visit) -> Response:
    """Undo the marks of an author, at most marking.AT_ONCE of them."""
    site = visit.site
    by, period = visit.form.get("by", ""), visit.form.get("period", "")
    taught = marking.taught(site, by, _since(period))
    done = marking.forget(site, taught, visit.user)
    rest = len(taught) - done
    more = f"; {rest} left: press the button again" if rest else ""
    visit.tell(f"{done} mark{'s' * (done != 1)} of {by} undone{more}")
    return redirected(f"/learning/forget?{urlencode({'by': by, 'period': period})}" if rest else "/learning")
