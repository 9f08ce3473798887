"""SIGHUP: the configuration is read again.

Guarantee: thresholds, lists, limits and the certificate change without dropping a connection; a file that is wrong
changes nothing.
"""

import logging
import time
from pathlib import Path

from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError
from spamfilter.relay.front_ends import Relay
from spamfilter.service.control_socket.server import FeedbackSocket
from spamfilter.service.ledger_following import Following
from spamfilter.service.listening import raise_descriptor_limit, within_descriptors
from spamfilter.service.supervisor import Process
from spamfilter.system import tls
from spamfilter.system.process import notify

log = logging.getLogger("spamfilter")


class LiveSettings:
    """The settings in use, and the parts of the relay that `reload` gives new ones to.

    settings: as last loaded, those that need a restart as at the start. file: the configuration file, None where it is
    looked for.
    """

    def __init__(
        self,
        settings: Settings,
        file: Path | None,
        relay: Relay,
        following: Following,
        socket: FeedbackSocket,
        process: Process,
    ) -> None:
        self.settings = settings
        self._file = file
        self._relay = relay
        self._following = following
        self._socket = socket
        self._process = process

    def reload(self) -> None:
        """Apply the keys of `config.settings.LIVE`; the log names changed keys that need a restart."""
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self._file)
        except ConfigError as error:
            log.error("not reloaded: %s", error)  # noqa: TRY400 - the sentence says it
        else:
            self.settings, waiting = self._following.at_work(self.settings).reloaded(new)
            self._apply()
            self._renew_certificate()
            if self._process.keeps:
                log.info("reloaded%s", f"; what changed in {', '.join(waiting)} waits for a restart" if waiting else "")
        self._process.shared.state[self._process.shared.own] += 1
        notify("READY=1")

    def _apply(self) -> None:
        settings, relay = self.settings, self._relay
        raise_descriptor_limit(settings.limits)
        relay.judge.policy = settings.policy()
        relay.trusted = settings.relay.networks()
        relay.domains = settings.relay.own_domains()
        relay.memory.most = settings.limits.memory_bytes
        relay.limits = within_descriptors(settings.limits)
        relay.feedback = self._socket.settings = settings.feedback
        relay.desk.marks_a_day = settings.feedback.marks_a_day
        relay.normalise = settings.normalises()
        self._socket.limits = settings.limits
        logging.getLogger().setLevel(settings.log.level.upper())

    def _renew_certificate(self) -> None:
        """Read the certificate's files again though the settings are the same: a renewal keeps their names."""
        if self._relay.tls is not None:
            try:
                tls.renew(self._relay.tls, self.settings.relay.tls_certificate, self.settings.relay.tls_key)
            except (OSError, ValueError) as error:
                log.error("the certificate is not renewed: %s", error)  # noqa: TRY400 - the sentence says it
