"""SIGHUP: the configuration is read again while the relay runs.

Guarantee: thresholds, lists, limits and the certificate change without dropping a connection; a wrong file changes
nothing.
"""

import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError
from spamfilter.relay.relay import Relay
from spamfilter.service.control_socket.server import FeedbackSocket
from spamfilter.service.listening import raise_descriptor_limit, within_descriptors
from spamfilter.system import tls
from spamfilter.system.process import notify

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


def apply(settings: Settings, relay: Relay, socket: FeedbackSocket) -> None:
    """Give the keys of `config.settings.LIVE` to the parts of a running relay."""
    raise_descriptor_limit(settings.limits)
    relay.judge.policy, relay.judge.policies = settings.policy(), settings.policies()
    relay.trusted = settings.relay.networks()
    relay.domains = frozenset(settings.relay.domains)
    relay.memory.bound(settings.limits.memory_bytes, settings.limits.message_size)
    relay.limits = within_descriptors(settings.limits)
    relay.feedback = socket.settings = settings.feedback
    relay.mark_queue.settings = settings.feedback
    relay.normalise = settings.normalises()
    socket.limits = settings.limits
    logging.getLogger().setLevel(settings.log.level.upper())
    renew_certificate(relay.tls, settings)


def renew_certificate(context: ssl.SSLContext | None, settings: Settings) -> None:
    """Read the files of TLS again, if there is any; their names may be the same. A wrong one is a line of log."""
    if context is not None:
        try:
            tls.renew(context, settings.relay.tls_certificate, settings.relay.tls_key)
        except (OSError, ValueError) as error:
            log.error("the certificate is not renewed: %s", error)  # noqa: TRY400 - the sentence says it
