"""What do the rounds of bulk training gain, and does their bound hold under wrong labels?

Trains the voice `fields` alone by the product's own `train` on the odd lines of a corpus, and judges
the even lines; with one, three, five and eight rounds, with right labels and with 5 % of them wrong
(seed 1), with the bound of two messages for each mail and without it.

    python benchmarks/rounds.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about ten minutes.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import Voice
from spamfilter.evaluation.error_rates import Metrics, measure
from spamfilter.learning.bulk import training as bulk_training
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # the store in memory is the tests'

from tests.support.memory_store import open_store

Mails = Sequence[tuple[Label, Mail]]
CORPORA = {
    "SpamAssassin": ("spamassassin", "index.interleaved", None),
    "trec07p first 10,000": ("trec07p-first20000", "index", 10_000),
}
UNBOUND = 10**6
RUNS = [(1, Soft.most), (3, Soft.most), (5, Soft.most), (8, Soft.most), (5, UNBOUND)]


def with_wrong_labels(mails: Mails, share: float) -> Mails:
    chance = random.Random(1)
    other: dict[Label, Label] = {"ham": "spam", "spam": "ham"}
    return [(other[label] if chance.random() < share else label, mail) for label, mail in mails]


def run(train: Mails, test: Mails, rounds: int, bound: int) -> Metrics:
    """Train with so many rounds and this bound in eighths of a message; judge without learning."""
    with patch.object(bulk_training, "ROUNDS", rounds), patch.object(Soft, "most", bound):
        filter = Filter(open_store("memory:"), (Voice("fields", Soft()),))
        bulk_training.train(filter, train, "", lambda _: None, bulk_training.Outcome())
        scores = [filter.score(filter.read(parse(mail.read()))) for _, mail in test]
    return measure([score.log_odds for score in scores], [score.posterior for score in scores], [at for at, _ in test])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    lines = [
        "| corpus | wrong labels | rounds | bound, messages | 1-ROCA% | hm% | sm% | LAM% |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (archive, index, most) in CORPORA.items():
        mails = find_indexed(unpacked(archive) / index)[:most]
        for share in (0.0, 0.05):
            for rounds, bound in RUNS:
                found = run(with_wrong_labels(mails[::2], share), mails[1::2], rounds, bound)
                limit = "none" if bound == UNBOUND else str(bound // Soft.unit)
                lines.append(
                    f"| {name} | {100 * share:.0f} % | {rounds} | {limit} | {found.roca:.4f}"
                    f" | {found.hm:.2f} | {found.sm:.2f} | {found.lam:.2f} |"
                )
                print(lines[-1], flush=True)
    if arguments.result:
        write_result(arguments.result, "Rounds of bulk training", __file__, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
