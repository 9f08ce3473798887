"""What goes on beside the load: users who mark mail, reports one after the other, a look at the relay each second."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from spamfilter.bayes.labels import Label
from spamfilter.errors import TryAgain
from tests.faults.daemon import Daemon
from tests.load.mails import made
from tests.load.probe import mail_of
from tests.load.process import anonymous_bytes, descriptors, proportional_bytes, threads

TAUGHT = 200
"""Different mails that are marked, again and again with the other label: memory grows with the words that are learnt,
and after the first round it must not."""


class Beside:
    """Some work that is done again and again in a thread, until the end of its context. failures: what went wrong."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.failures: list[str] = []
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def turn(self, number: int) -> None:
        """The work, the first time with number 1."""
        raise NotImplementedError

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        self._thread.join(120)

    def _run(self) -> None:
        number = 0
        try:
            while not self.stop.wait(self.every):
                number += 1
                self.turn(number)
        except Exception as error:  # whatever it is, it goes into the report
            self.failures.append(f"{type(self).__name__}: {error!r}")


class Users(Beside):
    """Mark the mails that the probe has sent first, and as many others that never passed the relay, by turns.

    changed, same: marks that have changed something, or nothing; again: those that the relay asked to repeat.
    entries: of the ledger, that the changes have made.
    """

    def __init__(self, relay: Daemon, every: float) -> None:
        super().__init__(every)
        self.relay = relay
        self.changed = self.same = self.again = self.entries = 0

    def turn(self, number: int) -> None:
        rounds, one = divmod(number, TAUGHT)
        self.mark(one, "spam" if rounds % 2 else "ham")

    def mark(self, one: int, label: Label) -> None:
        """Mark one of the mails."""
        mail = mail_of(f"{one}probe") if one % 2 else made(f"taught{one}", "spam")
        try:
            answer = self.relay.ask({"command": "mark", "label": label, "name": f"mail {one}"}, mail)
        except TryAgain:
            self.again += 1
        else:
            self.changed += bool(answer["changed"])
            self.same += not answer["changed"]
            self.entries += bool(answer["changed"]) + (bool(answer["changed"]) and answer["was"] is not None)


class Reports(Beside):
    """`spamfilter stats`. seconds, cpu: of each run."""

    def __init__(self, relay: Daemon, every: float) -> None:
        super().__init__(every)
        self.relay = relay
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def turn(self, number: int) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "spamfilter", "stats", "--since", "1h"]
        process = subprocess.Popen(command, env=self.relay.environment, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            self.failures.append(f"stats ended with {process.returncode}")
        self.seconds.append(time.perf_counter() - began)
        self.cpu.append(used.ru_utime + used.ru_stime)


@dataclass(frozen=True)
class Look:
    """The relay at one moment. began: seconds since the start; wal: bytes of the database's write-ahead log."""

    began: float
    anonymous: int
    proportional: int
    descriptors: int
    threads: int
    wal: int


@dataclass
class Watch(Beside):
    """Looks at the process of the relay."""

    relay: Daemon
    every: float = 1.0
    looks: list[Look] = field(default_factory=list)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        super().__init__(self.every)
        self._began = self.clock()

    def turn(self, number: int) -> None:
        self.looks.append(look(self.relay, self.clock() - self._began))


def look(relay: Daemon, began: float = 0.0) -> Look:
    pid, wal = relay.process.pid, relay.database.with_name(relay.database.name + "-wal")
    return Look(
        began,
        anonymous_bytes(pid),
        proportional_bytes(pid),
        descriptors(pid),
        threads(pid),
        wal.stat().st_size if wal.exists() else 0,
    )
