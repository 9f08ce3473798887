"""One process of the relay, or the whole relay in one process: its parts, start and stop.

Guarantee: systemd hears "ready" once the sockets listen and the counts are loaded, and "stopping" before anything is
closed. SIGTERM lets running transactions finish.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spamfilter.bayes.labels import LABELS
from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError, SpamfilterError
from spamfilter.learning.automatic_rules import Automatic
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.canary import Canaries
from spamfilter.relay.front_ends import FrontEnds
from spamfilter.relay.journal import Journal
from spamfilter.relay.judging import Judge
from spamfilter.relay.limits.limit_log import PERIOD, LimitLog
from spamfilter.relay.metrics import Metrics, Snapshot, merged
from spamfilter.relay.next_hops import Maildir, NextHop
from spamfilter.relay.quarantine.history import kept_elsewhere
from spamfilter.relay.relay import Relay
from spamfilter.reports.outages import NOTE_EVERY
from spamfilter.service.background import Background
from spamfilter.service.control_socket.client import Answer
from spamfilter.service.control_socket.server import FeedbackSocket
from spamfilter.service.control_socket.status import judge, status
from spamfilter.service.expiry import EXPIRE_EVERY, GRACE_SECONDS, Expiry
from spamfilter.service.ledger_following import FOLLOW_EVERY, Following
from spamfilter.service.list_following import FOLLOW_LISTS_EVERY, ListFollowing
from spamfilter.service.listening import Sockets, name_of, note_fault, within_descriptors
from spamfilter.service.reload import apply, read_by_relay, reread, tell_reloaded
from spamfilter.service.startup_messages import announce
from spamfilter.service.supervisor import BEAT_EVERY, TOLD, Process
from spamfilter.service.uptime import Uptime
from spamfilter.system.logs import SELDOM
from spamfilter.system.process import notify, proportional_bytes, resident_bytes
from spamfilter.system.threads import Threads
from spamfilter.system.unix_socket import Occupied

if TYPE_CHECKING:
    from spamfilter.service.metrics_endpoint import MetricsFrontEnd

log = logging.getLogger("spamfilter")

PUBLISH_EVERY = 0.5
"""Seconds between two updates of the gauges in shared memory, when a worker also looks whether there are other rules on
senders: it wakes up for both together, and an idle one costs a twentieth of the keeper."""
TRY_AGAIN = 1.0
"""Seconds after which a feedback socket is tried again on which another relay listens."""
WEIGH_EVERY = 30.0
"""Seconds between two measurements of a process's memory, for which the kernel reads all of its page tables."""


class Worker:
    """The parts of a process, and how they are connected."""

    def __init__(
        self,
        settings: Settings,
        file: Path | None,
        filter: Filter,
        next_hop: NextHop,
        tls: ssl.SSLContext | None,
        process: Process,
    ) -> None:
        limits, store = settings.limits, filter.store
        self._settings = settings
        self._file = file
        self._filter = filter
        self._process = process
        shared = process.shared
        self._limit_log = LimitLog(Metrics(shared.figures[shared.own]))
        self._journal = Journal(store, process.share_of(limits.journal_backlog), self._limit_log)
        self._following = Following(filter, settings.learn, lambda: load(file).learn, self._limit_log.metrics)
        learnt = self._following.wake if process.keeps else process.wake_keeper
        elsewhere = partial(kept_elsewhere, store, settings.hostname(), settings.quarantine_path())
        self._mark_queue = MarkQueue(filter, settings.feedback, learnt, self._limit_log.noted, elsewhere)
        self._mark_queue.prefixes = settings.subject_prefixes()
        self._relay = Relay(
            judge=Judge(filter, settings.policy(), settings.policies()),
            journal=self._journal,
            next_hop=next_hop,
            quarantine_folder=Maildir(settings.quarantine_path()),
            limits=within_descriptors(limits),
            trusted=settings.relay.networks(),
            domains=frozenset(settings.relay.domains),
            hostname=settings.hostname(),
            mark_queue=self._mark_queue,
            feedback=settings.feedback,
            automatic=Automatic(self._mark_queue, store, self._limit_log.noted),
            shared=shared,
            limit_log=self._limit_log,
            tls=tls,
            normalise=settings.normalises(),
            proxy_protocol=settings.relay.proxy_protocol,
        )
        self._list_following = ListFollowing(self._relay, store, settings)
        self._canaries = canaries = Canaries(self._relay, store)
        pid = os.getpid() if process.alone else os.getppid()  # the one that systemd knows
        self._facts: dict[str, object] = {"pid": pid, "next_hop": self._relay.next_hop.where}
        self._socket = FeedbackSocket(
            settings.socket_path(),
            self._mark_queue,
            settings.feedback,
            {
                "status": self._status,
                "judge": partial(judge, filter),
                "canary": canaries.issue,
                "canary_mark": canaries.mark,
                "canary_end": canaries.end,
            },
            limits,
            self._limit_log,
        )
        self._connect_metrics()

    def _connect_metrics(self) -> None:
        read, journal = self._limit_log.metrics.read_by, self._journal
        read("journal_written", lambda: journal.written)
        read("journal_dropped", lambda: journal.dropped)
        read("journal_waiting", lambda: journal.waiting)
        read("journal_failing", lambda: bool(journal.error))
        read("faults", lambda: journal.faults, "journal")
        read("feedback_connections", lambda: self._socket.connections)
        if self._process.keeps:
            read("ledger_lag_seconds", lambda: time.monotonic() - self._following.at)
            read("words", lambda: self._filter.vocabulary)
            for label in LABELS:
                read("learnt", partial(lambda label: self._filter.learnt[label], label), label)
        read("resident_bytes", resident_bytes)

    def _figures(self) -> Snapshot:
        shared, own = self._process.shared, self._limit_log.metrics.snapshot()
        others = [Metrics(row).snapshot() for number, row in enumerate(shared.figures) if number != shared.own]
        together = merged([own, *others])
        together["connections"][()] = [sum(shared.connections.all)]
        together["memory_bytes"][()] = [sum(shared.memory.all)]
        return together

    async def run(self, sockets: Sockets) -> None:
        process, stop = self._process, asyncio.Event()
        loop = asyncio.get_running_loop()
        self._handle_signals(stop)
        loop.set_exception_handler(note_fault)
        self._journal.start()  # where there is no thread for it, there is none for the end of the pool, either
        loop.set_default_executor(Threads())
        front_ends = FrontEnds(self._relay)
        self._filter.learnt  # noqa: B018 - loads the counts
        self._facts |= {kind: [*map(name_of, listed)] for kind, listed in sockets.mail.items()}
        background = Background(self._limit_log.metrics)
        background.start("the heartbeat", process.beat, BEAT_EVERY)
        await self._follow_lists()
        background.start("the log of limits", self._limit_log.sum_up, PERIOD, PERIOD)
        if process.keeps:
            background.start("following the lists", self._follow_lists, FOLLOW_LISTS_EVERY)
            if process.again:
                await self._following.load()
            background.start("following the ledger", self._following.run, FOLLOW_EVERY)
            if not await self._open_socket():
                background.start("the feedback socket", self._open_late, TRY_AGAIN, TRY_AGAIN)
            expiry = Expiry(self._filter.store, self._relay.quarantine_folder.path, lambda: self._settings)
            uptime = Uptime(self._filter.store, self._relay, self._settings.relay.without_next_hop)
            background.start("noting that the relay runs", uptime.note, NOTE_EVERY)
            background.start("expiry", partial(asyncio.to_thread, expiry.look), EXPIRE_EVERY, GRACE_SECONDS)
        if process.carries:
            await front_ends.start("smtp", sockets.mail["listening"])
            await front_ends.start("smtp", sockets.mail["submission"], submission=True)
            await front_ends.start("lmtp", sockets.mail["lmtp"])
            await front_ends.start("milter", sockets.mail["milter"])
        metrics_front_end = await self._open_metrics(sockets.metrics) if process.keeps else None
        if process.keeps:
            self._canaries.start()
        if process.alone:
            announce(self._settings, sockets, self._filter, self._relay.next_hop)
            notify("READY=1")
        else:
            background.start("publishing the metrics", self._publish, PUBLISH_EVERY)
            background.start("measuring the memory", self._weigh, WEIGH_EVERY)
            sockets.close(mail=process.keeps, metrics=process.carries)
        process.shared.state[process.shared.own] += 1
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # it says READY=1 in the end, too
        await stop.wait()
        if process.alone:
            notify("STOPPING=1")
            log.info("stopping: running transactions finish, for at most %g s", self._relay.limits.drain_seconds)
        if process.carries:
            await self._drain(front_ends)
        if metrics_front_end is not None:
            metrics_front_end.close()
        background.stop()
        await self._close()
        if process.alone:
            log.info("stopped")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # the database is still to be closed, without interruption

    async def _follow_lists(self) -> None:
        with suppress(SpamfilterError):  # following the ledger logs what is wrong with the database
            if self._process.keeps:
                await self._list_following.watch()
            if self._process.carries:
                await self._list_following.look()

    async def _drain(self, front_ends: FrontEnds) -> None:
        draining = asyncio.create_task(front_ends.drain())
        await asyncio.sleep(0)  # lets `drain` close the listening sockets
        self._process.shared.state[self._process.shared.own] = 0
        try:
            await asyncio.wait_for(draining, self._relay.limits.drain_seconds)
        except TimeoutError:
            self._limit_log.noted("drain_seconds", "what is still running is cut off")
        front_ends.close()

    async def _close(self) -> None:
        """Close every part. Marks that have begun are still learnt, and the journal is written."""
        self._relay.next_hop.close()
        self._relay.automatic.close()
        await self._canaries.close()
        try:
            await asyncio.gather(self._socket.close(), asyncio.to_thread(self._mark_queue.close))
        finally:
            await asyncio.to_thread(self._journal.stop)

    def _handle_signals(self, stop: asyncio.Event) -> None:
        """Handle signals, the end of the supervisor or of the workers, and wake-ups by a worker that has learnt."""
        process, loop = self._process, asyncio.get_running_loop()
        if process.carries:
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        else:  # the keeper stops after the workers, which the same signal may have reached
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if process.alone:
            loop.add_signal_handler(signal.SIGINT, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        if process.end is not None:
            loop.add_reader(process.end, self._ended, process.end, stop)
            if process.keeps:
                loop.add_reader(process.wake, self._woken, process.wake)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD - {signal.SIGHUP})

    def _reload(self) -> None:
        """Read the configuration again; the log names changed keys that need a restart."""
        process = self._process
        with reread(self._file) as new:
            if new is not None:
                self._settings, waiting = self._following.at_work(self._settings).reloaded(new)
                apply(self._settings, self._relay, self._socket)
                self._list_following.configure(self._settings)
                if process.keeps:
                    tell_reloaded(read_by_relay(waiting))
            process.shared.state[process.shared.own] += 1

    def _ended(self, end: int, stop: asyncio.Event) -> None:
        asyncio.get_running_loop().remove_reader(end)  # it stays readable: the loop would call this again and again
        stop.set()

    def _woken(self, wake: int) -> None:
        os.eventfd_read(wake)
        self._following.wake()

    async def _publish(self) -> None:
        """Write the gauges of this process to shared memory. Counters are always there."""
        if not self._process.keeps:
            await self._follow_lists()
        self._share_error()
        self._limit_log.metrics.publish()

    async def _weigh(self) -> None:
        weight = await asyncio.to_thread(proportional_bytes)
        self._limit_log.metrics.read_by("resident_bytes", lambda: weight)

    async def _open_metrics(self, sockets: Sequence[socket.socket]) -> "MetricsFrontEnd | None":
        if not sockets:
            return None
        from spamfilter.service.metrics_endpoint import MetricsFrontEnd  # imports a library that nothing else needs

        front_end = MetricsFrontEnd(self._figures)
        await front_end.start(sockets)
        return front_end

    async def _open_socket(self) -> bool:
        """Listen for feedback; False if another relay does, which may be stopping.

        A default path that does not work is a warning; a configured one raises ConfigError.
        """
        try:
            await self._socket.start()
        except ConfigError as error:
            if self._settings.feedback.socket:
                raise
            log.warning("no feedback socket: %s", error)
            return not isinstance(error, Occupied)
        return True

    async def _open_late(self) -> None:
        try:
            with suppress(Occupied):
                await self._socket.start()
        except ConfigError as error:
            log.warning("no feedback socket: %s", error, extra=SELDOM)

    def _share_error(self) -> None:
        self._process.shared.journal_errors[self._process.shared.own] = self._journal.error

    async def _status(self, request: Answer) -> Answer:
        self._share_error()
        return {
            **self._facts,
            **await status(
                self._settings, self._file, self._filter, self._following, self._figures(), self._process.shared
            ),
        }
