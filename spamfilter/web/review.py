"""The review queue: messages that need a label, one click or one key for each."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from starlette.responses import Response

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.tokens import is_read
from spamfilter.bayes.verdict import EVIDENCE_SHOWN
from spamfilter.bayes.voices import Evidence
from spamfilter.errors import InputError, StoreError, TryAgain
from spamfilter.learning.marks import learnings_of
from spamfilter.learning.review import Review, Waiting
from spamfilter.learning.transaction import Reading
from spamfilter.stores import JournalEntry
from spamfilter.web import marking, message_views
from spamfilter.web.site import Site, Visit, number_in, redirected, shown

SHOWN = 10
"""Messages on one page."""
READ = 200
"""Characters of the text shown of each, at most: to tell spam from ham it takes no more."""
QUEUE = 200
"""Messages that one search of the journal finds; it reads all mail that can still be marked by id."""
FRESH_SECONDS = 300.0
"""A queue older than this is made anew."""


def queue(visit: Visit) -> Response:
    """The first messages of the queue that still need a label, one of them in focus."""
    session = visit.session
    assert session is not None
    review = review_of(visit.site)
    cards = _cards(visit, review) if time.monotonic() - session.queued <= FRESH_SECONDS else []
    if not cards:
        session.queue, session.queued = [one.entry.id for one in waiting(visit.site)], time.monotonic()
        cards = _cards(visit, review)
    focus = min(number_in(visit.query.get("at", "")) or 0, len(cards) - 1)
    return shown(
        visit, "review", cards=cards, focus=focus, left=len(session.queue) - len(cards), undo=bool(session.done)
    )


def review_of(site: Site) -> Review:
    return Review(site.filter(), site.settings.verdict.spam)


def waiting(site: Site) -> list[Waiting]:
    """The first QUEUE messages that need a label, the most useful first."""
    now = datetime.now(UTC)
    since = now - timedelta(days=site.settings.feedback.window_days)
    with site.busy:
        return review_of(site).waiting(since, now + timedelta(seconds=1))[:QUEUE]


class Card(NamedTuple):
    """A message to label. score, evidence: by the present counts. text: its beginning."""

    entry: JournalEntry
    score: float
    evidence: list[tuple[str, float]]
    text: str


def _cards(visit: Visit, review: Review) -> list[Card]:
    """The first messages of the queue; those that were labelled meanwhile leave it."""
    assert visit.session is not None
    filter = visit.site.filter()
    cards: list[Card] = []
    kept = list(visit.session.queue)
    for id in visit.session.queue:
        if len(cards) == SHOWN:
            break
        entry = visit.site.store.find_journal(id)
        subject = review.subject(entry) if entry else None
        if entry is None or subject is None:
            kept.remove(id)
            continue
        score, evidence = filter.explained(subject.reading)
        text = message_views.beginning_of(visit.site, entry, None)[:READ]
        cards.append(Card(entry, score.posterior, _loudest(evidence), text))
    visit.session.queue = kept
    return cards


def _loudest(evidence: Iterable[Evidence]) -> list[tuple[str, float]]:
    """The most influential words and their log-odds, summed over the voices; first those that people read."""
    said: dict[str, float] = {}
    for item in evidence:
        said[item.word] = said.get(item.word, 0.0) + item.weight
    return sorted(said.items(), key=lambda item: (not is_read(item[0]), -abs(item[1]), item[0]))[:EVIDENCE_SHOWN]


def answer(visit: Visit) -> Response:
    """Learn or skip the message of a card."""
    session, site = visit.session, visit.site
    assert session is not None
    entry = message_views.entry_of(site, visit.form.get("id", ""))
    label = visit.form.get("label")
    if label == "skip":
        review_of(site).skip(entry.digest)
        session.done.append((entry.id, None))
    elif label in LABELS:
        marking.mark_and_tell(visit, entry, label)
        session.done.append((entry.id, label))
    else:
        raise InputError("label: neither ham nor spam nor skip")
    session.queue = [id for id in session.queue if id != entry.id]
    del session.done[:-QUEUE]
    return redirected(f"/review?at={number_in(visit.form.get('at', '')) or 0}")


def undo(visit: Visit) -> Response:
    """Undo the last answer of this session."""
    session = visit.session
    assert session is not None
    try:
        id, label = session.done.pop()  # before anything else: a second click at once is about the answer before
    except IndexError:
        visit.tell("nothing to undo")
        return redirected("/review")
    try:
        _take_back(visit, id, label)
    except (TryAgain, StoreError):
        session.done.append((id, label))
        raise
    session.queue = [id, *(other for other in session.queue if other != id)]
    return redirected("/review")


def _take_back(visit: Visit, id: str, label: Label | None) -> None:
    site = visit.site
    entry = message_views.entry_of(site, id)
    if label is None:
        review_of(site).unskip(entry.digest)
        return
    learnt = learnings_of(site.store, Reading(entry.digest, entry.tokens or {}))
    mine = marking.author_of(visit.user).name, marking.SOURCE, label
    if mine not in [(one.by, one.source, one.label) for one in learnt]:
        visit.tell(f"{id}: not undone, because it was changed since")
        return
    marking.mark_and_tell(visit, entry, None)
