"""`spamfilter serve` as a process that may be killed and started again, in the same place and on the same port."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.service.control_socket.client import SocketClient
from spamfilter.stores import open_store
from tests.faults.case import case
from tests.faults.client import Client
from tests.faults.hop import Hop
from tests.integration.servers import STOP_SECONDS, await_start, free_port, toml, workers
from tests.support.doors import DOORS, Door
from tests.support.program import COMMAND, Program, run
from tests.support.real import require

ROOT = Path(__file__).parents[2]
NOBODY = 65534
"""The number of the user nobody, and of its group."""
LIMITS: Mapping[str, float] = {"connect_seconds": 5, "command_seconds": 5, "final_seconds": 10, "drain_seconds": 5}
"""Far more than a healthy next hop on loopback takes, on a busy machine, too; tests of the limits lower them."""


class Daemon:
    """The relay in a folder. prefix: a command that is to run it, here always, or at one start. port: of its door."""

    def __init__(
        self,
        folder: Path,
        next_hop: str,
        state: Path | None = None,
        door: Door = DOORS["smtp"],
        **settings: Mapping[str, Any],
    ) -> None:
        self.door = door
        self.client = door.client.to(next_hop)
        self.folder = folder
        self.state = state or folder / "state"
        self.port = free_port()
        self.config = folder / "spamfilter.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.state.mkdir(mode=0o700, exist_ok=True)
        places = {"listen": ["127.0.0.1:0"], door.listen: [f"127.0.0.1:{self.port}"]}
        relay = {**places, "next_hop": next_hop, "hostname": "relay.test"} | workers()
        settings = {
            **settings,
            "relay": {**relay, **settings.get("relay", {})},
            "limits": {**LIMITS, **settings.get("limits", {})},
        }
        self.config.write_text(toml(settings))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SPAMFILTER_")}
        self.environment |= {"STATE_DIRECTORY": str(self.state), "SPAMFILTER_CONFIG": str(self.config)}
        self.environment |= {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        self.prefix: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0

    @property
    def database(self) -> Path:
        return self.state / "spamfilter.db"

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def connect(self) -> Client:
        """A client of its door, greeted. Raises OSError where it does not run."""
        return self.client(self.port)

    def log(self) -> str:
        """What it has said since its last start."""
        file = self.folder / "log"
        return file.read_bytes()[self._began :].decode(errors="replace") if file.exists() else ""

    def launch(self, *prefix: str) -> None:
        """Start without waiting."""
        if self._process is not None:
            case().fault_ends()
        with (self.folder / "log").open("ab") as log:
            self._began = log.tell()
            command = [*self.prefix, *prefix, *COMMAND, "serve"]
            self._process = Program(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def start(self, *prefix: str) -> None:
        """Start and wait until it is ready."""
        self.launch(*prefix)
        await_start(self.process, lambda: "ready: send mail to" in self.log(), self.log)

    def refused_to_nobody(self) -> str:
        """Start it as nobody, since root may write everywhere: its last line, once it has ended with 2."""
        self.launch(require("setpriv", "util-linux"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        assert self.ended() == 2
        return self.log().splitlines()[-1]

    def ended(self) -> int:
        """Its exit code, once it has ended; where it does not, it is killed, and TimeoutExpired raised."""
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # with a tracer, if there was one
            self.process.wait(STOP_SECONDS)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it with this signal; its exit code. SIGKILL hits all its processes at once, as want of power would."""
        if self.running and number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        elif self.running:
            self.process.send_signal(number)
        return self.ended()

    def stop(self) -> None:
        """SIGTERM, which must lead to a clean end without a traceback."""
        code = self.kill(signal.SIGTERM)
        log = self.log()
        if code != 0 or "Traceback" in log:
            raise AssertionError(f"exited with {code}, tracebacks: {log.count('Traceback')}: {log[-5000:]}")

    def restart(self) -> None:
        if self.running:
            self.stop()
        self.start()

    def command(
        self, *arguments: str, input: str | None = None, seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """A command of spamfilter with this configuration and state."""
        return run(*arguments, environment=self.environment, input=input, seconds=seconds)

    def ask(self, request: dict[str, object], mail: bytes | None = None) -> dict[str, Any]:
        """One request over the feedback socket. Raises NoRelay, and the error that it is answered with."""
        client = SocketClient(self.state / "feedback.sock")
        try:
            return client.ask(request, mail)
        finally:
            client.close()

    def learnt(self) -> int:
        """How many spam it judges by."""
        return int(self.ask({"command": "status"})["learnt"]["spam"])

    def problems(self) -> list[str]:
        """Damage in the database, and counts that are not the sum of the ledger."""
        with contextlib.closing(open_store(f"sqlite:///{self.database}", migrate=True)) as store:
            return case().recounted(Filter(store, Settings().voices()).verify())

    def ids(self) -> list[str]:
        """The ids of what passed, from the log."""
        return re.findall(r"^\S+Z INFO (\S{10,}): client=", self.log(), re.MULTILINE)

    @contextlib.contextmanager
    def run(self, *prefix: str) -> Iterator[None]:
        """Running, until a clean end; what is left of it after a failure is killed."""
        try:
            self.start(*prefix)
            yield
            self.stop()
        finally:
            if self.running:
                self.kill()


@contextlib.contextmanager
def daemon(
    folder: Path, hop: Hop, state: Path | None = None, door: Door = DOORS["smtp"], **settings: Mapping[str, Any]
) -> Iterator[Daemon]:
    """A relay that runs in front of this hop; where it still does at the end, that must be a clean one."""
    made = Daemon(folder, door.at(hop.port), state, door, **settings)
    try:
        made.start()
        yield made
        if made.running:
            made.stop()
    finally:
        if made.running:
            made.kill()
