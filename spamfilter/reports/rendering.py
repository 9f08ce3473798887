"""Reports, marks and evaluations as JSON; marks and evaluations as text for a terminal.

JSON is a stable interface, documented in docs/json.md. The text is for people and may change.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spamfilter.bayes.labels import Label
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.transaction import Change
from spamfilter.system.escaping import harmless, printable

if TYPE_CHECKING:  # most commands render neither; without these imports `lists` starts a sixth faster
    from spamfilter.evaluation.runs import RunOutcome
    from spamfilter.reports.report import Report
    from spamfilter.stores import Entry, JournalEntry


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
        if not change.changed:
            return f"{name}: not learnt; nothing changed"
        again = f", and learnt again as {change.again}, as before the mark" if change.again else ""
        return f"{name}: forgotten as {change.was}{again}; {scores}"
    if not change.changed:
        return f"{name}: already learnt as {label}; nothing changed"
    if change.was == label:
        return f"{name}: already learnt as {label}, by nobody's mark; now recorded as your mark"
    was = f" (was {change.was}, which is taken back)" if change.was else ""
    return f"{name}: learnt as {label}{was}; {scores}"


def change_json(subject: Subject, label: Label | None, change: Change, kept_on: str = "") -> dict[str, Any]:
    """A change as JSON, with `change_text` as `text`. kept_on: the other host that keeps it in quarantine, or ''."""
    text = change_text(subject.name, label, change)
    if kept_on:
        text += (
            f"; {harmless(kept_on)} has kept it in quarantine: `spamfilter quarantine release {subject.id}` there"
            " delivers it"
        )
    return {
        **name_json(subject),
        "changed": change.changed,
        "was": change.was,
        "again": change.again,
        "before": change.before.posterior,
        "after": change.after.posterior,
        "text": text,
    }


def name_json(subject: Subject) -> dict[str, str]:
    return {"id": subject.id} if subject.id else {"file": subject.name}


def journal_json(entry: "JournalEntry") -> dict[str, Any]:
    """A message of the journal, without tokens and evidence."""
    return {
        "id": entry.id, "at": entry.at, "sender": entry.sender, "recipients": list(entry.recipients),
        "subject": entry.subject, "message_id": entry.message_id, "client": entry.client, "size": entry.size,
        "class": entry.class_, "score": entry.score, "action": entry.action, "reply": entry.reply,
        "listed": entry.listed, "host": entry.host,
    }  # fmt: skip


def training_json(entry: "Entry") -> dict[str, Any]:
    """An entry of the ledger, without tokens."""
    return {
        "training": entry.id, "at": entry.at, "label": None if entry.undoes else entry.label, "source": entry.source,
        "by": entry.by,
    }  # fmt: skip


def report_json(report: "Report") -> dict[str, Any]:
    """A report; the figures of the period itself are at the top level, beside `since` and `until`."""
    body = asdict(report)
    del body["zone"]
    return {"since": body.pop("since"), "until": body.pop("until"), **body.pop("figures"), **body}


def outcome_json(outcome: "RunOutcome", suspects: int) -> dict[str, Any]:
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
    ("1-ROCA%", "roca", 4, 9), ("sm@.1", "sm_at_hm_01", 2, 8), ("LAM%", "lam", 3, 8), ("hm%", "hm", 2, 7),
    ("sm%", "sm", 2, 7), ("Brier", "brier", 4, 8), ("ECE", "ece", 4, 8),
)  # fmt: skip
"""Title, name in the metrics, digits after the point, and columns."""
_KNOWN, _TIME = 8, 7
"""Columns of known% and us."""
_FIGURES = sum(room for _, _, _, room in _COLUMNS) + _KNOWN + _TIME
"""Columns of all figures."""


def outcomes_text(outcomes: "Sequence[RunOutcome]", suspects: int, width: int) -> str:
    """A table of runs with 95 % intervals, and the suspected wrong labels of each run.

    width: most columns of the table, at least 80. A title without room beside the figures is a line of its own.
    """
    room = min(max(len("filter"), *(len(_title(outcome)) for outcome in outcomes)), max(width - _FIGURES, 10))
    head = "".join(f"{title:>{columns}}" for title, _, _, columns in _COLUMNS)
    lines = [f"{'filter':<{room}}{head}{'known%':>{_KNOWN}}{'us':>{_TIME}}"]
    for outcome in outcomes:
        title = _title(outcome)
        if len(title) > room:
            lines.append(title)
            title = ""
        figures = _row([getattr(outcome.metrics, name) for _, name, _, _ in _COLUMNS])
        known = "-" if outcome.known is None else f"{100 * outcome.known:.0f}"
        lines.append(f"{title:<{room}}{figures}{known:>{_KNOWN}}{outcome.microseconds:>{_TIME}.0f}")
        for place, bound in enumerate(("from", "to") if outcome.intervals else ()):
            lines.append(f"{bound:>{room}}{_row([outcome.intervals[name][place] for _, name, _, _ in _COLUMNS])}")
    judged = {(outcome.metrics.ham, outcome.metrics.spam): outcome for outcome in reversed(outcomes)}
    for (ham, spam), outcome in reversed(judged.items()):
        whose = f" by {_title(outcome)}" if len(judged) > 1 else ""
        lines += ["", f"{ham + spam:,} messages judged{whose}: {ham:,} ham, {spam:,} spam"]
    lines += ["", *_LEGEND]
    for outcome in outcomes:
        if outcome.days:
            lines += ["", f"{_title(outcome)}, day by day:", *_days(outcome), *_DAYS_LEGEND]
    for outcome in outcomes if suspects else ():
        lines += ["", f"labels that look wrong to {_title(outcome)}:"]
        lines += [
            f"  {printable(name, 100)}: labelled {label}, probability of spam {posterior:.4f}"
            for name, label, posterior in outcome.suspects[:suspects]
        ] or ["  none"]
    return "\n".join(lines)


_LEGEND = (
    "1-ROCA%  per cent of pairs of a ham and a spam in which the ham scores higher",
    "sm@.1    per cent of spam missed by a threshold that loses 0.1 % of ham",
    "LAM%     mean of hm% and sm% on the logit scale",
    "hm%      per cent of ham lost: with a probability of spam of at least 0.5",
    "sm%      per cent of spam missed: with a probability of spam below 0.5",
    "Brier    mean squared error of the probability, 0 to 1",
    "ECE      calibration error: mean distance from probability to share, 0 to 1",
    "known%   per cent of the words of a message that have counts, median",
    "us       microseconds of processor time for a message",
    "from, to 95 % confidence interval",
    "Less is better, except for known%.",
)
_DAYS_LEGEND = (
    "ham, spam: messages of the day; as spam, as ham: of these, judged wrongly;",
    "unsure: of these, judged unsure; marks: labels that the user gave.",
)


def _days(outcome: "RunOutcome") -> Iterator[str]:
    """What a small user sees and does, a line for each day."""
    yield f"{'day':>5}{'ham':>6}{'as spam':>9}{'unsure':>8}{'spam':>7}{'as ham':>8}{'unsure':>8}{'marks':>7}"
    for number, day in enumerate(outcome.days, 1):
        yield (
            f"{number:>5}{day.ham:>6}{day.ham_as_spam:>9}{day.ham_unsure:>8}"
            f"{day.spam:>7}{day.spam_as_ham:>8}{day.spam_unsure:>8}{day.marks:>7}"
        )


def _title(outcome: "RunOutcome") -> str:
    return f"{outcome.likelihood} {outcome.run.part}".rstrip()


def _row(numbers: Sequence[float]) -> str:
    columns = zip(numbers, _COLUMNS, strict=True)
    return "".join(f"{number:>{room}.{digits}f}" for number, (_, _, digits, room) in columns)
