"""How much more mail do several workers carry than one, and how soon does each know a mark?

    python benchmarks/workers.py [--workers 2] [--rounds 7] [--messages 3000] [--result FILE]

In each round a relay with one worker and one with several take turns, with judging by counts of real mail and with the
journal, so that a noisy machine is noisy for both; a ratio is that of the two turns of a round. smtp-source of Postfix
sends mails of 4 KB over 20 connections that it keeps, smtp-sink takes them; both are bound to the last processor, and
their share of it is stated, since on a machine with as many processors as workers the relay has that much less. They
are scheduled as batch work: where they share a processor with a worker, they do not take it away at each of its
answers, which those on another machine would not, either. The relays may run on every processor; for a third turn the
one worker is bound to the last one, too, which then carries a worker, source and sink, as each of several processors
does for several workers. What the processors of a machine can do side by side is measured, too, by processes that only
count: those of a virtual one may be halves of one. Marks are made over the feedback socket, and a client at each worker
sends one small mail after the other until the header says that more is learnt. memory.py has what they take in memory.

Needs SPAMFILTER_CORPORA and Postfix; takes about two minutes.
"""

import argparse
import contextlib
import os
import re
import smtplib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpora import unpacked
from results import write_result

from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import open_store

if TYPE_CHECKING:
    from tests.faults.daemon import Daemon

sys.path.insert(0, str(Path(__file__).parents[1]))
"""For the relay as the tests start it."""

LEARNT = 2_000
CONNECTIONS, SIZE = 20, 4096
MARKS = 30
ALL = os.sched_getaffinity(0)
LAST = max(ALL)
"""The processor of what sends and what receives."""
SQUEEZED = 0
"""Stands for one worker that is bound to the last processor."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """seconds: of the clock. relay, load: seconds of processor that the relay's processes, and the others, have used.

    most: connections of the worker that had most of them.
    """

    seconds: float
    relay: float
    load: float
    most: int


def cpu_of(pid: int) -> float:
    """Seconds of processor of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def connections(pid: int, port: int) -> int:
    """Connections of clients that a process has on this port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(descriptor) in ours
    return found


def pinned(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["chrt", "--batch", "0", "taskset", "--cpu-list", str(LAST), *command])


@contextlib.contextmanager
def sink() -> Iterator[tuple[int, int]]:
    """A port where mail is taken and forgotten, and the process that does it."""
    from tests.integration.servers import free_port, wait_until

    port = free_port()
    process = pinned(["smtp-sink", "-u", "postfix", f"127.0.0.1:{port}", "1024"])

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        wait_until(listens, "the sink")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def relaying(folder: Path, workers: int, hop: int) -> "Iterator[Daemon]":
    from tests.faults.daemon import Daemon

    relay = Daemon(
        folder / str(workers), f"smtp://127.0.0.1:{hop}", None,
        relay={"workers": workers}, log={"level": "info"}, feedback={"marks_a_day": 10**6},
    )  # fmt: skip
    learn(f"sqlite:///{relay.database}")
    with relay.run():
        yield relay


def learn(url: str) -> None:
    corpus = unpacked("trec07p-first20000")
    with contextlib.closing(open_store(url)) as store:
        filter = Filter(store, Settings().voices())
        with filter.training() as training:
            for label, mail in list(find_indexed(corpus / "index"))[:LEARNT]:
                training.learn(filter.read(parse(mail.read())), label, "train")


def bind(pid: int, processors: set[int]) -> None:
    """Let a process with all its threads run on these only."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), processors)


def turn(relay: "Daemon", hop: int, messages: int, processors: set[int] = ALL) -> Turn:
    from tests.load.process import family

    relays = family(relay.process.pid)
    for pid in relays:
        bind(pid, processors)
    before, sinks = sum(map(cpu_of, relays)), cpu_of(hop)
    began = time.perf_counter()
    source = pinned([
        "smtp-source", "-d", "-s", str(CONNECTIONS), "-m", str(messages), "-l", str(SIZE),
        "-f", "from@example.org", "-t", "to@example.net", f"127.0.0.1:{relay.port}",
    ])  # fmt: skip
    time.sleep(0.5)
    most = max(connections(pid, relay.port) for pid in relays)
    _, status, used = os.wait4(source.pid, 0)
    if status:
        said = [line for line in relay.log().splitlines() if " client=" not in line]
        raise SystemExit("\n".join(["smtp-source failed; the relay says:", *said[-20:]]))
    source.returncode = 0
    seconds = time.perf_counter() - began
    load = used.ru_utime + used.ru_stime + cpu_of(hop) - sinks
    return Turn(seconds, sum(map(cpu_of, relays)) - before, load, most)


def delays(folder: Path, workers: int) -> list[float]:
    """Seconds from the answer to a mark until the last worker has judged by it."""
    from tests.faults.hop import next_hop

    found = []
    with next_hop() as hop, relaying(folder, workers, hop.port) as relay:
        clients = [smtplib.SMTP("127.0.0.1", relay.port, "client.test", timeout=60) for _ in range(3 * workers)]
        for mark in range(MARKS):
            known = relay.learnt()
            mail = f"Subject: mark {mark}\r\n\r\nlesson{mark} teaches.\r\n".encode()
            relay.ask({"command": "mark", "label": "spam", "size": len(mail)}, mail)
            began = time.perf_counter()
            behind = list(clients)
            while behind:
                behind[0].sendmail("from@example.org", ["to@example.net"], "Subject: what is known?\r\n\r\nNow.\r\n")
                learnt = re.search(rb"^X-Spam-Status:.* learnt=\d+/(\d+)", hop.kept[-1].mail, re.MULTILINE)
                assert learnt is not None
                if int(learnt.group(1)) > known:
                    del behind[0]
            found.append(time.perf_counter() - began)
        for client in clients:
            client.close()
    return found


COUNTING = "for number in range(30_000_000): pass"


def counting(processes: int) -> float:
    """Seconds until so many processes that only count have done so."""
    began = time.perf_counter()
    for each in [subprocess.Popen([sys.executable, "-c", COUNTING]) for _ in range(processes)]:
        each.wait()
    return time.perf_counter() - began


def quartiles(values: list[float], form: str = "%.2f") -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{form % middle} ({form % low} to {form % high})"


def table(turns: dict[int, list[Turn]], messages: int, workers: int) -> str:
    one, several = turns[1], turns[workers]
    lines = [
        "| workers | messages a second | relay, CPU a message | source and sink, of one processor"
        " | connections of the busiest worker |",
        "|---|---|---|---|---|",
    ]
    for number, those in turns.items():
        name = "1, with source and sink on one processor" if number == SQUEEZED else str(number)
        lines.append(
            f"| {name} | {quartiles([messages / turn.seconds for turn in those], '%.0f')} |"
            f" {quartiles([1e6 * turn.relay / messages for turn in those], '%.0f')} us |"
            f" {quartiles([turn.load / turn.seconds for turn in those])} |"
            f" {max(turn.most for turn in those)} of {CONNECTIONS} |"
        )
    ratios = [slow.seconds / fast.seconds for slow, fast in zip(one, several, strict=True)]
    squeezed = [slow.seconds / fast.seconds for slow, fast in zip(turns[SQUEEZED], several, strict=True)]
    processors = len(ALL)
    lines += [
        "",
        f"{workers} workers carry {quartiles(ratios)} times what one carries, median and quartiles.",
        f"{workers} workers with source and sink on {processors} processors carry {quartiles(squeezed)} times what one"
        " carries with source and sink on one.",
    ]
    shares = [turn.load / turn.seconds for turn in several]
    used = [(turn.relay + turn.load) / turn.seconds for turn in several]
    lines.append(
        f"With {workers} workers, relay, source and sink together use {quartiles(used)} of {processors} processors,"
        f" source and sink {quartiles(shares)} of it."
    )
    # What a message costs is the same however busy the machine is; the clock is not.
    costs = [slow.relay / fast.relay for slow, fast in zip(one, several, strict=True)]
    beside = statistics.median(turn.load / turn.relay for turn in several)
    room = min(workers, processors / (1 + beside))
    lines.append(
        f"By processor time, {workers} workers can carry {quartiles([workers * cost for cost in costs])} times what"
        f" one carries where source and sink have a processor of their own, and on {processors} processors, shared with"
        f" these, {quartiles([room * cost for cost in costs])} times."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    turns: dict[int, list[Turn]] = {SQUEEZED: [], 1: [], arguments.workers: []}
    machine: list[float] = []
    with tempfile.TemporaryDirectory(prefix="workers-") as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        port, hop = stack.enter_context(sink())
        relays = {
            number: stack.enter_context(relaying(folder / "speed", number, port)) for number in (1, arguments.workers)
        }
        for relay in relays.values():
            turn(relay, hop, CONNECTIONS * 10)  # warms it up
        for _ in range(arguments.rounds):
            machine.append(arguments.workers * counting(1) / counting(arguments.workers))
            turns[SQUEEZED].append(turn(relays[1], hop, arguments.messages, {LAST}))
            for number, relay in relays.items():
                turns[number].append(turn(relay, hop, arguments.messages))
        late = delays(folder / "marks", arguments.workers)
    text = table(turns, arguments.messages, arguments.workers)
    most = quartiles(machine)
    text += f"This machine lets {arguments.workers} processes that only count do {most} times the work of one.\n"
    text += (
        f"\nA mark is judged by in all {arguments.workers} workers {1000 * statistics.median(late):.0f} ms after its"
        f" answer, median of {MARKS}; at most {1000 * max(late):.0f} ms. Each look is a mail to the next hop.\n"
    )
    print(text)
    if arguments.result:
        write_result(arguments.result, "Several workers against one", __file__, text)


if __name__ == "__main__":
    main()
