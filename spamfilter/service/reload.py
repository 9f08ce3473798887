"""SIGHUP: the configuration is read again while the relay runs.

Guarantee: thresholds, lists, limits and certificates change without dropping a connection; a wrong file changes
nothing.
"""

import logging
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError
from spamfilter.relay.next_hops import NextHop, next_hop_tls
from spamfilter.relay.relay import Relay
from spamfilter.service.control_socket.server import FeedbackSocket
from spamfilter.service.listening import raise_descriptor_limit, within_descriptors
from spamfilter.system.process import notify
from spamfilter.system.tls import server_context

log = logging.getLogger("spamfilter")


@contextmanager
def reread(file: Path | None) -> Iterator[Settings | None]:
    """The configuration as the file has it now, to be applied in this context; None, and a line of log, if it is wrong.

    systemd waits until the context ends: sd_notify(3).
    """
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
    new = None
    try:
        new = load(file)
    except Exception as error:  # whatever it is, the relay goes on as it was
        log.log(logging.ERROR, "not reloaded: %s", error, exc_info=not isinstance(error, ConfigError))
    try:
        yield new
    finally:
        notify("READY=1")


def read_by_relay(keys: Iterable[str]) -> list[str]:
    """Those of these keys that the relay reads: those of [web] are read by the web page alone."""
    return [key for key in keys if not key.startswith("web.")]


def tell_reloaded(waiting: Sequence[str]) -> None:
    """Log that a configuration is in use, and which changed keys need a restart."""
    if waiting:
        log.warning("what changed in %s waits for a restart", ", ".join(waiting))
    log.info("reloaded")


def apply(settings: Settings, relay: Relay, socket: FeedbackSocket) -> None:
    """Give the keys of `config.settings.LIVE` to the parts of a running relay."""
    apply_to_process(settings)
    relay.tls = renewed_tls(settings, relay.tls, relay.next_hop)
    relay.judge.policy, relay.judge.policies = settings.policy(), settings.policies()
    relay.trusted = settings.relay.networks()
    relay.domains = frozenset(settings.relay.domains)
    relay.memory.bound(settings.limits.memory_bytes, settings.limits.message_size)
    relay.limits = within_descriptors(settings.limits)
    relay.feedback = socket.settings = settings.feedback
    relay.mark_queue.settings, relay.mark_queue.prefixes = settings.feedback, settings.subject_prefixes()
    relay.normalise = settings.normalises()
    socket.limits = settings.limits


def apply_to_process(settings: Settings) -> None:
    """Take over what is of the whole process, and of those that it starts later: descriptors and the log's level."""
    raise_descriptor_limit(settings.limits)
    logging.getLogger().setLevel(settings.log.level.upper())


def renewed_tls(settings: Settings, used: ssl.SSLContext | None, next_hop: NextHop) -> ssl.SSLContext | None:
    """Read the files of TLS again, whose names may be the same, for later connections; returns the context of clients.

    It is a new one each time: OpenSSL would keep the former certificate, too, if the new key is of another kind.
    What a wrong file is for stays as it is, with a line of log.
    """
    try:
        next_hop.tls = next_hop_tls(settings)
    except (OSError, ValueError) as error:
        log.error("relay.next_hop_ca is not read again: %s", error)  # noqa: TRY400 - the sentence says it
    try:
        return clients_tls(settings)
    except (OSError, ValueError) as error:
        log.error("relay.tls_certificate is not renewed: %s", error)  # noqa: TRY400 - as above
        return used


def clients_tls(settings: Settings) -> ssl.SSLContext | None:
    """What secures the connections of clients; None without a certificate. Raises OSError or ValueError."""
    certificate, key = settings.relay.tls_certificate, settings.relay.tls_key
    return server_context(certificate, key) if certificate else None
