"""Reports, marks and evaluations as JSON; marks and evaluations as text for a terminal.

JSON is a stable interface, documented in docs/json.md. The text is for people and may change.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spamfilter.bayes.counts import Label
from spamfilter.learning.marks import Subject
from spamfilter.learning.transaction import Change
from spamfilter.system.escaping import harmless, printable

if TYPE_CHECKING:  # a relay renders neither; without these imports it starts a twentieth faster
    from spamfilter.evaluation.runs import Outcome
    from spamfilter.reports.report import Report


def to_json(value: dict[str, Any]) -> str:
    """One line of ASCII, so that text from a mail cannot control a terminal. Times are ISO 8601 in UTC."""
    return json.dumps(value, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def change_text(name: str, label: Label | None, change: Change) -> str:
    """What a mark with a label, or a forget (None), changed for one message."""
    name = harmless(name)
    scores = f"score {change.before.posterior:.3f} -> {change.after.posterior:.3f}"
    if label is None:
        return (
            f"{name}: forgotten as {change.was}; {scores}" if change.changed else f"{name}: not learnt; nothing changed"
        )
    if not change.changed:
        return f"{name}: already learnt as {label}; nothing changed"
    if change.was == label:
        return f"{name}: already learnt as {label} by `train` or a rule; now recorded as your mark"
    was = f" (was {change.was}, which is taken back)" if change.was else ""
    return f"{name}: learnt as {label}{was}; {scores}"


def change_json(subject: Subject, label: Label | None, change: Change) -> dict[str, Any]:
    """The same as JSON, with `change_text` as `text`."""
    return {
        **name_json(subject),
        "changed": change.changed,
        "was": change.was,
        "before": change.before.posterior,
        "after": change.after.posterior,
        "text": change_text(subject.name, label, change),
    }


def name_json(subject: Subject) -> dict[str, str]:
    return {"id": subject.id} if subject.id else {"file": subject.name}


def report_json(report: "Report") -> dict[str, Any]:
    """A report; the figures of the period itself are at the top level, beside `since` and `until`."""
    body = asdict(report)
    return {"since": body.pop("since"), "until": body.pop("until"), **body.pop("figures"), **body}


def outcome_json(outcome: "Outcome", suspects: int) -> dict[str, Any]:
    """One run of an evaluation. suspects: number of suspected wrong labels to include."""
    return {
        "likelihood": outcome.likelihood,
        "protocol": outcome.protocol,
        "part": outcome.run.part,
        "taught": outcome.run.taught,
        **asdict(outcome.metrics),
        "intervals": outcome.intervals,
        "microseconds": round(outcome.microseconds, 1),
        "known": outcome.known,
        "days": [asdict(day) for day in outcome.days],
        "suspects": [
            {"name": name, "label": label, "posterior": posterior}
            for name, label, posterior in outcome.suspects[:suspects]
        ],
    }


_COLUMNS = (
    ("1-ROCA%", "roca", 4), ("sm@.1", "sm_at_hm_01", 2), ("LAM%", "lam", 3), ("hm%", "hm", 2), ("sm%", "sm", 2),
    ("Brier", "brier", 4), ("ECE", "ece", 4),
)  # fmt: skip


def outcomes_text(outcomes: "Sequence[Outcome]", suspects: int) -> str:
    """A table of runs with 95 % intervals, and the suspected wrong labels of each run."""
    width = max(len("filter"), *(len(_title(outcome)) for outcome in outcomes))
    head = "".join(f"{title:>15}" for title, _, _ in _COLUMNS)
    lines = [f"{'filter':<{width}}{head}{'known%':>8}{'us':>8}"]
    for outcome in outcomes:
        figures = "".join(f"{getattr(outcome.metrics, name):>15.{digits}f}" for _, name, digits in _COLUMNS)
        known = "-" if outcome.known is None else f"{100 * outcome.known:.0f}"
        lines.append(f"{_title(outcome):<{width}}{figures}{known:>8}{outcome.microseconds:>8.0f}")
        if outcome.intervals:
            bounds = "".join(f"{_interval(outcome.intervals[name], digits):>15}" for _, name, digits in _COLUMNS)
            lines.append(f"{'':<{width}}{bounds}")
    judged = {(outcome.metrics.ham, outcome.metrics.spam): outcome for outcome in reversed(outcomes)}
    for (ham, spam), outcome in reversed(judged.items()):
        whose = f" by {_title(outcome)}" if len(judged) > 1 else ""
        lines += ["", f"{ham + spam:,} messages judged{whose}: {ham:,} ham, {spam:,} spam"]
    lines += ["", *_LEGEND]
    for outcome in outcomes:
        if outcome.days:
            lines += ["", f"{_title(outcome)}, day by day:", *_days(outcome)]
    for outcome in outcomes if suspects else ():
        lines += ["", f"labels that look wrong to {_title(outcome)}:"]
        lines += [
            f"  {printable(name, 100)}: labelled {label}, probability of spam {posterior:.4f}"
            for name, label, posterior in outcome.suspects[:suspects]
        ] or ["  none"]
    return "\n".join(lines)


_LEGEND = (
    "1-ROCA%: chance that a ham scores above a spam; sm@.1: spam missed where 0.1 % of ham is lost; hm%, sm%: ham at",
    "or above, spam below a probability of 0.5; LAM%: mean of both on the logit scale; Brier, ECE: squared error and",
    "calibration error of the probability, 0 to 1: of all these, less is better. known%: words of a message that have",
    "counts, median; us: microseconds of processor time for a message.",
)


def _days(outcome: "Outcome") -> Iterator[str]:
    """What a small user sees and does, a line for each day."""
    yield f"{'day':>5}{'ham':>6}{'as spam':>9}{'unsure':>8}{'spam':>7}{'as ham':>8}{'unsure':>8}{'marks':>7}"
    for number, day in enumerate(outcome.days, 1):
        yield (
            f"{number:>5}{day.ham:>6}{day.ham_as_spam:>9}{day.ham_unsure:>8}"
            f"{day.spam:>7}{day.spam_as_ham:>8}{day.spam_unsure:>8}{day.marks:>7}"
        )


def _title(outcome: "Outcome") -> str:
    return f"{outcome.likelihood} {outcome.run.part}".rstrip()


def _interval(bounds: tuple[float, float], digits: int) -> str:
    return f"{bounds[0]:.{digits}f}-{bounds[1]:.{digits}f}"
