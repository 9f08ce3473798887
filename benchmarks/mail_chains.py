"""A real Postfix with a filter, or with none, that hands all mail on to a sink: each a chain that mail goes through.

All of them have the same settings of Postfix but for the filter, the same number of connections, and deliver by SMTP.
Guarantee: a turn ends once every mail has been judged and has arrived, each exactly once; else it raises.
"""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rspamd_server import listens, rspamd, verdicts

from tests.integration.servers import Postfix, free_port, postfix, relay, wait_until

CONNECTIONS = 20
"""Of the client; as many as the sample for Postfix before the queue lets in at once."""
TICKS = os.sysconf("SC_CLK_TCK")
TURN_SECONDS = 300.0
SOURCE = Path(__file__).with_name("mail_source.py")
BOTH = "smtpd_forbid_bare_newline = normalize\nsmtpd_forbid_unauth_pipelining = yes\n"
"""What the sample for our relay sets in main.cf; the others get it, too."""
SENT = re.compile(r" to=<([^>@]+)@[^>]+>,.* status=sent ")
CLASSES = ("spam", "ham", "unsure", "none")


@dataclass(frozen=True)
class Turn:
    """seconds: from the first command until the last mail has arrived. accepted: until the last was accepted.

    cpu: seconds of processor of 'Postfix', 'filter', 'sender and sink'. verdicts: mails by class.
    """

    seconds: float
    accepted: float
    cpu: dict[str, float]
    verdicts: Counter[str]


class Growing:
    """A file that is read as it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0

    def rest(self) -> str:
        """Whole lines that have come since the last look."""
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode(errors="replace")


@dataclass(frozen=True)
class Chain:
    """judged: the classes of what was judged since the last call. filters: the first processes of the filter."""

    name: str
    server: Postfix
    log: Growing
    filters: tuple[int, ...]
    judged: Callable[[], Counter[str]] | None

    @property
    def master(self) -> int:
        return int((self.server.folder / "queue" / "pid" / "master.pid").read_text())


def cpu_of(*pids: int) -> float:
    """Seconds of processor of these processes, of their descendants, and of those that have ended."""
    found = 0.0
    left = list(pids)
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):  # it has ended, and its time is its parent's
            for task in Path(f"/proc/{pid}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += sum(map(int, fields[11:15])) / TICKS
    return found


def turn(chain: Chain, sink: int, name: str, mails: Path) -> Turn:
    """Send every mail of a folder once, to recipients that begin with `name`, and wait for all of them."""
    count = sum(1 for _ in mails.iterdir())
    groups = {"Postfix": (chain.master,), "filter": chain.filters, "sender and sink": (sink,)}
    before = {group: cpu_of(*pids) for group, pids in groups.items()}
    command = [sys.executable, str(SOURCE), str(chain.server.front), str(CONNECTIONS), name, str(mails)]
    arrived: Counter[str] = Counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as source:
        deadline = time.monotonic() + TURN_SECONDS
        while sum(arrived.values()) < count and time.monotonic() < deadline and not source.poll():
            time.sleep(0.02)
            arrived.update(SENT.findall(chain.log.rest()))
        ended = time.monotonic()
        said, _ = source.communicate()
    if source.returncode:
        raise RuntimeError(f"the client of {chain.name} ended with {source.returncode}")
    if arrived != Counter(f"{name}-{number}" for number in range(count)):
        raise RuntimeError(f"{chain.name}: of {count} mails {len(arrived)} arrived, {sum(arrived.values())} times")
    classes = awaited(chain, count)
    cpu = {group: cpu_of(*pids) - before[group] for group, pids in groups.items()}
    told = json.loads(said)
    cpu["sender and sink"] += told["cpu"]
    return Turn(ended - told["began"], told["ended"] - told["began"], cpu, classes)


def awaited(chain: Chain, count: int) -> Counter[str]:
    """The classes of a turn's mails, as soon as the filter has written down all of them."""
    found: Counter[str] = Counter()
    judged = chain.judged
    if judged is None:
        return found

    def complete() -> bool:
        found.update(judged())
        return found.total() >= count

    wait_until(complete, f"{count} verdicts of {chain.name}")
    if found.total() != count:
        raise RuntimeError(f"{chain.name} has judged {found.total()} of {count} mails")
    return found


@contextlib.contextmanager
def sink() -> Iterator[tuple[int, int]]:
    """Postfix' smtp-sink, which takes all mail and forgets it: its port and its process."""
    port = free_port()
    process = subprocess.Popen(["smtp-sink", "-u", "postfix", f"127.0.0.1:{port}", "1024"])
    try:
        wait_until(lambda: listens(port), "the sink")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def alone(folder: Path, to: int) -> Iterator[Chain]:
    """Postfix without a filter."""
    with postfix(folder / "postfix", to=to, back=free_port(), settings=BOTH) as server:
        yield Chain("no filter", server, Growing(server.folder / "log"), (), None)


@contextlib.contextmanager
def with_rspamd(folder: Path, to: int, mails: Path, *, self_scan: bool) -> Iterator[Chain]:
    """Postfix with rspamd as a milter, which has learnt the folders 'spam' and 'ham' of `mails`."""
    with rspamd(folder / "rspamd", self_scan=self_scan) as filter:
        for label in ("spam", "ham"):
            filter.learn(label, mails / label)
        settings = f"{BOTH}smtpd_milters = inet:127.0.0.1:{filter.milter}\n"
        said = Growing(filter.folder / "log")
        said.rest()
        with postfix(folder / "postfix", to=to, back=free_port(), settings=settings) as server:
            name = "rspamd, self-scan" if self_scan else "rspamd"
            log = Growing(server.folder / "log")
            yield Chain(name, server, log, filter.pids, lambda: verdicts(said.rest()))


@contextlib.contextmanager
def with_relay(folder: Path, to: int, mails: Path, *, as_milter: bool) -> Iterator[Chain]:
    """Postfix with our relay before the queue, or as a milter, by the samples that we ship; taught as with_rspamd's."""
    back, asked = free_port(), free_port()
    settings: dict[str, object] = {"next_hop": f"smtp://127.0.0.1:{back}", "workers": 0}
    if as_milter:
        settings["milter"] = [f"127.0.0.1:{asked}"]
    with relay(folder / "relay", relay=settings, verdict={"reject": 0}) as filter:
        done = filter.command("train", "--spam", str(mails / "spam"), "--ham", str(mails / "ham"), seconds=600)
        if done.returncode:
            raise RuntimeError(done.stderr)
        way = {"milter": asked, "settings": BOTH} if as_milter else {"proxy": filter.port}
        with (
            postfix(folder / "postfix", to=to, back=back, **way) as server,
            contextlib.closing(sqlite3.connect(filter.state / "spamfilter.db")) as database,
        ):
            journal = Journal(database)
            log = Growing(server.folder / "log")
            yield Chain(
                "ours, milter" if as_milter else "ours, proxy", server, log, (filter.process.pid,), journal.rest
            )


class Journal:
    """The relay's journal, read as it grows."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._seen: Counter[str] = Counter()

    def rest(self) -> Counter[str]:
        """The classes of the rows that have come since the last look."""
        rows = self._database.execute("SELECT class, COUNT(*) FROM journal GROUP BY class").fetchall()
        now = Counter(dict(rows))
        new = now - self._seen
        self._seen = now
        return new
