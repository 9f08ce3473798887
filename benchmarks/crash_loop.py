"""Is anything lost or doubled, or any count wrong, when the relay is killed a thousand times under load?

A real relay between clients that send again until they hear 250 and a next hop that behaves. Users mark mail over the
feedback socket all the while. The relay gets kill -9 at a random moment after each start, or during it. At the end:

1. Each message that was answered with 250 is at the next hop. It is there once, and once more at the most for each
   attempt that broke off after the whole message was sent, when nobody can know (RFC 1047).
2. Each mark that was answered is in the ledger, and nothing is there that nobody asked for.
3. The database is sound, and its words, totals and calibration are the sum of the ledger.
4. The relay, started once more, has the counts of the ledger's sum in memory, and `doctor --verify` finds nothing.

With --fleet two relays share a PostgreSQL that the script starts; each has its own mail and users, and is killed by
itself, while the other goes on. What is marked at one is checked at both.

    python benchmarks/crash_loop.py [--kills N] [--fleet] [--result FILE] [--seed N]

Needs no root; a kill takes a little more than a second, a thousand about twenty minutes.
"""

import argparse
import contextlib
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from results import write_result

from spamfilter.config.settings import Settings
from spamfilter.errors import TryAgain
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import by_id
from spamfilter.mail.message import parse
from spamfilter.service.control_socket.client import NoRelay
from spamfilter.stores import Store, Wanted, open_store
from spamfilter.stores.sql import SqlStore

sys.path.insert(0, str(Path(__file__).parents[1]))  # the broken parts are those of the tests

from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon
from tests.faults.hop import Hop, next_hop
from tests.integration.servers import wait_until
from tests.support import postgresql
from tests.support.doors import DOORS

SENDERS, MARKERS = 4, 2
RUNNING = 1.0
"""Seconds that mail runs before a kill, at the most; every other kill comes before, while the relay starts."""
PAUSE = 0.005
"""Seconds between the messages of a client: the relay is busy, and the machine does other things as well."""
RETRY = 0.05
"""Seconds until a client without an answer tries again."""
VERIFIED = 600.0
"""Seconds for `doctor --verify` over all marks, on a machine with other work."""
TAUGHT = 200
"""Different mails that are marked, again and again with other labels, by each user."""
WORDS = ("lunch", "meeting", "report", "pills", "cheap", "offer", "invoice", "holiday", "winner", "thanks")


@dataclass
class Sent:
    """One message: how often it was tried, how often that broke off after its end, whether 250 was heard, and when."""

    attempts: int = 0
    doubtful: int = 0
    accepted: bool = False
    at: float = 0.0


@dataclass
class Traffic:
    """What clients and users of one relay do until they are told to stop, and what they were told."""

    relay: Daemon
    hop: Hop
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    messages: dict[str, Sent] = field(default_factory=dict)
    marks: dict[str, set[str | None]] = field(default_factory=dict)
    answered: int = 0
    unanswered: int = 0
    kills: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def send(self, worker: int) -> None:
        """Messages, one after the other, each until it is accepted."""
        number = 0
        while not self.stop.is_set():
            number += 1
            name = f"s{self.relay.folder.name}-{worker}-{number}"
            sent = self.messages[name] = Sent()
            while not sent.accepted:
                self._attempt(name, sent)
                time.sleep(PAUSE if sent.accepted else RETRY)

    def _attempt(self, name: str, sent: Sent) -> None:
        whole = False

        def before(stage: str) -> None:
            nonlocal whole
            whole = stage == "ANSWER"

        sent.attempts += 1
        try:
            client = Client(self.relay.port)
        except OSError:
            return
        with client:
            answer = client.deliver(mail_of(name, " ".join(random.sample(WORDS, 4))), before=before)
        if answer.code == 250:
            sent.accepted, sent.at = True, time.monotonic()
        elif answer.code is None:
            sent.doubtful += whole
        elif answer.code >= 500:
            self.failures.append(f"{name}: answered with {answer.raw!r}")

    def mark(self, worker: int) -> None:
        """Marks of this worker's own mails: learnt, corrected, forgotten."""
        chance = random.Random(f"{self.seed} {self.relay.folder.name} {worker}")
        while not self.stop.is_set():
            name = f"t{self.relay.folder.name}-{worker}-{chance.randrange(TAUGHT)}"
            label = chance.choice(["spam", "ham", None])
            mail = taught(name)
            possible = self.marks.setdefault(name, {None})
            possible.add(label)
            try:
                self.relay.ask({"command": "mark", "label": label, "name": name}, mail)
            except (NoRelay, TryAgain):
                self.unanswered += 1
                time.sleep(RETRY)
            else:
                self.answered += 1
                self.marks[name] = {label}
                time.sleep(PAUSE)

    def killed(self, kills: int) -> None:
        """The kills of this relay, the first of which it is up for."""
        try:
            self.relay.kill()
            loop(self, kills)
        except Exception as error:
            self.failures.append(f"kills: {error!r}")

    def watched(self, work: str, worker: int) -> None:
        """A thread that ends with an error has not done its part."""
        try:
            getattr(self, work)(worker)
        except Exception as error:  # whatever it is, it goes into the report
            self.failures.append(f"{work} {worker}: {error!r}")
            raise


def taught(name: str) -> bytes:
    chance = random.Random(name)
    return mail_of(name, " ".join(chance.choices(WORDS, k=8)) + f" {name}")


def loop(traffic: Traffic, kills: int) -> None:
    """Start and kill so often; notes the seconds that those starts took which came to their end."""
    relay, starts, chance = traffic.relay, traffic.starts, random.Random(f"{traffic.seed} {traffic.relay.folder.name}")
    began = time.monotonic()
    for number in range(1, kills + 1):
        launched = time.monotonic()
        relay.launch()
        # A start takes longer where the machine has other work, so its own length is the measure.
        early = launched + chance.uniform(0, statistics.median(starts)) if starts and number % 2 else None
        kill_at, ready = early, False
        while kill_at is None or time.monotonic() < kill_at:
            if not ready and "ready: send mail to" in relay.log():
                ready = True
                starts.append(time.monotonic() - launched)
                kill_at = early or time.monotonic() + chance.uniform(0, RUNNING)
            if not relay.running:
                raise RuntimeError(f"the relay ended by itself:\n{relay.log()[-5000:]}")
            time.sleep(0.02 if kill_at is None else max(0.0, min(0.02, kill_at - time.monotonic())))
        traffic.kills.append(time.monotonic())
        if relay.kill() != -signal.SIGKILL:
            raise RuntimeError(f"the relay ended by itself:\n{relay.log()[-5000:]}")
        if number % 10 == 0 or number == kills:
            passed = time.monotonic() - began
            print(f"{number} of {kills} kills, {passed / number:.2f} s each", file=sys.stderr, flush=True)


def of_messages(hop: Hop, sent: dict[str, Sent]) -> tuple[list[str], list[str]]:
    """Rows of the report about mail, and what is wrong."""
    copies: dict[str, int] = {}
    for kept in hop.kept:
        copies[kept.name] = copies.get(kept.name, 0) + 1
    lost = [name for name, one in sent.items() if one.accepted and not copies.get(name)]
    doubled = [name for name, one in sent.items() if copies.get(name, 0) > one.accepted + one.doubtful]
    twice = sum(copies.get(name, 0) > 1 for name in sent) - len(doubled)
    rows = [
        f"| messages, all accepted in the end | {len(sent)} |",
        f"| attempts to send them | {sum(one.attempts for one in sent.values())} |",
        f"| attempts that broke off after the whole message | {sum(one.doubtful for one in sent.values())} |",
        f"| lost | {len(lost)} |",
        f"| doubled | {len(doubled)} |",
        f"| sent again after such an attempt, and there twice | {twice} |",
    ]
    open_ends = [name for name, one in sent.items() if not one.accepted]
    wrong = [f"lost: {lost[:5]}"] * bool(lost) + [f"doubled: {doubled[:5]}"] * bool(doubled)
    return rows, wrong + [f"never accepted: {open_ends[:5]}"] * bool(open_ends)


def of_marks(store: Store, fleet: list[Traffic]) -> tuple[list[str], list[str]]:
    """Rows of the report about feedback and the database, and what is wrong."""
    filter = Filter(store, Settings().voices())
    problems = filter.verify()
    marks = {name: possible for traffic in fleet for name, possible in traffic.marks.items()}
    found = {}
    with store.learning() as learning:
        for name in marks:
            active = learning.active(filter.read(parse(taught(name))).digest)
            found[name] = active.label if active else None
    learnt = sum(filter.learnt.values())
    astray = [name for name, possible in marks.items() if found[name] not in possible]
    if learnt != sum(label is not None for label in found.values()):
        problems.append(f"{learnt} messages are learnt, but not those that were marked")
    for traffic in fleet:
        problems += of_memory(traffic.relay, filter)
    answered, unanswered = sum(one.answered for one in fleet), sum(one.unanswered for one in fleet)
    rows = [
        f"| marks answered, unanswered | {answered}, {unanswered} |",
        f"| last entry of the ledger | {filter.last} |",
        f"| messages whose label is not what was answered | {len(astray)} |",
        f"| problems of database, counts in memory and `doctor --verify` | {len(problems)} |",
    ]
    return rows, [*problems, *([f"marks astray: {astray[:5]}"] if astray else [])]


def of_memory(relay: Daemon, filter: Filter) -> list[str]:
    """What is wrong with the counts that a running relay judges by, and what its doctor says."""

    def counts() -> dict[str, int]:
        return dict(relay.ask({"command": "status"})["learnt"])

    with contextlib.suppress(TimeoutError):
        wait_until(lambda: counts() == filter.learnt, "the relay to follow the ledger")
    wrong = [] if counts() == filter.learnt else [f"{relay.folder.name} knows {counts()}, not {filter.learnt}"]
    latest = next(iter(filter.store.search(Wanted(class_="ham"), 1) or filter.store.search(Wanted(), 1)))
    judged = relay.ask({"command": "judge", "id": latest.id})
    if (judged["last"], judged["posterior"]) != (
        filter.last,
        filter.score(by_id(filter, latest.id).reading).posterior,
    ):
        wrong.append(f"{relay.folder.name} judges by other counts than the ledger's sum")
    examined = json.loads(relay.command("doctor", "--verify", "--no-canary", "--json", seconds=VERIFIED).stdout)[
        "lines"
    ]
    return wrong + [
        f"{relay.folder.name}, doctor: {line['check']}: {line['found']}"
        for line in examined
        if line["status"] == "failed"
    ]


def of_journal(store: Store, fleet: list[Traffic]) -> list[str]:
    """Rows of the report about verdicts that were not written yet when a kill came."""
    assert isinstance(store, SqlStore)
    with store.reading() as connection:
        written = {row[0] for row in connection.exec_driver_sql("SELECT message_id FROM journal")}
    missing, ages = 0, []
    for traffic in fleet:
        # A sender may note a 250 only after the kill, by moments that a busy machine stretches.
        noted = max(traffic.kills) + 1
        for name, one in traffic.messages.items():
            if f"<{name}@example.org>" not in written:
                missing += 1
                after = min((kill - one.at for kill in traffic.kills if kill >= one.at), default=0)
                ages.append(after if one.at < noted else float("inf"))
    return [
        f"| journal rows lost | {missing} |",
        f"| the oldest of them, in seconds between its 250 and the kill | {max(ages, default=0):.2f}, at most 1 |",
    ]


def run(folder: Path, hop: Hop, kills: int, seed: int, url: str | None) -> tuple[list[str], list[str]]:
    """The whole run; the lines of the report, and what is wrong. url: of the database that two relays share."""
    next_hop, fleet = f"smtp://127.0.0.1:{hop.port}", []
    for name in ("mx1", "mx2") if url else ("relay",):
        settings: dict[str, dict[str, str]] = {"relay": {"hostname": f"{name}.test"}}
        settings |= {"store": {"url": url}} if url else {}
        fleet.append(Traffic(Daemon(folder / name, next_hop, None, DOORS["smtp"], **settings), hop, seed))
    try:
        return under_load(fleet, hop, kills, url)
    finally:
        for traffic in fleet:
            if traffic.relay.running:
                traffic.relay.kill()


def under_load(fleet: list[Traffic], hop: Hop, kills: int, url: str | None) -> tuple[list[str], list[str]]:
    threads = [
        threading.Thread(target=traffic.watched, args=(work, worker), daemon=True)
        for traffic in fleet
        for work, workers in (("send", SENDERS), ("mark", MARKERS))
        for worker in range(workers)
    ]
    loops = [threading.Thread(target=traffic.killed, args=(kills // len(fleet),)) for traffic in fleet]
    for traffic in fleet:
        traffic.relay.start()
    began = time.monotonic()
    for thread in threads + loops:
        thread.start()
    for thread in loops:
        thread.join()
    taken = time.monotonic() - began
    for traffic in fleet:
        traffic.relay.start()
        traffic.stop.set()
    for thread in threads:
        thread.join(60)
    failures = [failure for traffic in fleet for failure in traffic.failures]
    with contextlib.closing(open_store(url or f"sqlite:///{fleet[0].relay.database}")) as store:
        marks, wrong = of_marks(store, fleet)
        for traffic in fleet:
            traffic.relay.stop()
        mail, also_wrong = of_messages(hop, {name: one for traffic in fleet for name, one in traffic.messages.items()})
        starts = [seconds for traffic in fleet for seconds in traffic.starts]
        lines = [
            "| | |",
            "|---|---|",
            f"| relays, and their database | {len(fleet)}, {'PostgreSQL' if url else 'SQLite'} |",
            f"| kills, seconds each | {kills}, {taken / kills:.2f} |",
            f"| killed before it was ready | {kills - len(starts)} |",
            f"| seconds from a start to ready: median, longest | {statistics.median(starts):.2f}, {max(starts):.2f} |",
            *mail,
            *marks,
            *of_journal(store, fleet),
            "",
        ]
    return lines, [*failures, *wrong, *also_wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--fleet", action="store_true", help="two relays on one PostgreSQL")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills and of the marks")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spamfilter-crash-")))
        hop, url = stack.enter_context(next_hop()), None
        if arguments.fleet:
            server = postgresql.Server(durable=True)
            stack.callback(server.remove)
            url = stack.enter_context(server.database())
        lines, wrong = run(folder, hop, arguments.kills, arguments.seed, url)
    text = "\n".join(
        [*lines, "Wrong: " + "; ".join(wrong) if wrong else "Nothing lost, nothing doubled, every count right.", ""]
    )
    print(text)
    if arguments.result:
        write_result(arguments.result, "Killed under load", __file__, text)
    if wrong:
        raise SystemExit("wrong: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
