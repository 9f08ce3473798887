"""The report as one page of HTML for browsers and mail programs, in light and dark mode.

Guarantee: no script, no external resource; text from a mail is never markup.
"""

import functools
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from spamfilter.bayes.verdict import PARTLY
from spamfilter.relay.sender_lists.decision import use_of
from spamfilter.reports.charts import COLOURS, HEIGHT, PALE, charts_of
from spamfilter.reports.report import Report
from spamfilter.reports.text import TRAININGS, disk_text, drift_text, message_change, outage_texts, size_text
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import day_text, moment_text


def report_html(report: Report, host: str = "") -> str:
    """The page. host: the name of the mail server."""
    return environment("spamfilter.reports").get_template("report.html").render(facts(report, host))


@functools.cache
def environment(room: str) -> Environment:
    """The templates of a room and those of reports/. Text from a mail is escaped."""
    loader = ChoiceLoader([PackageLoader(room), PackageLoader("spamfilter.reports")])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_finalized)
    made.filters |= {
        "capital": lambda text: text[:1].upper() + text[1:],
        "class_name": class_name,
        "milliseconds": lambda microseconds: f"{microseconds / 1000:.2f} ms",
        "day": day_text,
        "moment": moment_text,
        "number": "{:,}".format,
        "percent": _percent,
        "rule_name": _rule_name,
        "size": size_text,
    }
    made.globals |= {
        "chart_height": HEIGHT,
        "colours": COLOURS,
        "disk_text": disk_text,
        "drift_text": drift_text,
        "outage_texts": outage_texts,
        "pale": PALE,
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
        "host": whose(report, host),
        "change": message_change(report),
        "charts": charts_of(report),
    }


def whose(report: Report, host: str) -> str:
    """The host that a report is about; of a report about all hosts, how many they are, or this host if it is one."""
    return report.host or (f"all {len(report.hosts)} hosts" if len(report.hosts) > 1 else host)


def _finalized(value: object) -> object:
    """Text without characters that reorder or hide others."""
    return harmless(value, keep="\n") if type(value) is str else value


def class_name(class_: str) -> str:
    """The name of a class for readers of a page, who may not know the word ham."""
    return "not spam" if class_ == "ham" else class_


def _rule_name(listed: str) -> str:
    """The rule that a message has met, for readers of a list.

    >>> _rule_name("blocked=a@example.org for-all=no rule=1")
    'sender blocked for some recipients'
    """
    names = {"blocked": "sender blocked", "allowed": "sender allowed", "unproved": "sender allowed, but not proved"}
    return names.get(use_of(listed), "") + " for some recipients" * (PARTLY in listed)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _share(count: int, total: int) -> str:
    return _percent(count / total) if total else "-"
