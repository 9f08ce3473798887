"""Dates and times as people type them. Without a time zone they are in UTC."""

from datetime import UTC, date, datetime, timedelta


def moment_of(text: str, end: bool = False) -> datetime:
    """The moment of a date or time in ISO 8601: of a date its begin, or with `end` the end of that day.

    Raises ValueError.

    >>> str(moment_of("2026-01-31", end=True)), str(moment_of("2026-01-31 13:00+02:00"))
    ('2026-02-01 00:00:00+00:00', '2026-01-31 11:00:00+00:00')
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        if end and _is_date(text):
            found += timedelta(days=1)
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError("this year is out of range") from None


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False
