"""Journal and ledger to a report: how much mail, what was done with it, how good the filter is.

Error rates take a verdict that nobody corrected for right: ham_rate is the share of ham that was
judged spam, spam_rate the share of spam that was judged ham, each with a 95 % Wilson interval.
Only marks of people count as corrections, not bulk training, nor what rules have learnt.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from spamfilter.counts import LABELS, Label
from spamfilter.feedback import NOBODYS
from spamfilter.intervals import wilson
from spamfilter.stores import Entry, JournalEntry, Store
from spamfilter.verdict import ACTIONS, CLASSES

REPLIES = {"2": "accepted", "4": "put_off", "5": "refused"}
LATEST = 10
WORDS = 15
"""Rows of the lists: what fits on a screen beside the figures."""


@dataclass(frozen=True, slots=True)
class Rate:
    """errors out of a number of messages; low and high are the 95 % interval of the share."""

    errors: int
    messages: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Delay:
    """Median and 99th percentile of a duration, in microseconds."""

    median: int
    p99: int


@dataclass(frozen=True, slots=True)
class LearntMessage:
    """A learning: when, as what, from where, by whom; subject and id if the journal still has them."""

    at: datetime
    label: Label
    source: str
    by: str
    id: str
    subject: str


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """An unsure message that nobody has labelled: what to name it by, and what it is."""

    id: str
    at: datetime
    score: float
    sender: str
    subject: str


@dataclass(frozen=True, slots=True)
class MatteringWord:
    """A token, in how many verdicts it was among the loudest, and its mean share of the log-odds."""

    token: str
    verdicts: int
    weight: float


@dataclass(frozen=True, slots=True)
class Report:
    """One period; a mail that was put off and came again counts each time.

    replies: what clients heard, by the reply's class: accepted (2xx), put_off (4xx), refused (5xx).
    unsure_settled: unsure messages that somebody has labelled since, by label.
    waiting: the latest of those that nobody has, one of each mail."""

    since: datetime
    until: datetime
    messages: int
    bytes: int
    classes: dict[str, int]
    actions: dict[str, int]
    replies: dict[str, int]
    ham_rate: Rate
    spam_rate: Rate
    unsure_settled: dict[str, int]
    waiting: list[WaitingMessage]
    judging: Delay
    relaying: Delay
    store: str
    store_bytes: int
    vocabulary: dict[str, int]
    learnt: dict[str, int]
    learnings: int
    latest: list[LearntMessage]
    words: list[MatteringWord]


def build(store: Store, voices: Sequence[str], since: datetime, until: datetime) -> Report:
    """The report of a period; moments in UTC, `until` not included."""
    entries = store.journal(since, until)
    learnings = store.learnings()
    state = store.state({voice: {} for voice in voices})
    marks = {entry.digest: entry for entry in learnings if entry.source not in NOBODYS}
    classes = Counter(entry.class_ for entry in entries)
    actions = Counter(entry.action for entry in entries)
    marked = Counter((entry.class_, marks[entry.digest].label) for entry in entries if entry.digest in marks)
    lost, missed = marked["spam", "ham"], marked["ham", "spam"]
    new = [entry for entry in learnings if since <= entry.at < until]
    return Report(
        since=since,
        until=until,
        messages=len(entries),
        bytes=sum(entry.size for entry in entries),
        classes={name: classes[name] for name in CLASSES},
        actions={name: actions[name] for name in ACTIONS},
        replies={name: sum(entry.reply.startswith(digit) for entry in entries) for digit, name in REPLIES.items()},
        ham_rate=_rate(lost, classes["ham"] - missed + lost + marked["unsure", "ham"]),
        spam_rate=_rate(missed, classes["spam"] - lost + missed + marked["unsure", "spam"]),
        unsure_settled={label: marked["unsure", label] for label in LABELS},
        waiting=_waiting(entries, {entry.digest for entry in learnings}),
        judging=_delay([entry.judge_us for entry in entries]),
        relaying=_delay([entry.total_us for entry in entries]),
        store=store.where,
        store_bytes=store.size(),
        vocabulary={voice: counts.vocabulary for voice, counts in state.counts.items()},
        learnt={label: state.learnt[label] for label in LABELS},
        learnings=len(new),
        latest=_latest(store, new),
        words=_words(entries),
    )


def _rate(errors: int, messages: int) -> Rate:
    return Rate(errors, messages, *wilson(errors, messages))


def _delay(microseconds: list[int]) -> Delay:
    if not microseconds:
        return Delay(0, 0)
    microseconds.sort()
    return Delay(microseconds[len(microseconds) // 2], microseconds[int(0.99 * (len(microseconds) - 1))])


def _latest(store: Store, learnings: list[Entry]) -> list[LearntMessage]:
    latest = learnings[: -LATEST - 1 : -1]
    seen = store.journal_of([entry.digest for entry in latest])
    rows = []
    for entry in latest:
        mail = seen.get(entry.digest)
        id, subject = (mail.id, mail.subject) if mail else ("", "")
        rows.append(LearntMessage(entry.at, entry.label, entry.source, entry.by, id, subject))
    return rows


def _waiting(entries: list[JournalEntry], learnt: set[bytes]) -> list[WaitingMessage]:
    latest: dict[bytes, JournalEntry] = {}
    for entry in reversed(entries):
        if entry.class_ == "unsure" and entry.digest not in learnt and len(latest) < LATEST:
            latest.setdefault(entry.digest, entry)
    return [WaitingMessage(found.id, found.at, found.score, found.sender, found.subject) for found in latest.values()]


def _words(entries: list[JournalEntry]) -> list[MatteringWord]:
    weights: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        for token, weight in entry.evidence:
            weights[token].append(weight)
    loudest = sorted(weights.items(), key=lambda item: (-abs(sum(item[1])), item[0]))[:WORDS]
    return [MatteringWord(token, len(shares), sum(shares) / len(shares)) for token, shares in loudest]
