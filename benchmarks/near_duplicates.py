"""After a wrong verdict is marked, is the next mail like it judged right, or at least unsure, beside bogofilter?

A filter is trained on a few mails and then gets a stream, of which only wrong verdicts are marked: spam called ham,
and ham called spam. Mails that share six tenths of their words, with the same label, are one campaign. Of each campaign
that begins with a wrong verdict and goes on: how many marks it takes until a mail of it is not judged wrongly.

    python benchmarks/near_duplicates.py [--result FILE]

Needs SPAMFILTER_CORPORA and bogofilter; takes some minutes. Exits with 1 where ours takes more than one mark in more
than a tenth of the campaigns.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cold import FILTERS, VOICES
from corpora import unpacked
from peers import Bogofilter, with_mail
from results import write_result

from spamfilter.bayes.labels import OTHER, Label
from spamfilter.evaluation.protocols import Example, first_of_each
from spamfilter.learning.bulk.labelled_mail import find_indexed, mixed

ALIKE = 0.6
"""Of the words of either mail, the share that both have."""
FEW = 15
"""Words: shorter mails are too much alike."""
STREAM = 3000


@dataclass
class Campaign:
    """Mails of one label that are alike. marks: so far; judged: whether one was not judged wrongly after them."""

    label: Label
    words: frozenset[bytes]
    marks: int = 1
    judged: bool = False

    def has(self, label: Label, words: frozenset[bytes]) -> bool:
        return label == self.label and len(words & self.words) >= ALIKE * len(words | self.words)


def marks_taken(name: str, train: Sequence[Example], stream: Sequence[Example]) -> Counter[str]:
    """How many campaigns took 1, 2 or more marks, or were judged wrongly to their end."""
    make, trial = FILTERS[name]
    contender, order = make(), mixed(train, lambda example: example.label)
    contender.train(lambda: ((example.read(), example.label) for example in order), trial.rounds)
    found: list[Campaign] = []
    went_on: set[int] = set()
    for example in stream:
        tokens, label = example.read(), example.label
        words = frozenset(tokens["body"])
        if len(words) < FEW:
            continue
        wrong = trial.classify(contender.score(tokens)) == OTHER[label]
        same = [at for at, one in enumerate(found) if one.has(label, words)]
        for at in same:
            if not found[at].judged:
                went_on.add(at)
                found[at].judged = not wrong
                found[at].marks += wrong
        if wrong:
            contender.learn(tokens, label)
            if not same:
                found.append(Campaign(label, words))
    taken = (found[at] for at in went_on)
    return Counter("never" if not one.judged else str(one.marks) if one.marks < 3 else "more" for one in taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    spamassassin, trec = (
        with_mail(find_indexed(unpacked(folder) / index), VOICES)
        for folder, index in (("spamassassin", "index"), ("trec07p-first20000", "index"))
    )
    cases = {
        f"{name}, {number} of each": (train, rest[:STREAM])
        for name, mails in (("SpamAssassin", spamassassin), ("trec07p", trec))
        for number in (10, 50, 200)
        for train, rest in [first_of_each(mails, number)]
    }
    cases["trec07p, 200 of each, judging SpamAssassin"] = (first_of_each(trec, 200)[0], spamassassin[:STREAM])
    cases["SpamAssassin, 200 of each, judging trec07p"] = (first_of_each(spamassassin, 200)[0], trec[:STREAM])
    lines = ["| trained on | filter | campaigns | 1 mark | 2 | more | never |", "|---|---|---|---|---|---|---|"]
    sums = {name: Counter[str]() for name in FILTERS}
    for case, (train, stream) in cases.items():
        for name in FILTERS:
            taken = marks_taken(name, train, stream)
            sums[name] += taken
            lines.append(row(case, name, taken))
            print(lines[-1], flush=True)
    lines += [row("all of them", name, taken) for name, taken in sums.items()]
    print(*lines[-len(sums) :], sep="\n")
    if arguments.result:
        note = f"A campaign: mails of one label that share {ALIKE} of their words; {Bogofilter.version()}."
        text = "\n".join([*lines, "", note])
        write_result(arguments.result, "Marks until a campaign is judged right or unsure", __file__, text)
    ours = sums["ours"]
    sys.exit(ours.total() - ours["1"] > 0.1 * ours.total())


def row(case: str, name: str, taken: Counter[str]) -> str:
    return (
        f"| {case} | {name} | {taken.total()} | "
        + " | ".join(str(taken[key]) for key in ("1", "2", "more", "never"))
        + " |"
    )


if __name__ == "__main__":
    main()
