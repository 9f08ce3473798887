"""The frame of every page: Site, Visit, templates, redirects.

Guarantee: text from a mail is never markup; characters that would hide or reorder others are written out.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from starlette.responses import HTMLResponse, RedirectResponse, Response

from spamfilter.bayes.voices import Voices
from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError
from spamfilter.learning.filter import RULES, Filter, rules
from spamfilter.relay.quarantine import Quarantine
from spamfilter.reports.daily_summaries import Parts
from spamfilter.reports.html import environment
from spamfilter.service.reload import reread, tell_reloaded
from spamfilter.stores import Store
from spamfilter.web.accounts import Account, Role
from spamfilter.web.site.sessions import Session, Sessions
from spamfilter.web.site.status_strip import StatusStrip
from spamfilter.web.site.visitors import Origin, Visitors


@dataclass(slots=True)
class Site:
    """The parts that all pages share. file: the configuration file as it was named. busy: held by long computations.
    parts: of days, for reports, used while it is held. strip: the line on top of every page."""

    settings: Settings
    file: Path | None
    store: Store
    sessions: Sessions
    visitors: Visitors
    busy: Lock
    parts: Parts = field(default_factory=dict)
    strip: StatusStrip = field(init=False)

    def __post_init__(self) -> None:
        self.strip = StatusStrip(lambda: self.settings, self.store)

    def filter(self, whole: bool = False) -> Filter:
        """A filter by the voices of the counts; unless it has the whole counts, it judges by those of the store now."""
        return Filter(self.store, self.voices(), whole)

    def quarantine(self) -> Quarantine:
        """The mails that are kept, and what became of others."""
        return Quarantine(self.settings.quarantine_path(), self.store, self.settings.hostname())

    def voices(self) -> Voices:
        """The voices of the counts. After a retraining [learn] is read again, as the relay does."""
        kept = self.store.get_setting(RULES)
        if kept is not None and kept != rules(self.settings.voices()):
            with suppress(ConfigError):  # the file may be wrong for now; the voices are those of the counts
                learn = load(self.file).learn  # takes a while, in which SIGHUP may change the settings
                self.settings = self.settings.model_copy(update={"learn": learn})
            return self.settings.learn.as_learnt(kept)
        return self.settings.voices()

    def reload(self) -> None:
        """SIGHUP: take the keys that a running relay takes, too."""
        with reread(self.file) as new:
            if new is not None:
                self.settings, waiting = self.settings.reloaded(new)
                tell_reloaded(waiting)


@dataclass(slots=True)
class Visit:
    """One request. account: None before signing in. token: from the cookie. form: of a POST. parts: of the path."""

    site: Site
    origin: Origin
    path: str
    account: Account | None
    session: Session | None
    token: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def user(self) -> Account:
        """The account, on a page that needs one."""
        assert self.account is not None
        return self.account

    def tell(self, sentence: str) -> None:
        """Show this sentence on the next page of the session."""
        if self.session is not None:
            self.session.tell(sentence)


Handler = Callable[[Visit], Response]


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the table of pages: path, role that it needs (None: no account), handlers of GET and POST."""

    path: str
    role: Role | None
    get: Handler | None = None
    post: Handler | None = None


def shown(visit: Visit, template: str, status: int = 200, **facts: object) -> Response:
    page = environment("spamfilter.web").get_template(f"{template}.html")
    text = page.render(
        visit=visit,
        account=visit.account,
        stamp=visit.site.sessions.stamp(visit.token),
        notices=visit.session.take_notices() if visit.session else [],
        states=visit.site.strip.states() if visit.account else [],
        **facts,
    )
    return HTMLResponse(text, status)


def number_in(text: str, digits: int = 9) -> int | None:
    """The number that a visitor has typed, of at most so many digits of ASCII; None for any other text."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{digits}}}", text) else None


def redirected(path: str) -> Response:
    """A redirect to another page of this site; to the first one if the path could lead to another site."""
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) < 2000
    return RedirectResponse(path if ours else "/", 303)
