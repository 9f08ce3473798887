"""What an administrator should do now, from the figures of a report."""

from collections.abc import Mapping, Sequence

from spamfilter.bayes.doubt import LITTLE_COMPARED, compared
from spamfilter.bayes.labels import LABELS
from spamfilter.reports.drift import Drift
from spamfilter.reports.outages import Downtime, Outage, messages_text
from spamfilter.reports.report_figures import Figures
from spamfilter.system.moments import moment_text
from spamfilter.system.terminal import cell

SOON = 60
"""Days until the disk is full from which on the report warns."""
MANY_MARKS, ONE_SIDED = 100, 10
"""Marks of one class in a period, and how many times as many as of the other, from which on the report advises to
retrain: a filter that learns from its errors is tuned to what it saw last (benchmarks/training_order.py)."""
LOST = 0.01
"""Rate of false positives from which on the report advises to act."""


def advice(
    figures: Figures,
    before: Figures,
    learnt: Mapping[str, int],
    marks: Mapping[str, int],
    waiting: int,
    drifts: Sequence[Drift],
    days_left: float | None,
    off: Sequence[Outage],
    down: Sequence[Downtime],
) -> list[str]:
    """Advice, a sentence each, the most important first.

    before: the figures of the period before. learnt: messages of each class. marks: those of the period. waiting:
    messages that need review. days_left: until the disk is full, None if that is far away. off, down: when mail was
    deferred, and when the relay did not run.
    """
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
            f" ({cell(last.reply, 200)}): senders try again; see Outages, and the logs of the relay and of the next hop"
        )
    if down:
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
