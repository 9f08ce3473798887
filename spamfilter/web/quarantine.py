"""The page "Quarantine": the mails that are kept, to be delivered or deleted, many at once."""

from starlette.responses import Response

from spamfilter.errors import InputError, SpamfilterError, StoreError
from spamfilter.system.batches import in_time
from spamfilter.web import marking, message_views
from spamfilter.web.marking import TICKED
from spamfilter.web.site import Visit, redirected, shown


def listed(visit: Visit) -> Response:
    """The mails that came last and are still kept."""
    kept = visit.site.quarantine()
    try:
        mails = kept.latest(TICKED + 1)
    except OSError as error:
        raise StoreError(f"{error.filename or kept.path}: {error.strerror}; see spamfilter doctor") from error
    return shown(visit, "quarantine", mails=mails[:TICKED], more=len(mails) > TICKED, all="all" in visit.query)


def act(visit: Visit) -> Response:
    """Deliver the mails that were ticked and mark them as not spam, deliver them only, or delete them."""
    site, author, do = visit.site, marking.author_of(visit.user), visit.form.get("do")
    ids = marking.ticked(visit.form)
    if do not in ("teach", "deliver", "delete"):  # as by Enter in a box, where no script runs
        raise InputError("nothing was done: choose what to do with the mails that are ticked")
    done, failed, delivered = 0, list[str](), list[marking.Delivered]()
    for id in in_time(ids, marking.AT_MOST):
        try:
            if do == "delete":
                marking.delete(site, id, author)
            else:
                delivered.append(marking.release(site, id, author, teach=do != "deliver"))
            done += 1
        except SpamfilterError as error:
            failed.append(str(error))
    if done:
        visit.tell(f"{done} mail{'s' * (done != 1)} {'deleted' if do == 'delete' else 'delivered'}")
    for what, said in (
        ("still kept", [one.stays for one in delivered]),
        ("not learnt", [one.untaught for one in delivered]),
        ("not noted", [one.unnoted for one in delivered]),
    ):
        if some := [*filter(None, said)]:
            visit.tell(f"{len(some)} of these {what}: {some[0]}" + "; ..." * (len(some) > 1))
    if rest := len(ids) - done:
        first, *more = failed or ["it took too long; tick them again"]
        visit.tell(f"{rest} not done: {first}" + "; ..." * bool(more))
    if not ids:
        visit.tell("Tick the mails first.")
    return redirected("/quarantine")


def delete(visit: Visit) -> Response:
    entry = message_views.quarantined(visit.site, visit.parts["id"])
    marking.delete(visit.site, entry.id, marking.author_of(visit.user))
    visit.tell("The mail is deleted.")
    return redirected(f"/messages/{entry.id}")
