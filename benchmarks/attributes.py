"""Which numbers of a mail help the words?

Every attribute is learnt as a Gaussian beside the default voices, each message judged before it is learnt. Gaussians
learn apart from the voices, so the log-odds of any choice of attributes are those of the words plus theirs: one pass
measures them all, alone and together, at several weights.

    python benchmarks/attributes.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about two minutes.
"""

import argparse
from pathlib import Path

import numpy as np
from corpora import unpacked
from numpy.typing import NDArray
from results import write_result

from spamfilter.attributes import ATTRIBUTES
from spamfilter.calibration import Calibration
from spamfilter.config import Settings
from spamfilter.contenders import Learner
from spamfilter.counts import Counts, Label
from spamfilter.evaluating import of_mails
from spamfilter.evaluation import Metrics, measure
from spamfilter.likelihoods.gaussian import Gaussian
from spamfilter.mailboxes import find_indexed
from spamfilter.voices import Voice

STREAMS = {
    "SpamAssassin chronological": ("spamassassin", "index", None),
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None),
    "trec07p first 10,000": ("trec07p-first20000", "index", 10_000),
}
WEIGHTS = (0.1, 0.3, 1.0)
NAMES = tuple(ATTRIBUTES)
Floats = NDArray[np.float64]


def scores(archive: str, index: str, most: int | None) -> tuple[list[Label], Floats, Floats]:
    """Labels, the words' log-odds (messages,), and what each attribute adds (messages, attributes)."""
    voices = Settings().voices()
    gaussian = Voice("attributes", Gaussian())
    words, counts = Learner("words", voices), Counts()
    labels: list[Label] = []
    odds: list[float] = []
    added: list[list[float]] = []
    for example in of_mails(find_indexed(unpacked(archive) / index)[:most], (*voices, gaussian)):
        tokens = example.read()
        numbers = tokens["attributes"]
        odds.append(words.score(tokens).log_odds)
        shares = gaussian.likelihood.weights(numbers, counts)
        added.append([shares.get(name.encode(), 0.0) for name in NAMES])
        labels.append(example.label)
        words.learn(tokens, example.label)
        counts.add(example.label, gaussian.likelihood.deltas(numbers, 1))
    return labels, np.array(odds), np.array(added)


def measured(labels: list[Label], odds: Floats) -> Metrics:
    """The measures of these log-odds, calibrated as the filter does it."""
    calibration, posteriors = Calibration(), []
    for label, value in zip(labels, odds.tolist(), strict=True):
        posteriors.append(calibration.posterior(value))
        calibration = calibration.plus(calibration.step(value, label))
    return measure(odds.tolist(), posteriors, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    found = {name: scores(*stream) for name, stream in STREAMS.items()}
    choices: list[tuple[str, float, list[int]]] = [("words alone", 0.0, [])]
    for weight in WEIGHTS:
        choices += [(name, weight, [at]) for at, name in enumerate(NAMES)]
        choices.append(("all", weight, list(range(len(NAMES)))))
    lines = [
        "1-ROCA% / sm@.1 / LAM% of the default voices with an attribute added; a winner is better in 1-ROCA% and no"
        " worse in LAM% on all three.",
        "",
        f"| attribute | weight | {' | '.join(STREAMS)} | winner |",
        f"|---|---|{'---|' * len(STREAMS)}---|",
    ]
    plain = {name: measured(labels, odds) for name, (labels, odds, _) in found.items()}
    for title, weight, places in choices:
        cells, wins = [], []
        for name, (labels, odds, added) in found.items():
            metrics = measured(labels, odds + weight * added[:, places].sum(axis=1))
            cells.append(f"{metrics.roca:.4f} / {metrics.sm_at_hm_01:.1f} / {metrics.lam:.2f}")
            wins.append(metrics.roca < plain[name].roca and metrics.lam <= plain[name].lam)
        lines.append(f"| {title} | {weight:g} | {' | '.join(cells)} | {'yes' if all(wins) else ''} |")
        print(lines[-1], flush=True)
    if arguments.result:
        write_result(arguments.result, "Numbers of a mail beside its words", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
