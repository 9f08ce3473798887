"""Which numbers of a mail help the words?

Every attribute is learnt as a Gaussian beside the words, each message judged before it is learnt; beside the default
voices, and beside two classical likelihoods. Gaussians learn apart from the voices, so the log-odds of any choice of
attributes are those of the words plus theirs: one pass measures them all, alone and together. Nine candidates that lost
are kept here; the winners are the product's own.

    python benchmarks/attributes.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about five minutes.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from corpora import unpacked
from numpy.typing import NDArray
from results import write_result

from spamfilter.bayes.attributes import ATTRIBUTES, scaled
from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts, Label
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.voices import view
from spamfilter.config.settings import Settings
from spamfilter.evaluation.metrics import Metrics, measure
from spamfilter.evaluation.runs import entrants
from spamfilter.learning.labelled_mail import find_indexed
from spamfilter.mail.message import Message, parse

STREAMS = {
    "SpamAssassin chronological": ("spamassassin", "index", None),
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None),
    "trec07p first 10,000": ("trec07p-first20000", "index", 10_000),
}
BESIDE = ("configured", "multinomial", "bernoulli")
WEIGHTS = (0.1, 0.3, 1.0)
Floats = NDArray[np.float64]

_CAPITALS = [bytes((byte,)) for byte in range(65, 91)]
_SMALL = [bytes((byte,)) for byte in range(97, 123)]
_DIGITS = [bytes((byte,)) for byte in range(48, 58)]


def _thousandths(part: int, whole: int) -> int | None:
    return round(1000 * part / whole) if whole else None


def size(message: Message) -> int:
    return scaled(message.size)


def fields(message: Message) -> int:
    return len(message.fields)


def parts(message: Message) -> int:
    return sum(name == b"content-type" for name, _ in message.part_fields)


def links(message: Message) -> int:
    return scaled(message.text.lower().count(b"http"))


def recipients(message: Message) -> int | None:
    lists = [value.count(b"@") for name, value in message.fields if name in (b"to", b"cc")]
    return scaled(sum(lists)) if lists else None


def capitals(message: Message) -> int | None:
    upper = sum(map(message.text.count, _CAPITALS))
    return _thousandths(upper, upper + sum(map(message.text.count, _SMALL)))


def digits(message: Message) -> int | None:
    return _thousandths(sum(map(message.text.count, _DIGITS)), len(message.text))


def foreign(message: Message) -> int | None:
    return _thousandths(len(message.text) - len(message.text.decode("utf-8", "replace")), len(message.text))


def hops(message: Message) -> int | None:
    return sum(name == b"received" for name, _ in message.fields) or None


LOSERS: dict[str, Callable[[Message], int | None]] = {
    function.__name__: function
    for function in (size, fields, parts, links, recipients, capitals, digits, foreign, hops)
}
CANDIDATES = {**ATTRIBUTES, **LOSERS}
NAMES = tuple(CANDIDATES)


def scores(archive: str, index: str, most: int | None) -> tuple[list[Label], dict[str, Floats], Floats]:
    """Labels, the words' log-odds by likelihood (messages,), and what each attribute adds (messages, attributes)."""
    voices, enter = entrants(BESIDE, Settings().learn)
    contenders, gaussian, counts = enter(), Gaussian(), Counts()
    labels: list[Label] = []
    odds: dict[str, list[float]] = {name: [] for name in BESIDE}
    added: list[list[float]] = []
    for label, mail in find_indexed(unpacked(archive) / index)[:most]:
        message = parse(mail.read())
        tokens = view(voices, message)
        found = {name.encode(): function(message) for name, function in CANDIDATES.items()}
        numbers = {name: value for name, value in found.items() if value is not None}
        shares = gaussian.weights(numbers, counts)
        added.append([shares.get(name.encode(), 0.0) for name in NAMES])
        counts.add(label, gaussian.deltas(numbers, 1))
        for contender in contenders:
            odds[contender.name].append(contender.score(tokens).log_odds)
            contender.learn(tokens, label)
        labels.append(label)
    return labels, {name: np.array(values) for name, values in odds.items()}, np.array(added)


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
    lines = [
        "1-ROCA% / sm@.1 / LAM% with an attribute added to the words; a winner is better in 1-ROCA% and no worse in"
        " LAM% on all three streams.",
        "",
        f"| words | attribute | weight | {' | '.join(STREAMS)} | winner |",
        f"|---|---|---|{'---|' * len(STREAMS)}---|",
    ]
    winners: dict[str, set[str]] = {name: set() for name in BESIDE}
    for words in BESIDE:
        plain = {name: measured(labels, odds[words]) for name, (labels, odds, _) in found.items()}
        choices: list[tuple[str, float, list[int]]] = [("none", 0.0, [])]
        for weight in WEIGHTS if words == "configured" else (1.0,):
            choices += [(name, weight, [at]) for at, name in enumerate(NAMES)]
            choices.append(("all", weight, list(range(len(NAMES)))))
        for title, weight, places in choices:
            cells, wins = [], []
            for name, (labels, odds, added) in found.items():
                metrics = measured(labels, odds[words] + weight * added[:, places].sum(axis=1))
                cells.append(f"{metrics.roca:.4f} / {metrics.sm_at_hm_01:.1f} / {metrics.lam:.2f}")
                wins.append(metrics.roca < plain[name].roca and metrics.lam <= plain[name].lam)
            if all(wins):
                winners[words].add(title)
            lines.append(f"| {words} | {title} | {weight:g} | {' | '.join(cells)} | {'yes' if all(wins) else ''} |")
            print(lines[-1], flush=True)
    lines += [
        "",
        *(f"Winners beside {words}: {', '.join(sorted(names)) or 'none'}." for words, names in winners.items()),
    ]
    if arguments.result:
        write_result(arguments.result, "Numbers of a mail beside its words", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
