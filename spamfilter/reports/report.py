"""A report from journal and ledger: how much mail, what was done with it, how good the filter is.

Figures are compared with the period of the same length before. Lists are cut to what fits on a screen.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from shutil import disk_usage

from spamfilter.bayes.labels import BULK, IMPORT, LABELS, EntryLabel, Label
from spamfilter.bayes.token_codec import subject_words
from spamfilter.learning.transfer.imports import announced, filter_of, words_of
from spamfilter.reports import daily_summaries
from spamfilter.reports.advice import advice
from spamfilter.reports.daily_summaries import DAY, HOUR, Hours, Parts, Summary
from spamfilter.reports.drift import Drift, drift
from spamfilter.reports.outages import Downtime, Outage, downtimes, hosts, outages
from spamfilter.reports.report_figures import Calibrated, Figures, Slot, calibration_of, figures_of, slot_of
from spamfilter.stores import Store, Trainings

LATEST = 10
WORDS = 15
NAMES = 10
MOVED = 10
"""Rows of each list: few enough that the report fits on some screens."""
RECENT = 500
"""The latest learnings of a period whose tokens are counted for the words that were learnt most."""
WEEKS = 4
"""Earlier periods that this one is compared with for a drift."""
HOURLY = 8 * DAY
"""The longest period that is told by the hour."""


@dataclass(frozen=True, slots=True)
class Named:
    """A sender's domain, a recipient or a client: its messages, and how many of them were judged spam."""

    name: str
    messages: int
    spam: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reply that deferred or rejected messages, and how many."""

    reply: str
    messages: int


@dataclass(frozen=True, slots=True)
class LearntMessage:
    """A learning: time, label, source, author; its subject, and its id if the journal still has it."""

    at: datetime
    label: EntryLabel
    source: str
    by: str
    id: str
    subject: str


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """An unsure message that needs review."""

    id: str
    at: datetime
    score: float
    sender: str
    subject: str


@dataclass(frozen=True, slots=True)
class MatteringWord:
    """A token, the number of verdicts in which it was among the most influential, and its mean log-odds there.

    before: the number of such verdicts in the period before. The mean of a word that fell is that of the period before,
    as there may be no verdict in this one.
    """

    token: str
    verdicts: int
    weight: float
    before: int


@dataclass(frozen=True, slots=True)
class LearntWord:
    """A token, and the number of messages of each class by which it was learnt in the period."""

    token: str
    ham: int
    spam: int


@dataclass(frozen=True, slots=True)
class Size:
    """The database: bytes, growth in bytes a day, and days until the disk is full; None: not known."""

    bytes: int
    growth: float | None
    days_left: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """One period. before: the figures of the period of the same length before it, from `before_since` on: that is
    earlier where some entries of its first day have expired.

    host: the relay whose mail the figures count, '' for all relays; what was learnt is always that of all. waiting: the
    latest messages that need review; waiting_in_all: how many there are. troubles: the most frequent replies that
    deferred or rejected mail. zone: of the days and hours. timeline: each hour of a period of at most HOURLY. outages,
    downtimes: when mail was deferred, and when the relay did not run, the latest of them. risen, fallen: words that
    were influential in significantly more or fewer verdicts than before.
    """

    since: datetime
    until: datetime
    zone: timezone
    host: str
    hosts: list[str]
    figures: Figures
    before: Figures
    before_since: datetime
    days: list[Slot]
    hours: list[Slot]
    timeline: list[Slot]
    drifts: list[Drift]
    calibration: list[Calibrated]
    waiting: list[WaitingMessage]
    waiting_in_all: int
    troubles: list[Trouble]
    outages: list[Outage]
    downtimes: list[Downtime]
    senders: list[Named]
    recipients: list[Named]
    clients: list[Named]
    words: list[MatteringWord]
    risen: list[MatteringWord]
    fallen: list[MatteringWord]
    store: str
    size: Size
    vocabulary: dict[str, int]
    learnt: dict[str, int]
    learnings: int
    trainings: list[Trainings]
    latest: list[LearntMessage]
    moved: list[LearntWord]
    advice: list[str]


def build(
    store: Store,
    voices: Sequence[str],
    since: datetime,
    until: datetime,
    parts: Parts | None = None,
    zone: timezone = UTC,
    host: str = "",
) -> Report:
    """The report of a period; moments in UTC, `until` not included.

    If the journal has lost entries of the first or the last day, the period has the whole of it. parts: for reports
    that are made again and again, see `by_day`. zone: of days and hours, whole hours from UTC. host: of the mail of
    this host only.
    """
    since, until = daily_summaries.begin(store, since, host), daily_summaries.end(store, until, host)
    span = until - since
    days = daily_summaries.by_day(store, since, until, parts, host)
    ends = [since, *(daily_summaries.begin(store, since - number * span, host) for number in range(1, WEEKS + 1))]
    before = [daily_summaries.by_day(store, first, last, parts, host) for last, first in pairwise(ends)]
    mail, previous = daily_summaries.total(days.values()), daily_summaries.total(before[0].values())
    earlier = daily_summaries.total(one for period in before for one in period.values())
    state = store.state(dict.fromkeys([*voices, *announced(store)], ()))
    learnt: dict[str, int] = {label: state.learnt[label] for label in LABELS}
    waiting, waiting_in_all = store.unlabelled(since, until, LATEST, host)
    trainings = store.trainings(since, until)
    by_hand = [one for one in trainings if one.source != BULK]
    marks: dict[str, int] = {label: sum(one.number for one in by_hand if one.label == label) for label in LABELS}
    figures, figures_before = figures_of(mail), figures_of(previous)
    size = _size(store.size(), (*reversed(before), days), _free_bytes(store.where))
    usual = figures_of(earlier)
    drifts = [found for name, share in _SHARES.items() if (found := drift(name, share(figures), share(usual)))]
    now = datetime.now(UTC)
    by_hour, by_clock = daily_summaries.local_days(days, zone), Hours()
    for one in by_hour.values():
        by_clock.update(one)
    troubles = sorted(mail.troubles.items(), key=lambda item: (-item[1], item[0]))[:NAMES]
    off, down = outages(store, since, until, host), downtimes(store, since, min(until, now), host)
    return Report(
        since=since,
        until=until,
        zone=zone,
        host=host,
        hosts=hosts(store),
        figures=figures,
        before=figures_before,
        before_since=ends[1],
        days=_slots(by_hour, since, until, now, DAY, zone),
        timeline=_slots(by_hour, since, until, now, HOUR, zone) if span <= HOURLY else [],
        hours=[slot_of(f"{hour:02}", by_clock, hour) for hour in range(24)],
        drifts=drifts,
        calibration=calibration_of(mail),
        waiting=[WaitingMessage(one.id, one.at, one.score, one.sender, one.subject) for one in waiting],
        waiting_in_all=waiting_in_all,
        outages=off[-LATEST:],
        downtimes=down[-LATEST:],
        troubles=[Trouble(*item) for item in troubles],
        senders=_named(mail.senders),
        recipients=_named(mail.recipients),
        clients=_named(mail.clients),
        words=_words(mail, previous)[:WORDS],
        risen=_moving(mail, previous),
        fallen=[replace(word, verdicts=word.before, before=word.verdicts) for word in _moving(previous, mail)],
        store=store.where,
        size=size,
        vocabulary={voice: counts.vocabulary for voice, counts in state.counts.items()},
        learnt=learnt,
        learnings=sum(training.number for training in trainings if training.label != IMPORT),
        trainings=trainings,
        latest=latest(store, since, until, LATEST),
        moved=_moved(store, since, until),
        advice=advice(figures, figures_before, learnt, marks, waiting_in_all, drifts, size.days_left, off, down),
    )


def _slots(
    days: Mapping[date, Hours], since: datetime, until: datetime, now: datetime, step: timedelta, zone: timezone
) -> list[Slot]:
    """Each day or hour of a period, by the hours of its days. now: what comes after it has not been yet."""
    first = since.astimezone(zone)
    at = datetime.combine(first, time(first.hour if step == HOUR else 0), zone)
    found = []
    while at < until:
        mail, whole = days.get(at.date(), Hours()), since <= at and at + step <= min(until, now)
        if step == HOUR:
            found.append(slot_of(f"{at:%Y-%m-%d %H:%M}", mail, at.hour, whole))
        else:
            found.append(slot_of(at.date().isoformat(), mail, whole=whole))
        at += step
    return found


def _named(names: dict[str, tuple[int, int]]) -> list[Named]:
    ordered = sorted(names.items(), key=lambda item: (-item[1][0], item[0]))
    return [Named(name, messages, spam) for name, (messages, spam) in ordered[:NAMES]]


def _words(mail: Summary, previous: Summary) -> list[MatteringWord]:
    """All words, those with the largest sum of log-odds first."""
    loudest = sorted(mail.words.items(), key=lambda item: (-abs(item[1][1]), item[0]))
    return [
        MatteringWord(token, verdicts, shares / verdicts, previous.words.get(token, (0, 0.0))[0])
        for token, (verdicts, shares) in loudest
    ]


def _moving(mail: Summary, previous: Summary) -> list[MatteringWord]:
    """Words that were influential in significantly more of the verdicts in `mail`, the largest rise first."""
    now, before = mail.messages, previous.messages
    if not before:
        return []
    risen = [
        word
        for word in _words(mail, previous)
        if word.verdicts / now > word.before / before and drift(word.token, (word.verdicts, now), (word.before, before))
    ]
    return sorted(risen, key=lambda word: word.before / before - word.verdicts / now)[:MOVED]


def latest(store: Store, since: datetime, until: datetime, limit: int) -> list[LearntMessage]:
    """Learnings of a period, the latest first."""
    learnings = store.latest_learnings(since, until, limit)
    seen = store.journal_of([entry.digest for entry in learnings])
    found = []
    for entry in learnings:
        mail = seen.get(entry.digest)
        if entry.label == IMPORT:
            id, subject = "", f"{words_of(entry.tokens):,} words of {filter_of(entry)}"
        else:
            id, subject = (mail.id, mail.subject) if mail else ("", subject_words(entry.tokens))
        found.append(LearntMessage(entry.at, entry.label, entry.source, entry.by, id, subject))
    return found


def _moved(store: Store, since: datetime, until: datetime) -> list[LearntWord]:
    """The words in which the recent learnings of the two classes differ most."""
    counts: dict[Label, Counter[str]] = {label: Counter() for label in LABELS}
    for entry in store.latest_learnings(since, until, RECENT):
        if entry.label == IMPORT:
            continue
        voice = next((voice for voice, amount in entry.added.items() if amount and entry.tokens.get(voice)), None)
        if voice is not None:
            counts[entry.label].update(token.decode() for token in entry.tokens[voice])
    ham, spam = counts["ham"], counts["spam"]
    ordered = sorted(ham.keys() | spam.keys(), key=lambda token: (-abs(spam[token] - ham[token]), token))
    return [LearntWord(token, ham[token], spam[token]) for token in ordered[:MOVED]]


_SHARES: Mapping[str, Callable[[Figures], tuple[int, int]]] = {
    "spam": lambda figures: (figures.classes["spam"], figures.messages),
    "unsure": lambda figures: (figures.classes["unsure"], figures.messages),
    "ham_judged_spam": lambda figures: (figures.ham_rate.errors, figures.ham_rate.messages),
    "spam_judged_ham": lambda figures: (figures.spam_rate.errors, figures.spam_rate.messages),
    "deferred": lambda figures: (figures.replies["deferred"], figures.messages),
}
"""Name of a rate that may drift -> its events and trials."""


def _free_bytes(where: str) -> int | None:
    """Bytes left on the disk of a database; None if that is not known."""
    try:
        return disk_usage(Path(where).parent).free
    except OSError:
        return None


def _size(taken: int, periods: Iterable[dict[date, Summary]], free: int | None) -> Size:
    """Size and growth of the database, by the days whose size was kept. periods: the earliest first."""
    known = [(day, one.store_bytes) for days in periods for day, one in days.items() if one.store_bytes]
    if len(known) < 2 or known[0][0] == known[-1][0]:
        return Size(taken, None, None)
    growth = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]).days
    return Size(taken, growth, free / growth if free is not None and growth > 0 else None)
