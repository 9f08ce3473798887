"""What an administrator should do now, from the figures of a report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spamfilter.bayes.doubt import LITTLE_COMPARED, compared
from spamfilter.bayes.labels import LABELS
from spamfilter.reports.outages import Outage, messages_text
from spamfilter.system.moments import moment_text

if TYPE_CHECKING:
    from spamfilter.reports.report import Report

SOON = 60
"""Days until the disk is full from which on the report warns."""
MANY_MARKS, ONE_SIDED = 100, 10
"""Marks of one class in a period, and how many times as many as of the other, from which on the report advises to
retrain: a filter that learns from its errors is tuned to what it saw last (benchmarks/training_order.py)."""
LOST = 0.01
"""Rate of false positives from which on the report advises to act."""


def advice(report: "Report", marks: Mapping[str, int], off: Sequence[Outage]) -> list[str]:
    """Advice on a report that is made but for it, a sentence each, the most important first.

    marks: messages that were marked in the period, of each class. off: all times when mail was deferred, of which the
    report has the latest.
    """
    figures, before, learnt, drifts = report.figures, report.before, report.learnt, report.drifts
    days_left, waiting = report.size.days_left, report.waiting_in_all
    found = []
    if before.messages and not figures.messages:
        found.append(
            f"no mail came, and {before.messages:,} in the period before: does the mail server still hand it over?"
        )
    if not min(learnt.values()):
        found.append("mark some ham and some spam: the filter cannot judge when it knows one class only")
    elif compared(learnt["ham"], learnt["spam"]) < LITTLE_COMPARED:
        found.append("mark or train more ham: the filter knows so little that it is sure of hardly any spam")
    if max(marks.values()) >= MANY_MARKS and max(marks.values()) > ONE_SIDED * min(marks.values()):
        rarer = min(LABELS, key=lambda label: marks[label])
        found.append(f"nearly all marks were of one class: run spamfilter retrain, so that {rarer} stays {rarer}")
    if days_left is not None and days_left < SOON:
        found.append(f"the disk will be full in {days_left:.0f} days: lower [report] journal_days, or add space")
    if off:
        last, were = off[-1], "was" if sum(one.messages for one in off) == 1 else "were"
        found.append(
            f"{messages_text(off)} {were} deferred, the last at {moment_text(last.end)}"
            f" ({last.reply}): senders try again; see Outages, and the logs of the relay and of the next hop"
        )
    if report.downtimes:
        found.append("the relay did not run, had no database, or had its clock set, see Outages: its log says why")
    if waiting:
        found.append(f"{waiting:,} message{'s need' if waiting > 1 else ' needs'} review: spamfilter review")
    if any(one.what == "deferred" and one.share > one.before for one in drifts):
        found.append("more mail than usual is deferred: look at the replies of the next hop, and run spamfilter doctor")
    if any(one.what.endswith(("judged_spam", "judged_ham")) and one.share > one.before for one in drifts):
        found.append(
            "more verdicts than usual were wrong: see what the corrected messages have in common, and mark more of them"
        )
    if figures.ham_rate.errors and figures.ham_rate.low > LOST:
        found.append("more than 1 % of ham were false positives: raise [verdict] spam, or train more ham")
    return found
