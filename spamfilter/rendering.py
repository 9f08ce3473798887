"""A report, a change or an evaluation as text for a terminal, and as JSON.

JSON is a stable interface, documented in docs/json.md; the text is for people and may change.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from spamfilter.counts import Label
from spamfilter.evaluating import Outcome
from spamfilter.filter import Change
from spamfilter.report import Delay, Rate, Report
from spamfilter.terminal import harmless
from spamfilter.verdict import printable


def to_json(value: dict[str, Any]) -> str:
    """One line of ASCII, so that no text of a stranger harms a terminal; moments as ISO 8601 in UTC."""
    return json.dumps(value, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def change_text(name: str, label: Label | None, change: Change) -> str:
    """What a mark (label) or a forget (None) did to one message."""
    name = harmless(name)
    scores = f"score {change.before.posterior:.3f} -> {change.after.posterior:.3f}"
    if label is None:
        return (
            f"{name}: forgotten as {change.was}; {scores}" if change.changed else f"{name}: not learnt; nothing changed"
        )
    if not change.changed:
        return f"{name}: already learnt as {label}; nothing changed"
    if change.was == label:
        return f"{name}: learnt as {label} before, by nobody's mark; now it is yours"
    was = f" (was {change.was}, which is taken back)" if change.was else ""
    return f"{name}: learnt as {label}{was}; {scores}"


def change_json(named: dict[str, str], change: Change) -> dict[str, Any]:
    return {
        **named,
        "changed": change.changed,
        "was": change.was,
        "before": change.before.posterior,
        "after": change.after.posterior,
    }


def report_text(report: Report) -> str:
    """The report for a terminal, at most 100 columns."""
    total = report.messages
    lines = [
        f"spamfilter report, {_moment(report.since)} to {_moment(report.until)} UTC",
        "",
        f"Mail        {total:,} message{'' if total == 1 else 's'}, {_size(report.bytes)}",
        "  judged    " + _shares(report.classes, total),
        "  done      " + _shares({name: n for name, n in report.actions.items() if n}, total),
        "  answered  " + _shares({name.replace("_", " "): n for name, n in report.replies.items() if n}, total),
        "",
        "Errors that users corrected (95 % interval)",
        f"  ham taken for spam    {_rate(report.ham_rate)}",
        f"  spam taken for ham    {_rate(report.spam_rate)}",
        f"  unsure, since marked  {report.unsure_settled['spam']} spam, {report.unsure_settled['ham']} ham"
        f" of {report.classes['unsure']}",
        "",
        "Time a message (median, 99 % below)",
        f"  judging   {_delay(report.judging)}",
        f"  in all    {_delay(report.relaying)}",
        "",
        f"Learnt      {report.learnt['ham']:,} ham, {report.learnt['spam']:,} spam;"
        f" {report.learnings:,} in this period",
        "Database    "
        + f"{report.store}, {_size(report.store_bytes)}, "
        + ", ".join(f"{count:,} words of {voice}" for voice, count in report.vocabulary.items()),
    ]
    if not min(report.learnt.values()):
        lines += ["", "Advice      mark some ham and some spam: with one class alone nothing can be told apart"]
    if report.latest:
        lines += ["", "Learnt lately"]
        for item in report.latest:
            by = f" by {printable(item.by, 20)}" if item.by else ""
            subject = f"  {printable(item.subject, 40)}" if item.subject else ""
            id = f"  {item.id}" if item.id else ""
            lines.append(f"  {_moment(item.at)}  {item.label:<4}  {item.source}{by}{id}{subject}")
    if report.waiting:
        lines += ["", "Unsure, and not marked yet: `spamfilter review`, or mark-spam, mark-ham with the id"]
        lines += [
            f"  {item.id}  {item.score:.3f}  {printable(item.sender, 24):<24}  {printable(item.subject, 34)}"
            for item in report.waiting
        ]
    if report.words:
        lines += ["", f"Words that mattered most  {'verdicts':>22}  {'speaks for':>10}  {'log-odds':>8}"]
        for word in report.words:
            side = "spam" if word.weight > 0 else "ham"
            lines.append(f"  {printable(word.token, 36):<36}  {word.verdicts:>8,}  {side:>10}  {word.weight:>+8.2f}")
    return "\n".join(lines)


def report_json(report: Report) -> dict[str, Any]:
    return asdict(report)


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


def _shares(counts: dict[str, int], total: int) -> str:
    if not total:
        return "nothing yet"
    return ", ".join(f"{n:,} {name} ({100 * n / total:.1f} %)" for name, n in counts.items())


def _rate(rate: Rate) -> str:
    if not rate.messages:
        return "nothing to count yet"
    share = 100 * rate.errors / rate.messages
    return f"{rate.errors:,} of {rate.messages:,} = {share:.2f} % ({100 * rate.low:.2f} to {100 * rate.high:.2f} %)"


def _delay(delay: Delay) -> str:
    return f"{delay.median / 1000:.2f} ms, {delay.p99 / 1000:.2f} ms"


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def outcome_json(outcome: Outcome, suspects: int) -> dict[str, Any]:
    """One run of an evaluation; `suspects` of the suspected wrong labels."""
    return {
        "likelihood": outcome.likelihood,
        "protocol": outcome.protocol,
        "part": outcome.run.part,
        "taught": outcome.run.taught,
        **asdict(outcome.metrics),
        "intervals": outcome.intervals,
        "microseconds": round(outcome.microseconds, 1),
        "suspects": [
            {"name": name, "label": label, "posterior": posterior}
            for name, label, posterior in outcome.suspects[:suspects]
        ],
    }


_COLUMNS = (
    ("1-ROCA%", "roca", 4), ("sm@.1", "sm_at_hm_01", 2), ("LAM%", "lam", 3), ("hm%", "hm", 2), ("sm%", "sm", 2),
    ("Brier", "brier", 4), ("ECE", "ece", 4),
)  # fmt: skip


def outcomes_text(outcomes: Sequence[Outcome], suspects: int) -> str:
    """A table of runs, each with its 95 % intervals below it, and the suspected wrong labels."""
    width = max(len("contender"), *(len(_title(outcome)) for outcome in outcomes))
    head = "".join(f"{title:>15}" for title, _, _ in _COLUMNS)
    lines = [f"{'contender':<{width}}{head}{'us':>8}"]
    for outcome in outcomes:
        figures = "".join(f"{getattr(outcome.metrics, name):>15.{digits}f}" for _, name, digits in _COLUMNS)
        lines.append(f"{_title(outcome):<{width}}{figures}{outcome.microseconds:>8.0f}")
        if outcome.intervals:
            bounds = "".join(f"{_interval(outcome.intervals[name], digits):>15}" for _, name, digits in _COLUMNS)
            lines.append(f"{'':<{width}}{bounds}")
    judged = {(outcome.metrics.ham, outcome.metrics.spam): outcome for outcome in reversed(outcomes)}
    for (ham, spam), outcome in reversed(judged.items()):
        whose = f" by {_title(outcome)}" if len(judged) > 1 else ""
        lines += ["", f"{ham + spam:,} messages judged{whose}: {ham:,} ham, {spam:,} spam"]
    for outcome in outcomes if suspects else ():
        lines += ["", f"labels that {_title(outcome)} doubts:"]
        lines += [
            f"  {printable(name, 100)}: labelled {label}, probability of spam {posterior:.4f}"
            for name, label, posterior in outcome.suspects[:suspects]
        ] or ["  none"]
    return "\n".join(lines)


def _title(outcome: Outcome) -> str:
    return f"{outcome.likelihood} {outcome.run.part}".rstrip()


def _interval(bounds: tuple[float, float], digits: int) -> str:
    return f"{bounds[0]:.{digits}f}-{bounds[1]:.{digits}f}"
