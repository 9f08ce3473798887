"""Does Postfix carry more mail with our relay, before its queue or as a milter, or with rspamd, and at what cost?

    python benchmarks/rspamd.py [--rounds 7] [--messages 1000] [--result FILE]

The same client sends the same mails of trec07p over 20 connections that it keeps, through five chains that run side by
side: Postfix with nothing; with rspamd as Debian installs it, a proxy that speaks Milter before workers that judge;
with rspamd whose proxies judge themselves (self_scan); and with our relay, before the queue and as a milter, by the
samples and settings we ship, journal and all. rspamd has Bayes and nothing else, a process that judges for each
processor, and Redis on a Unix socket. All have learnt the same 2,000 mails, and only mark spam. All mail is queued and
goes on to one smtp-sink.

In each round each chain has its turn, in this order and then in the other, so that a noisy machine is noisy for all. A
turn ends when the last mail has arrived; each must arrive exactly once, and be judged. A ratio is that of two turns of
a round. Processor time is that of all processes of a group, ended ones too.

Wants root, SPAMFILTER_CORPORA and `pip install .[test]`; what is missing of Postfix, rspamd and Redis it installs, and
starts none as a service. Takes about five minutes.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from corpora import unpacked
from mail_chains import CLASSES, CONNECTIONS, Chain, Turn, alone, sink, turn, with_relay, with_rspamd
from results import write_result

from spamfilter.learning.bulk.labelled_mail import find_indexed
from tests.integration.servers import workshop

LEARNT = 2_000
PROGRAMS = {"postfix": "postfix", "rspamd": "rspamd", "redis-server": "redis-server", "redis-cli": "redis-tools"}
"""What must be there, and the package that brings it."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""A package's services are started unless this says no."""
GROUPS = ("Postfix", "filter", "sender and sink")
OURS, PEERS = ("ours, proxy", "ours, milter"), ("rspamd", "rspamd, self-scan")


def install() -> None:
    """By apt-get, what is missing; no service is started."""
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if not missing:
        return
    forbidden = not POLICY.exists()
    if forbidden:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=environment, check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], env=environment, check=True)
    finally:
        if forbidden:
            POLICY.unlink()


def write_mails(folder: Path, messages: int) -> dict[str, int]:
    """Mails to learn in the folders 'spam' and 'ham', and others, to be sent, in 'new'; the labels of the latter."""
    found = find_indexed(unpacked("trec07p-first20000") / "index")
    for name in ("spam", "ham", "new"):
        (folder / name).mkdir(parents=True)
    labels = {"spam": 0, "ham": 0}
    for number, (label, mail) in enumerate(found[: LEARNT + messages]):
        if number >= LEARNT:
            labels[label] += 1
        (folder / (label if number < LEARNT else "new") / f"{number:05}").write_bytes(mail.read())
    return labels


@contextlib.contextmanager
def chains(folder: Path, mails: Path) -> Iterator[tuple[list[Chain], int]]:
    """All of them, running, and the process of the sink."""
    with contextlib.ExitStack() as stack:
        port, pid = stack.enter_context(sink())
        yield (
            [
                stack.enter_context(alone(folder / "alone", port)),
                stack.enter_context(with_rspamd(folder / "rspamd", port, mails, self_scan=False)),
                stack.enter_context(with_rspamd(folder / "self-scan", port, mails, self_scan=True)),
                stack.enter_context(with_relay(folder / "proxy", port, mails, as_milter=False)),
                stack.enter_context(with_relay(folder / "milter", port, mails, as_milter=True)),
            ],
            pid,
        )


def measured(rounds: int, folder: Path, mails: Path) -> dict[str, list[Turn]]:
    """The turns of each chain, by its name."""
    turns: dict[str, list[Turn]] = {}
    with chains(folder, mails) as (present, taker):
        for number in range(-1, rounds):  # what goes before the first round only warms up
            for place, chain in enumerate(present if number % 2 else reversed(present)):
                found = turn(chain, taker, f"round{number + 1}-{place}", mails / "new")
                if number >= 0:
                    turns.setdefault(chain.name, []).append(found)
    return turns


def quartiles(values: list[float], form: str = "%.2f") -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{form % middle} ({form % low} to {form % high})"


def tables(turns: dict[str, list[Turn]], messages: int, labels: dict[str, int]) -> str:
    names = [name for name in ("no filter", *PEERS, *OURS) if name in turns]
    lines = [
        "Medians and quartiles. Accepted: until the client has heard the last 250; carried: until the last mail is in"
        " the sink.",
        "",
        "| Postfix with | carried, messages a second | accepted, messages a second |",
        "|---|---|---|",
    ]
    for name in names:
        rates = [[messages / value for value in values] for values in seconds(turns[name])]
        lines.append(f"| {name} | {' | '.join(quartiles(rate, '%.0f') for rate in rates)} |")
    lines += [
        "",
        "Milliseconds of processor a message. The filter is rspamd with Redis, or all processes of our relay.",
        "",
        f"| Postfix with | {' | '.join(GROUPS)} | all |",
        "|---" * (len(GROUPS) + 2) + "|",
    ]
    for name in names:
        costs = [[1e3 * each.cpu[group] / messages for each in turns[name]] for group in GROUPS]
        costs.append([sum(parts) for parts in zip(*costs, strict=True)])
        lines.append(f"| {name} | {' | '.join(quartiles(cost) for cost in costs)} |")
    lines += [
        "",
        "Ratios of two turns of a round.",
        "",
        "| | carried | processor, filter | processor, Postfix | processor, filter and Postfix |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {own} to {peer} | {' | '.join(ratios(turns[own], turns[peer]))} |" for own in OURS for peer in PEERS]
    lines += [
        "",
        f"Verdicts on the {messages} mails of each turn, {labels['spam']} of them spam and {labels['ham']} ham; each"
        " was judged once and arrived once in every turn. Where rounds differ, the least and the most. For rspamd they"
        " are its symbols, BAYES_SPAM and BAYES_HAM; none: Bayes looked, and knew no word of the mail, or cannot say.",
        "",
        f"| | {' | '.join(CLASSES)} |",
        "|---" * (len(CLASSES) + 1) + "|",
    ]
    for name in (*PEERS, *OURS):
        counts = [sorted({each.verdicts[kind] for each in turns[name]}) for kind in CLASSES]
        lines.append(f"| {name} | {' | '.join(' to '.join(map(str, {each[0]: 0, each[-1]: 0})) for each in counts)} |")
    return "\n".join(lines) + "\n"


def seconds(turns: list[Turn]) -> tuple[list[float], list[float]]:
    return [each.seconds for each in turns], [each.accepted for each in turns]


def ratios(ours: list[Turn], theirs: list[Turn]) -> Iterator[str]:
    pairs = list(zip(ours, theirs, strict=True))
    yield quartiles([their.seconds / our.seconds for our, their in pairs])
    for groups in (("filter",), ("Postfix",), ("filter", "Postfix")):
        yield quartiles(
            [sum(our.cpu[at] for at in groups) / sum(their.cpu[at] for at in groups) for our, their in pairs]
        )


def settings() -> str:
    """What runs, and how many of it."""
    cores = len(os.sched_getaffinity(0))
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        for command in (["postconf", "-h", "mail_version"], ["rspamd", "--version"], ["redis-server", "--version"])
    ]
    versions = [re.search(r"\d+(\.\d+)+", text) for text in said]
    names = [match.group() if match else "?" for match in versions]
    return (
        f"Postfix {names[0]}, rspamd {names[1]}, Redis {names[2]}. {CONNECTIONS} connections of the client. rspamd:"
        f" {cores} workers behind 1 proxy; self-scan: {cores} proxies; ours: {cores} workers, the default. All share"
        f" the {cores} processors with the client and the sink.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=1000, help="of each turn")
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("Postfix is started as root")
    install()
    with workshop() as folder:
        labels = write_mails(folder / "mails", arguments.messages)
        turns = measured(max(arguments.rounds, 2), folder, folder / "mails")
    text = settings() + "\n" + tables(turns, arguments.messages, labels)
    text += f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n"
    print(text)
    if arguments.result:
        write_result(arguments.result, "Behind Postfix: ours and rspamd", __file__, text)


if __name__ == "__main__":
    main()
