"""The server of the web page: its table of pages, and what each request goes through. PAGES is the table."""

import asyncio
import logging
import signal
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal
from urllib.parse import parse_qsl, quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spamfilter.config.settings import Settings
from spamfilter.errors import ConfigError, Refused, SpamfilterError
from spamfilter.service.listening import bound, name_of
from spamfilter.stores import Store, open_store
from spamfilter.system import logs
from spamfilter.system.process import freeze_heap, notify
from spamfilter.web import api, doctor, kept, learning, messages, overview, quarantine, review, senders, signing_in
from spamfilter.web.message_views import status_of
from spamfilter.web.site import Page, Site, Visit, redirected, shown
from spamfilter.web.site.connections import Bounded
from spamfilter.web.site.limits import Fields, body_of, kind_of
from spamfilter.web.site.sessions import Sessions, new_token
from spamfilter.web.site.visitors import Accounts, Origin, Visitors, is_from_another_site

log = logging.getLogger("spamfilter.web")

MOST_FIELDS = 120
"""Fields of a form: the longest of our forms has a checkbox for each of 100 mails."""
BY_LINK = "/kept/"
"""Paths of the pages that the link of a digest opens, with or without signing in."""
FORM = "application/x-www-form-urlencoded"
SENTENCES = {404: "there is no such page", 405: "this address is for the button of a page: go back, and press it there"}
FILES = {"style.css": "text/css", "keyboard.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Files in templates/ that are served unchanged."""

PAGES: tuple[Page, ...] = (
    Page("/login", None, signing_in.form, signing_in.sign_in),
    Page("/logout", "look", None, signing_in.sign_out),
    Page("/", "look", overview.overview),
    Page("/messages", "look", messages.listed),
    Page("/messages/{id}", "look", messages.message),
    Page("/messages/{id}/mark", "label", None, messages.mark),
    Page("/messages/{id}/release", "administer", None, messages.release),
    Page("/messages/{id}/delete", "administer", None, quarantine.delete),
    Page("/quarantine", "look", quarantine.listed),
    Page("/quarantine/act", "administer", None, quarantine.act),
    Page("/senders", "look", senders.listed),
    Page("/senders/add", "administer", None, senders.add),
    Page("/senders/undo", "administer", None, senders.undo),
    Page("/review", "label", review.queue, review.answer),
    Page("/review/undo", "label", None, review.undo),
    Page("/learning", "look", learning.learning),
    Page("/learning/forget", "administer", learning.asked, learning.forget),
    Page("/kept/{link}", None, kept.listed, kept.act),
    Page("/kept/{link}/{id}", None, kept.mail, kept.act_on_mail),
    Page("/doctor", "administer", doctor.doctor, doctor.probed),
)


def serve(settings: Settings, file: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError or StoreError before the first connection."""
    logs.set_up(settings.log.format, settings.log.level)
    if not settings.web.listen:
        raise ConfigError('web.listen = "": the web page is off; set [web] listen = "127.0.0.1:8725"')
    accounts = Accounts(Path(settings.web.accounts))
    sockets = bound("web.listen", settings.web.listen)
    with closing(open_store(settings.store_url())) as store:
        app = application(settings, file, store, accounts)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False,
            proxy_headers=False, lifespan="off", http=Bounded, ws="none", loop="asyncio", timeout_graceful_shutdown=10,
        )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn handles them, and raises them again at its end
            signal.signal(number, lambda *_: None)
        # Its warnings are about what visitors send: a line for each broken request would fill the disk.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        freeze_heap()
        asyncio.run(_Server(config, app.state.site).serve(sockets))
    log.info("stopped")


class _Server(uvicorn.Server):
    """Logs and tells systemd when it is ready; SIGHUP reads the configuration again. Reads ahead for the overview."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._site.reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # which the starting process may have blocked
        self._reading = asyncio.create_task(overview.read_ahead(self._site))  # cancelled as the event loop ends
        log.info("ready: http://%s/", ", ".join(map(name_of, sockets or [])))
        notify("READY=1")


def application(settings: Settings, file: Path | None, store: Store, accounts: Accounts) -> Starlette:
    """The application: pages, files and API on a store."""
    visitors = Visitors(settings.web, accounts)
    site = Site(settings, file, store, Sessions(settings.web.session_hours), visitors, Lock())
    folder = Path(__file__).parent / "templates"
    routes = []
    for page in PAGES:
        methods = ["GET"] * bool(page.get) + ["POST"] * bool(page.post)
        routes.append(Route(page.path, partial(_answer, site, page), methods=methods))
    for name, kind in FILES.items():
        content = Response((folder / name).read_bytes(), media_type=kind)
        routes.append(Route(f"/{name}", content, methods=["GET"]))
    routes += api.routes(site)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Fields)],
        exception_handlers={HTTPException: _failed, Exception: _broken},
    )
    app.state.site = site
    return app


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api/"):
        return api.failed(error.detail, error.status_code, error.headers)
    answer = _error_page(request, SENTENCES.get(error.status_code, error.detail), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _broken(request: Request, error: Exception) -> Response:
    sentence = "the page has failed; its log says why. Try again"
    if request.url.path.startswith("/api/"):
        return PlainTextResponse(sentence, 500)
    return _error_page(request, sentence, 500)


def _error_page(request: Request, sentence: str, status: int) -> Response:
    """A page for an error outside of the pages; it shows no account, as no session was looked for."""
    site: Site = request.app.state.site
    visit = Visit(site, site.visitors.origin(request), request.url.path, None, None, "", {}, {}, {})
    if visit.path.startswith(BY_LINK) and status in SENTENCES:
        return kept.wrong_link(visit, status)
    return shown(visit, "error", status, trouble=sentence)


async def _answer(site: Site, page: Page, request: Request) -> Response:
    form = await _form(request) if request.method == "POST" else {}
    visit = await run_in_threadpool(_visit, site, request, form)
    return await run_in_threadpool(_answered, page, request, visit)


async def _form(request: Request) -> dict[str, str]:
    if kind_of(request) != FORM:
        raise HTTPException(415, f"a form is sent as {FORM}")
    try:
        text = (await body_of(request)).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError:
        raise HTTPException(400, "not a form") from None


def _visit(site: Site, request: Request, form: dict[str, str]) -> Visit:
    """The visit of a request, with the session of its cookie, or a new one if a proxy has named an account."""
    origin, accounts = site.visitors.origin(request), site.visitors.accounts.now()
    # The link of a digest is followed from other sites, without the cookie of a session, which its forms would send.
    by_link = request.url.path.startswith(BY_LINK)
    token = "" if by_link else _sent(request, _cookie(origin, "session"))
    session = site.sessions.find(token, accounts)
    if origin.proxied and not by_link and (session is None or session.account != origin.proxied):
        session, named = None, accounts.get(origin.proxied)
        if named is not None:
            token, session = site.sessions.begin(named)
    if session is None:
        token = _sent(request, _cookie(origin, "stranger")) or new_token()
    account = accounts.get(session.account) if session else None
    return Visit(
        site, origin, request.url.path, account, session, token, request.query_params, form, request.path_params
    )


def _cookie(origin: Origin, name: str) -> str:
    return f"__Host-{name}" if origin.https else name


def _sent(request: Request, cookie: str) -> str:
    """The value of a cookie, '' if the browser has none.

    Our cookies are never quoted. Python's own parser takes quadratic time for backslashes in quotes: seconds for 60 KB.
    """
    pairs = (pair.partition("=") for line in request.headers.getlist("cookie") for pair in line.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}.get(cookie, "")


def _answered(page: Page, request: Request, visit: Visit) -> Response:
    before = visit.token
    try:
        answer = _allowed(page, request, visit)
    except SpamfilterError as error:
        answer = shown(visit, "error", status_of(error), trouble=str(error))
    if visit.token:
        name = _cookie(visit.origin, "session" if visit.session else "stranger")
        if _sent(request, name) != visit.token:
            # The link of a digest is followed from the page of a webmail, and must not make a new stranger of its user.
            same: Literal["strict", "lax"] = "strict" if visit.session else "lax"
            answer.set_cookie(name, visit.token, httponly=True, samesite=same, secure=visit.origin.https)
    if not visit.token or (visit.session and visit.token != before):
        for name in ("stranger", *(() if visit.token else ("session",))):
            answer.delete_cookie(_cookie(visit.origin, name), httponly=True, secure=visit.origin.https)
    return answer


def _allowed(page: Page, request: Request, visit: Visit) -> Response:
    """The answer of the page, if the account's role allows it, and a POST has the stamp of its session.

    Raises SpamfilterError, Refused if not.
    """
    post = request.method == "POST"
    if post and is_from_another_site(request):
        raise Refused("rejected: the request came from another site")
    if page.role is not None and visit.account is None:
        if visit.origin.proxied:
            visit.site.visitors.named(visit.origin)  # which says why it has none
        if post:
            # What was clicked is not done after signing in: the user clicks again on the page that it was on.
            target = visit.path if page.get else visit.path.rpartition("/")[0] or "/"
            return redirected(f"/login?next={quote(target)}" + "&undone=yes" * (target != "/"))
        target = visit.path + (f"?{request.url.query}" if request.url.query else "")
        return redirected(f"/login?next={quote(target)}")
    if page.role is not None and not visit.user.may(page.role):
        raise Refused(f"this needs the role {page.role!r}; your role is {visit.user.role!r}")
    if post and not visit.site.sessions.is_stamp(visit.token, visit.form.get("stamp", "")):
        if visit.path == "/login" and visit.account is not None:  # signed in already, in another tab
            if visit.account.name != visit.form.get("name"):
                raise Refused(f"you are signed in as {visit.account.name!r}: sign out first")
            return redirected(visit.form.get("next", "/"))
        if visit.path.startswith(BY_LINK):
            return kept.again(visit)
        raise Refused("session expired: go back, load the page again, and repeat")
    answer = page.post if post else page.get
    assert answer is not None
    return answer(visit)
