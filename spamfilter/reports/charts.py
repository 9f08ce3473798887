"""The charts of a report: mail by day and by hour as stacked bars, in pixels, for any page that draws them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import count

from spamfilter.reports.report import Report
from spamfilter.reports.report_figures import Slot

HEIGHT = 120
"""Pixels of the plot."""
LINES = 4
"""Gridlines at most."""
LABELS = 6
"""Slots that are named below their bars: more could not be read on a phone."""
MANY = 100
"""With more days than this, only the months are named."""
SHORT = timedelta(days=2)
"""Periods up to this have no chart by day."""
COLOURS = {"spam": "#a83a0a", "unsure": "#e0a100", "ham": "#0072b2"}
"""The classes of a bar, from its top -> a colour on white, told apart also by people who confuse red and green."""
PALE = {"spam": "#d49c84", "unsure": "#efd080", "ham": "#80b8d8"}
"""The same for bars whose day or hour lies only in part in the period, or is not over."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A slot, the pixels of each class, and the label below."""

    slot: Slot
    pixels: dict[str, int]
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of one scale. lines: messages -> pixels above the ground, the highest first, without 0."""

    title: str
    bars: list[Bar]
    lines: dict[int, int]

    @property
    def labels(self) -> list[tuple[str, int]]:
        """The labels below, each with the number of bars until the next."""
        found: list[tuple[str, int]] = []
        for bar in self.bars:
            if bar.label or not found:
                found.append((bar.label, 1))
            else:
                found[-1] = found[-1][0], found[-1][1] + 1
        return found

    @property
    def partial(self) -> bool:
        """Whether there is a bar whose day or hour lies only in part in the period, or is not over."""
        return any(not bar.slot.whole for bar in self.bars)


def charts_of(report: Report) -> list[Chart]:
    """By day unless the period is short; by hour along the period, or if that is long by hour of the day."""
    found = []
    if report.until - report.since > SHORT:
        found.append(_chart(f"By day, {report.zone}", report.days, _day_label))
    if report.timeline:
        found.append(_chart(f"By hour, {report.zone}", report.timeline, _hour_label))
    else:
        title = f"By hour of the day, {report.zone}"
        found.append(_chart(title, report.hours, lambda number, slot, of: "" if number % 3 else slot.at))
    return found


def _chart(title: str, slots: list[Slot], label: Callable[[int, Slot, int], str]) -> Chart:
    """label: of a slot, by its number and how many there are."""
    step, top = scale(max((sum(slot.classes.values()) for slot in slots), default=0))

    def pixels(count: int) -> int:
        """At least one pixel for any message."""
        return max(round(HEIGHT * count / top), 1) if count else 0

    bars = [
        Bar(slot, {name: pixels(slot.classes[name]) for name in COLOURS}, label(number, slot, len(slots)))
        for number, slot in enumerate(slots)
    ]
    return Chart(title, bars, {line: pixels(line) for line in range(top, 0, -step)})


def scale(most: int) -> tuple[int, int]:
    """The step of the gridlines, a round number, and the highest of them.

    >>> scale(0), scale(3), scale(1234), scale(2001)
    ((1, 1), (1, 3), (500, 1500), (1000, 3000))
    """
    steps = (by * 10**power for power in count() for by in (1, 2, 5))
    step = next(step for step in steps if step * LINES >= most)
    return step, max(-(-most // step), 1) * step


def _day_label(number: int, slot: Slot, days: int) -> str:
    """The label below a bar: the day, with the month if it changed; LABELS of them, or of many days only the months."""
    day, every = date.fromisoformat(slot.at), -(-days // LABELS)
    if days > MANY:
        return day.strftime("%b") if day.day == 1 else ""
    if number % every:
        return ""
    last = day - timedelta(days=every)
    return day.strftime("%-d" if number and last.month == day.month else "%-d %b")


def _hour_label(number: int, slot: Slot, hours: int) -> str:
    """The label below a bar: the day at its begin; with few bars every third hour, too, where the day leaves room."""
    at, few = datetime.fromisoformat(slot.at), hours <= 24 * SHORT.days + 1
    if not at.hour:
        return at.strftime("%-d %b" if number < 24 or at.day == 1 else "%-d")
    return at.strftime("%H") if few and at.hour > 3 and not at.hour % 3 else ""
