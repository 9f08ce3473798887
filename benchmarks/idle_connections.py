"""What connections cost that say nothing: the second half of load.py."""

import statistics
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from spamfilter.relay.next_hops.smtp import KEPT_CONNECTIONS
from tests.load.beside import look
from tests.load.idle import AT_ONCE, Idle
from tests.load.installation import trained
from tests.load.sink import sink
from tests.load.source import Source, astray

IDLE_SECONDS = 150
"""The relay's limit here: time for all rounds."""
ROUNDS, ROUND_SECONDS, BUSY = 12, 3.0, 4
"""Pairs of runs of smtp-source, how long each takes, and with how many connections."""
FIRST = 300
"""Messages of a first run, before anything is measured."""
LEARNT = 20
"""Mails of each class that both relays have learnt: what is compared is not how they judge."""
SETTLED = 3.0
"""Seconds after an opening or an end in which memory is still moving."""


def idle_report(folder: Path, number: int) -> tuple[list[str], list[str]]:
    """The lines of the report, and what is wrong."""
    folder.mkdir()
    lines, wrong = ["## Connections that say nothing", ""], list[str]()
    for hello in (False, True):
        part = folder / f"hello{hello}"
        part.mkdir()
        found, bad = _of_one_kind(part, number, hello)
        lines, wrong = lines + found, wrong + bad
    return lines, wrong


def _of_one_kind(folder: Path, number: int, hello: bool) -> tuple[list[str], list[str]]:
    """Two relays, of which one has idle connections, and a client that is busy at the one and the other."""
    wrong: list[str] = []
    source = Source(folder)
    limits = {"connections": number + 1000, "idle_seconds": IDLE_SECONDS}
    with (
        sink(folder / "notes") as hop,
        trained(folder / "with", hop, LEARNT, **limits) as crowded,
        trained(folder / "without", hop, LEARNT, **limits) as empty,
    ):
        for relay in (crowded, empty):
            for kept in (True, False):
                source.send(relay.port, FIRST, BUSY, kept)
        before = look(crowded)
        began = time.monotonic()
        with Idle(crowded.port, number, hello) as idle:
            opened = time.monotonic() - began
            time.sleep(SETTLED)
            held = look(crowded)
            ratios = _ratios(source, crowded.port, empty.port)
            ends = idle.ends(2 * IDLE_SECONDS)
        time.sleep(SETTLED)
        after, beside = look(crowded), look(empty)
        for relay in (crowded, empty):
            relay.stop()
        lost, doubled, _ = astray([name for one in source.rounds for name in one.recipients()], hop.end())
    heard = Counter(reply[:3].decode("ascii", "replace") for reply, _ in ends)
    times = sorted(seconds for _, seconds in ends) or [0.0]
    quartiles = statistics.quantiles(ratios, n=4)
    lines = [
        f"{number} connections, " + ("after EHLO, with none to the next hop:" if hello else "after the greeting:"),
        "",
        "| | |",
        "|---|---|",
        f"| seconds to open them, one group of {AT_ONCE} after the other | {opened:.1f} |",
        f"| memory of each: RssAnon, Pss | {(held.anonymous - before.anonymous) / number / 1000:.1f} kB,"
        f" {(held.proportional - before.proportional) / number / 1000:.1f} kB |",
        f"| descriptors before, with them, after | {before.descriptors}, {held.descriptors}, {after.descriptors} |",
        f"| RssAnon before, with them, after; of the relay without them | {before.anonymous / 1e6:.0f},"
        f" {held.anonymous / 1e6:.0f}, {after.anonymous / 1e6:.0f}; {beside.anonymous / 1e6:.0f} MB |",
        f"| messages a second of {BUSY} busy connections, with them / without: median of {len(ratios)} pairs, quartiles"
        f" | {quartiles[1]:.3f} ({quartiles[0]:.3f} to {quartiles[2]:.3f}) |",
        f"| closed by the relay, with which code | {len(ends)}, {dict(heard)} |",
        f"| seconds of silence until then, limit {IDLE_SECONDS} | {times[0]:.1f} to {times[-1]:.1f} |",
        "",
    ]
    if heard != {"421": number}:
        wrong.append(f"of {number} idle connections {dict(heard)} were closed")
    if after.descriptors > before.descriptors + KEPT_CONNECTIONS:
        wrong.append(f"{after.descriptors} descriptors after the idle connections, {before.descriptors} before")
    if lost or doubled:
        wrong.append(f"beside idle connections {len(lost)} lost, {len(doubled)} doubled")
    return lines, wrong


def _ratios(source: Source, crowded: int, empty: int) -> list[float]:
    """Messages a second at the one relay against those at the other, of pairs of runs; each begins every other pair."""
    found = []
    messages = FIRST
    for number in range(ROUNDS):
        ports = (crowded, empty) if number % 2 else (empty, crowded)
        rates = {port: source.send(port, messages, BUSY, kept=True).rate for port in ports}
        found.append(rates[crowded] / rates[empty])
        messages = max(100, int(rates[empty] * ROUND_SECONDS))
    return found
