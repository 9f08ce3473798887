"""Several processes as one relay: a supervisor, a keeper and any number of workers.

The workers listen on the same sockets and carry mail. The keeper has what must exist once: the follower of the ledger,
which writes the counts that all share, the control socket, the metrics, the probes of `doctor`, the expiry. The
supervisor is the process that systemd knows. It opens the sockets and loads the counts into shared memory, and then
only watches its children. It has no threads and no event loop, so it may fork at any time.

Guarantee: a process that exits unasked is restarted, each at most once every RESTART_SECONDS. One whose event loop
stands still for HUNG_SECONDS is ended first; where the relay is one process, by systemd (WatchdogSec=). Workers stop
when the supervisor tells them or exits for any reason. The keeper stops after the last worker, so that metrics and
`doctor` tell of the last mail, too.
"""

import logging
import os
import signal
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spamfilter.config.settings import Settings
from spamfilter.relay.limits.shared_counters import Shared
from spamfilter.relay.metrics import Metrics
from spamfilter.relay.next_hops import NextHop
from spamfilter.service.reload import apply_to_process, renewed_tls, reread
from spamfilter.system.logs import SELDOM
from spamfilter.system.process import notify

log = logging.getLogger("spamfilter")

KEEPER = 0
"""The keeper's number; workers count from 1."""
RESTART_SECONDS = 1.0
"""Time between two starts of one process: one that fails at once costs a line of log a second, and half a core."""
RELOAD_SECONDS = 10.0
"""Time for a process to read its configuration anew; one that is loading counts is ready by then."""
STOP_SECONDS = 2.0
"""Time for the workers to close their listening sockets, before the log says that the relay is stopping."""
LOOK_EVERY = 0.02
"""Seconds between two checks whether the other processes have done what they were told."""
BEAT_EVERY = 5.0
"""Seconds between two beats: a tenth of what is allowed, so that a busy machine ends no healthy process."""
HUNG_SECONDS = 60.0
"""Longer than anything that a healthy process waits for: a locked database, 10 s for each of a few batches. The same as
WatchdogSec= in systemd/spamfilter.service."""
TOLD = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
"""The signals that the supervisor waits for, and a worker handles once it can."""


@dataclass(frozen=True, slots=True)
class Process:
    """The role of a process of the relay. By default one process has all roles.

    carries: is a worker. keeps: is the keeper. end: a descriptor, readable when the process shall stop. again: it
    replaces a process, which may have been killed while it wrote counts. wake: an eventfd, written when a worker has
    learnt, so that the keeper reads the ledger.
    """

    shared: Shared
    carries: bool = True
    keeps: bool = True
    end: int | None = None
    again: bool = False
    wake: int = -1

    @property
    def alone(self) -> bool:
        return self.carries and self.keeps

    def share_of(self, bound: int) -> int:
        """One worker's share of a bound for all workers."""
        return max(bound // max(len(self.shared.state) - 1, 1), 1)

    def beat(self) -> None:
        """Show that this process does not hang."""
        if self.alone:
            notify("WATCHDOG=1")
        else:
            self.shared.beats[self.shared.own] = time.monotonic()

    def wake_keeper(self) -> None:
        with suppress(BlockingIOError):  # the counter is full, so it is readable anyway
            os.eventfd_write(self.wake, 1)


class Supervisor:
    """Starts and watches the processes.

    tls: of clients. It and the next hop are for all of them: a process that replaces another does not depend on what
    the files hold by then.
    ready: called once all are ready; stopping: before they are told to stop.
    """

    def __init__(
        self,
        settings: Settings,
        file: Path | None,
        tls: ssl.SSLContext | None,
        next_hop: NextHop,
        workers: int,
        ready: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        self.settings, self.tls = settings, tls
        self._file = file
        self._next_hop = next_hop
        self._ready = ready
        self._stopping = stopping
        self._shared = Shared(workers + 1)
        self._looked_at = time.monotonic()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Nothing is ever written to these pipes: a reader sees the end of file when the last writer has exited.
        self._life, self._life_of_supervisor = os.pipe()
        self._work, self._work_of_anybody = os.pipe()
        self._running: dict[int, int] = {}
        self._started = [float("-inf")] * (workers + 1)
        self._is_ready = self._ends = False
        self._code = 0

    def run(self) -> Process | None:
        """Returns its role in each child, and None in the supervisor when all children have exited.

        Raises SystemExit if a process could not start; that process has logged why.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, which exec(2) passes on, no child's end is told
        signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
        while self._running or not self._ends:
            for number in [number for number, wait in self._waits().items() if wait <= 0]:
                if (child := self._forked(number)) is not None:
                    return child
            if not self._is_ready and not self._ends and all(self._shared.state):
                self._is_ready = True
                self._ready()
                notify("READY=1")
            # SIGHUP waits for the start: reading the configuration again says READY=1 in the end.
            told = TOLD if self._is_ready else TOLD - {signal.SIGHUP}
            self._obey(signal.sigtimedwait(told, self._patience()))
            if self._is_ready:
                notify("WATCHDOG=1")
                if not self._ends:
                    self._end_hung()
        if self._code:
            raise SystemExit(self._code)
        log.info("stopped")
        return None

    def _waits(self) -> dict[int, float]:
        """Seconds until each process that does not run shall be started; while the relay stops, none shall."""
        missing = set() if self._ends else {*range(len(self._started))} - {*self._running.values()}
        return {number: self._started[number] + RESTART_SECONDS - time.monotonic() for number in missing}

    def _patience(self) -> float:
        """Seconds to wait for a signal."""
        if not self._is_ready:
            return LOOK_EVERY
        return max(min(self._waits().values(), default=BEAT_EVERY), 0.01)

    def _end_hung(self) -> None:
        """End each process that hangs; it is restarted like any other that exits."""
        now, beats = time.monotonic(), self._shared.beats
        late, self._looked_at = self._looked_at + HUNG_SECONDS / 2 < now, now
        for pid, number in self._running.items():
            if late:  # this process stood still, too, as in a machine that was paused: all of them begin anew
                beats[number] = now
            elif now > beats[number] + HUNG_SECONDS:
                log.error("%s, pid %d, has not answered for %g s and is ended", _who(number), pid, HUNG_SECONDS)
                os.kill(pid, signal.SIGKILL)
                beats[number] = now

    def _forked(self, number: int) -> Process | None:
        """Start a process. Returns its role in the child, None in the supervisor."""
        again = self._started[number] > 0
        self._shared.clear(number)
        self._shared.beats[number] = self._started[number] = time.monotonic()
        Metrics(self._shared.figures[number]).clear_gauges()
        try:
            pid = os.fork()
        except OSError as error:
            log.error(  # noqa: TRY400 - the sentence says it
                "%s cannot be started: %s; it is tried again", _who(number), error.strerror, extra=SELDOM
            )
            return None
        if pid:
            self._running[pid] = number
            return None
        os.environ.pop("NOTIFY_SOCKET", None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal; the supervisor handles it
        self._shared.own = number
        keeps = number == KEEPER
        os.close(self._life_of_supervisor)
        if keeps:
            os.close(self._work_of_anybody)
        end = self._work if keeps else self._life
        return Process(self._shared, carries=not keeps, keeps=keeps, end=end, again=again, wake=self._wake)

    def _obey(self, told: signal.struct_siginfo | None) -> None:
        # A wait that a pause of this process interrupts after its time returns a signal of number 0: CPython does not
        # set it then (signal_sigtimedwait_impl). tests/integration/test_workers_hung.py
        if told is None or told.si_signo not in TOLD:
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
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._running.pop(pid, None)
            if number is None:  # of a script that became this process, or an orphan in a container where this is init
                continue
            code = os.waitstatus_to_exitcode(status)
            self._shared.state[number] = 0
            if self._ends and code == 0:
                continue
            if not self._is_ready and code > 0:  # it could not start, and has logged why
                self._code = code
                if not self._ends:
                    self._end()
                continue
            how = f"exited with {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
            log.error("%s, pid %d, %s%s", _who(number), pid, how, "" if self._ends else "; another one takes its place")

    def _reload(self) -> None:
        """SIGHUP: the workers read the configuration anew, and then the keeper, which logs the result."""
        with reread(self._file) as new:
            if new is not None:
                self.settings, _ = self.settings.reloaded(new)
                apply_to_process(self.settings)
                self.tls = renewed_tls(self.settings, self.tls, self._next_hop)
                self._tell({pid: number for pid, number in self._running.items() if number != KEEPER})
                self._tell({pid: number for pid, number in self._running.items() if number == KEEPER})

    def _tell(self, some: dict[int, int]) -> None:
        """Make these processes, by pid, read the configuration anew, and wait until they have."""
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
        """Wait for a condition, but no longer than this; whether it holds."""
        give_up = time.monotonic() + seconds
        while not condition() and time.monotonic() < give_up:
            signal.sigtimedwait({signal.SIGCHLD}, LOOK_EVERY)
            self._bury()
        return condition()


def _who(number: int) -> str:
    return "the keeper" if number == KEEPER else f"worker {number}"


def _signal_name(number: int) -> str:
    """The name of a signal; most real-time signals have none: signal(7)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
