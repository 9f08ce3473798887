"""The relay as a process: sockets, wiring, signals, readiness.

Guarantee: ready is said once the sockets listen and the counts are loaded, and taken back before
anything is closed. SIGHUP reads thresholds, lists and limits anew without dropping a connection;
a file that is wrong changes nothing. SIGTERM lets running transactions finish.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spamfilter import __version__
from spamfilter.addresses import split_address
from spamfilter.automatic import Automatic
from spamfilter.canary import Canaries
from spamfilter.config import LIVE, Limits, Settings, load
from spamfilter.desk import Desk
from spamfilter.errors import ConfigError, CountError, SpamfilterError
from spamfilter.feedback import by_id
from spamfilter.filter import Filter
from spamfilter.front_ends import FRONT_ENDS, Relay
from spamfilter.journal import EXPIRE_EVERY, Journal
from spamfilter.judging import Judge
from spamfilter.next_hops import Maildir, NextHop, Timeouts, open_next_hop
from spamfilter.places import config_file
from spamfilter.quarantine import Quarantine
from spamfilter.socket_server import Answer, FeedbackSocket
from spamfilter.stores import Store, open_store

log = logging.getLogger("spamfilter")

FOLLOW_EVERY = 0.25
"""Seconds between looks at the ledger: a training is seen within a second, an idle look costs 0.3 ms."""
FOLLOW_CHUNK = 32
"""Ledger entries taken in at a time: some milliseconds in which no mail moves."""
TRIAL = (
    "python3 -c \"import smtplib; smtplib.SMTP('%s', %d).sendmail("
    "'me@example.org', 'you@example.org', 'Subject: hello\\n\\nIs this spam?')\""
)
"""A client in one line, for whoever starts the relay the first time."""
ACCEPT_FAULTS_EVERY = 10.0
"""Seconds between two complaints that no connection can be accepted."""
SPARE_FDS = 300
"""Descriptors beside connections: the feedback socket's, database, log, Maildir, threads."""
FIRST_FD = 3
"""Where systemd's sockets begin: sd_listen_fds(3)."""


def serve(settings: Settings, file: Path | None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError or StoreError before the first connection."""
    logging.basicConfig(level=settings.log.level.upper(), format="%(levelname)s %(message)s", force=True)
    logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd's, which would log what clients send
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for warning in settings.warnings():
        log.warning("configuration: %s", warning)
    _raise_descriptor_limit(settings.limits.connections)
    # Binding first: a second daemon on the same address must not get as far as the database.
    sockets = _inherited() or [sock for address in settings.relay.listen for sock in _bound("listen", address)]
    with ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        submission = [sock for address in settings.relay.submission for sock in _bound("submission", address)]
        for sock in submission:
            stack.enter_context(sock)
        store = stack.enter_context(closing(open_store(settings.store_url(), migrate=True)))
        asyncio.run(_Daemon(settings, file, store).run(sockets, submission))


class _Daemon:
    def __init__(self, settings: Settings, file: Path | None, store: Store) -> None:
        limits = settings.limits
        self._settings = settings
        self._file = file
        self._store = store
        self._filter = Filter(store, settings.voices())
        self._journal = Journal(
            store,
            limits.journal_backlog,
            settings.feedback.window_days,
            settings.report.journal_days,
            settings.feedback.window_megabytes * 10**6,
        )
        self._wake = asyncio.Event()
        self._desk = Desk(self._filter, settings.feedback.marks_a_day, self._wake.set)
        self._socket = FeedbackSocket(
            settings.socket_path(),
            self._desk,
            settings.feedback,
            {"status": self._status, "judge": self._judge},
        )
        self._relay = Relay(
            judge=Judge(self._filter, settings.policy()),
            journal=self._journal,
            next_hop=next_hop_of(settings),
            quarantine=Maildir(settings.quarantine_path()),
            limits=_within_descriptors(limits),
            trusted=settings.relay.networks(),
            domains=frozenset(domain.lower() for domain in settings.relay.domains),
            hostname=settings.relay.hostname or _own_name(),
            desk=self._desk,
            feedback=settings.feedback,
            automatic=Automatic(self._desk, store),
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
        self._following = True
        self._listening: list[str] = []
        self._submission: list[str] = []
        self._generation = store.generation

    async def run(self, sockets: list[socket.socket], submission: list[socket.socket]) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.set_exception_handler(_AcceptFaults())
        front_end = FRONT_ENDS["smtp"](self._relay)
        learnt = self._filter.learnt  # loads the counts
        self._listening = [_name(sock) for sock in sockets]
        self._submission = [_name(sock) for sock in submission]
        await self._open_socket()
        self._journal.start()
        await front_end.start(sockets, submission)
        self._canaries.start()
        beside = [asyncio.create_task(self._follow()), asyncio.create_task(self._expire())]
        for sock in sockets:
            log.info("listening on %s", _name(sock))
        for sock in submission:
            log.info("listening on %s for authenticated senders", _name(sock))
        log.info("database %s: %d ham and %d spam learnt", self._store.where, learnt["ham"], learnt["spam"])
        log.info("ready: send mail to %s; it goes on to %s", _name(sockets[0]), self._relay.next_hop.where)
        if not self._settings.relay.next_hop:
            host, port = sockets[0].getsockname()[:2]
            log.info("to try it: " + TRIAL, host, port)
        _notify("READY=1")
        await stop.wait()
        _notify("STOPPING=1")
        log.info("stopping: running transactions finish, for at most %g s", self._relay.limits.drain_seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(front_end.drain(), self._relay.limits.drain_seconds)
        front_end.close()
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

    async def _follow(self) -> None:
        """Take in what other processes learn; a store that is away leaves the counts as they are."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), FOLLOW_EVERY)
            self._wake.clear()
            try:
                await self._look()
            except Exception as error:
                # Once for each trouble, whatever it is: without this task nothing would be learnt any more.
                if self._following:
                    log.error(  # noqa: TRY400 - a sentence for what is expected, a traceback for what is not
                        "%s; judging with what was learnt before",
                        error,
                        exc_info=not isinstance(error, SpamfilterError),
                    )
                self._following = False
            else:
                if not self._following:
                    log.warning("%s: can be read again", self._store.where)
                self._following = True

    async def _look(self) -> None:
        """One look at the ledger."""
        entries = await asyncio.to_thread(self._store.entries_after, self._filter.last)
        try:
            if self._store.generation != self._generation:
                raise CountError(f"{self._store.where}: was replaced or rebuilt")  # noqa: TRY301 - the same cure
            for start in range(0, len(entries), FOLLOW_CHUNK):
                self._filter.take_in(entries[start : start + FOLLOW_CHUNK])
                await asyncio.sleep(0)
        except CountError as error:
            if self._following:
                log.warning("%s; loading all counts anew", error)
            generation = self._store.generation
            learn, voices = self._settings.learn, self._filter.voices
            if not await asyncio.to_thread(self._filter.fits):
                learn = load(self._file).learn  # a rebuilding follows a change of [learn]
                voices = learn.chosen()
            self._filter.adopt(await asyncio.to_thread(self._filter.loaded, voices), voices)
            self._settings = self._settings.model_copy(update={"learn": learn})
            self._generation = generation

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
            "following": self._following,
            "last": self._filter.last,
            "learnt": dict(self._filter.learnt),
            "journal_waiting": self._journal.waiting,
            "journal_dropped": self._journal.dropped,
            "resident_bytes": _resident_bytes(),
            "listening": self._listening,
            "submission": self._submission,
            "next_hop": self._relay.next_hop.where,
        }

    def _changed(self) -> list[str]:
        """Keys of the configuration that are not at work: changed since it was read, or the file is wrong."""
        try:
            new = load(self._file)
        except ConfigError:
            return ["a way that is wrong: see `spamfilter check-config`"]
        reloaded, waiting = self._settings.reloaded(new)
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

    def _reload(self) -> None:
        """SIGHUP: the keys of `config.LIVE`; what else has changed is named, and waits for a restart."""
        _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self._file)
        except ConfigError as error:
            log.error("not reloaded: %s", error)  # noqa: TRY400 - the sentence says it
        else:
            relay = self._relay
            self._settings, waiting = self._settings.reloaded(new)
            relay.judge.policy = self._settings.policy()
            relay.trusted = self._settings.relay.networks()
            relay.domains = frozenset(domain.lower() for domain in self._settings.relay.domains)
            _raise_descriptor_limit(self._settings.limits.connections)
            relay.limits = _within_descriptors(self._settings.limits)
            relay.feedback = self._socket.settings = self._settings.feedback
            self._desk.marks_a_day = self._settings.feedback.marks_a_day
            relay.normalise = self._settings.normalises()
            logging.getLogger().setLevel(self._settings.log.level.upper())
            log.info("reloaded%s", f"; what changed in {', '.join(waiting)} waits for a restart" if waiting else "")
        _notify("READY=1")


def next_hop_of(settings: Settings) -> NextHop:
    """The next hop of the configuration."""
    limits = settings.limits
    timeouts = Timeouts(limits.connect_seconds, limits.command_seconds, limits.final_seconds)
    hostname = settings.relay.hostname or _own_name()
    return open_next_hop(settings.next_hop_url(), hostname, _client_tls(settings), timeouts)


def _raise_descriptor_limit(connections: int) -> None:
    """Take what the system allows: each client needs a descriptor, and one for its next hop."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + SPARE_FDS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        log.warning(
            "limits.connections = %d may need %d descriptors, but only %d are allowed; what does not fit hears 421",
            connections, wanted, soft,
        )  # fmt: skip


def _within_descriptors(limits: Limits) -> Limits:
    """The limits, with no more connections than the descriptors of this process serve."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = max((soft - SPARE_FDS) // 2, soft // 4, 1)
    return limits.model_copy(update={"connections": min(limits.connections, allowed)})


class _AcceptFaults:
    """Says once a while, and not for each of the backlog at each try, that no connection can be accepted."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept() out of system resource"):
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + ACCEPT_FAULTS_EVERY
            log.error("no connection can be accepted: %s", context.get("exception"))


def _client_tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.relay.next_hop_tls == "none":
        return None
    return ssl.create_default_context(cafile=settings.relay.next_hop_ca or None)


def _server_tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.relay.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.relay.tls_certificate, settings.relay.tls_key)
    return context


def _bound(key: str, address: str) -> list[socket.socket]:
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [_socket(family, where) for family, _, _, _, where in found]
    except OSError as error:
        raise ConfigError(
            f"relay.{key} = {address!r}: cannot listen there: {error.strerror}; is another spamfilter running?"
        ) from error


def _socket(family: socket.AddressFamily, where: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)  # type: ignore[arg-type]  # an address as getaddrinfo gave it
        sock.listen(1024)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _inherited() -> list[socket.socket]:
    """The sockets of a systemd socket unit, if there are any: sd_listen_fds(3)."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    sockets = [socket.socket(fileno=FIRST_FD + number) for number in range(int(os.environ.get("LISTEN_FDS", "0")))]
    for sock in sockets:
        sock.setblocking(False)
    return sockets


def _own_name() -> str:
    """The host's full name, or its short one where the resolver knows no better than localhost."""
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name


def _name(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resident_bytes() -> int:
    """The memory of this process, as proc(5) has it; 0 where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def _notify(state: str) -> None:
    """Tell systemd: sd_notify(3). Without systemd, or without its socket, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(state.encode())
