"""The lines of log when the relay is ready: its addresses, its database, its next hop."""

import logging
import socket

from spamfilter.bayes import compiled
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.relay.next_hops import NextHop
from spamfilter.service.listening import Sockets, name_of

log = logging.getLogger("spamfilter")

TRIAL = (
    "python3 -c \"import smtplib; smtplib.SMTP('%s', %d).sendmail("
    "'me@example.org', 'you@example.org', 'Subject: hello\\n\\nIs this spam?')\""
)
"""An SMTP client in one line, to try a relay that has no next hop yet."""

FOR = {"listening": "", "submission": " for authenticated senders", "lmtp": " for LMTP", "milter": " for milter"}
"""Kind of a socket -> the words behind its address in the log."""


def announce(settings: Settings, sockets: Sockets, filter: Filter, next_hop: NextHop) -> None:
    """Log where the relay listens, what it has learnt and where mail goes."""
    for sock in sockets.metrics:
        log.info("metrics at http://%s/metrics", name_of(sock))
    for kind, listed in sockets.mail.items():
        for sock in listed:
            log.info("listening on %s%s", name_of(sock), FOR[kind])
    learnt = filter.learnt
    log.info("judging %s", compiled.in_words())
    log.info("database %s: %d ham and %d spam learnt", filter.store.where, learnt["ham"], learnt["spam"])
    first = sockets.mail["listening"][0]
    log.info("ready: send mail to %s; it goes on to %s", name_of(first), next_hop.where)
    if not settings.relay.next_hop and first.family != socket.AF_UNIX:
        host, port = first.getsockname()[:2]
        log.info("to try it: " + TRIAL, host, port)
