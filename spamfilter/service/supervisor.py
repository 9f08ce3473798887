"""Several processes as one relay: a keeper and any number of workers, each replaced when it ends.

The workers take mail in on sockets that all of them listen on. The keeper has what there must be one of: the feedback
socket, the writer of the journal, the metrics, the probes of `doctor`, and what expires. This process, the supervisor,
is the one that others know: it made the sockets and loaded the counts, which its children share until they learn; it
does nothing but watch them. It has no threads and no event loop, so that it may fork at any time.

Guarantee: whoever ends without being told to is replaced, each at most once every RESTART_SECONDS. Workers stop when
the supervisor tells them or is gone, whatever ended it; the keeper stops when the last worker has, so that all they
have to say is written.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spamfilter.config.settings import Settings
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import Metrics
from spamfilter.service.reload import reread
from spamfilter.system.process import notify

log = logging.getLogger("spamfilter")

KEEPER = 0
"""The keeper's number; workers count from 1."""
RESTART_SECONDS = 1.0
"""Between two starts of one process: a fault that ends it at once costs a line of log a second, and half a core."""
RELOAD_SECONDS = 10.0
"""For a process to read its configuration anew; one that is loading counts is ready by then."""
STOP_SECONDS = 2.0
"""For the workers to close what they listen on, before the log says that the relay takes nothing any more."""
LOOK_EVERY = 0.02
"""Seconds between two looks whether those who were told something have done it."""
TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


@dataclass(frozen=True, slots=True)
class Process:
    """What a process of the relay is. By itself, it is all of it.

    carries: takes mail in. keeps: is the keeper. main: the pid that others know. end: readable once it shall stop.
    meeting: where the journal's collector meets those who send to it. signals: what it is to let through from now on.
    again: it replaces another, so that the counts it was given may be old. wakes: one for each process, to say there
    that something was learnt.
    """

    shared: Shared
    carries: bool = True
    keeps: bool = True
    main: int = 0
    end: int | None = None
    meeting: socket.socket | None = None
    signals: frozenset[int] = frozenset()
    again: bool = False
    wakes: tuple[int, ...] = ()

    @property
    def alone(self) -> bool:
        return self.carries and self.keeps

    def share_of(self, bound: int) -> int:
        """Of a bound that is for all workers, as much as is for one."""
        return max(bound // max(len(self.wakes) - 1, 1), 1)

    def wake_others(self) -> None:
        """Let the others look at the ledger."""
        for number, wake in enumerate(self.wakes):
            if number != self.shared.own:
                with suppress(BlockingIOError):  # it has not looked for 2**64 times
                    os.eventfd_write(wake, 1)


class Supervisor:
    """ready: called once all processes are; stopping: before they are told to stop."""

    def __init__(
        self,
        settings: Settings,
        file: Path | None,
        workers: int,
        ready: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        self.settings = settings
        self._file = file
        self._ready = ready
        self._stopping = stopping
        self._shared = Shared(workers + 1)
        self._meetings = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._wakes = tuple(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers + 1))
        # Nothing is ever written to these. A reader sees the end of it when the last writer is gone.
        self._life, self._life_of_supervisor = os.pipe()
        self._work, self._work_of_anybody = os.pipe()
        self._running: dict[int, int] = {}
        self._started = [float("-inf")] * (workers + 1)
        self._is_ready = self._ends = False
        self._code = 0

    def run(self) -> Process | None:
        """Returns in each child, with what it is, and here with None when all have ended.

        Raises SystemExit where a process could not start; it has said why.
        """
        before = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, TOLD))
        while self._running or not self._ends:
            for number in self._missing():
                if (child := self._forked(number, before)) is not None:
                    return child
            if not self._is_ready and not self._ends and all(self._shared.state):
                self._is_ready = True
                self._ready()
                notify("READY=1")
            self._obey(signal.sigtimedwait(TOLD, self._patience()))
        if self._code:
            raise SystemExit(self._code)
        log.info("stopped")
        return None

    def _missing(self) -> list[int]:
        """Who is to be started now, the keeper first. At the end nobody but a keeper, for the workers' last words."""
        numbers = set(self._running.values())
        wanted = range(len(self._started)) if not self._ends else range(1 if numbers - {KEEPER} else 0)
        now = time.monotonic()
        return [n for n in wanted if n not in numbers and now >= self._started[n] + RESTART_SECONDS]

    def _patience(self) -> float:
        """Seconds to wait for a signal."""
        if not self._is_ready:
            return LOOK_EVERY
        missing = set(range(len(self._started))) - set(self._running.values())
        return min((max(self._started[n] + RESTART_SECONDS - time.monotonic(), 0.01) for n in missing), default=3600.0)

    def _forked(self, number: int, signals: frozenset[int]) -> Process | None:
        """Start a process; what it is, in that process itself."""
        again = self._started[number] > 0
        self._started[number] = time.monotonic()
        self._shared.clear(number)
        Metrics(self._shared.figures[number]).clear_gauges()
        main = os.getpid()
        pid = os.fork()
        if pid:
            self._running[pid] = number
            return None
        os.environ.pop("NOTIFY_SOCKET", None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is the supervisor's business
        self._shared.own = number
        keeps = number == KEEPER
        if not self._ends:
            os.close(self._life_of_supervisor)
            if keeps:
                os.close(self._work_of_anybody)
        return Process(
            self._shared,
            carries=not keeps,
            keeps=keeps,
            main=main,
            end=self._work if keeps else self._life,
            meeting=self._meetings[0] if keeps else self._meetings[1],
            signals=signals,
            again=again,
            wakes=self._wakes,
        )

    def _obey(self, told: signal.struct_siginfo | None) -> None:
        if told is None:
            return
        if told.si_signo == signal.SIGCHLD:
            self._bury()
        elif told.si_signo == signal.SIGHUP:
            self._reload()
        elif not self._ends:
            notify("STOPPING=1")
            self._end()
            self._wait(lambda: not any(self._shared.state[KEEPER + 1 :]), STOP_SECONDS)
            log.info("stopping: running transactions finish, for at most %g s", self.settings.limits.drain_seconds)

    def _end(self) -> None:
        self._ends = True
        self._stopping()
        os.close(self._life_of_supervisor)
        os.close(self._work_of_anybody)

    def _bury(self) -> None:
        """Take note of who has ended."""
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            self._shared.state[number] = 0
            if self._ends and code == 0:
                continue
            if not self._is_ready and code > 0:  # a start that fails for a reason it has said
                self._code = code
                if not self._ends:
                    self._end()
                continue
            who = "the keeper" if number == KEEPER else f"worker {number}"
            how = f"exited with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            log.error("%s, pid %d, %s%s", who, pid, how, "" if self._ends else "; another one takes its place")

    def _reload(self) -> None:
        """SIGHUP: the workers read the configuration anew, and then the keeper, which logs the result."""
        with reread(self._file) as new:
            if new is not None:
                self.settings, _ = self.settings.reloaded(new)
                logging.getLogger().setLevel(self.settings.log.level.upper())
                self._tell({pid: number for pid, number in self._running.items() if number != KEEPER})
                self._tell({pid: number for pid, number in self._running.items() if number == KEEPER})

    def _tell(self, some: dict[int, int]) -> None:
        """Let these processes, by pid, read the configuration anew, and wait until they have."""
        state = self._shared.state
        before = {pid: state[number] for pid, number in some.items()}
        for pid in some:
            os.kill(pid, signal.SIGHUP)
        done = self._wait(
            lambda: all(pid not in self._running or state[some[pid]] != before[pid] for pid in some), RELOAD_SECONDS
        )
        if not done:
            log.warning("not every process has read the configuration within %g s", RELOAD_SECONDS)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until it holds, or for so long; whether it does."""
        give_up = time.monotonic() + seconds
        while not condition() and time.monotonic() < give_up:
            signal.sigtimedwait({signal.SIGCHLD}, LOOK_EVERY)
            self._bury()
        return condition()
