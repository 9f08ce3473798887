"""Days and hours of the overview are those of local time, and lead to the mail that they count."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qsl

import pytest

from spamfilter.reports.charts import charts_of
from spamfilter.reports.report import build
from spamfilter.reports.text import report_text
from spamfilter.stores import UNJUDGED
from spamfilter.system.moments import hour_zone
from spamfilter.web.message_views import page_of, search_of
from spamfilter.web.overview import Searches
from tests.support.made import journal_entry
from tests.support.memory_store import MemoryStore

UNTIL = datetime(2026, 6, 12, 9, tzinfo=UTC)


def test_days_and_hours_are_local_and_lead_to_their_mail(local_time: Callable[[str], None]) -> None:
    local_time("XXX-2")
    store = MemoryStore()
    moments = [datetime(2026, 6, 10, hour, 59, tzinfo=UTC) for hour in (21, 22, 23)]
    mails = [journal_entry(id=f"{number:026}", at=at) for number, at in enumerate(moments)]
    refused = journal_entry(id="9" * 26, at=moments[1], class_=UNJUDGED, reply="550 no")
    store.write_journal([*mails, refused])
    zone = hour_zone(UNTIL)
    assert zone == timezone(timedelta(hours=2))
    report = build(store, ["fields"], UNTIL - timedelta(days=5), UNTIL, zone=zone)
    for slots, expected in (
        (report.days, {"2026-06-10": 1, "2026-06-11": 2}),
        (report.timeline, {"2026-06-10 23:00": 1, "2026-06-11 00:00": 1, "2026-06-11 01:00": 1}),
        (report.hours, {"23": 1, "00": 1, "01": 1}),
    ):
        assert {slot.at: slot.classes["ham"] for slot in slots if slot.classes["ham"]} == expected
        for slot in slots:
            query = dict(parse_qsl(Searches(report).slot(slot).partition("?")[2]))
            assert page_of(store, search_of(query)).number == expected.get(slot.at, 0), slot.at
    assert [chart.title for chart in charts_of(report)] == ["By day, UTC+02:00", "By hour, UTC+02:00"]
    assert report_text(report).startswith("spamfilter report, 2026-06-07 11:00+02:00 to 2026-06-12 11:00+02:00\n")


@pytest.mark.parametrize("typed", ["7", "07", "7.0", " 007 "])
def test_an_hour_is_local_however_it_is_typed(local_time: Callable[[str], None], typed: str) -> None:
    local_time("XXX-2")
    assert search_of({"hour": typed}).hour == 5
