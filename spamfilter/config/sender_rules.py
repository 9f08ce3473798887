"""Reads rules that allow or block senders, from the configuration and from commands.

Each function raises ValueError with a sentence for the user.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta

from spamfilter.config import addresses
from spamfilter.stores.sender_lists import Kind, Rule
from spamfilter.system.moments import moment_of

LONGEST_NOTE = 200
"""Characters of a note: a line of the list."""
MOST_DAYS = 36_500
_RULE = re.compile(r"(\S+)(?: +for +(\S+))?(?: +until +(\S+))?", re.ASCII)


def sender(text: str) -> str:
    """An address, a domain or a network, in its one spelling; *@domain, as other filters write it, is the domain.

    An interface, as in fe80::1%eth0, is left out: clients are compared without theirs.

    >>> sender("Boss@Example.org."), sender("@example.org"), sender("192.0.2.1"), sender("Ann/Sales@example.org")
    ('boss@example.org', 'example.org', '192.0.2.1/32', 'ann/sales@example.org')
    """
    if "@" not in text and (":" in text or "/" in text or re.fullmatch(r"[0-9.]+", text)):
        try:
            network = ipaddress.ip_network(re.sub("%[^/]*", "", text) if ":" in text else text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a network, as in 192.0.2.0/24: {error}") from None
        if network.version == 6 and network.overlaps(addresses.MAPPED):
            raise ValueError(f"{text!r} is IPv4 within IPv6; write it as IPv4, as in 192.0.2.0/24")
        if not network.prefixlen:
            raise ValueError(f"{text!r} is every client; name a network, as in 192.0.2.0/24")
        return str(network)
    try:
        return _mailbox_or_domain(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not an address (user@example.org), domain (example.org) or network (192.0.2.0/24)"
        ) from None


def recipients(text: str) -> str:
    """An address or a domain of recipients, in lower case; '' is everybody."""
    try:
        return text and _mailbox_or_domain(text)
    except ValueError:
        raise ValueError(f"{text!r} is not the address or domain of a recipient") from None


def some_recipients(text: str) -> str:
    """As `recipients`, but not everybody."""
    return recipients(text or "''")


def _mailbox_or_domain(text: str) -> str:
    local, _, domain = text.rpartition("@")
    if local in ("", "*"):
        return addresses.domain(domain)
    if "*" in local:
        raise ValueError
    return addresses.mailbox(text)


def rule(kind: Kind, text: str) -> Rule:
    """A rule of the configuration: "SENDER", "SENDER for RECIPIENT" or "SENDER until DATE", or with both.

    DATE is the last day, in local time.

    >>> rule("block", "example.org for me@example.net until 2026-12-31").whom
    'me@example.net'
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError('not of the form "SENDER", "SENDER for RECIPIENT" or "SENDER until 2026-12-31"')
    what, whom, until = match.groups()
    expires = None
    if until is not None:
        try:
            expires = moment_of(date.fromisoformat(until).isoformat(), end=True)
        except ValueError:
            raise ValueError(f"{until!r} is not a date, as in 2026-12-31") from None
    return Rule(kind, sender(what), recipients(whom or ""), expires)


def new_rule(kind: Kind, what: str, whom: str, days: int | None, by: str, now: datetime, note: str = "") -> Rule:
    """A rule that somebody adds. days: until it expires; None: never."""
    if not note.isprintable() or len(note) > LONGEST_NOTE:
        raise ValueError(f"the note must be one line of at most {LONGEST_NOTE} printable characters")
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise ValueError(f"the days must be from 1 to {MOST_DAYS:,}")
    expires = None if days is None else now + timedelta(days=days)
    return Rule(kind, sender(what), recipients(whom), expires, by, now, note)


def waits_for_proof(rule: Rule, results_from: Collection[str]) -> bool:
    """Whether an allowing rule is never obeyed, because no server is named that proves who a sender is."""
    return rule.kind == "allow" and ("@" in rule.what or "/" not in rule.what) and not results_from


def blocks(rule: Rule, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Whether a rule blocks clients of these networks."""
    if rule.kind != "block" or "/" not in rule.what or "@" in rule.what:
        return False
    blocked = ipaddress.ip_network(rule.what)
    return any(own.version == blocked.version and own.overlaps(blocked) for own in networks)


def checked(text: str) -> str:
    """The text of a rule that `rule` can read."""
    rule("allow", text)
    return text


def authentication_name(text: str) -> str:
    """The authserv-id of RFC 8601 section 2.5, in lower case."""
    if not re.fullmatch(r"[!-~]{1,255}", text) or set(text) & set('";()='):
        raise ValueError("not the name that a server puts first into Authentication-Results, as in mx.example.org")
    return text.lower()
