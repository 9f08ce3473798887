"""The account behind a request: named by a reverse proxy, or by name and password.

Guarantee: header fields about the client are believed from [web] proxy_addresses only, and a name that a proxy gives
must have an account.
"""

import base64
import binascii
import hashlib
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from spamfilter.config.addresses import is_in
from spamfilter.config.sections import Web
from spamfilter.errors import ConfigError, Refused, TryAgain
from spamfilter.web.accounts import Account, is_right, read_accounts
from spamfilter.web.site.throttle import Throttle

log = logging.getLogger("spamfilter.web")

HASHING = threading.Semaphore(2)
"""At most two passwords are checked at a time: each hash takes 64 MB."""
REMEMBERED, REMEMBERED_SECONDS = 100, 60.0
"""Correct passwords of API clients are remembered as digests, because clients send theirs with each request."""


class TooOften(Exception):
    """Too many attempts to sign in. fields: of the header of the answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many attempts: try again in {seconds:.0f} seconds")
        self.fields = {"Retry-After": str(int(seconds) + 1)}


class Accounts:
    """The accounts as the file has them now. With an error in the file nobody can sign in; the error is logged.

    wrong: whether the file has an error.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, ...] = self._identity()
        self._accounts = read_accounts(file)
        self.wrong = False

    def _identity(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._file)
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def now(self) -> Mapping[str, Account]:
        seen = self._identity()
        if seen != self._seen:
            self._seen = seen
            try:
                self._accounts, self.wrong = read_accounts(self._file), False
            except ConfigError as error:
                self._accounts, self.wrong = {}, True
                log.error("nobody can sign in: %s", error)  # noqa: TRY400 - the sentence says it
        return self._accounts


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from: the client's address, whether by HTTPS, the name that a proxy has given or ''."""

    address: str
    https: bool
    proxied: str


def is_from_another_site(request: Request) -> bool:
    """Whether the browser says that a page of another site has made it send this request."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _without_port(hop: str) -> str:
    """An address in X-Forwarded-For, to which some gateways add the client's port, another one for each connection.

    >>> _without_port("192.0.2.7:4711"), _without_port("[2001:db8::7]:4711"), _without_port("2001:db8::7")
    ('192.0.2.7', '2001:db8::7', '2001:db8::7')
    """
    host, colon, port = hop.rpartition(":")
    has_port = colon and port.isdecimal() and (":" not in host or host.startswith("["))
    return host.strip("[]") if has_port else hop


def _as_utf8(value: str) -> str:
    """The value of a field, which was read as Latin-1, as the UTF-8 that proxies send names in; else as it was read."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


class Visitors:
    """Finds the origin and the account of a request."""

    def __init__(self, web: Web, accounts: Accounts) -> None:
        self._web = web
        self._proxies = web.proxies()
        self.accounts = accounts
        self._throttle = Throttle()
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()

    def origin(self, request: Request) -> Origin:
        peer, headers = request.client.host if request.client else "", request.headers
        if not is_in(peer, self._proxies):
            return Origin(peer, False, "")
        address = peer
        for hop in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
            if hop.strip():
                address = _without_port(hop.strip()[:100])
                if not is_in(address, self._proxies):
                    break
        named = headers.getlist(self._web.proxy_header) if self._web.proxy_header else []
        # If there are two, one may be from the client, and the proxy has passed it on.
        proxied = _as_utf8(named[0]) if len(named) == 1 else ""
        return Origin(address, headers.get("x-forwarded-proto", "") == "https", proxied)

    def named(self, origin: Origin) -> Account:
        """The account that a proxy has named. Raises Refused if there is none, and TryAgain as `signed_in`."""
        account = self._account(origin.proxied)
        if account is None:
            raise Refused(f"{origin.proxied!r} has no account here; see [web] accounts")
        return account

    def _account(self, name: str) -> Account | None:
        account = self.accounts.now().get(name)
        if self.accounts.wrong:
            raise TryAgain("nobody can sign in: the file of accounts has an error, which is in the log of this page")
        return account

    def signed_in(self, origin: Origin, name: str, password: str) -> Account | None:
        """The account, if name and password are right. Raises TooOften, and TryAgain where nobody can sign in."""
        account = self._account(name)
        wait = self._throttle.attempt(origin.address, name)
        if wait:
            raise TooOften(wait)
        with HASHING:
            right = is_right(account, password)
        if not right:
            log.warning("signing in failed: %r from %s", name[:100], origin.address)
            return None
        self._throttle.pardon(origin.address, name)
        return account

    def basic(self, origin: Origin, authorization: str) -> Account | None:
        """The account of an Authorization field: RFC 7617. Raises as `signed_in`."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        account = self.accounts.now().get(name)
        known = account.hash if account else ""
        seen = hashlib.blake2b("\0".join((known, name, password)).encode(), key=self._key).digest()
        if account and colon and self._right.get(seen, 0.0) > time.monotonic():
            return account
        found = self.signed_in(origin, name, password) if colon else None
        if found is not None:
            self._right[seen] = time.monotonic() + REMEMBERED_SECONDS
            while len(self._right) > REMEMBERED:
                self._right.popitem(last=False)
        return found
