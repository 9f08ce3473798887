"""Makers of small mails, readings and journal entries, and the settings of property tests."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import HealthCheck, settings

from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import Voice, Voices
from spamfilter.learning.filter import Filter, ledger
from spamfilter.learning.transaction import Reading
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import new_id

VOICE: Voices = (Voice("fields", Soft()),)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def some(examples: int) -> settings:
    """So many examples, without a time limit: a slow machine is no defect."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def mail(subject: str = "hello", body: str = "some text", name: str = "one") -> bytes:
    """A mail of ASCII with line ends of the wire; `name` makes it another one."""
    return (
        f"Message-ID: <{name}@example.org>\r\nDate: Sun, 1 Mar 2026 12:00:00 +0000\r\n"
        f"From: A Sender <a@example.org>\r\nTo: b@example.net\r\nSubject: {subject}\r\n\r\n{body}\r\n"
    ).encode("ascii")


def reading(name: str, *words: str) -> Reading:
    """A message as the filter keeps it, of these words."""
    return Reading(name.encode().ljust(16, b"."), {"fields": {word.encode(): 1 for word in words}})


def follow(filter: Filter) -> int:
    """Let a filter that holds all counts take in what was learnt since; returns how many ledger entries that was."""
    return filter.take_in(ledger(filter.store, filter.last))


_ENTRY = JournalEntry(
    id="",
    at=NOON,
    digest=b"0123456789abcdef",
    message_id="<one@example.org>",
    sender="a@example.org",
    recipients=["b@example.net"],
    subject="hello",
    size=1000,
    client="192.0.2.1",
    log_odds=-1.5,
    score=0.25,
    class_="ham",
    action="pass",
    reply="250 2.0.0 Ok",
    judge_us=500,
    total_us=2000,
    listed="",
    host="",
    evidence=[("subject:hello", -0.5)],
    tokens={"fields": {b"subject:hello": 1, "grün".encode(): 2}},
)


def journal_entry(**changes: object) -> JournalEntry:
    """A plausible row of the journal, with a new id unless one is given."""
    return replace(_ENTRY, **{"id": new_id(), **changes})  # type: ignore[arg-type]  # names are checked at run time


def spelled(**classes: dict[bytes, int]) -> SpelledTable:
    """Words with these counts, as class -> word -> count."""
    words = SpelledTable()
    for label in LABELS:
        words.spelled[label].update(classes.get(label, {}))
    return words
