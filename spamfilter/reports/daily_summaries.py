"""Summaries of days of the journal: figures that can be added up, and that stay when the entries expire.

Guarantee: except for the size of the database, a summary depends only on the entries of its day and their labels, so a
report is the same before and after the entries expire. A summary keeps the KEPT most frequent names and words of a
day. While a day is counted, at most COUNTED are kept between two hours; on a day with more, rare ones may be
undercounted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from heapq import nsmallest
from math import ceil, exp, log
from typing import Any

from spamfilter.bayes.labels import NOBODYS
from spamfilter.mail.folded_addresses import lowered
from spamfilter.reports.outages import grouped
from spamfilter.stores import UNJUDGED, JournalEntry, Store

KEPT = 50
"""Names and words of a day: enough to find the most frequent ones of a month; a year of them is a few MB."""
COUNTED = 100_000
"""Names of a kind, or words: some 30 MB. Without a bound, mail to many recipients would fill the memory."""
BINS = 20
"""Bins of the probability."""
STEP = 1.05
"""Ratio of the bounds of a bucket of durations: quantiles are at most 5 % too large."""
LATE = timedelta(hours=1)
"""Time after the end of a day by which a relay has usually written its entries."""
PIECE, MANY = timedelta(minutes=10), 10_000
"""Period whose entries are in memory at a time, on a day with more than MANY of them."""
PARTS = 400
"""Parts of days and hours that are kept in memory, at most some 100 KB each: a report has ten parts of days, and of
five days all hours."""
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
REPLIES = {"2": "accepted", "4": "deferred", "5": "rejected"}
"""First digit of a reply -> the word for it. Mail in quarantine was accepted, too."""
EARLIER_WORDS = {"put_off": "deferred", "refused": "rejected"}
"""Words for replies in summaries that earlier versions have kept -> those of now."""
TROUBLE = 100
"""Characters of a reply that are kept; replies that differ only after that count as the same."""


def bucket(microseconds: int) -> int:
    """The bucket of a duration; 0 is for 0 and 1.

    >>> bucket(0), bucket(1), duration(bucket(1000))
    (0, 0, 1021)
    """
    return ceil(log(microseconds) / log(STEP) - 1e-9) if microseconds > 1 else 0


def duration(number: int) -> int:
    """The longest duration of a bucket, in microseconds."""
    return round(exp(number * log(STEP)))


def bin_of(score: float) -> int:
    return min(int(score * BINS), BINS - 1)


Hours = Counter[tuple[int, str, str]]
"""Messages by hour of the day, class and action."""


@dataclass(slots=True)
class Summary:
    """Figures of some entries, in messages; comments say what the keys of each Counter are.

    senders, recipients, clients: name -> messages, and how many of them were judged spam. words: token -> number of
    verdicts in which it was among the most influential, and the sum of its log-odds there. marked: messages that people
    have marked; empty while the ledger can still say so. store_bytes: size of the database when the summary was kept,
    else 0.
    """

    bytes: int = 0
    store_bytes: int = 0
    hours: Hours = field(default_factory=Counter)  # hour of the day, class, action
    replies: Counter[str] = field(default_factory=Counter)  # accepted, deferred, rejected
    troubles: Counter[str] = field(default_factory=Counter)  # replies that were not accepted, by their text
    unjudged: Counter[tuple[int, str]] = field(default_factory=Counter)  # hour of the day, deferred or rejected
    scores: Counter[tuple[str, int]] = field(default_factory=Counter)  # class, bin of the probability
    judging: Counter[int] = field(default_factory=Counter)  # bucket of the microseconds
    relaying: Counter[int] = field(default_factory=Counter)
    senders: dict[str, tuple[int, int]] = field(default_factory=dict)
    recipients: dict[str, tuple[int, int]] = field(default_factory=dict)
    clients: dict[str, tuple[int, int]] = field(default_factory=dict)
    words: dict[str, tuple[int, float]] = field(default_factory=dict)
    marked: Counter[tuple[str, int, str]] = field(default_factory=Counter)  # class, bin, label

    @property
    def messages(self) -> int:
        """Those that were judged."""
        return self.hours.total()

    @property
    def entries(self) -> int:
        return self.messages + self.unjudged.total()

    def add(self, entry: JournalEntry) -> None:
        if not entry.reply.startswith("2"):
            self.troubles[grouped(entry.reply)[:TROUBLE]] += 1
        if entry.class_ == UNJUDGED:
            self.unjudged[entry.at.hour, REPLIES.get(entry.reply[:1], "")] += 1
            return
        spam = entry.class_ == "spam"
        self.bytes += entry.size
        self.hours[entry.at.hour, entry.class_, entry.action] += 1
        self.replies[REPLIES.get(entry.reply[:1], "")] += 1
        self.scores[entry.class_, bin_of(entry.score)] += 1
        self.judging[bucket(entry.judge_us)] += 1
        self.relaying[bucket(entry.total_us)] += 1
        for names, kept in (
            ((entry.sender.rpartition("@")[2].lower(),), self.senders),
            (map(lowered, entry.recipients), self.recipients),
            ((entry.client,), self.clients),
        ):
            for name in names:
                messages, of_spam = kept.get(name, (0, 0))
                kept[name] = messages + 1, of_spam + spam
        said: dict[str, float] = defaultdict(float)
        for token, weight in entry.evidence:  # two voices may know the same word, but it is one verdict
            said[token] += weight
        for token, weight in said.items():
            verdicts, shares = self.words.get(token, (0, 0.0))
            self.words[token] = verdicts + 1, shares + weight

    def trim(self, most: int) -> None:
        """Keep only the most frequent names and words, if there are more than this."""
        if max(len(getattr(self, name)) for name in (*_NAMED, "troubles")) <= most:
            return
        self.troubles = Counter(dict(sorted(self.troubles.items(), key=lambda item: (-item[1], item[0]))[:most]))
        for name in _NAMED:
            found = getattr(self, name).items()
            setattr(self, name, dict(nsmallest(most, found, lambda item: (-item[1][0], -abs(item[1][1]), item[0]))))

    def merge(self, other: "Summary") -> None:
        """Add the figures of other entries."""
        self.bytes += other.bytes
        for name in _COUNTED:
            getattr(self, name).update(getattr(other, name))
        for name in _NAMED:
            mine = getattr(self, name)
            for key, (number, more) in getattr(other, name).items():
                before = mine.get(key, (0, 0))
                mine[key] = before[0] + number, before[1] + more

    def to_json(self) -> dict[str, Any]:
        """As JSON: a key of several parts is a list, and its count the last item."""
        body: dict[str, Any] = {"bytes": self.bytes, "store_bytes": self.store_bytes}
        for name in _COUNTED:
            counts = getattr(self, name).items()
            body[name] = sorted([*(key if isinstance(key, tuple) else (key,)), number] for key, number in counts)
        for name in _NAMED:
            body[name] = {key: list(both) for key, both in getattr(self, name).items()}
        return body

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> "Summary":
        made = cls(bytes=body["bytes"], store_bytes=body["store_bytes"])
        for name in _COUNTED:
            counts = Counter({tuple(key) if len(key) > 1 else key[0]: number for *key, number in body.get(name, ())})
            setattr(made, name, counts)
        made.replies = Counter({EARLIER_WORDS.get(word, word): number for word, number in made.replies.items()})
        made.unjudged = Counter(
            {(hour, EARLIER_WORDS.get(word, word)): number for (hour, word), number in made.unjudged.items()}
        )
        for name in _NAMED:
            setattr(made, name, {key: (first, second) for key, (first, second) in body[name].items()})
        return made


_COUNTED = ("hours", "replies", "troubles", "unjudged", "scores", "judging", "relaying", "marked")
_NAMED = ("senders", "recipients", "clients", "words")


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def of_period(
    store: Store, since: datetime, until: datetime, entries: int, hours: "Parts | None" = None, host: str = ""
) -> Summary:
    """The summary of a period within one day, without marks. entries: how many that day has.

    hours: the summaries of hours that were read before, and are not read again; the others are added.
    """
    made = Summary()
    while since < until:
        end = min(until, since.replace(minute=0, second=0, microsecond=0) + HOUR)
        key = since, end, entries, host
        hour = _counted(store, since, end, entries, host) if hours is None or key not in hours else hours[key]
        if hours is not None:
            hours[key] = hour
        made.merge(hour)
        made.trim(COUNTED)
        since = end
    made.trim(KEPT)
    return made


def _counted(store: Store, since: datetime, until: datetime, entries: int, host: str) -> Summary:
    """The summary of an hour or less, with all its names and words unless they are more than COUNTED."""
    made, piece = Summary(), PIECE if entries > MANY else HOUR
    while since < until:
        end = min(until, since + piece)
        for entry in store.journal(since, end, host):
            made.add(entry)
        made.trim(COUNTED)
        since = end
    return made


def marks(store: Store, since: datetime, until: datetime, host: str = "") -> dict[date, Counter[tuple[str, int, str]]]:
    """Day -> class, bin and label of the messages of a period that people have marked."""
    found: dict[date, Counter[tuple[str, int, str]]] = {}
    for mail in store.labelled(since, until, NOBODYS, host):
        found.setdefault(mail.at.date(), Counter())[mail.class_, bin_of(mail.score), mail.label] += 1
    return found


def begin(store: Store, since: datetime, host: str = "") -> datetime:
    """Where a period can begin: at midnight if some entries of that day have expired, and a summary has them."""
    return since if host or is_whole(store, since.date(), since.date()) else midnight(since.date())


def end(store: Store, until: datetime, host: str = "") -> datetime:
    """Where a period can end, likewise."""
    last = (until - timedelta(microseconds=1)).date()
    return until if host or is_whole(store, last, last) else midnight(last) + DAY


def is_whole(store: Store, first: date, last: date) -> bool:
    """Whether no entry of these days has expired, as far as their summaries tell."""
    entries = store.journal_days(first, last)
    kept = store.summaries(first, last).items()
    return all(Summary.of_json(body).entries <= entries.get(day, 0) for day, body in kept)


Parts = dict[tuple[datetime, datetime, int, str], Summary]
"""Begin, end, number of entries of that day, host -> summary. For an hour the summary has all names and words, so that
hours can be added up. For a part of a day it has only the most frequent ones, and the number stands with a minus."""


def by_day(
    store: Store, since: datetime, until: datetime, parts: Parts | None = None, host: str = ""
) -> dict[date, Summary]:
    """Day -> the summary of the part that lies in the period, or of the whole day if its entries have expired.

    Days without mail are left out. parts: what was found before, which is not read again; at most PARTS are kept. host:
    of this host only, from its entries that have not expired, because the kept summaries are of all hosts.
    """
    first, last = since.date(), (until - timedelta(microseconds=1)).date()
    entries = store.journal_days(first, last, host)
    summaries = {} if host else store.summaries(first, last)
    kept = {day: Summary.of_json(body) for day, body in summaries.items()}
    marked = marks(store, since, until, host)
    found: dict[date, Summary] = {}
    for day in sorted(entries.keys() | kept.keys()):
        begin, end = max(since, midnight(day)), min(until, midnight(day) + DAY)
        whole, number = kept.get(day), entries.get(day, 0)
        gone = whole is not None and whole.entries > number
        if whole is not None and (gone or (whole.entries == number and end - begin == DAY)):
            made = whole
        else:
            made = _part(store, begin, end, number, parts, host)
        if not gone:
            made.marked = marked.get(day, Counter())
        if made.entries:
            found[day] = made
    return found


def _part(store: Store, begin: datetime, end: datetime, entries: int, parts: Parts | None, host: str) -> Summary:
    """The summary that `of_period` makes, taken from `parts` if it was made before.

    Of a day that is over the hours are kept, too, which stay the same while begin and end move on.
    """
    if parts is None:
        return of_period(store, begin, end, entries, None, host)
    key = begin, end, -entries, host
    if key not in parts:
        over = midnight(begin.date()) + DAY + LATE <= datetime.now(UTC)
        parts[key] = of_period(store, begin, end, entries, parts if over and entries <= MANY else None, host)
        while len(parts) > PARTS:
            del parts[next(iter(parts))]
    return parts[key]


def keep(store: Store, now: datetime, entries_before: datetime) -> int:
    """Store the summaries of past days, with marks for those whose entries are about to expire; returns how many.

    Call it before the entries from before `entries_before`, a midnight, are deleted.
    """
    last = (now - LATE).date() - DAY
    entries = store.journal_days(date.min, last)
    if not entries:
        return 0
    kept = {day: Summary.of_json(body) for day, body in store.summaries(min(entries), last).items()}
    changed = 0
    for day, number in entries.items():
        going, whole = midnight(day) < entries_before, kept.get(day)
        if whole and whole.entries >= number and not going:
            continue
        if whole and whole.entries > number and whole.marked:
            continue  # some of its entries have expired, and with them their marks
        begin, end = midnight(day), midnight(day) + DAY
        made = whole if whole and whole.entries >= number else of_period(store, begin, end, number)
        if going:
            made.marked = marks(store, begin, end).get(day, Counter())
        if store.journal_days(day, day).get(day, 0) < number:
            continue  # another relay, which may keep entries for less time, deletes them; it has kept the day before
        made.store_bytes = made.store_bytes or store.size()
        store.put_summary(day, made.to_json())
        changed += 1
    return changed


def local_days(days: Mapping[date, Summary], zone: timezone) -> dict[date, Hours]:
    """The messages of days of a zone, whole hours from UTC, from summaries of days in UTC."""
    ahead = zone.utcoffset(None) // HOUR
    found: defaultdict[date, Hours] = defaultdict(Counter)
    for day, summary in days.items():
        for (hour, class_, action), number in summary.hours.items():
            later, at = divmod(hour + ahead, 24)
            found[day + later * DAY][at, class_, action] += number
    return found


def total(summaries: Iterable[Summary]) -> Summary:
    made = Summary()
    for summary in summaries:
        made.merge(summary)
    return made
