"""How accurate is the filter that learns each message after judging it?

Streams of TREC "immediate feedback": each message is judged with what was learnt so far, its score
noted, then it is learnt with its true label. Runs the product's own Filter on a store in memory.

    python benchmarks/prequential.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about two minutes.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from corpora import unpacked
from results import write_result

from spamfilter.config import Settings
from spamfilter.counts import Label
from spamfilter.evaluation import Metrics, measure
from spamfilter.filter import Filter
from spamfilter.mailboxes import Mail, find_indexed
from spamfilter.message import parse
from spamfilter.stores import open_store

STREAMS: dict[str, tuple[str, str, int | None, float | None]] = {
    # name: archive, index, messages, 1-ROCA% to reach with the voice `fields` alone
    "SpamAssassin chronological": ("spamassassin", "index", None, 0.111),
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None, 0.032),
    "trec07p first 10,000": ("trec07p-first20000", "index", 10_000, 0.0146),
    "trec07p first 20,000": ("trec07p-first20000", "index", None, None),
}


def run(mails: Sequence[tuple[Label, Mail]]) -> tuple[Metrics, float, int]:
    """Judge and learn a stream; returns its measures, microseconds a message, and words kept."""
    filter = Filter(open_store("memory:"), Settings().voices())
    log_odds, posteriors, labels = [], [], []
    began = time.process_time()
    for label, mail in mails:
        reading = filter.read(parse(mail.read()))
        score = filter.score(reading)
        log_odds.append(score.log_odds)
        posteriors.append(score.posterior)
        labels.append(label)
        filter.learn(reading, label, source="train")
    spent = (time.process_time() - began) / len(mails) * 1e6
    state = filter.store.load(voice.name for voice in filter.voices)
    return measure(log_odds, posteriors, labels), spent, sum(counts.vocabulary for counts in state.counts.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    lines = [
        "| stream | messages | 1-ROCA% | to reach | sm@.1 | hm% | sm% | LAM% | Brier | ECE | words | us a message |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    missed = []
    for name, (archive, index, most, wanted) in STREAMS.items():
        found, spent, words = run(find_indexed(unpacked(archive) / index)[:most])
        lines.append(
            f"| {name} | {found.messages:,} | {found.roca:.4f} | {wanted or ''} | {found.sm_at_hm_01:.2f}"
            f" | {found.hm:.2f} | {found.sm:.2f} | {found.lam:.2f} | {found.brier:.4f} | {found.ece:.4f}"
            f" | {words:,} | {spent:.0f} |"
        )
        print(lines[-1], flush=True)
        if wanted and found.roca > 1.1 * wanted:
            missed.append(f"{name}: {found.roca:.4f} is more than 10 % above {wanted}")
    verdict = "Every stream is within 10 % of the figure to reach, or better." if not missed else "\n".join(missed)
    text = "\n".join([*lines, "", verdict, ""])
    print(text)
    if arguments.result:
        write_result(arguments.result, "Accuracy, judged before learnt: the voice `fields` alone", __file__, text)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
