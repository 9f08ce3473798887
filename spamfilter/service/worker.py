"""One process of the relay, or all of it: wiring, readiness, reload, end.

Guarantee: ready is said once the sockets listen and the counts are loaded, and taken back before
anything is closed. SIGHUP reads thresholds, lists and limits anew without dropping a connection;
a file that is wrong changes nothing. SIGTERM lets running transactions finish.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from spamfilter.bayes import compiled
from spamfilter.bayes.labels import LABELS
from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError, SpamfilterError
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import Desk
from spamfilter.relay.canary import Canaries
from spamfilter.relay.front_ends import FRONT_ENDS, Relay
from spamfilter.relay.journal import EXPIRE_EVERY, Journal
from spamfilter.relay.journal_ipc import Collector, Sending
from spamfilter.relay.judging import Judge
from spamfilter.relay.limits.limit_log import PERIOD, Excess
from spamfilter.relay.metrics import Metrics, Snapshot, merged
from spamfilter.relay.next_hops import Maildir, NextHop, Timeouts, open_next_hop
from spamfilter.relay.quarantine import Quarantine
from spamfilter.reports import daily_summaries
from spamfilter.service.control_socket.server import Answer, FeedbackSocket
from spamfilter.service.control_socket.status import Status
from spamfilter.service.following import Following
from spamfilter.service.listening import AcceptFaults, Sockets, name_of, raise_descriptor_limit, within_descriptors
from spamfilter.service.supervisor import Process
from spamfilter.system import tls
from spamfilter.system.process import notify, own_name, proportional_bytes, resident_bytes

if TYPE_CHECKING:
    from spamfilter.service.metrics_endpoint import MetricsFrontEnd

log = logging.getLogger("spamfilter")

TRIAL = (
    "python3 -c \"import smtplib; smtplib.SMTP('%s', %d).sendmail("
    "'me@example.org', 'you@example.org', 'Subject: hello\\n\\nIs this spam?')\""
)
"""A client in one line, for whoever starts the relay the first time."""
PUBLISH_EVERY = 0.25
"""Seconds that a gauge of one process may be old when another shows it."""
WEIGH_EVERY = 40
"""Of these turns is one in which a process of several looks how much memory is its own."""


def announce(settings: Settings, sockets: Sockets, filter: Filter) -> None:
    """Say where the relay is and what it knows."""
    for sock in sockets.metrics:
        log.info("metrics at http://%s/metrics", name_of(sock))
    for sock in sockets.mail:
        log.info("listening on %s", name_of(sock))
    for sock in sockets.submission:
        log.info("listening on %s for authenticated senders", name_of(sock))
    learnt = filter.learnt
    log.info("judging %s", compiled.in_words())
    log.info("database %s: %d ham and %d spam learnt", filter.store.where, learnt["ham"], learnt["spam"])
    with closing(next_hop_of(settings)) as next_hop:
        log.info("ready: send mail to %s; it goes on to %s", name_of(sockets.mail[0]), next_hop.where)
    if not settings.relay.next_hop:
        host, port = sockets.mail[0].getsockname()[:2]
        log.info("to try it: " + TRIAL, host, port)


class Running:
    """One process of the relay, or all of it."""

    def __init__(self, settings: Settings, file: Path | None, filter: Filter, process: Process) -> None:
        limits, store = settings.limits, filter.store
        self._settings = settings
        self._file = file
        self._filter = filter
        self._process = process
        shared = process.shared
        self._excess = Excess(Metrics(shared.figures[shared.own]))
        meeting = process.meeting
        self._collector = Collector(store, meeting) if meeting is not None and process.keeps else None
        self._sending = Sending(meeting) if meeting is not None and process.carries else None
        self._journal = Journal(
            self._sending or store,
            process.share_of(limits.journal_backlog),
            settings.feedback.window_days,
            settings.report.journal_days,
            settings.feedback.window_megabytes * 10**6,
            self._excess,
            partial(daily_summaries.keep, store) if process.keeps else lambda now, entries_before: None,
        )
        self._following = Following(
            self._filter,
            settings.learn,
            lambda: load(file).learn,
            self._excess.metrics,
            quiet=not process.keeps,
        )
        self._desk = Desk(self._filter, settings.feedback.marks_a_day, self._learnt, self._excess.noted)
        self._socket = FeedbackSocket(
            settings.socket_path(),
            self._desk,
            settings.feedback,
            {},
            limits,
            self._excess,
        )
        self._relay = Relay(
            judge=Judge(self._filter, settings.policy()),
            journal=self._journal,
            next_hop=next_hop_of(settings),
            quarantine=Maildir(settings.quarantine_path()),
            limits=within_descriptors(limits),
            trusted=settings.relay.networks(),
            domains=frozenset(domain.lower() for domain in settings.relay.domains),
            hostname=settings.relay.hostname or own_name(),
            desk=self._desk,
            feedback=settings.feedback,
            automatic=Automatic(self._desk, store),
            shared=shared,
            excess=self._excess,
            tls=_server_tls(settings),
            normalise=settings.normalises(),
        )
        self._canaries = canaries = Canaries(self._relay, self._desk, store)
        self._facts: dict[str, object] = {"pid": process.main or os.getpid(), "next_hop": self._relay.next_hop.where}
        writer = self._collector or self._journal
        self._status = Status(file, self._filter, self._following, self._facts, self._figures, lambda: writer.trouble)
        self._socket.masters_commands = {
            "status": self._told,
            "judge": self._status.judge,
            "canary": canaries.issue,
            "canary_mark": canaries.mark,
            "canary_end": canaries.end,
        }
        self._measure()

    def _measure(self) -> None:
        """Let the metrics read what is kept elsewhere."""
        read, journal = self._excess.metrics.read_by, self._journal
        read("journal_written", lambda: journal.written)
        read("journal_dropped", lambda: journal.dropped)
        read("journal_waiting", lambda: journal.waiting)
        read("faults", lambda: journal.faults, "journal")
        read("feedback_connections", lambda: self._socket.connections)
        read("ledger_lag_seconds", lambda: time.monotonic() - self._following.at)
        read("words", lambda: self._filter.vocabulary)
        for label in LABELS:
            read("learnt", partial(lambda label: self._filter.learnt[label], label), label)
        read("resident_bytes", resident_bytes)

    def _figures(self) -> Snapshot:
        """The metrics of all processes."""
        shared, own = self._process.shared, self._excess.metrics.snapshot()
        others = (Metrics(row).snapshot() for number, row in enumerate(shared.figures) if number != shared.own)
        together = merged((own, *others))
        together["connections"][()], together["memory_bytes"][()] = [sum(shared.open)], [sum(shared.held)]
        return together

    def _learnt(self) -> None:
        """Something was learnt by the desk of this process."""
        self._following.wake()
        self._process.wake_others()

    async def run(self, sockets: Sockets) -> None:
        process, stop = self._process, asyncio.Event()
        loop = asyncio.get_running_loop()
        self._heed(stop)
        loop.set_exception_handler(AcceptFaults())
        front_end = FRONT_ENDS["smtp"](self._relay) if process.carries else None
        self._filter.learnt  # noqa: B018 - loads the counts
        self._facts["listening"] = [name_of(sock) for sock in sockets.mail]
        self._facts["submission"] = [name_of(sock) for sock in sockets.submission]
        beside = [self._following.run, self._sum_up]
        if process.again:
            await self._following.load()
        if process.keeps:
            await self._open_socket()
            beside.append(self._expire)
        if self._collector is not None:
            self._collector.start()
        self._journal.start()
        if front_end is not None:
            await front_end.start(sockets.mail, sockets.submission)
        exposed = await self._exposed(sockets.metrics) if process.keeps else None
        if process.keeps:
            self._canaries.start()
        if process.alone:
            announce(self._settings, sockets, self._filter)
            notify("READY=1")
        else:
            beside.append(self._publish)
            (sockets.close_mail if process.keeps else sockets.close_metrics)()
        tasks = [asyncio.create_task(work()) for work in beside]
        process.shared.state[process.shared.own] += 1
        await stop.wait()
        if process.alone:
            notify("STOPPING=1")
            log.info("stopping: running transactions finish, for at most %g s", self._relay.limits.drain_seconds)
        if front_end is not None:
            draining = asyncio.create_task(front_end.drain())
            await asyncio.sleep(0)  # it begins with closing what it listens on
            process.shared.state[process.shared.own] = 0
            try:
                await asyncio.wait_for(draining, self._relay.limits.drain_seconds)
            except TimeoutError:
                self._excess.noted("drain_seconds", "what is still running is cut off")
            front_end.close()
        if exposed is not None:
            exposed.close()
        for task in tasks:
            task.cancel()
        self._relay.next_hop.close()
        self._relay.automatic.close()
        await self._canaries.close()
        try:
            await asyncio.gather(self._socket.close(), asyncio.to_thread(self._desk.close))
        finally:
            await asyncio.to_thread(self._journal.stop)
            if self._sending is not None:
                self._sending.close()
            if self._collector is not None:
                await self._collector.stop()
        if process.alone:
            log.info("stopped")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # what is left is closing the database, which nobody shall cut short

    def _heed(self, stop: asyncio.Event) -> None:
        """Take notice of signals, of the end of the supervisor or of the workers, and of what others have learnt."""
        process, loop = self._process, asyncio.get_running_loop()
        if process.carries:
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        else:  # the keeper stops when the workers have, who may all have heard the same
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if process.alone:
            loop.add_signal_handler(signal.SIGINT, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        if process.end is not None:
            wake = process.wakes[process.shared.own]
            loop.add_reader(process.end, stop.set)
            loop.add_reader(wake, self._woken, wake)
            signal.pthread_sigmask(signal.SIG_SETMASK, process.signals)

    def _woken(self, wake: int) -> None:
        os.eventfd_read(wake)
        self._following.wake()

    async def _publish(self) -> None:
        """Let the other processes see what is no counter."""
        metrics = self._excess.metrics
        for turn in count():
            if turn % WEIGH_EVERY == 0:
                weight = await asyncio.to_thread(proportional_bytes)
                metrics.read_by("resident_bytes", partial(float, weight))
            metrics.publish()
            await asyncio.sleep(PUBLISH_EVERY)

    async def _exposed(self, sockets: Sequence[socket.socket]) -> "MetricsFrontEnd | None":
        """The metrics on these sockets, if there are any."""
        if not sockets:
            return None
        from spamfilter.service.metrics_endpoint import MetricsFrontEnd  # a library that only this needs

        front_end = MetricsFrontEnd(self._figures)
        await front_end.start(sockets)
        return front_end

    async def _sum_up(self) -> None:
        """Say now and then which limits are still hit."""
        while True:
            await asyncio.sleep(PERIOD)
            self._excess.sum_up()

    async def _expire(self) -> None:
        """Delete what has been in quarantine for its time, every hour."""
        quarantine = Quarantine(self._relay.quarantine.path)
        while True:
            before = datetime.now(UTC) - timedelta(days=self._settings.verdict.quarantine_days)
            try:
                if number := await asyncio.to_thread(quarantine.expire, before):
                    log.info("quarantine: %d mails have expired", number)
            except (OSError, SpamfilterError) as error:
                log.warning("quarantine: cannot expire: %s", error)
            await asyncio.sleep(EXPIRE_EVERY)

    async def _open_socket(self) -> None:
        """Listen for feedback; at a place that was not asked for, a path too long for a socket is no reason to stop."""
        try:
            await self._socket.start()
        except ConfigError as error:
            if self._settings.feedback.socket:
                raise
            log.warning("no feedback socket: %s", error)
        else:
            log.info("feedback socket %s", self._socket.path)

    async def _told(self, request: Answer) -> Answer:
        return await self._status.status(self._settings)

    def _reload(self) -> None:
        """SIGHUP: the keys of `config.LIVE`; what else has changed is named, and waits for a restart."""
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self._file)
        except ConfigError as error:
            log.error("not reloaded: %s", error)  # noqa: TRY400 - the sentence says it
        else:
            relay = self._relay
            self._settings, waiting = self._following.at_work(self._settings).reloaded(new)
            relay.judge.policy = self._settings.policy()
            relay.trusted = self._settings.relay.networks()
            relay.domains = frozenset(domain.lower() for domain in self._settings.relay.domains)
            raise_descriptor_limit(self._settings.limits)
            self._socket.limits = self._settings.limits
            relay.memory.most = self._settings.limits.memory_bytes
            relay.limits = within_descriptors(self._settings.limits)
            relay.feedback = self._socket.settings = self._settings.feedback
            self._desk.marks_a_day = self._settings.feedback.marks_a_day
            relay.normalise = self._settings.normalises()
            logging.getLogger().setLevel(self._settings.log.level.upper())
            self._renew_certificate()
            if self._process.keeps:
                log.info("reloaded%s", f"; what changed in {', '.join(waiting)} waits for a restart" if waiting else "")
        self._process.shared.state[self._process.shared.own] += 1
        notify("READY=1")

    def _renew_certificate(self) -> None:
        """Certificates are renewed under their names, so the files are read anew though the settings are the same."""
        if self._relay.tls is not None:
            try:
                tls.renew(self._relay.tls, self._settings.relay.tls_certificate, self._settings.relay.tls_key)
            except (OSError, ValueError) as error:
                log.error("the certificate is not renewed: %s", error)  # noqa: TRY400 - the sentence says it


def next_hop_of(settings: Settings) -> NextHop:
    """The next hop of the configuration."""
    limits = settings.limits
    timeouts = Timeouts(limits.connect_seconds, limits.command_seconds, limits.final_seconds)
    hostname = settings.relay.hostname or own_name()
    return open_next_hop(settings.next_hop_url(), hostname, _client_tls(settings), timeouts)


def _client_tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.relay.next_hop_tls == "none":
        return None
    return tls.client_context(settings.relay.next_hop_ca)


def _server_tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.relay.tls_certificate:
        return None
    return tls.server_context(settings.relay.tls_certificate, settings.relay.tls_key)
