"""The relay as a daemon: opens its sockets and its database, then runs as one process or as several.

Guarantee: a socket or a database that cannot be opened is an error before the first connection, and a second daemon on
the same address never touches the database.
"""

import asyncio
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

from spamfilter.bayes import compiled
from spamfilter.bayes.voices import Voices
from spamfilter.config.settings import Settings
from spamfilter.errors import ConfigError
from spamfilter.learning.filter import RULES, Filter, rules, rules_text, usable
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.next_hops import Maildir, next_hop_of
from spamfilter.service import expiry
from spamfilter.service.listening import Sockets, bound, inherited, name_of, not_open, raise_descriptor_limit
from spamfilter.service.reload import clients_tls
from spamfilter.service.shared_counts import SharedCounts
from spamfilter.service.shared_filter import ReadingFilter, WritingFilter
from spamfilter.service.startup_messages import announce
from spamfilter.service.supervisor import Process, Supervisor
from spamfilter.service.worker import Worker
from spamfilter.stores import Store, open_store
from spamfilter.system import logs
from spamfilter.system.process import freeze_heap, return_large_blocks

log = logging.getLogger("spamfilter")


def serve(settings: Settings, file: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError or StoreError before the first connection."""
    logs.set_up(settings.log.format, settings.log.level)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for warning in settings.warnings():
        log.warning("configuration: %s", warning)
    if compiled.REFUSED:
        log.warning("judging %s", compiled.in_words())
    raise_descriptor_limit(settings.limits)
    return_large_blocks()
    # Sockets first: a second daemon on the same address must stop before it opens the database.
    handed, relay = inherited(), settings.relay
    names = [name_of(sock) for sock in handed]
    for address in not_open(relay.listen, names) if handed else ():
        log.warning("systemd hands over %s; [relay] listen names %s, which is not open", ", ".join(names), address)
    mail = {
        "listening": handed or bound("relay.listen", *relay.listen),
        "submission": bound("relay.submission", *relay.submission),
        "lmtp": bound("relay.lmtp", *relay.lmtp),
        "milter": bound("relay.milter", *relay.milter),
    }
    places = Sockets(mail, bound("metrics.listen", settings.metrics.listen) if settings.metrics.listen else [])
    with closing(places), closing(open_store(settings.store_url(), migrate=True)) as store:
        filter = Filter(store, _voices(settings, store))
        expiry.begin(store)
        # The files of TLS are read before the fork: a process that replaces another needs none of them.
        tls, next_hop = clients_tls(settings), next_hop_of(settings)
        Maildir(settings.quarantine_path())  # one that cannot be made is one error, and not one of each process
        process: Process | None = Process(Shared())
        if (workers := settings.workers()) > 1:
            shared = _shared(filter)
            filter, writing = ReadingFilter(store, filter.voices, shared), WritingFilter(store, filter.voices, shared)
            store.close()  # no connection may cross a fork; a process that needs one opens it
        freeze_heap()
        if workers > 1:
            ready = partial(announce, settings, places, filter, next_hop)
            supervisor = Supervisor(settings, file, tls, next_hop, workers, ready, places.close)
            process = supervisor.run()
            settings, tls = supervisor.settings, supervisor.tls
            if process is not None and process.keeps:
                filter = writing
        if process is not None:
            with asyncio.Runner() as runner:
                runner.run(Worker(settings, file, filter, next_hop, tls, process).run(places))


def _shared(filter: Filter) -> SharedCounts:
    """The counts of the store, in memory that the processes share. Raises ConfigError if the system gives none."""
    try:
        shared = SharedCounts()
        shared.replace(filter.loaded(), filter.voices)
    except OSError as error:
        raise ConfigError(
            f"relay.workers: several processes need shared memory, and the system gives none: {error};"
            " lift the limit on address space (ulimit -v), or set workers = 1"
        ) from error
    return shared


def _voices(settings: Settings, store: Store) -> Voices:
    """The voices of the counts: after an upgrade or a change of [learn] the relay judges as before until `retrain`."""
    kept, asked = store.get_setting(RULES), rules(settings.voices())
    if kept in (None, asked):
        return settings.voices()
    fits = usable(kept, settings.voices())
    log.warning(
        "the database was learnt with %s; %s %s%s: run `spamfilter retrain`",
        rules_text(kept), "this version has" if fits else "the configuration says", rules_text(asked),
        "" if fits else "; judging by the first",
    )  # fmt: skip
    return settings.voices() if fits else settings.learn.as_learnt(kept)
