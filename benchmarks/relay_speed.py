"""How many messages a second does the relay carry, beside a relay that judges nothing, and beside a sink written in C?

    python benchmarks/relay_speed.py [--rounds 5] [--load NAME]... [--against DIR] [--result FILE]

The relay judges by counts of 2,000 mails of trec07p, marks what is spam, and keeps its journal; it has one worker. The
null relay is aiosmtpd and aiosmtplib (null_relay.py), the sink Postfix' smtp-sink. In each round each has its turn with
each load, in this order and then in the other, so that a noisy machine is noisy for all. A ratio is that of two turns
of one round; its median and its quartiles are over the rounds. The relays are bound to one processor; what sends
(smtp-source) and what receives (smtp-sink) share the other. CPU is that of the relay's process with all its threads.
With --against another checkout of this program, with an environment of its own in .venv, takes the null relay's place:
has a change made it slower?

Wants SPAMFILTER_CORPORA, `apt-get install postfix`, for smtp-source and smtp-sink, and `pip install .[test]`.
"""

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from tests.integration.servers import free_port, toml

ROOT = Path(__file__).parents[1]
LEARNT = 2_000
SAMPLES = 10
"""Mails of the corpus: those in the middle of each tenth of 2,000, by size."""
RELAYS, REST = 0, 1
"""Processors."""


@dataclass(frozen=True)
class Load:
    """size: bytes of a message, or 0 for mails of the corpus; messages: of one turn."""

    size: int
    connections: int
    messages: int
    kept: bool = True


LOADS = {
    "4 KB, 20 connections kept": Load(4096, 20, 1_500),
    "corpus mail, 20 connections kept": Load(0, 20, 1_500),
    "1 MB, 20 connections kept": Load(2**20, 20, 60),
    "25 MB, 4 connections kept": Load(25 * 2**20, 4, 8),
    "4 KB, 1 connection kept": Load(4096, 1, 1_000),
    "4 KB, 200 connections kept": Load(4096, 200, 2_000),
    "4 KB, 20 connections, a new one for each message": Load(4096, 20, 600, kept=False),
}

USUAL = [load for load in LOADS if "20 connections" in load]
"""What a mail server's traffic looks like; what a change is tried with."""


@dataclass(frozen=True)
class Turn:
    """seconds: of the clock; cpu: seconds of the relay's process."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class Peer:
    """Somebody who takes mail at a port; process: of a relay, whose CPU is measured, or 0."""

    port: int
    process: int = 0

    def cpu(self) -> float:
        """Seconds of all threads so far; a tick of the clock would be too coarse."""
        tasks = Path(f"/proc/{self.process}/task").glob("*/schedstat") if self.process else ()
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@contextlib.contextmanager
def running(
    processor: int, command: list[str], state: Path | None = None, root: Path = ROOT
) -> Iterator["subprocess.Popen[str]"]:
    environment = dict(os.environ)
    if state is not None:
        environment |= {"STATE_DIRECTORY": str(state), "SPAMFILTER_CONFIG": str(state / "spamfilter.toml")}
    process = subprocess.Popen(
        ["taskset", "-c", str(processor), *command], env=environment, stdout=subprocess.PIPE, text=True, cwd=root
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def await_listener(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit(f"nobody listens on port {port}")


def send(load: Load, port: int, samples: list[Path]) -> None:
    """All messages of a load; those of the corpus by as many senders as there are samples."""
    whats = [["-l", str(load.size)]] if load.size else [["-F", str(sample)] for sample in samples]
    senders = [
        subprocess.Popen(
            ["taskset", "-c", str(REST), "smtp-source", *(["-d"] if load.kept else []), *what,
             "-s", str(load.connections // len(whats)), "-m", str(load.messages // len(whats)),
             "-f", "from@example.org", "-t", "to@example.net", f"127.0.0.1:{port}"]
        )
        for what in whats
    ]  # fmt: skip
    codes = [sender.wait() for sender in senders]
    if any(codes):
        raise SystemExit("smtp-source could not send")


def taught(state: Path, mails: list[tuple[Label, Mail]]) -> None:
    with contextlib.closing(open_store(f"sqlite:///{state / 'spamfilter.db'}", migrate=True)) as store:
        filter = Filter(store, Settings().voices())
        with filter.training() as training:
            for label, mail in mails:
                training.learn(filter.read(parse(mail.read())), label, "train")


@contextlib.contextmanager
def relay(root: Path, state: Path, sink: int, mails: list[tuple[Label, Mail]]) -> Iterator[Peer]:
    """The relay of a checkout: of this one by the Python that runs this, of another by its own."""
    state.mkdir()
    taught(state, mails)
    port = free_port()
    python = sys.executable if root == ROOT else str(root / ".venv/bin/python")
    settings = {
        "relay": {"listen": [f"127.0.0.1:{port}"], "next_hop": f"smtp://127.0.0.1:{sink}", "workers": 1},
        "verdict": {"reject": 0},
        "log": {"level": "warning"},
    }
    (state / "spamfilter.toml").write_text(toml(settings))
    with running(RELAYS, [python, "-m", "spamfilter", "serve"], state, root) as process:
        await_listener(port)
        yield Peer(port, process.pid)


@contextlib.contextmanager
def peers(folder: Path, mails: list[tuple[Label, Mail]], against: Path | None) -> Iterator[dict[str, Peer]]:
    """Everybody who takes part, by name."""
    found: dict[str, Peer] = {}
    sink = free_port()
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(REST, ["smtp-sink", "-u", "postfix", f"127.0.0.1:{sink}", "1024"]))
        found["relay"] = stack.enter_context(relay(ROOT, folder / "state", sink, mails))
        if against is not None:
            found["before"] = stack.enter_context(relay(against, folder / "before", sink, mails))
        else:
            command = [sys.executable, str(ROOT / "benchmarks/null_relay.py"), str(sink)]
            process = stack.enter_context(running(RELAYS, command))
            assert process.stdout is not None
            found["null"] = Peer(int(process.stdout.readline()), process.pid)
        found["sink"] = Peer(sink)
        yield found


def sampled(mails: list[tuple[Label, Mail]], folder: Path) -> list[Path]:
    """Mails of every size, as files with the line ends that smtp-source wants."""
    contents = sorted((mail.read() for _, mail in mails), key=len)
    step = len(contents) // SAMPLES
    files = []
    for number, content in enumerate(contents[step // 2 :: step]):
        files.append(folder / f"mail{number}")
        files[-1].write_bytes(b"\n".join(content.splitlines()) + b"\n")
    return files


def measured(rounds: int, loads: list[str], against: Path | None) -> tuple[dict[tuple[str, str], list[Turn]], float]:
    """Load and peer -> its turns; and the mean bytes of the mails of the corpus."""
    turns: dict[tuple[str, str], list[Turn]] = {}
    mails = find_indexed(unpacked("trec07p-first20000") / "index")
    with tempfile.TemporaryDirectory(prefix="speed-") as made:
        folder = Path(made)
        samples = sampled(mails[LEARNT : 2 * LEARNT], folder)
        with peers(folder, mails[:LEARNT], against) as present:
            for peer in present.values():
                send(Load(4096, 20, 200), peer.port, samples)
            for number in range(rounds):
                order = list(present.items())
                for name, peer in order if number % 2 else reversed(order):
                    for load in loads:
                        before, began = peer.cpu(), time.perf_counter()
                        send(LOADS[load], peer.port, samples)
                        seconds = time.perf_counter() - began
                        turns.setdefault((load, name), []).append(Turn(seconds, peer.cpu() - before))
        return turns, statistics.mean(sample.stat().st_size for sample in samples)


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def tables(turns: dict[tuple[str, str], list[Turn]], loads: list[str], corpus_size: float, other: str) -> str:
    names = ["relay", other, "sink"]
    rates = ["Messages a second, medians:", "", f"| load | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    times = ["Milliseconds of CPU a message, medians:", "", f"| load | {' | '.join(names[:-1])} |"]
    times.append("|---" * len(names) + "|")
    ratios = [
        f"Relay to {other}, of messages a second and of CPU for one, medians and quartiles:",
        "",
        "| load | rate | CPU |",
        "|---|---|---|",
    ]
    for load in loads:
        messages = LOADS[load].messages
        rate = {name: messages / statistics.median(turn.seconds for turn in turns[load, name]) for name in names}
        size = LOADS[load].size
        shown = [
            f"{rate[name]:.1f} ({rate[name] * size / 1e6:.0f} MB/s)" if size > 10**5 else f"{rate[name]:.0f}"
            for name in names
        ]
        rates.append(f"| {load} | {' | '.join(shown)} |")
        cpu = [1e3 * statistics.median(turn.cpu for turn in turns[load, name]) / messages for name in names[:-1]]
        times.append(f"| {load} | {' | '.join(f'{each:.2f}' for each in cpu)} |")
        pairs = [*zip(turns[load, "relay"], turns[load, other], strict=True)]
        faster = spread([theirs.seconds / ours.seconds for ours, theirs in pairs])
        ratios.append(f"| {load} | {faster} | {spread([ours.cpu / theirs.cpu for ours, theirs in pairs])} |")
    note = f"Mails of the corpus: {SAMPLES} sizes, {corpus_size / 1000:.1f} KB on average."
    return "\n".join([*ratios, "", *rates, "", *times, "", note, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", action="append", choices=LOADS, help="only these; all of them by default")
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout to compare with, on the loads in USUAL")
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    against = arguments.against.resolve() if arguments.against else None
    loads = arguments.load or (USUAL if against else list(LOADS))
    turns, corpus_size = measured(max(arguments.rounds, 2), loads, against)
    text = tables(turns, loads, corpus_size, "before" if against else "null")
    print(text)
    if arguments.result:
        write_result(arguments.result, "The relay's speed", __file__, text)


if __name__ == "__main__":
    main()
