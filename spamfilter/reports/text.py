"""The report as text for a terminal of at least 60 columns.

Guarantee: no line is wider than the terminal, and no line has control characters.
"""

import math
from collections.abc import Iterator, Sequence

from spamfilter.reports.drift import Drift
from spamfilter.reports.outages import Downtime, messages_text
from spamfilter.reports.report import MatteringWord, Report
from spamfilter.reports.report_figures import Delay, Rate
from spamfilter.system.moments import moment_text, span_text
from spamfilter.system.terminal import cell, folded, shortened
from spamfilter.system.terminal import width as columns_of

NARROWEST, WIDEST = 60, 120
"""Columns: the tables need 60, and lines of more than 120 are hard to read."""
TRAININGS = 20
"""Rows by source, author and label, those with the most messages first; the rest is summed in one row."""
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
"""Eight heights of a bar, and their replacement on terminals whose encoding lacks them."""
DRIFT_WORDS = {
    "spam": "spam",
    "unsure": "unsure mail",
    "ham_judged_spam": "false positives",
    "spam_judged_ham": "missed spam",
    "deferred": "deferred mail",
}
"""The subject of a sentence about a drift."""
MANY_DAYS = 730
"""Days until the disk is full; a larger number would be only a guess."""


def report_text(report: Report, width: int = 100, encoding: str = "utf-8") -> str:
    """The report for a terminal of this width in columns and this encoding."""
    width = min(max(width, NARROWEST), WIDEST)
    sections = (_advice, _mail, _errors, _learning, _latest, _lists)
    lines = [line for section in sections for line in section(report, width)]
    head = f"spamfilter report, {moment_text(report.since)} to {moment_text(report.until)}"
    head += f", {cell(report.host, 100)}" if report.host else ""
    text = "\n".join(shortened(line.rstrip(), width) for line in (*_wrapped("", head, width), *lines))
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(str.maketrans(BARS, PLAIN_BARS))
    return text


def size_text(count: float) -> str:
    """A number of bytes.

    >>> size_text(999), size_text(1234567)
    ('999 bytes', '1.2 MB')
    """
    for unit in ("bytes", "KB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def sparkline(numbers: Sequence[float]) -> str:
    """A bar for each number; only 0 has no bar.

    >>> sparkline([0, 1, 4, 8])
    ' ▁▄█'
    """
    most = max(numbers, default=0)
    return "".join(BARS[math.ceil(8 * number / most)] if number else " " for number in numbers)


def message_change(report: Report) -> str:
    """The change of messages in the same time, compared with the period before, as in '+50 %'; '' if that had none."""
    now = report.figures.messages * (report.since - report.before_since).total_seconds()
    before = report.before.messages * (report.until - report.since).total_seconds()
    if not before:
        return ""
    change = round(100 * (now / before - 1))
    return f"{change:+d} %" if change else "0 %"


def drift_text(drift: Drift) -> str:
    """How a rate has changed.

    >>> drift_text(Drift("unsure", 0.0226, 0.0647))
    'unsure mail fell from 6.5 % to 2.3 %'
    """
    way = "rose" if drift.share > drift.before else "fell"
    return f"{DRIFT_WORDS[drift.what]} {way} from {100 * drift.before:.1f} % to {100 * drift.share:.1f} %"


def outage_texts(report: Report) -> list[str]:
    """When mail was deferred and when the relay did not run, a sentence each, in their order."""
    found = [
        (one.begin, f"{span_text(one.begin, one.end)}: {messages_text([one])} deferred: {cell(one.reply, 200)}")
        for one in report.outages
    ]
    found += [(down.begin, downtime_text(down, report.hosts)) for down in report.downtimes]
    return [sentence for _, sentence in sorted(found)]


def downtime_text(down: Downtime, hosts: Sequence[str]) -> str:
    """When the relay did not run, as a sentence; which one, if there are several hosts."""
    until = span_text(down.begin, down.end) if down.end else f"since {moment_text(down.begin)}"
    host = f" of {cell(down.host, 100)}" if down.host and len(hosts) > 1 else ""
    return f"{until}: the relay{host} did not run, had no database, or had its clock set"


def disk_text(days: float) -> str:
    """When the disk will be full.

    >>> disk_text(44.3), disk_text(4_143_269)
    ('disk: full in 44 days', 'disk: more than 2 years left')
    """
    return "disk: more than 2 years left" if days > MANY_DAYS else f"disk: full in {days:.0f} days"


def _mail(report: Report, width: int) -> Iterator[str]:
    now, change = report.figures, message_change(report)
    yield ""
    compared = f", {change} compared with the period before" if change else ""
    yield f"Mail        {now.messages:,} message{'s' * (now.messages != 1)}, {size_text(now.bytes)}{compared}"
    for head, counts in (("judged", now.classes), ("action", now.actions), ("reply", now.replies)):
        yield from _wrapped(f"  {head:<10}", _shares(counts, now.messages), width)
    if unjudged := [f"{n:,} {name}" for name, n in now.unjudged.items() if n]:
        yield from _wrapped("  unjudged  ", f"{', '.join(unjudged)}, before their text had come", width)
    if now.messages:
        room = width - 14
        per_day = _grouped([sum(day.classes.values()) for day in report.days], room)
        spam = _grouped([day.classes["spam"] for day in report.days], room)
        yield f"  by day    {sparkline(per_day)}"
        yield f"  spam      {sparkline([*spam, max(per_day)])[:-1]}"
        by_hour = _grouped([sum(hour.classes.values()) for hour in report.timeline or report.hours], room)
        yield f"  by hour   {sparkline(by_hour)}{'' if report.timeline else f'  0 to 23, {report.zone}'}"
    yield ""
    yield "Processing time (median, 99th percentile)"
    yield f"  judging   {_delay(now.judging)}"
    yield f"  total     {_delay(now.relaying)}"
    if report.outages or report.downtimes:
        yield ""
        yield "Outages"
        for sentence in outage_texts(report):
            yield from _wrapped("  ", sentence, width)
    if report.troubles:
        yield ""
        yield "Not delivered"
        for trouble in report.troubles:
            yield f"  {trouble.messages:>7,}  {cell(trouble.reply, width - 11) or 'no reply'}"


def _grouped(numbers: Sequence[int], room: int) -> list[float]:
    """The means of equal groups of numbers, at most `room` of them."""
    size = -(-len(numbers) // room)
    return [sum(numbers[at : at + size]) / size for at in range(0, len(numbers), size)]


def _errors(report: Report, width: int) -> Iterator[str]:
    now, before = report.figures, report.before
    yield ""
    yield "Errors that users corrected (95 % confidence interval)"
    yield from _wrapped("  false positives       ", _rate(now.ham_rate) + _before(before.ham_rate), width)
    yield from _wrapped("  missed spam           ", _rate(now.spam_rate) + _before(before.spam_rate), width)
    if now.lam is not None:
        yield f"  both (LAM)            {now.lam:.2f} %" + (f"; {before.lam:.2f} % before" if before.lam else "")
    settled = f"{now.unsure_settled['spam']:,} spam, {now.unsure_settled['ham']:,} ham"
    yield f"  unsure, later marked  {settled} of {now.classes['unsure']:,}"
    for drift in report.drifts:
        yield from _wrapped("  CHANGED               ", drift_text(drift), width)
    if report.calibration:
        yield ""
        yield "Predicted and actual spam rate"
        for part in report.calibration:
            share = part.spam / part.messages
            bar = "#" * round(share * (width - 44))
            yield f"  {part.least:.2f} to {part.most:.2f}  {100 * share:>6.2f} %  of {part.messages:>9,}  {bar}"


def _before(before: Rate) -> str:
    return f"; {100 * before.errors / before.messages:.2f} % before" if before.messages else ""


def _learning(report: Report, width: int) -> Iterator[str]:
    yield ""
    learnt = f"{report.learnt['ham']:,} ham, {report.learnt['spam']:,} spam"
    yield f"Learnt      {learnt}; {report.learnings:,} in this period"
    ordered = sorted(report.trainings, key=lambda training: -training.number)
    for training in ordered[:TRAININGS]:
        by = f" by {cell(training.by, 30)}" if training.by else ""
        yield f"  {training.number:>7,}  {training.label:<4}  {training.source}{by}"
    if rest := sum(training.number for training in ordered[TRAININGS:]):
        yield f"  {rest:>7,}  in {len(ordered) - TRAININGS:,} more rows: see stats --json"
    size = report.size
    yield f"Database    {cell(report.store, width - 30)}, {size_text(size.bytes)}"
    if size.growth is not None:
        left = f"; {disk_text(size.days_left)}" if size.days_left is not None else ""
        yield f"  grows     {size_text(size.growth)} a day{left}"
    voices = ", ".join(f"{count:,} words in {voice}" for voice, count in report.vocabulary.items())
    yield from _wrapped("Vocabulary  ", voices or "empty", width)
    if report.moved:
        yield ""
        yield f"Words that were learnt most  {'in ham':>20}  {'in spam':>8}"
        for word in report.moved:
            yield f"  {cell(word.token, 36, fill=True)}  {word.ham:>9,}  {word.spam:>8,}"


def _advice(report: Report, width: int) -> Iterator[str]:
    if report.advice:
        yield ""
    for number, sentence in enumerate(report.advice):
        yield from _wrapped(" " * 12 if number else "Advice      ", sentence, width)


def _latest(report: Report, width: int) -> Iterator[str]:
    if report.latest:
        yield ""
        yield "Learnt lately"
        sources = [item.source + (f" by {cell(item.by, 20)}" if item.by else "") for item in report.latest]
        for item, source in zip(report.latest, sources, strict=True):
            head = f"  {moment_text(item.at)}  {item.label:<6}  {source:<{max(map(len, sources))}}"
            if item.id and len(head) + 2 + len(item.id) <= width:  # part of an id is of no use
                head += f"  {item.id}"
            yield head + (f"  {cell(item.subject, room)}" if (room := width - columns_of(head) - 2) > 0 else "")
    if report.waiting:
        yield ""
        more = f", {report.waiting_in_all:,} in all" if report.waiting_in_all > len(report.waiting) else ""
        yield f"Needs review{more}: spamfilter review"
        for waiting in report.waiting:
            head = f"  {waiting.id}  {waiting.score:.3f}  {cell(waiting.sender, 24, fill=True)}"
            yield head + (f"  {cell(waiting.subject, room)}" if (room := width - columns_of(head) - 2) > 0 else "")


def _wrapped(head: str, sentence: str, width: int) -> list[str]:
    return folded(head + sentence, width, len(head)).split("\n")


def _lists(report: Report, width: int) -> Iterator[str]:
    lists = {"Domains of senders": report.senders, "Recipients": report.recipients, "Clients": report.clients}
    for title, names in lists.items():
        if names:
            yield ""
            room = min(width - 22, 42)
            yield f"{title:<{room + 2}}  {'messages':>8}  {'spam':>8}"
            for name in names:
                shown = cell(name.name or "(none)", room, fill=True)
                yield f"  {shown}  {name.messages:>8,}  {name.spam:>8,}"
    yield from _words("Words that mattered most", report.words, width)
    yield from _words("Words that rose", report.risen, width)
    yield from _words("Words that fell", report.fallen, width)


def _words(title: str, words: Sequence[MatteringWord], width: int) -> Iterator[str]:
    room = min(width - 40, 36)
    if words:
        yield ""
        yield f"{title:<{room + 2}} {'verdicts':>8} {'before':>8} {'for':>5}  {'log-odds':>8}"
    for word in words:
        side, token = "spam" if word.weight > 0 else "ham", cell(word.token, room, fill=True)
        yield f"  {token} {word.verdicts:>8,} {word.before:>8,} {side:>5}  {word.weight:>+8.2f}"


def _shares(counts: dict[str, int], total: int) -> str:
    if not total:
        return "nothing yet"
    return ", ".join(f"{n:,} {name} ({100 * n / total:.1f} %)" for name, n in counts.items() if n)


def _rate(rate: Rate) -> str:
    if not rate.messages:
        return "nothing to count yet"
    share = 100 * rate.errors / rate.messages
    return f"{rate.errors:,} of {rate.messages:,} = {share:.2f} % ({100 * rate.low:.2f} to {100 * rate.high:.2f} %)"


def _delay(delay: Delay) -> str:
    return f"{delay.median / 1000:.2f} ms, {delay.p99 / 1000:.2f} ms" if delay.p99 else "nothing yet"
