"""How accurate is the filter, on which streams, and beside whom?

The figures of docs/likelihoods.md: each message judged with what was learnt so far and then learnt (TREC's immediate
feedback), with right labels and with 5 % wrong ones; and filters that are trained once and left alone. Peers get the
same streams in the same run, with their own tokenizers: Debian's bogofilter as a program, scikit-learn's
MultinomialNB with CountVectorizer by partial_fit.

    python benchmarks/accuracy.py [--result FILE] [--only STREAM]... [--without PEER]... [--likelihood NAME]...

Needs SPAMFILTER_CORPORA, bogofilter and scikit-learn; takes about half an hour.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cold import rates
from corpora import unpacked
from peers import Bogofilter, ScikitMultinomial, with_mail
from results import write_result

from spamfilter.config.settings import Settings
from spamfilter.evaluation.contenders import Contender
from spamfilter.evaluation.plots import draw
from spamfilter.evaluation.protocols import Trial
from spamfilter.evaluation.runs import entrants, evaluate
from spamfilter.learning.bulk.labelled_mail import find_indexed


@dataclass(frozen=True)
class Stream:
    """archive, index, how many messages; how they are gone through; 1-ROCA% and LAM% to reach by the default."""

    archive: str
    index: str
    most: int | None = None
    protocol: str = "prequential"
    trial: Trial = field(default_factory=Trial)
    roca: float | None = None
    lam: float | None = None
    seeds: tuple[int, ...] = (1,)


SPAMASSASSIN, TREC = "spamassassin", "trec07p-first20000"
INTERLEAVED = "index.interleaved"
STREAMS = {
    "SpamAssassin chronological": Stream(SPAMASSASSIN, "index", roca=0.062, lam=0.90),
    "SpamAssassin interleaved": Stream(SPAMASSASSIN, INTERLEAVED, roca=0.0120, lam=0.45),
    "trec07p first 10,000": Stream(TREC, "index", 10_000, roca=0.0150, lam=0.25),
    "trec07p 20,000, 5 % wrong labels": Stream(
        TREC, "index", trial=Trial(noise=0.05), roca=0.030, seeds=(1, 2, 3, 4, 5)
    ),
    "trained once: odd lines, judged: even": Stream(
        SPAMASSASSIN, INTERLEAVED, protocol="trained-once", trial=Trial(split="alternate"), roca=0.033, lam=0.53
    ),
    "trained once: first half, judged: second": Stream(
        SPAMASSASSIN, INTERLEAVED, protocol="trained-once", trial=Trial(split="time"), roca=4.7
    ),
    "trained once: random halves": Stream(
        SPAMASSASSIN, INTERLEAVED, protocol="trained-once", trial=Trial(split="random")
    ),
}
PEERS: dict[str, type[Bogofilter] | type[ScikitMultinomial]] = {
    "bogofilter": Bogofilter,
    "scikit-learn": ScikitMultinomial,
}
PLOTTED = "SpamAssassin interleaved"


def run(name: str, stream: Stream, likelihoods: Sequence[str], peers: Sequence[str], plot: Path | None) -> list[str]:
    """The rows of one stream."""
    voices, enter = entrants(likelihoods, Settings().learn)
    examples = with_mail(find_indexed(unpacked(stream.archive) / stream.index)[: stream.most], voices)
    vectorizer = ScikitMultinomial.vectorizer(examples) if "scikit-learn" in peers else None

    def all_of_them(with_peers: bool) -> Callable[[], list[Contender]]:
        def enter_all() -> list[Contender]:
            found = list(enter())
            if with_peers and "bogofilter" in peers:
                found.append(Bogofilter())
            if with_peers and vectorizer is not None:
                found.append(ScikitMultinomial(vectorizer))
            return found

        return enter_all

    rows: dict[str, list[str]] = {}
    for seed in stream.seeds:
        trial = Trial(**{**{slot: getattr(stream.trial, slot) for slot in Trial.__slots__}, "seed": seed})
        first = seed == stream.seeds[0]
        outcomes = evaluate(examples, all_of_them(first), stream.protocol, trial, resamples=500 if first else 0)
        if plot and first and name == PLOTTED:
            draw(plot, outcomes, f"{name}, judged before learnt")
        for outcome in outcomes:
            metrics = outcome.metrics
            if first:
                low, high = outcome.intervals["roca"]
                reach = f"{stream.roca or ''}" + (f" / {stream.lam}" if stream.lam else "")
                cells = [reach if outcome.likelihood == "configured" else ""]
                cells += [f"{metrics.sm_at_hm_01:.2f}", f"{metrics.lam:.3f}", f"{metrics.hm:.2f}", f"{metrics.sm:.2f}"]
                cells += [f"{metrics.brier:.4f}", f"{metrics.ece:.4f}", "{:.2f} | {:.2f}".format(*rates(outcome.run))]
                title = f"| {name} | {outcome.likelihood} | {metrics.roca:.4f} ({low:.4f} to {high:.4f})"
                rows[outcome.likelihood] = [title, " | ".join(cells) + " |"]
            else:
                rows[outcome.likelihood][0] += f", {metrics.roca:.4f}"
    return [" | ".join(cells) for cells in rows.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too, and a plot beside it")
    parser.add_argument("--only", action="append", choices=STREAMS, help="only this stream")
    parser.add_argument(
        "--without", action="append", choices=PEERS, default=[], help="leave a peer out; the table says so"
    )
    parser.add_argument("--likelihood", action="append", help="instead of 'configured' and 'soft'")
    arguments = parser.parse_args()
    peers = [peer for peer in PEERS if peer not in arguments.without]
    if "bogofilter" in peers:
        try:
            Bogofilter()
        except FileNotFoundError as error:
            sys.exit(f"{error}, or --without bogofilter")
    plot = arguments.result.with_suffix(".svg") if arguments.result else None
    lines = [
        "| stream | contender | 1-ROCA% (95 % interval; further seeds) | to reach, 1-ROCA% / LAM% | sm@.1 | LAM% | hm%"
        " | sm% | Brier | ECE | ham called spam | spam called spam |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in arguments.only or STREAMS:
        rows = run(name, STREAMS[name], arguments.likelihood or ["configured", "soft"], peers, plot)
        print("\n".join(rows), flush=True)
        lines += rows
    versions = ", ".join(PEERS[peer].version() for peer in peers) or "no peers"
    left_out = f" Left out: {', '.join(arguments.without)}." if arguments.without else ""
    lines += [
        "",
        f"`configured` is the default, `soft` its voice `fields` alone. Peers: {versions}.{left_out} hm and sm at a"
        " probability of 1/2, classes by the thresholds as shipped. Bulk training in up to five rounds;"
        " peers are trained once, as they know no rounds.",
    ]
    if plot and PLOTTED in (arguments.only or STREAMS):
        lines += ["", f"![ROC and reliability]({plot.name})"]
    if arguments.result:
        write_result(arguments.result, "Accuracy, beside peers", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
