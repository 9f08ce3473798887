"""The pages of messages: search, one message with its explanation, mark, release."""

from urllib.parse import urlencode

from starlette.responses import Response

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.errors import InputError
from spamfilter.stores import JournalEntry
from spamfilter.web import marking, message_views
from spamfilter.web.site import Visit, redirected, shown


def listed(visit: Visit) -> Response:
    """A page of search results."""
    query = {name: visit.query.get(name, "") for name in message_views.SEARCHED}
    trouble, next_ = "", ""
    entries: list[JournalEntry] = []
    try:
        entries, next_ = message_views.page_of(visit.site.store, message_views.search_of(visit.query))
    except InputError as error:
        trouble = str(error)
    more = "?" + urlencode({name: text for name, text in (query | {"before": next_}).items() if text}) if next_ else ""
    return shown(
        visit, "messages", 400 if trouble else 200, entries=entries, query=query, trouble=trouble, more=more,
        labels=message_views.labels_of(visit.site.store, entries), classes=CLASSES, actions=ACTIONS,
        first=not visit.query.get("before"),
    )  # fmt: skip


def message(visit: Visit) -> Response:
    """One message and why it was judged so."""
    site = visit.site
    looked = message_views.looked_at(site.filter(), site.settings, visit.parts["id"])
    kept = message_views.kept_of(site.settings, looked.entry) if visit.user.may("administer") else None
    return shown(visit, "message", looked=looked, entry=looked.entry, judged=looked.judged, kept=kept)


def mark(visit: Visit) -> Response:
    """Mark a message as spam or ham, or forget it."""
    site = visit.site
    entry = message_views.entry_of(site.store, visit.parts["id"])
    label = label_of(visit.form.get("label", ""))
    done = marking.mark(site.filter(), site.settings, entry.id, label, visit.user)
    visit.tell(marking.notice(entry, label, done))
    return redirected(f"/messages/{entry.id}")


def label_of(text: str) -> Label | None:
    """The label of a button; None: forget. Raises InputError."""
    for label in LABELS:
        if text == label:
            return label
    if text != "forget":
        raise InputError("label: neither ham nor spam nor forget")
    return None


def release(visit: Visit) -> Response:
    """Release a message from quarantine."""
    site = visit.site
    entry = message_views.quarantined(site.settings, site.store, visit.parts["id"])
    for sentence in marking.release(site.filter(), site.settings, entry, visit.user):
        visit.tell(sentence)
    return redirected(f"/messages/{entry.id}")
