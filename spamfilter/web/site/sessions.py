"""Sessions of accounts that have signed in.

Guarantee: a session is found only by a random token, of which only a digest is kept. It ends after its hours, and when
its account is removed, when the password changes, or when the process ends. An account has at most MOST_SESSIONS.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spamfilter.bayes.labels import Label
from spamfilter.web.accounts import Account

MOST_SESSIONS = 20
"""Sessions of one account: more browsers than a person uses at a time; the oldest ends first."""
NOTICES = 5


def new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(slots=True)
class Session:
    """One browser of one account.

    notices: sentences for the next page. queue: ids that need review, found at `queued`. done: the answers, as id and
    label; None: skipped.
    """

    account: str
    hash: str
    ends: float
    notices: list[str] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    queued: float = 0.0
    done: list[tuple[str, Label | None]] = field(default_factory=list)

    def tell(self, sentence: str) -> None:
        """Show this sentence on the next page."""
        self.notices = [*self.notices, sentence][-NOTICES:]

    def take_notices(self) -> list[str]:
        """The sentences to show; each is returned once."""
        notices, self.notices = self.notices, []
        return notices


class Sessions:
    """All sessions. clock: returns seconds that only grow."""

    def __init__(self, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = hours * 3600
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def begin(self, account: Account) -> tuple[str, Session]:
        """A new session, and the token that finds it."""
        token, now = new_token(), self._clock()
        with self._lock:
            self._sessions = {key: one for key, one in self._sessions.items() if one.ends > now}
            own = [key for key, one in self._sessions.items() if one.account == account.name]
            for key in own[: max(len(own) + 1 - MOST_SESSIONS, 0)]:
                del self._sessions[key]
            session = self._sessions[_digest(token)] = Session(account.name, account.hash, now + self._seconds)
        return token, session

    def find(self, token: str, accounts: Mapping[str, Account]) -> Session | None:
        """The session of a token, while its account exists and has the password that the session began with."""
        with self._lock:
            session = self._sessions.get(_digest(token))
            if session is None:
                return None
            account = accounts.get(session.account)
            if session.ends > self._clock() and account is not None and account.hash == session.hash:
                return session
            del self._sessions[_digest(token)]
            return None

    def end(self, token: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(token), None)

    def stamp(self, token: str) -> str:
        """The secret in each form of this session, against cross-site request forgery."""
        return hmac.new(self._key, token.encode(), hashlib.sha256).hexdigest()

    def is_stamp(self, token: str, stamp: str) -> bool:
        return bool(token) and hmac.compare_digest(self.stamp(token).encode(), stamp.encode("utf-8", "replace"))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
