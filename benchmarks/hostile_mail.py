"""How long does it take to judge hostile mail, against the median of usual mail?

Every bomb of tests/hostile/bombs.py is made at a quarter, a half and the whole of the size limit of a message, and is
judged by a filter that has learnt usual mail. In the same run usual mail of trec07p is judged, turn about, so that
a noisy machine is noisy for both. Judging is bounded if the ratio is at most 20, and does not grow with the size.

Apart from judging, the relay has to look at each byte of a message once or twice: at its line ends, and at the
header, however long, for forged fields of its own. That is a matter of bytes a second, and is measured apart.

    python benchmarks/hostile_mail.py [--size BYTES] [--result FILE]

Needs SPAMFILTER_CORPORA; takes some minutes. Exits with 1 where a bomb is beyond the bound.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from corpora import unpacked
from results import write_result

from spamfilter.bayes.verdict import Policy
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.mail.line_ends import has_bare_newlines, normalised
from spamfilter.mail.message import parse
from spamfilter.mail.tagging import mark
from spamfilter.relay.judging import Judge

sys.path.insert(0, str(Path(__file__).parents[1]))  # the bombs are those of the tests

from tests.hostile.bombs import BOMBS
from tests.support.memory_store import open_store

BOUND = 20
LEARNT, JUDGED = 1000, 60
"""Usual mail that is learnt first, and that is judged for the median, anew beside each bomb."""
TURNS = 3


def microseconds(work: Callable[[], object], turns: int = 1) -> float:
    """Processor time, the median of some turns."""
    found = []
    for _ in range(turns):
        began = time.thread_time_ns()
        work()
        found.append((time.thread_time_ns() - began) / 1000)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=Settings().limits.message_size, help="bytes of the largest bombs")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    mails = find_indexed(unpacked("trec07p-first20000") / "index")[: LEARNT + JUDGED]
    filter = Filter(open_store("memory:"), Settings().voices())
    with filter.training() as training:
        for label, mail in mails[:LEARNT]:
            training.learn(filter.read(parse(mail.read())), label, "train")
    judge = Judge(filter, Policy())
    usual = [mail.read() for _, mail in mails[LEARNT:]]
    for sent in usual:
        judge.judge(sent, "id")  # warms up
    medians: list[float] = []
    rows: list[tuple[float, str, list[float]]] = []
    transfer: list[tuple[str, list[float]]] = []
    for name, bomb in BOMBS.items():
        base = median(microseconds(partial(judge.judge, sent, "id")) for sent in usual)
        medians.append(base)
        times: list[float] = []
        for share in (1, 2, 4):
            made = bomb(arguments.size // share)
            times.insert(0, microseconds(partial(judge.judge, made, "id"), TURNS) / base)
        rows.append((max(times), name, times))
        works: list[Callable[[], object]] = [
            partial(has_bare_newlines, made),
            partial(normalised, made),
            partial(mark, made, [("X-Spamfilter-Id", "1")]),
        ]
        transfer.append((name, [len(made) / microseconds(work) for work in works]))
        print(f"{name}: {' '.join(f'{value:.1f}' for value in times)}", flush=True)
    rows.sort(reverse=True)
    lines = [
        f"Processor time to judge a mail, in units of the median of {JUDGED} mails of trec07p, which was"
        f" {min(medians):.0f} to {max(medians):.0f} microseconds in this run; three voices, as by default."
        f" Sizes: a quarter, a half and the whole of {arguments.size:,} bytes. The worst is {rows[0][0]:.1f} times the"
        f" median; the bound is {BOUND}.",
        "",
        "| bomb | 1/4 | 1/2 | 1 |",
        "|---|---|---|---|",
        *(f"| {name} | {' | '.join(f'{value:.1f}' for value in times)} |" for _, name, times in rows),
        "",
        "Work on each byte, beside judging, at a quarter of the size: the slowest bomb, and the median of all.",
        "",
        "| work | slowest | MB/s | median MB/s |",
        "|---|---|---|---|",
    ]
    for step, what in enumerate(("bare newlines are looked for", "they are mended", "our fields are put in")):
        slowest, name = min((rates[step], name) for name, rates in transfer)
        usually = median(rates[step] for _, rates in transfer)
        lines.append(f"| {what} | {name} | {slowest:,.0f} | {usually:,.0f} |")
    print("\n".join(lines[-4:]))
    if arguments.result:
        write_result(arguments.result, "Time to judge hostile mail", __file__, "\n".join([*lines, ""]))
    sys.exit(rows[0][0] > BOUND)


if __name__ == "__main__":
    main()
