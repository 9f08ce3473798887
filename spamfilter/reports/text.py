"""The report as text, as wide as the terminal is, from 60 columns on.

Guarantee: no line is wider, and none holds what a terminal would obey.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from spamfilter.reports.report import MatteringWord, Report
from spamfilter.reports.report_figures import Delay, Figures, Rate
from spamfilter.system.escaping import printable
from spamfilter.system.ids import ID_LENGTH

NARROWEST, WIDEST = 60, 120
"""Columns: of what can be laid out, and of what can be read."""
TRAININGS = 20
"""Rows of source, author and label, those with the most messages: a screen; the rest is one row."""
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
"""Eight heights, for whoever can be shown them and for others."""
DRIFTS = {
    "spam": "share of spam",
    "unsure": "share of unsure",
    "ham_judged_spam": "ham taken for spam",
    "spam_judged_ham": "spam taken for ham",
    "put_off": "mail put off",
}
"""What a drift is called."""


def report_text(report: Report, width: int = 100, encoding: str = "utf-8") -> str:
    """The report for a terminal of so many columns, and of this encoding."""
    width = min(max(width, NARROWEST), WIDEST)
    lines = [
        line for section in (_advice, _mail, _errors, _learning, _latest, _lists) for line in section(report, width)
    ]
    head = f"spamfilter report, {moment(report.since)} to {moment(report.until)} UTC"
    text = "\n".join(line[:width].rstrip() for line in (head, *lines))
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(str.maketrans(BARS, PLAIN_BARS))
    return text


def moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


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
    """A bar for each number; the least bar is more than nothing.

    >>> sparkline([0, 1, 4, 8])
    ' ▁▄█'
    """
    most = max(numbers, default=0)
    return "".join(BARS[math.ceil(8 * number / most)] if number else " " for number in numbers)


def change_text(now: float, before: float) -> str:
    """How much more or less than before; '' where there was nothing.

    >>> change_text(150, 100), change_text(100, 100), change_text(1, 0)
    ('+50 %', '0 %', '')
    """
    if not before:
        return ""
    change = round(100 * (now / before - 1))
    return f"{change:+d} %" if change else "0 %"


def _mail(report: Report, width: int) -> Iterator[str]:
    now, before = report.figures, report.before
    change = change_text(now.messages, before.messages)
    yield ""
    yield (
        f"Mail        {now.messages:,} message{'' if now.messages == 1 else 's'}, {size_text(now.bytes)}"
        + (f", {change} against the period before" if change else "")
    )
    for head, counts in (("judged", now.classes), ("done", now.actions), ("answered", now.replies)):
        shares = _shares({name.replace("_", " "): n for name, n in counts.items()}, now.messages)
        yield from _wrapped(f"  {head:<10}", shares, width)
    if now.messages:
        room = width - 14
        per_day = _grouped([sum(day.classes.values()) for day in report.days], room)
        spam = _grouped([day.classes["spam"] for day in report.days], room)
        yield f"  by day    {sparkline(per_day)}"
        yield f"  its spam  {''.join(sparkline([*spam, max(per_day)])[:-1])}"
        yield f"  by hour   {sparkline([sum(hour.classes.values()) for hour in report.hours])}  0 to 23, UTC"
    yield ""
    yield "Time a message (median, 99 % below)"
    yield f"  judging   {_delay(now.judging)}"
    yield f"  in all    {_delay(now.relaying)}"
    if report.troubles:
        yield ""
        yield "Not accepted"
        for trouble in report.troubles:
            yield f"  {trouble.messages:>7,}  {printable(trouble.reply, width - 11) or 'no reply'}"


def _grouped(numbers: Sequence[int], room: int) -> list[float]:
    """Their means in groups, so few that there is room for them."""
    size = -(-len(numbers) // room)
    return [sum(numbers[at : at + size]) / size for at in range(0, len(numbers), size)]


def _errors(report: Report, width: int) -> Iterator[str]:
    now, before = report.figures, report.before
    yield ""
    yield "Errors that users corrected (95 % interval)"
    yield from _wrapped("  ham taken for spam    ", _rate(now.ham_rate) + _before(now, before.ham_rate), width)
    yield from _wrapped("  spam taken for ham    ", _rate(now.spam_rate) + _before(now, before.spam_rate), width)
    if now.lam is not None:
        yield f"  both (LAM)            {now.lam:.2f} %" + (f"; {before.lam:.2f} % before" if before.lam else "")
    yield (
        f"  unsure, since marked  {now.unsure_settled['spam']:,} spam, {now.unsure_settled['ham']:,} ham"
        f" of {now.classes['unsure']:,}"
    )
    for drift in report.drifts:
        sentence = f"{DRIFTS[drift.what]}: {100 * drift.share:.2f} %, in the weeks before {100 * drift.before:.2f} %"
        yield from _wrapped("  CHANGED               ", sentence, width)
    if report.calibration:
        yield ""
        yield "Probability of spam as said, and share of spam as it was"
        for part in report.calibration:
            share = part.spam / part.messages
            yield (
                f"  {part.least:.2f} to {part.least + 0.05:.2f}  {100 * share:>6.2f} %  of {part.messages:>9,}"
                f"  {'#' * round(share * (width - 44))}"
            )


def _before(now: Figures, before: Rate) -> str:
    return f"; {100 * before.errors / before.messages:.2f} % before" if now.messages and before.messages else ""


def _learning(report: Report, width: int) -> Iterator[str]:
    yield ""
    yield (
        f"Learnt      {report.learnt['ham']:,} ham, {report.learnt['spam']:,} spam; {report.learnings:,} in this period"
    )
    ordered = sorted(report.trainings, key=lambda training: -training.number)
    for training in ordered[:TRAININGS]:
        by = f" by {printable(training.by, 30)}" if training.by else ""
        yield f"  {training.number:>7,}  {training.label:<4}  {training.source}{by}"
    if rest := sum(training.number for training in ordered[TRAININGS:]):
        yield f"  {rest:>7,}  in {len(ordered) - TRAININGS:,} more rows: see stats --json"
    size = report.size
    yield f"Database    {printable(report.store, width - 30)}, {size_text(size.bytes)}"
    if size.growth is not None:
        left = f"; the disk is full in {size.days_left:,.0f} days" if size.days_left is not None else ""
        yield f"  grows     {size_text(size.growth)} a day{left}"
    yield "  knows     " + ", ".join(f"{count:,} words of {voice}" for voice, count in report.vocabulary.items())
    if report.moved:
        yield ""
        yield f"Words that were learnt most  {'in ham':>20}  {'in spam':>8}"
        for word in report.moved:
            yield f"  {printable(word.token, 36):<36}  {word.ham:>9,}  {word.spam:>8,}"


def _advice(report: Report, width: int) -> Iterator[str]:
    for number, sentence in enumerate(report.advice):
        if not number:
            yield ""
        yield from _wrapped(" " * 12 if number else "Advice      ", sentence, width)


def _latest(report: Report, width: int) -> Iterator[str]:
    if report.latest:
        yield ""
        yield "Learnt lately"
        sources = [item.source + (f" by {printable(item.by, 20)}" if item.by else "") for item in report.latest]
        for item, source in zip(report.latest, sources, strict=True):
            head = f"  {moment(item.at)}  {item.label:<4}  {source:<{max(map(len, sources))}}"
            if len(head) + 2 + len(item.id) <= width:  # part of an id is of no use
                head += f"  {item.id:<{ID_LENGTH}}"
            yield head + (f"  {printable(item.subject, room)}" if (room := width - len(head) - 2) > 0 else "")
    if report.waiting:
        yield ""
        more = f", {report.waiting_in_all:,} in all" if report.waiting_in_all > len(report.waiting) else ""
        yield f"Unsure, and not marked yet{more}: spamfilter review"
        for waiting in report.waiting:
            head = f"  {waiting.id}  {waiting.score:.3f}  {printable(waiting.sender, 24):<24}"
            yield head + (f"  {printable(waiting.subject, room)}" if (room := width - len(head) - 2) > 0 else "")


def _wrapped(head: str, sentence: str, width: int) -> Iterator[str]:
    line = head
    for word in sentence.split():
        if len(line) + len(word) + 1 > width:
            yield line
            line = " " * len(head)
        line += word if line == head or not line.strip() else f" {word}"
    yield line


def _lists(report: Report, width: int) -> Iterator[str]:
    for title, names in (
        ("Domains of senders", report.senders),
        ("Recipients", report.recipients),
        ("Clients", report.clients),
    ):
        if names:
            yield ""
            room = min(width - 22, 42)
            yield f"{title:<{room + 2}}  {'messages':>8}  {'spam':>8}"
            for name in names:
                shown = printable(name.name, room) or "(none)"
                yield f"  {shown:<{room}}  {name.messages:>8,}  {name.spam:>8,}"
    yield from _words("Words that mattered most", report.words, width)
    yield from _words("Words that rose", report.risen, width)
    yield from _words("Words that fell", report.fallen, width)


def _words(title: str, words: Iterable[MatteringWord], width: int) -> Iterator[str]:
    room = min(width - 40, 36)
    for number, word in enumerate(words):
        if not number:
            yield ""
            yield f"{title:<{room + 2}} {'verdicts':>8} {'before':>8} {'for':>5}  {'log-odds':>8}"
        side = "spam" if word.weight > 0 else "ham"
        yield (
            f"  {printable(word.token, room):<{room}} {word.verdicts:>8,} {word.before:>8,} {side:>5}"
            f"  {word.weight:>+8.2f}"
        )


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
    return f"{delay.median / 1000:.2f} ms, {delay.p99 / 1000:.2f} ms"
