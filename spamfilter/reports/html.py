"""The report as one page of HTML for browsers and mail programs, in light and dark mode.

Guarantee: no script, no external resource; text from a mail is never markup.
"""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from spamfilter.relay.sender_lists.decision import use_of
from spamfilter.reports.report import Report
from spamfilter.reports.report_figures import Slot
from spamfilter.reports.text import (
    REPLY_WORDS,
    TRAININGS,
    disk_text,
    drift_text,
    moment,
    outage_texts,
    relative_change,
    size_text,
)
from spamfilter.system.escaping import harmless

HEIGHT = 88
"""Pixels of the highest bar."""
LABELS = 8
"""Days that are named below their bars: more could not be read on a phone."""
MANY = 100
"""With more days than this, only the months are named."""


def report_html(report: Report, host: str = "") -> str:
    """The page. host: the name of the mail server."""
    return environment("spamfilter.reports").get_template("report.html").render(facts(report, host))


def environment(room: str) -> Environment:
    """The templates of a room and those of reports/. Text from a mail is escaped."""
    loader = ChoiceLoader([PackageLoader(room), PackageLoader("spamfilter.reports")])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_finalized)
    made.filters |= {
        "capital": _capital,
        "class_name": class_name,
        "milliseconds": _milliseconds,
        "moment": moment,
        "number": _number,
        "percent": _percent,
        "rule_name": _rule_name,
        "size": size_text,
    }
    made.globals |= {
        "disk_text": disk_text,
        "drift_text": drift_text,
        "height": _height,
        "outage_texts": outage_texts,
        "reply_words": REPLY_WORDS,
        "share": _share,
        "most_trainings": TRAININGS,
    }
    return made


def facts(report: Report, host: str = "") -> dict[str, Any]:
    """The values that the templates of a report need."""
    return {
        "report": report,
        "now": report.figures,
        "before": report.before,
        "host": host,
        "change": relative_change(report.figures.messages, report.before.messages),
        "most_a_day": _most(report.days),
        "most_an_hour": _most(report.hours),
        "day_label": _day_label(len(report.days)),
        "hour_label": lambda number, slot: slot.at if not number % 3 else "",
    }


def _finalized(value: object) -> object:
    """Text without characters that reorder or hide others."""
    return harmless(value, keep="\n") if type(value) is str else value


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def class_name(class_: str) -> str:
    """The name of a class for readers of a page, who may not know the word ham."""
    return "not spam" if class_ == "ham" else class_


def _rule_name(listed: str) -> str:
    """The rule that a message has met, for readers of a list."""
    names = {"blocked": "sender blocked", "allowed": "sender allowed", "unproved": "sender allowed, but not proved"}
    return names.get(use_of(listed), "")


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f} ms"


def _number(number: float) -> str:
    return f"{number:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _share(count: int, total: int) -> str:
    return _percent(count / total) if total else "-"


def _most(slots: list[Slot]) -> int:
    return max((sum(slot.classes.values()) for slot in slots), default=0)


def _height(count: int, most: int) -> int:
    """Pixels of a part of a bar; at least one pixel for any message."""
    return max(round(HEIGHT * count / most), 1) if count else 0


def _day_label(days: int) -> Callable[[int, Slot], str]:
    """The label below a bar: the day, with the month if it changed; LABELS of them, or of many days only the months."""
    every = -(-days // LABELS)

    def label(number: int, slot: Slot) -> str:
        day = date.fromisoformat(slot.at)
        if days > MANY:
            return day.strftime("%b") if day.day == 1 else ""
        if number % every:
            return ""
        last = day - timedelta(days=every)
        return day.strftime("%-d" if number and last.month == day.month else "%-d %b")

    return label
