"""The relay as a process: sockets, wiring, signals, readiness.

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
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spamfilter import __version__, tls
from spamfilter.automatic import Automatic
from spamfilter.canary import Canaries
from spamfilter.config import LIVE, Settings, load
from spamfilter.desk import Desk
from spamfilter.errors import ConfigError, SpamfilterError
from spamfilter.excess import PERIOD, Excess
from spamfilter.feedback import by_id
from spamfilter.filter import Filter
from spamfilter.following import Following
from spamfilter.front_ends import FRONT_ENDS, Relay
from spamfilter.host import notify, own_name, resident_bytes
from spamfilter.journal import EXPIRE_EVERY, Journal
from spamfilter.judging import Judge
from spamfilter.labels import LABELS
from spamfilter.listening import AcceptFaults, bound, inherited, name_of, raise_descriptor_limit, within_descriptors
from spamfilter.metrics import LIMITS
from spamfilter.next_hops import Maildir, NextHop, Timeouts, open_next_hop
from spamfilter.places import config_file
from spamfilter.quarantine import Quarantine
from spamfilter.socket_server import Answer, FeedbackSocket
from spamfilter.stores import Store, open_store

if TYPE_CHECKING:
    from spamfilter.front_ends.metrics import MetricsFrontEnd

log = logging.getLogger("spamfilter")

TRIAL = (
    "python3 -c \"import smtplib; smtplib.SMTP('%s', %d).sendmail("
    "'me@example.org', 'you@example.org', 'Subject: hello\\n\\nIs this spam?')\""
)
"""A client in one line, for whoever starts the relay the first time."""


def serve(settings: Settings, file: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError or StoreError before the first connection."""
    logging.basicConfig(level=settings.log.level.upper(), format="%(levelname)s %(message)s", force=True)
    logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd's, which would log what clients send
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for warning in settings.warnings():
        log.warning("configuration: %s", warning)
    raise_descriptor_limit(settings.limits)
    # Binding first: a second daemon on the same address must not get as far as the database.
    sockets = inherited() or [sock for address in settings.relay.listen for sock in bound("relay.listen", address)]
    with ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        submission = [sock for address in settings.relay.submission for sock in bound("relay.submission", address)]
        metrics = bound("metrics.listen", settings.metrics.listen) if settings.metrics.listen else []
        for sock in (*submission, *metrics):
            stack.enter_context(sock)
        store = stack.enter_context(closing(open_store(settings.store_url(), migrate=True)))
        asyncio.run(_Daemon(settings, file, store).run(sockets, submission, metrics))


class _Daemon:
    def __init__(self, settings: Settings, file: Path | None, store: Store) -> None:
        limits = settings.limits
        self._settings = settings
        self._file = file
        self._store = store
        self._filter = Filter(store, settings.voices())
        self._excess = Excess()
        self._journal = Journal(
            store,
            limits.journal_backlog,
            settings.feedback.window_days,
            settings.report.journal_days,
            settings.feedback.window_megabytes * 10**6,
            self._excess,
        )
        self._following = Following(self._filter, settings.learn, lambda: load(file).learn, self._excess.metrics)
        self._desk = Desk(self._filter, settings.feedback.marks_a_day, self._following.wake, self._excess)
        self._socket = FeedbackSocket(
            settings.socket_path(),
            self._desk,
            settings.feedback,
            {"status": self._status, "judge": self._judge},
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
            excess=self._excess,
            tls=_server_tls(settings),
            normalise=settings.normalises(),
        )
        self._canaries = canaries = Canaries(self._relay, self._desk, store)
        self._socket.masters_commands = {
            **self._socket.masters_commands,
            "canary": canaries.issue,
            "canary_mark": canaries.mark,
            "canary_end": canaries.end,
        }
        self._listening: list[str] = []
        self._submission: list[str] = []
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

    async def run(
        self, sockets: list[socket.socket], submission: list[socket.socket], metrics: list[socket.socket]
    ) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.set_exception_handler(AcceptFaults())
        front_end = FRONT_ENDS["smtp"](self._relay)
        learnt = self._filter.learnt  # loads the counts
        self._listening = [name_of(sock) for sock in sockets]
        self._submission = [name_of(sock) for sock in submission]
        await self._open_socket()
        self._journal.start()
        await front_end.start(sockets, submission)
        exposed = await self._exposed(metrics)
        self._canaries.start()
        beside = [asyncio.create_task(work) for work in (self._following.run(), self._expire(), self._sum_up())]
        for sock in sockets:
            log.info("listening on %s", name_of(sock))
        for sock in submission:
            log.info("listening on %s for authenticated senders", name_of(sock))
        log.info("database %s: %d ham and %d spam learnt", self._store.where, learnt["ham"], learnt["spam"])
        log.info("ready: send mail to %s; it goes on to %s", name_of(sockets[0]), self._relay.next_hop.where)
        if not self._settings.relay.next_hop:
            host, port = sockets[0].getsockname()[:2]
            log.info("to try it: " + TRIAL, host, port)
        notify("READY=1")
        await stop.wait()
        notify("STOPPING=1")
        log.info("stopping: running transactions finish, for at most %g s", self._relay.limits.drain_seconds)
        try:
            await asyncio.wait_for(front_end.drain(), self._relay.limits.drain_seconds)
        except TimeoutError:
            self._excess.noted("drain_seconds", "what is still running is cut off")
        front_end.close()
        if exposed is not None:
            exposed.close()
        for task in beside:
            task.cancel()
        self._relay.next_hop.close()
        self._relay.automatic.close()
        await self._canaries.close()
        try:
            await asyncio.gather(self._socket.close(), asyncio.to_thread(self._desk.close))
        finally:
            await asyncio.to_thread(self._journal.stop)
        log.info("stopped")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # what is left is closing the database, which nobody shall cut short

    async def _exposed(self, sockets: list[socket.socket]) -> "MetricsFrontEnd | None":
        """The metrics on these sockets, if there are any."""
        if not sockets:
            return None
        from spamfilter.front_ends.metrics import MetricsFrontEnd  # a library that only this needs

        front_end = MetricsFrontEnd(self._excess.metrics.snapshot)
        await front_end.start(sockets)
        for sock in sockets:
            log.info("metrics at http://%s/metrics", name_of(sock))
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

    async def _status(self, request: Answer) -> Answer:
        """What `doctor` wants to know of a running relay."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "config": str(file.absolute()) if (file := config_file(self._file)) else "",
            "changed": await asyncio.to_thread(self._changed),
            "database": self._store.where,
            "following": self._following.well,
            "last": self._filter.last,
            "learnt": dict(self._filter.learnt),
            "journal_waiting": self._journal.waiting,
            "journal_dropped": self._journal.dropped,
            "journal_trouble": self._journal.trouble,
            "limits_hit": self._hit(),
            "resident_bytes": resident_bytes(),
            "listening": self._listening,
            "submission": self._submission,
            "next_hop": self._relay.next_hop.where,
        }

    def _hit(self) -> dict[str, int]:
        """Limits that were hit since the start, and how often."""
        numbers = {limit: int(self._excess.metrics.value("limits_hit", limit)) for limit in LIMITS}
        return {limit: number for limit, number in numbers.items() if number}

    def _changed(self) -> list[str]:
        """Keys of the configuration that are not at work: changed since it was read, or the file is wrong."""
        try:
            new = load(self._file)
        except ConfigError:
            return ["a way that is wrong: see `spamfilter check-config`"]
        reloaded, waiting = self._at_work().reloaded(new)
        live = [
            f"{section}.{key}"
            for section, keys in LIVE.items()
            for key in sorted(keys)
            if getattr(getattr(reloaded, section), key) != getattr(getattr(self._settings, section), key)
        ]
        return [*waiting, *live]

    async def _judge(self, request: Answer) -> Answer:
        """What the counts in memory say now of a message of the journal."""
        subject = await asyncio.to_thread(by_id, self._store, str(request.get("id", "")))
        score = self._filter.score(subject.reading)
        return {
            "id": subject.id, "posterior": score.posterior, "log_odds": score.log_odds, "last": self._filter.last,
        }  # fmt: skip

    def _at_work(self) -> Settings:
        """The settings as they are followed: a rebuilding may have brought another [learn]."""
        return self._settings.model_copy(update={"learn": self._following.learn})

    def _reload(self) -> None:
        """SIGHUP: the keys of `config.LIVE`; what else has changed is named, and waits for a restart."""
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self._file)
        except ConfigError as error:
            log.error("not reloaded: %s", error)  # noqa: TRY400 - the sentence says it
        else:
            relay = self._relay
            self._settings, waiting = self._at_work().reloaded(new)
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
            log.info("reloaded%s", f"; what changed in {', '.join(waiting)} waits for a restart" if waiting else "")
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
