"""Review: the messages to label next, those first whose label would teach most.

Guarantee: no message that is learnt but as a counterpart, each once, and in memory no more than the journal of a day
and the BEST.
The order: unsure mail, then the rest, each by its distance from the spam threshold in log-odds, the nearest and then
the newest first; skipped messages come last.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from spamfilter.bayes.labels import COUNTERPART
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import DAY, learnings_of
from spamfilter.learning.transaction import Reading
from spamfilter.stores import JournalEntry, Store

SKIPPED = "review_skipped"
"""The setting with the digests of skipped messages, in hexadecimal, and the times."""
MOST_SKIPPED = 1000
BEST = 5000
"""Messages that are offered, at most: more than anybody labels before some have expired."""
_NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that needs review."""

    entry: JournalEntry
    skipped: bool


class Review:
    """Finds messages to label in the journal. threshold: the probability from which a mail is spam."""

    def __init__(self, filter: Filter, threshold: float) -> None:
        self._filter = filter
        self._store: Store = filter.store
        self._threshold = _log_odds(threshold)

    def waiting(self, since: datetime, until: datetime) -> list[Waiting]:
        """Messages of this time to label, in order. They may lack tokens; see `subject`."""
        skipped = self._skipped()
        put_off: dict[bytes, JournalEntry] = {}
        best: list[JournalEntry] = []
        for day in self._days(since, until):
            put_off |= {entry.digest: entry for entry in day if entry.digest.hex() in skipped}
            best = heapq.nsmallest(BEST, [*best, *(entry for entry in day if entry.digest not in put_off)], self._rank)
        last = sorted(put_off.values(), key=lambda entry: skipped[entry.digest.hex()])
        return [*(Waiting(entry, False) for entry in best), *(Waiting(entry, True) for entry in last)]

    def _days(self, since: datetime, until: datetime) -> Iterator[list[JournalEntry]]:
        """The latest entry of each message that waits, from the last day to the first."""
        seen: set[bytes] = set()
        while until > since:
            begin = max(since, until - DAY)
            day = []
            for entry in reversed(self._store.unlearnt(begin, until)):
                if entry.digest not in seen:
                    seen.add(entry.digest)
                    day.append(entry)
            yield day
            until = begin

    def _rank(self, entry: JournalEntry) -> tuple[bool, float, float]:
        distance = abs(_log_odds(entry.score) - self._threshold)
        return entry.class_ != "unsure", round(distance, 6), -entry.at.timestamp()

    def subject(self, entry: JournalEntry) -> Subject | None:
        """The message as it was judged; None if it was learnt meanwhile, or its tokens have expired."""
        found = self._store.find_journal(entry.id)
        if found is None or found.tokens is None:
            return None
        if not any(voice.name in found.tokens for voice in self._filter.voices):
            return None  # judged by other voices
        reading = Reading(entry.digest, found.tokens)
        if any(learnt.source != COUNTERPART for learnt in learnings_of(self._store, reading)):
            return None
        return Subject(entry.id, entry.id, reading)

    def skip(self, digest: bytes) -> None:
        """Put a message at the end."""
        self._note_skipped(digest, datetime.now(UTC).isoformat())

    def unskip(self, digest: bytes) -> None:
        self._note_skipped(digest, None)

    def _note_skipped(self, digest: bytes, at: str | None) -> None:
        with self._store.learning() as learning:  # in which nobody else skips
            skipped = self._skipped()
            skipped.pop(digest.hex(), None)
            if at is not None:
                skipped[digest.hex()] = at
            latest = heapq.nlargest(MOST_SKIPPED, skipped.items(), key=lambda item: item[1])
            learning.put_setting(SKIPPED, dict(latest))

    def _skipped(self) -> dict[str, str]:
        """Digest -> when it was skipped."""
        kept = self._store.get_setting(SKIPPED)
        return dict(kept) if isinstance(kept, dict) else {}


def _log_odds(probability: float) -> float:
    probability = min(max(probability, _NEARLY), 1 - _NEARLY)
    return math.log(probability / (1 - probability))
