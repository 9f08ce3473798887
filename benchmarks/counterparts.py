"""What becomes of a filter whose users mark the spam that they see, and hardly ever the ham?

It is trained on the first mails of a corpus, as many of each class, and judges the next ones, with the thresholds as
shipped. Users mark as spam what was not called spam, all of it or three in ten, and take ham out of the Junk folder or
leave it; they never mark what is unsure and ham. With counterparts and without ([feedback] counterparts).

    python benchmarks/counterparts.py [--result FILE]

Needs SPAMFILTER_CORPORA; takes about two minutes. Exits with 1 if with counterparts more ham is called spam than
without them, or more than LOST although users rescue it.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from corpora import unpacked
from results import write_result

from spamfilter.bayes.labels import COUNTERPART, LABELS, Label
from spamfilter.bayes.verdict import CLASSES, Policy
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.learning import marks
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import JournalEntry
from spamfilter.system.ids import new_id

sys.path.insert(0, str(Path(__file__).parents[1]))  # the store in memory is the tests'

from tests.support.memory_store import open_store

CORPORA = {
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved"),
    "SpamAssassin by time": ("spamassassin", "index"),
    "trec07p": ("trec07p-first20000", "index"),
}
TRAINED, JUDGED, A_DAY = 200, 4000, 50
"""Mails of each class that are trained, mails that are judged, and those of one day: a counterpart's domain has two."""
LOST = 1.0
"""Per cent of ham."""


class Users(NamedTuple):
    """The share of missed spam that they mark, and whether they mark ham that was called spam."""

    share: float
    rescue: bool

    def __str__(self) -> str:
        return f"{self.share:.0%} of missed spam" + (", and lost ham" if self.rescue else "")


USERS = [Users(1.0, True), Users(0.3, True), Users(1.0, False)]
OWNER = marks.Author("owner", "imap", master=True)


Mails = list[tuple[Label, Mail]]


def trained_and_judged(mails: Mails) -> tuple[Mails, Mails]:
    """The first TRAINED mails of each class, and the next JUDGED mails."""
    left, trained, judged = dict.fromkeys(LABELS, TRAINED), Mails(), Mails()
    for label, mail in mails:
        left[label] -= 1
        (trained if left[label] >= 0 else judged).append((label, mail))
    return trained, judged[:JUDGED]


def life(corpus: str, users: Users, counterparts: bool) -> tuple[list[str], float]:
    """The cells of a row, and the per cent of ham that was lost."""
    name, index = CORPORA[corpus]
    trained, judged = trained_and_judged(list(find_indexed(unpacked(name) / index)))
    filter, feedback = Filter(open_store("memory:"), Settings().voices()), Feedback(counterparts=counterparts)
    chance = Random(1)
    train(filter, trained, "", lambda _: None, Outcome())
    found = Counter[tuple[Label, str]]()
    of, made = dict[bytes, Label](), 0
    for number, (label, mail) in enumerate(judged):
        message = parse(mail.read())
        reading = filter.read(message)
        score = filter.score(reading)
        class_ = Policy().classify(score, filter.learnt)
        found[label, class_] += 1
        of[reading.digest] = label
        domain = message.field(b"from").rpartition("@")[2].rstrip("> ")
        filter.store.write_journal([
            JournalEntry(
                new_id(), datetime.now(UTC), reading.digest, sender=f"a@{number // A_DAY}.{domain}",
                log_odds=score.log_odds, score=score.posterior, class_=class_, tokens=reading.tokens,
            )
        ])  # fmt: skip
        wrong = class_ != "spam" and chance.random() < users.share if label == "spam" else class_ == "spam"
        if wrong and (label == "spam" or users.rescue):
            made += 1
            marks.mark(filter, Subject("", "", reading), label, OWNER, feedback)
    learnt = Counter(of[entry.digest] for entry in filter.store.learnings(source=COUNTERPART))
    cells = [", ".join(str(found[label, class_]) for class_ in CLASSES) for label in LABELS]
    cells += [str(made), f"{learnt.total()} ({learnt['spam']})" if counterparts else ""]
    return cells, 100 * found["ham", "spam"] / sum(found["ham", class_] for class_ in CLASSES)


def rows() -> Iterator[tuple[str, Users, bool, list[str], float]]:
    cases = list(product(CORPORA, USERS, (False, True)))
    with ProcessPoolExecutor(2) as pool:
        for case, (cells, lost) in zip(cases, pool.map(life, *zip(*cases, strict=True)), strict=True):
            yield *case, cells, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result", type=Path)
    arguments = parser.parse_args()
    lines = [
        "| corpus | users mark | counterparts | ham: ham, unsure, spam | spam: ham, unsure, spam | marks |"
        " counterparts learnt (spam) |",
        "|---|---|---|---|---|---|---|",
    ]
    missed, without = [], 0.0
    for corpus, users, counterparts, cells, lost in rows():
        lines.append(f"| {corpus} | {users} | {'on' if counterparts else 'off'} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        if counterparts and (lost > without or (users.rescue and lost > LOST)):
            missed.append(f"{corpus}, {users}: {lost:.1f} % of ham lost, {without:.1f} % without counterparts")
        without = lost
    if arguments.result:
        write_result(arguments.result, "Users who mark spam only", __file__, "\n".join(lines) + "\n")
    for case in missed:
        print(f"Goal missed: {case}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
