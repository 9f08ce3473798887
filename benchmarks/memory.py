"""What memory do the processes of a relay take together, and what processor time while no mail comes?

    python benchmarks/memory.py [--marks 10000] [--idle 60] [--result FILE]

Memory is looked at with a database of a million words and four workers: at the start, after marks over the feedback
socket, and after more that another process writes to the database, in batches, since one after the other each waits for
the disk. All are of different mails. It is the PSS of proc(5), which counts a page that several processes share once.
Each worker judges mail before it is weighed.

The idle time is that of relays with one, two and four workers that run side by side with the same database and get no
mail: what the scheduler of the kernel says that all threads of a process have run.

Takes about four minutes.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from full_database import make, some_mails
from results import write_result

from spamfilter.bayes.labels import LABELS
from spamfilter.config.settings import Settings
from spamfilter.learning.filter import Filter
from spamfilter.mail.message import parse
from spamfilter.stores import open_store

if TYPE_CHECKING:
    from tests.faults.daemon import Daemon

sys.path.insert(0, str(Path(__file__).parents[1]))
"""For the relay as the tests start it."""

WORDS, WORKERS = 1_000_000, 4
IDLE_WORKERS = (1, 2, 4)
BY_SOCKET, BATCH = 600, 100
"""Marks over the socket, and learnings of a transaction after these."""
SETTLED = 5.0
"""Seconds after which a relay that has started, or learnt, does nothing that it would not do again and again."""


def ran(pid: int) -> float:
    """Seconds that the threads of a process have run: the first number of their schedstat, in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def relay_of(folder: Path, workers: int) -> "Daemon":
    from tests.faults.daemon import Daemon

    relay = Daemon(
        folder, "maildir:" + str(folder / "mail"), relay={"workers": workers}, feedback={"marks_a_day": 10**6}
    )
    make(relay.database, WORDS)
    return relay


def memory(folder: Path, marks: int) -> list[str]:
    """The table of memory."""
    from tests.integration.servers import wait_until
    from tests.load.process import family, proportional_bytes

    relay = relay_of(folder, WORKERS)
    lines = [
        f"Megabytes with {WORDS:,} words and {WORKERS} workers, of memory that processes share the part of each.",
        "",
        "| | supervisor | keeper | workers | together |",
        "|---|---|---|---|---|",
    ]

    def look(when: str) -> None:
        time.sleep(SETTLED)
        supervisor, keeper, *workers = [proportional_bytes(pid) / 1e6 for pid in family(relay.process.pid)]
        each = ", ".join(f"{one:.0f}" for one in workers)
        total = supervisor + keeper + sum(workers)
        lines.append(f"| {when} | {supervisor:.0f} | {keeper:.0f} | {each} | {total:.0f} |")

    with relay.run():
        look("at the start")
        mails = [(mail.read(), LABELS[number % 2]) for number, mail in enumerate(some_mails(marks))]
        for content, label in mails[:BY_SOCKET]:
            relay.ask({"command": "mark", "label": label, "size": len(content)}, content)
        send_to_all(relay)
        look(f"after {BY_SOCKET} marks")
        with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
            filter = Filter(store, Settings().voices())
            for start in range(BY_SOCKET, marks, BATCH):
                with filter.training() as training:
                    for content, label in mails[start : start + BATCH]:
                        training.learn(filter.read(parse(content)), label, "train")
            last, words = filter.last, filter.vocabulary
        wait_until(lambda: relay.ask({"command": "status"})["last"] == last, "the last learning in memory")
        send_to_all(relay)
        look(f"after {marks:,} marks, {words:,} words")
    return lines


def send_to_all(relay: "Daemon") -> None:
    """Mails over connections of which each worker has some, so that all have judged by what was learnt."""
    from tests.faults.client import Client, mail_of

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(relay.port)) for _ in range(5 * WORKERS)]
        for client in clients:
            client.deliver(mail_of("memory"))


def idle(folder: Path, seconds: float) -> list[str]:
    """The table of idle time."""
    from tests.load.process import family

    lines = [
        f"Thousandths of a processor that a relay takes without mail, over {seconds:g} s.",
        "",
        "| workers | together | supervisor | keeper | workers |",
        "|---|---|---|---|---|",
    ]
    relays = {number: relay_of(folder / str(number), number) for number in IDLE_WORKERS}
    with contextlib.ExitStack() as stack:
        for relay in relays.values():
            stack.enter_context(relay.run())
        time.sleep(SETTLED)
        processes = {number: family(relay.process.pid) for number, relay in relays.items()}
        before: dict[int, float] = {pid: ran(pid) for some in processes.values() for pid in some}
        time.sleep(seconds)
        used = {pid: (ran(pid) - then) / seconds for pid, then in before.items()}
    for number, some in processes.items():
        supervisor, keeper, workers = ("", "", some) if number == 1 else (some[0], some[1], some[2:])
        parts = [f"{1000 * used[int(pid)]:.2f}" if pid else "" for pid in (supervisor, keeper)]
        each = ", ".join(f"{1000 * used[pid]:.2f}" for pid in workers)
        together = 1000 * sum(used[pid] for pid in some)
        lines.append(f"| {number} | {together:.2f} | {' | '.join(parts)} | {each} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marks", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=60)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory(prefix="memory-") as made:
        if arguments.marks:
            lines += [*memory(Path(made) / "marks", arguments.marks), ""]
        if arguments.idle:
            lines += idle(Path(made), arguments.idle)
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.result:
        write_result(arguments.result, "Memory and idle time of several workers", __file__, text)


if __name__ == "__main__":
    main()
