"""Does it matter in which order a filter is taught?

Teaches the same mails of a corpus by `train` in one run, or in runs of one class each, or by marks one after the other,
also followed by `retrain`; then judges the next mails of the corpus, with the thresholds as shipped.

    python benchmarks/training_order.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about two minutes. Exits with 1 if more ham than LOST is called spam after `train` or
`retrain`; marks of one class alone are known to lose some.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.bayes.verdict import Policy
from spamfilter.config.settings import Settings
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

sys.path.insert(0, str(Path(__file__).parents[1]))  # the store in memory is the tests'

from tests.support.memory_store import open_store

Mails = Sequence[tuple[Label, Mail]]
CORPORA = {"SpamAssassin": ("spamassassin", "index.interleaved"), "trec07p": ("trec07p-first20000", "index")}
TAUGHT, JUDGED, FURTHER, MARKED = 1_200, 600, 200, 150
"""Mails that are taught, and the next ones, that are judged; spams after these, that are taught on top; mails of each
class that are marked."""
LOST = 1.0
"""Per cent of ham."""
VOICES = Settings().voices()


def by_train(filter: Filter, mails: Mails) -> None:
    train(filter, mails, "", lambda _: None, Outcome())


def by_marks(filter: Filter, mails: Mails) -> None:
    with filter.training() as training:
        for label, mail in mails:
            training.learn(filter.read(parse(mail.read())), label, "cli")


def again(filter: Filter, mails: Mails) -> None:
    retrain(filter.store, VOICES, {}, lambda _: None)


Step = tuple[Callable[[Filter, Mails], None], Mails]


def ways(taught: Mails, further: Mails) -> dict[str, list[Step]]:
    """Each way of teaching these mails, step by step. further: spam that comes later."""
    ham, spam = ([item for item in taught if item[0] == label] for label in ("ham", "spam"))
    ham_marks, spam_marks = (by_marks, ham[:MARKED]), (by_marks, spam[:MARKED])
    retraining: Step = (again, [])
    return {
        "train, both classes in one run": [(by_train, taught)],
        "train ham, then spam": [(by_train, ham), (by_train, spam)],
        "train spam, then ham": [(by_train, spam), (by_train, ham)],
        f"train both, then {FURTHER} further spams": [(by_train, taught), (by_train, further)],
        f"train both, then mark {FURTHER} further spams": [(by_train, taught), (by_marks, further)],
        "the same, then retrain": [(by_train, taught), (by_marks, further), retraining],
        f"mark {MARKED} hams, then {MARKED} spams": [ham_marks, spam_marks],
        "the same marks, then retrain": [ham_marks, spam_marks, retraining],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path)
    arguments = parser.parse_args()
    lines = ["| corpus | taught | ham: ham, unsure, spam | spam: ham, unsure, spam |", "|---|---|---|---|"]
    missed = []
    for corpus, (name, index) in CORPORA.items():
        mails = list(find_indexed(unpacked(name) / index))
        judged, later = mails[TAUGHT : TAUGHT + JUDGED], mails[TAUGHT + JUDGED :]
        further = [item for item in later if item[0] == "spam"][:FURTHER]
        for way, steps in ways(mails[:TAUGHT], further).items():
            store = open_store("memory:")
            for step, some in steps:
                step(Filter(store, VOICES), some)
            filter = Filter(store, VOICES)
            verdicts = Counter(
                (label, Policy().classify(filter.score(filter.read(parse(mail.read()))), filter.learnt))
                for label, mail in judged
            )
            cells = [
                ", ".join(str(verdicts[label, class_]) for class_ in ("ham", "unsure", "spam"))
                for label in ("ham", "spam")
            ]
            lines.append(f"| {corpus} | {way} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            lost = 100 * verdicts["ham", "spam"] / sum(label == "ham" for label, _ in judged)
            missed += [f"{corpus}, {way}"] * (lost > LOST and steps[-1][0] is not by_marks)
    if arguments.result:
        write_result(arguments.result, "The order of training", __file__, "\n".join(lines) + "\n")
    for case in missed:
        print(f"Goal missed: {case}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
