"""Times as people read and type them: local, with the offset that holds at that moment."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from spamfilter.system.moments import day_text, hour_in_utc, hour_zone, moment_of, moment_text, span_text

SUMMER = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
WINTER = datetime(2026, 10, 25, 3, 30, tzinfo=UTC)


def test_people_read_local_time_and_can_type_what_they_read(local_time: Callable[[str], None]) -> None:
    local_time("CET-1CEST,M3.5.0,M10.5.0/3")
    assert (moment_text(SUMMER), day_text(SUMMER)) == ("2026-10-25 01:30+02:00", "2026-10-25")
    assert moment_text(WINTER) == "2026-10-25 04:30+01:00"
    assert moment_of(moment_text(WINTER)) == WINTER
    assert moment_of("2026-10-25") == datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert moment_of("2026-10-25", end=True) == datetime(2026, 10, 25, 23, tzinfo=UTC)
    assert span_text(SUMMER, SUMMER + timedelta(minutes=9)) == "2026-10-25 01:30 to 01:39+02:00"
    assert span_text(SUMMER, WINTER) == "2026-10-25 01:30+02:00 to 2026-10-25 04:30+01:00"
    assert span_text(WINTER, WINTER + timedelta(days=1)) == "2026-10-25 04:30 to 2026-10-26 04:30+01:00"


def test_a_zone_of_half_hours_has_days_and_hours_in_utc(local_time: Callable[[str], None]) -> None:
    local_time("IST-5:30")
    assert (hour_zone(SUMMER), hour_in_utc(7, SUMMER)) == (UTC, 7)
    assert moment_text(SUMMER) == "2026-10-25 05:00+05:30"
