"""The pages of messages: search, one message with its explanation, mark, release."""

from starlette.responses import Response

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.verdict import ACTIONS
from spamfilter.errors import InputError
from spamfilter.relay.quarantine import event_text
from spamfilter.stores import WANTED_CLASSES
from spamfilter.system.ids import first_id
from spamfilter.system.moments import moment_of
from spamfilter.web import marking, message_views
from spamfilter.web.site import Visit, redirected, shown


def listed(visit: Visit) -> Response:
    query = {name: visit.query.get(name, "") for name in message_views.SEARCHED}
    if visit.query.get("day"):
        query["unsure_first"] = ""  # in that order the unsure mail of a day is before all other mail, not on its day
    conditions = {name: text for name, text in query.items() if text and name not in ("before", "after")}
    trouble, found = "", message_views.Found([], 0, "", "")
    try:
        asked = query | {"before": _before(visit.query.get("day", "").strip())} if visit.query.get("day") else query
        found = message_views.page_of(visit.site.store, message_views.search_of(asked))
    except InputError as error:
        trouble = str(error)
    return shown(
        visit, "messages", 400 if trouble else 200, found=found, query=query, conditions=conditions, trouble=trouble,
        moved=any(visit.query.get(name) for name in ("before", "after", "day")), classes=WANTED_CLASSES,
        labels=message_views.labels_of(visit.site.store, found.entries), actions=ACTIONS,
    )  # fmt: skip


def _before(day: str) -> str:
    """The id that a list goes on after to begin with the mail of a day. Raises InputError."""
    try:
        return first_id(moment_of(day, end=True))
    except ValueError:
        raise InputError(f"day {day[:100]!r}: not a date (2026-01-31)") from None


def message(visit: Visit) -> Response:
    """One message and why it was judged so."""
    site = visit.site
    looked = message_views.looked_at(site, visit.parts["id"])
    custody = site.quarantine().custody(looked.entry)
    text = message_views.beginning_of(site, looked.entry, custody.kept if custody else None)
    return shown(
        visit, "message", looked=looked, entry=looked.entry, judged=looked.judged, custody=custody,
        event_text=event_text, text=text,
    )  # fmt: skip


def mark(visit: Visit) -> Response:
    site = visit.site
    entry = message_views.entry_of(site, visit.parts["id"])
    label = visit.form.get("label")
    if label == "forget":
        label = None
    elif label not in LABELS:
        raise InputError("label: neither ham nor spam nor forget")
    marking.mark_and_tell(visit, entry, label)
    return redirected(f"/messages/{entry.id}")


def release(visit: Visit) -> Response:
    """Deliver a message from quarantine, and mark it as not spam if the button says so."""
    entry = message_views.quarantined(visit.site, visit.parts["id"])
    author, teach = marking.author_of(visit.user), "only" not in visit.form
    for sentence in marking.release(visit.site, entry.id, author, teach=teach).said:
        visit.tell(sentence)
    return redirected(f"/messages/{entry.id}")
