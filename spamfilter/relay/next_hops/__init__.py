"""The next hops: where judged mail goes. NEXT_HOPS is the table of their kinds; a URL names one."""

import ssl
from collections.abc import Callable
from pathlib import Path

from spamfilter.config.addresses import split_address
from spamfilter.config.settings import Settings
from spamfilter.relay.next_hops.lmtp import LmtpNextHop, LmtpSocketNextHop
from spamfilter.relay.next_hops.maildir import Maildir, MaildirNextHop
from spamfilter.relay.next_hops.next_hop import Conversation, NextHop, Reply, Timeouts, offer
from spamfilter.relay.next_hops.smtp import SmtpNextHop
from spamfilter.system.tls import client_context

__all__ = ["Conversation", "Maildir", "NextHop", "Reply", "Timeouts", "offer"]


def _smtp(address: str, hostname: str, tls: ssl.SSLContext | None, timeouts: Timeouts) -> NextHop:
    return SmtpNextHop(*split_address(address.removeprefix("//")), hostname, tls, timeouts)


def _lmtp(address: str, hostname: str, tls: ssl.SSLContext | None, timeouts: Timeouts) -> NextHop:
    place = address.removeprefix("//")
    if place.startswith("/"):
        return LmtpSocketNextHop(Path(place), hostname, tls, timeouts)
    return LmtpNextHop(*split_address(place), hostname, tls, timeouts)


def _maildir(address: str, hostname: str, tls: ssl.SSLContext | None, timeouts: Timeouts) -> NextHop:
    return MaildirNextHop(Path(address))


NEXT_HOPS: dict[str, Callable[[str, str, ssl.SSLContext | None, Timeouts], NextHop]] = {
    "smtp": _smtp,
    "lmtp": _lmtp,
    "maildir": _maildir,
}


def open_next_hop(url: str, hostname: str, tls: ssl.SSLContext | None, timeouts: Timeouts) -> NextHop:
    """The next hop of a URL, as in smtp://127.0.0.1:10026, lmtp:///run/dovecot/lmtp or maildir:/mail."""
    kind, _, address = url.partition(":")
    return NEXT_HOPS[kind](address, hostname, tls, timeouts)


def next_hop_of(settings: Settings) -> NextHop:
    """The next hop of the configuration. Raises OSError as `next_hop_tls`."""
    limits = settings.limits
    timeouts = Timeouts(limits.connect_seconds, limits.command_seconds, limits.final_seconds)
    return open_next_hop(settings.next_hop_url(), settings.hostname(), next_hop_tls(settings), timeouts)


def next_hop_tls(settings: Settings) -> ssl.SSLContext | None:
    """What secures the connections to the next hop; None: nothing. Raises OSError if there is no such file."""
    relay = settings.relay
    return None if relay.next_hop_tls == "none" else client_context(relay.next_hop_ca)
