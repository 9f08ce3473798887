"""Dates and times as people type and read them: in the time zone of the process, with its offset to UTC.

What `moment_text` shows, `moment_of` reads.
"""

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

YEARS = (2, 9996)
"""The first and the last year whose moments all have a day before and after them; the last has a leap day."""


def moment_of(text: str, end: bool = False, zone: tzinfo | None = None) -> datetime:
    """The moment of a date or time in ISO 8601, in UTC: of a date its begin, or with `end` the end of that day.

    zone: of a time that names none; None: local time. Years at the ends of the calendar are those of YEARS. Raises
    ValueError.

    >>> str(moment_of("2026-01-31", True, UTC)), str(moment_of("2026-01-31 13:00+02:00"))
    ('2026-02-01 00:00:00+00:00', '2026-01-31 11:00:00+00:00')
    """
    found = datetime.fromisoformat(text)
    found = found.replace(year=max(YEARS[0], min(found.year, YEARS[1])))
    if end and _is_date(text):
        found += timedelta(days=1)
    if zone is not None and found.tzinfo is None:
        found = found.replace(tzinfo=zone)
    return found.astimezone(UTC)


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def moment_text(at: datetime) -> str:
    """A time for people, to the minute, as in 2026-11-22 23:14+01:00."""
    return at.astimezone().isoformat(" ", "minutes")


def day_text(at: datetime) -> str:
    return at.astimezone().date().isoformat()


def span_text(begin: datetime, end: datetime) -> str:
    """A time from one moment to another, as in 2026-11-22 23:14 to 23:46+01:00."""
    begin, end = begin.astimezone(), end.astimezone()
    if begin.utcoffset() != end.utcoffset():
        return f"{moment_text(begin)} to {moment_text(end)}"
    first, last = begin.strftime("%Y-%m-%d %H:%M"), moment_text(end)
    return f"{first} to {last if begin.date() != end.date() else last.partition(' ')[2]}"


def hour_zone(now: datetime) -> timezone:
    """The zone of figures that are kept by the hour: the offset of local time now, or UTC if that has minutes."""
    offset = now.astimezone().utcoffset() or timedelta()
    return timezone(timedelta() if offset % timedelta(hours=1) else offset)


def hour_in_utc(hour: int, now: datetime) -> int:
    """The hour of the day in UTC of one in `hour_zone`."""
    return (hour - hour_zone(now).utcoffset(None) // timedelta(hours=1)) % 24
