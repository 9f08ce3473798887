"""The pages to sign in and to sign out."""

from starlette.responses import Response

from spamfilter.web.accounts import LONGEST
from spamfilter.web.site import Visit, redirected, shown
from spamfilter.web.site.visitors import TooOften

UNDONE = "session expired: what you clicked was not done; sign in, and click it again"
"""What is said when a form was sent without a session."""


def form(visit: Visit) -> Response:
    if visit.account is not None:
        return redirected(visit.query.get("next", "/"))
    trouble = UNDONE if "undone" in visit.query else ""
    return shown(visit, "login", next=visit.query.get("next", "/"), name="", trouble=trouble)


def sign_in(visit: Visit) -> Response:
    """Check name and password, and begin a session; its token goes into the cookie."""
    name, password = visit.form.get("name", ""), visit.form.get("password", "")
    next_ = visit.form.get("next", "/")
    facts = {"next": next_, "name": name[:100]}
    try:
        account = visit.site.visitors.signed_in(visit.origin, name, password) if len(password) <= LONGEST else None
    except TooOften as error:
        answer = shown(visit, "login", 429, trouble=str(error), **facts)
        answer.headers.update(error.fields)
        return answer
    if account is None:
        return shown(visit, "login", 403, trouble="name or password is wrong", **facts)
    visit.token, visit.session = visit.site.sessions.begin(account)
    return redirected(next_)


def sign_out(visit: Visit) -> Response:
    """End the session on the server, so that a copied cookie is worthless."""
    visit.site.sessions.end(visit.token)
    visit.token, visit.session = "", None
    return redirected("/login")
