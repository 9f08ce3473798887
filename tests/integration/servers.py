"""Real servers for tests: Postfix with the shipped samples, the relay as a process, and a sink that keeps all it gets.

Guarantee: each runs on loopback, on ports that were free, in a folder of its own, and is gone when its context ends;
every wait is bounded. Starting Postfix needs root, and the folder must be open to the user postfix: see `workshop`.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spamfilter.system.packaged_files import shipped
from tests.support.program import COMMAND, Program, run
from tests.support.real import require, require_root

START_SECONDS = 30.0
"""A server that has not answered by then will not: Postfix takes 1 s on an idle machine, the relay about as long."""
STOP_SECONDS = 45.0
"""The relay's drain time, 30 s, and room."""


PORTS, BLOCK = range(15_000, 32_000), 100
"""Below those that the kernel gives to connections, or to listeners that leave the choice to it; how many of them a
process takes for its tests, so that no two that run at the same time choose the same."""
_kept: list[socket.socket] = []


def keep_port(port: int) -> bool:
    """Keep a port, or the block that begins with it, for the tests of this process; False if another process has it."""
    keeper = socket.socket(socket.AF_UNIX)
    try:
        keeper.bind(f"\0spamfilter-tests-{port}")  # a name without a file, which is free again when the process ends
    except OSError:
        keeper.close()
        return False
    _kept.append(keeper)
    return True


@functools.cache
def _own_ports() -> Iterator[int]:
    block = next(first for first in PORTS[::BLOCK] if keep_port(first))
    return itertools.cycle(range(block, block + BLOCK))


def free_port() -> int:
    """A port of loopback that nobody listens on, and no other test will before it is used."""
    return next(port for port in _own_ports() if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Return once the condition holds; TimeoutError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


def seconds_until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until the condition held."""
    began = time.monotonic()
    wait_until(condition, what)
    return time.monotonic() - began


def await_start(process: "subprocess.Popen[bytes]", ready: Callable[[], bool], log: Callable[[], str]) -> None:
    """Return once a server is ready; RuntimeError with its log where it ends or takes too long."""
    try:
        wait_until(lambda: process.poll() is not None or ready(), "a server's start")
    except TimeoutError as error:
        raise RuntimeError(f"did not start: {log()}") from error
    if process.poll() is not None:
        raise RuntimeError(f"ended with {process.returncode}: {log()}")


def greets(port: int) -> bool:
    """Whether an SMTP server says 220 there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        return client.recv(512).startswith(b"220")
    return False


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A new folder that every user may enter, unlike pytest's own, which only its owner may."""
    with tempfile.TemporaryDirectory(prefix="spamfilter-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


# The sink


@dataclass(frozen=True)
class Received:
    """One message as the sink got it: every command line since the last one, and the mail, dots unstuffed."""

    commands: tuple[str, ...]
    mail: bytes

    @property
    def recipients(self) -> list[str]:
        return [line[9 : line.index(">")] for line in self.commands if line.upper().startswith("RCPT TO:<")]

    def values(self, name: str) -> list[str]:
        """The values of a header field, unfolded."""
        head = re.sub(rb"\r\n(?=[ \t])", b"", self.mail.partition(b"\r\n\r\n")[0]).decode("latin-1")
        fields = (line.partition(":") for line in head.split("\r\n"))
        return [value.strip() for key, _, value in fields if key.lower() == name.lower()]


@dataclass
class Sink:
    """An SMTP server that says yes to everything and keeps it. Lines end in CR LF only, as in RFC 5321."""

    keywords: tuple[str, ...] = ("PIPELINING", "SIZE 104857600", "8BITMIME", "SMTPUTF8", "DSN", "XFORWARD ADDR NAME")
    port: int = 0
    received: list[Received] = field(default_factory=list)

    def wait(self, count: int, seconds: float = 30.0) -> list[Received]:
        """What was received, once there are `count`."""
        wait_until(lambda: len(self.received) >= count, f"{count} messages at the sink", seconds)
        return self.received

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands: list[str] = []
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            writer.write(b"220 sink.test ESMTP\r\n")
            while True:
                line = (await reader.readuntil(b"\r\n")).decode("utf-8", "surrogateescape").removesuffix("\r\n")
                verb = line.upper().partition(" ")[0]
                if verb == "DATA":
                    writer.write(b"354 go on\r\n")
                    lines = []
                    while (part := await reader.readuntil(b"\r\n")) != b".\r\n":
                        lines.append(part.removeprefix(b"."))
                    self.received.append(Received(tuple(commands), b"".join(lines)))
                    commands = []
                    writer.write(b"250 2.0.0 kept\r\n")
                elif verb in ("EHLO", "LHLO"):
                    commands.append(line)
                    answers = ("sink.test", *self.keywords)
                    writer.writelines(f"250-{answer}\r\n".encode() for answer in answers)
                    writer.write(b"250 ENHANCEDSTATUSCODES\r\n")
                elif verb == "QUIT":
                    writer.write(b"221 2.0.0 bye\r\n")
                    await writer.drain()
                    return
                else:
                    commands.append(line)
                    writer.write(b"250 2.0.0 ok\r\n")
                await writer.drain()


@contextlib.contextmanager
def sink(**settings: Any) -> Iterator[Sink]:
    """A sink in a thread of its own."""
    server = Sink(**settings)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        listener = await asyncio.start_server(server.talk, "127.0.0.1", server.port, limit=2**27, backlog=1024)
        server.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="sink", daemon=True)
    thread.start()
    if not ready.wait(START_SECONDS):
        raise TimeoutError("the sink did not start")
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(STOP_SECONDS)
        loop.run_until_complete(asyncio.sleep(0))  # transports close in the turn after
        loop.close()


# Postfix

USERS = ("alice@example.test", "bob@example.test")
"""The mailboxes of the test Postfix; of bulk.test every name exists."""

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
meta_directory = {folder}/etc
daemon_directory = {daemons}
command_directory = /usr/sbin
shlib_directory = /usr/lib/postfix
sendmail_path = /usr/sbin/sendmail
mail_owner = postfix
setgid_group = postdrop
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = mail.test
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
mynetworks = 127.0.0.1/32
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtp_host_lookup = native
smtpd_peername_lookup = no
# All mail ends in the sink, so that a bounce would be seen there.
relay_domains = example.test, bulk.test
relay_recipient_maps = inline:{{ {users}, @bulk.test=ok }}
relay_transport = {delivery}
default_transport = smtp:[127.0.0.1]:{sink}
# No letters to the postmaster about servers that a test keeps away.
notify_classes =
# A mail that must be tried again should not make a test wait for minutes.
queue_run_delay = 2s
minimal_backoff_time = 2s
# Bulk mail comes from one client.
smtpd_client_connection_count_limit = 0
"""

MASTER = """
pickup    unix  n - n 60    1 pickup
cleanup   unix  n - n -     0 cleanup
qmgr      unix  n - n 300   1 qmgr
tlsmgr    unix  - - n 1000? 1 tlsmgr
rewrite   unix  - - n -     - trivial-rewrite
bounce    unix  - - n -     0 bounce
defer     unix  - - n -     0 bounce
trace     unix  - - n -     0 bounce
verify    unix  - - n -     1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n -     - proxymap
smtp      unix  - - n -     - smtp
lmtp      unix  - - n -     - lmtp
relay     unix  - - n -     - smtp
showq     unix  n - n -     - showq
error     unix  - - n -     - error
retry     unix  - - n -     - error
anvil     unix  - - n -     1 anvil
scache    unix  - - n -     1 scache
postlog   unix-dgram n - n - 1 postlogd
"""


@dataclass(frozen=True)
class Postfix:
    """A Postfix that runs. `front` is its port to the world, `back` the one for what comes back from a filter."""

    folder: Path
    front: int
    back: int

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command of Postfix, such as postconf or postqueue, on this one's configuration."""
        command = [require(program, "postfix"), "-c", str(self.folder / "etc"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def queued(self) -> int:
        """How many messages wait in the queue."""
        queue = self.folder / "queue"
        return sum(
            path.is_file()
            for name in ("incoming", "active", "deferred", "maildrop")
            for path in (queue / name).rglob("*")
        )


def configure_postfix(
    folder: Path,
    *,
    proxy: int | Path | None,
    content_filter: int | None,
    back: int,
    to: int,
    front_checks_users: bool,
    lmtp: int | None = None,
    milter: int | Path | None = None,
    settings: str = "",
) -> Postfix:
    """Write a configuration from the shipped samples, with their ports exchanged for those given.

    proxy, milter: a port, or a path as for the shipped submission service. settings: further lines of main.cf.
    """
    front = free_port()
    etc, data = folder / "etc", folder / "data"
    for part in (etc, data, folder / "queue"):
        part.mkdir(parents=True)
    shutil.chown(data, "postfix")
    daemons = Path(require("smtpd", "postfix", "/usr/lib/postfix/sbin")).parent
    for name in ("postfix-script", "post-install", "postfix-files"):
        with contextlib.suppress(FileNotFoundError):  # from Postfix 3.10 on, the first two are with the daemons
            shutil.copy(Path("/etc/postfix") / name, etc / name)
    users = ", ".join(f"{user}=ok" for user in USERS)
    delivery = f"smtp:[127.0.0.1]:{to}" if lmtp is None else f"lmtp:[127.0.0.1]:{lmtp}"
    main = MAIN.format(folder=folder, daemons=daemons, users=users, delivery=delivery, sink=to)
    master = MASTER
    entry = f"{front} inet n - n - - smtpd"
    if proxy is None:
        master += entry + "\n"
    for layout, filter_port in (("before-queue", proxy), ("after-queue", content_filter), ("milter", milter)):
        if filter_port is not None:
            sample = shipped(f"config/postfix/{layout}")
            lines = (sample / "main.cf.fragment").read_text()
            if isinstance(filter_port, Path):
                lines = lines.replace("inet:127.0.0.1:10027", f"unix:{filter_port}")
            main += _with_ports(lines, filter_port, back)
            added = (sample / "master.cf.fragment").read_text()
            if isinstance(filter_port, Path):
                added = added.replace("127.0.0.1:10025", f"unix:{filter_port}")
            master += _with_ports(added, filter_port, back)
            master = re.sub(r"^smtp +inet", f"{front} inet", master, flags=re.MULTILINE)
    if not front_checks_users:
        option = "\\1\n    -o receive_override_options=no_unknown_recipient_checks"
        master = re.sub(rf"^({front} .*)", option, master, flags=re.MULTILINE)
    (etc / "main.cf").write_text(main + settings)
    (etc / "master.cf").write_text(master)
    return Postfix(folder, front, back)


def _with_ports(text: str, filter_port: int | Path, back: int) -> str:
    return re.sub(":(10025|10027)", f":{filter_port}", text).replace(":10026", f":{back}")


@contextlib.contextmanager
def postfix(
    folder: Path,
    *,
    to: int,
    back: int,
    proxy: int | Path | None = None,
    content_filter: int | None = None,
    front_checks_users: bool = True,
    lmtp: int | None = None,
    milter: int | Path | None = None,
    settings: str = "",
) -> Iterator[Postfix]:
    """Postfix that delivers to the port `to`, with a filter before the queue (`proxy`), after it, asked, or none.

    front_checks_users: False leaves unknown recipients to the server behind the filter. lmtp: the port that the
    users' mail goes to instead, by LMTP. settings: further lines of main.cf.
    """
    program = require("postfix", "postfix")
    require_root("Postfix starts as root and changes users itself")
    server = configure_postfix(
        folder,
        proxy=proxy,
        content_filter=content_filter,
        back=back,
        to=to,
        front_checks_users=front_checks_users,
        lmtp=lmtp,
        milter=milter,
        settings=settings,
    )
    ports = [server.front] if proxy is content_filter is milter is None else [server.front, server.back]
    command = [program, "-c", str(folder / "etc")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([*command, "start-fg"], stdout=output, stderr=output, start_new_session=True)
    try:
        await_start(process, lambda: all(map(greets, ports)), lambda: (folder / "output").read_text() + server.log())
        yield server
    finally:
        subprocess.run([*command, "stop"], capture_output=True, timeout=STOP_SECONDS, check=False)
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a session, and whatever of the session is left."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)


def smtp_source(
    port: int,
    messages: int,
    *,
    sessions: int = 1,
    length: int = 0,
    sender: str = "sender@example.org",
    recipient: str = "alice@example.test",
    numbered: bool = False,
    seconds: float = 300.0,
) -> None:
    """Send messages with Postfix's load generator; it gives up, and this raises, at the first that is not accepted.

    numbered: put a number that never repeats before each recipient address.
    """
    command = [require("smtp-source", "postfix"), "-4", "-m", str(messages), "-s", str(sessions)]
    command += ["-M", "client.test", "-f", sender, "-t", recipient]
    command += ["-l", str(length)] if length else []
    command += ["-N"] if numbered else []
    done = subprocess.run([*command, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode or done.stderr:
        raise RuntimeError(f"smtp-source: {done.returncode}: {done.stderr}")


# The relay

_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)(?! for LMTP)\b")


@dataclass(frozen=True)
class Relay:
    """A relay that runs as a process of its own."""

    folder: Path
    config: Path
    process: "subprocess.Popen[bytes]"
    environment: Mapping[str, str]

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def ports(self) -> list[int]:
        return [int(port) for port in _LISTENING.findall(self.log())]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Give it other settings while it runs, and wait until they hold."""
        seen = self.log().count("reloaded")
        self.config.write_text(toml(settings))
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("reloaded") > seen, "the new settings")

    def command(
        self, *arguments: str, input: str | None = None, seconds: float = 60.0
    ) -> "subprocess.CompletedProcess[str]":
        """A command of spamfilter with the configuration and state of this relay."""
        return run(*arguments, environment=self.environment, input=input, seconds=seconds)


def workers() -> dict[str, int]:
    """As many as SPAMFILTER_TEST_WORKERS in the environment says; else one, which starts in a third of the time.

    What several do otherwise has tests of its own, which say how many they want.
    """
    return {"workers": int(os.environ.get("SPAMFILTER_TEST_WORKERS", "1"))}


def toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Nested settings as TOML text, lists of tables last; a JSON string is also a TOML string."""
    lines = [f"[{path}]"] if path else []
    tables = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in settings.items() if isinstance(value, list) and any(_tables(value))}
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items() if key not in {**tables, **lists}]
    lines += [toml(value, f"{path}.{key}" if path else key) for key, value in tables.items()]
    lines += [f"[[{key}]]\n{toml(value)}" for key, values in lists.items() for value in values]
    return "\n".join(lines) + "\n"


def _tables(values: list[Any]) -> Iterator[bool]:
    return (isinstance(value, Mapping) for value in values)


@contextlib.contextmanager
def relay(folder: Path, prefix: tuple[str, ...] = (), **settings: Any) -> Iterator[Relay]:
    """`spamfilter serve` with these sections of settings, on a free port unless relay.listen says otherwise.

    prefix: a command that is to run it. At the end it gets SIGTERM and must exit with 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**settings, "relay": {"listen": ["127.0.0.1:0"], **workers(), **settings.get("relay", {})}}
    config = folder / "spamfilter.toml"
    config.write_text(toml(settings))
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPAMFILTER_")}
    environment |= {"STATE_DIRECTORY": str(state), "SPAMFILTER_CONFIG": str(config), "PYTHONUNBUFFERED": "1"}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [*prefix, *COMMAND, "serve"]
    with (folder / "log").open("ab") as log:
        process = Program(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    server = Relay(folder, config, process, environment)
    expected = len(settings["relay"]["listen"])
    try:
        await_start(process, lambda: len(server.ports) >= expected, server.log)
        yield server
        process.terminate()
        code = process.wait(STOP_SECONDS)
        if code != 0:
            raise RuntimeError(f"the relay exited with {code} after SIGTERM: {server.log()}")
    finally:
        if process.poll() is None:
            process.kill()
        end(process)
