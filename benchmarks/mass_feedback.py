"""Wrong marks of one author on a real database: what they do with the day's share and without, and what undoes them.

The fifth part of poisoning.py. Mails of trec07p are learnt, as the marks of people and by `train`; then one author
marks others wrongly at the feedback desk of a relay, and `spamfilter forget --by` takes it all back. The tables are
compared row by row, and the log-odds of mails to the last bit.
"""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from corpora import unpacked

from spamfilter.bayes.labels import AUTOMATIC, BULK, LABELS, OTHER, Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Policy
from spamfilter.config.sections import Feedback
from spamfilter.config.settings import Settings
from spamfilter.errors import Refused
from spamfilter.evaluation.error_rates import measure
from spamfilter.learning import marks
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author
from spamfilter.mail.message import parse
from spamfilter.stores import open_store

SHARE = Settings().feedback.marks_a_day
NO_LIMIT = 10**6
LEARNT = (1200, 3000)
"""Mails learnt before, half of them by people."""
POLICY, MANY = Policy(), dict.fromkeys(LABELS, 10**6)
DATABASE = "spamfilter.db"
TRAP = "trap"
Mails = Sequence[tuple[Label, bytes]]


@dataclass(frozen=True)
class Material:
    """known: learnt before; judged: nobody ever learns them; hers, his: of the attacker and of somebody honest."""

    known: Mails
    judged: Mails
    hers: dict[Label, list[bytes]]
    his: Mails


def material(judged: int, number: int, learnt: int) -> Material:
    """Mails of the corpus, one of each digest."""
    found: dict[bytes, tuple[Label, bytes]] = {}
    index = find_indexed(unpacked("trec07p-first20000") / "index")
    for label, mail in index[: learnt + 2 * judged + 10 * number]:
        content = mail.read()
        found.setdefault(parse(content).digest(), (label, content))
    mails = list(found.values())
    known, mails = mails[:learnt], mails[learnt:]
    his, mails = mails[:number], mails[number:]
    hers = {label: [content for kind, content in mails if kind == label][:number] for label in LABELS}
    taken = {content for some in hers.values() for content in some}
    rest = [(label, content) for label, content in mails if content not in taken]
    return Material(known, rest[:: max(1, len(rest) // judged)][:judged], hers, his)


@dataclass(frozen=True)
class Place:
    """A folder with a database."""

    folder: Path

    def opened(self) -> Filter:
        return Filter(open_store(f"sqlite:///{self.folder / DATABASE}", migrate=True), Settings().voices())

    def copy(self, name: str) -> "Place":
        there = self.folder.parent / name
        there.mkdir()
        for file in self.folder.glob(f"{DATABASE}*"):
            shutil.copy(file, there)
        return Place(there)

    def command(self, *words: str) -> str:
        environment = {**os.environ, "STATE_DIRECTORY": str(self.folder)}
        program = Path(sys.executable).parent / "spamfilter"
        done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def rows(self) -> set[tuple[object, ...]]:
        """All that judging depends on: counts and totals that are not zero, tallies, and the calibration."""
        with closing(sqlite3.connect(self.folder / DATABASE)) as database:
            found: set[tuple[object, ...]] = set()
            for table, values in (
                ("words", "voice, word, ham, spam"),
                ("classes", "voice, class, messages, words"),
                ("vocabularies", "voice, words"),
                ("tallies", 'voice, class, "count", words'),
            ):
                found |= {(table, *row) for row in database.execute(f"SELECT {values} FROM {table}")}
            for name in ("learnt", "calibration"):
                for (value,) in database.execute("SELECT value FROM settings WHERE name = ?", (name,)):
                    found.add((name, json.dumps(json.loads(value), sort_keys=True)))
            return {row for row in found if row[0] != "classes" or row[3:] != (0, 0)}

    def scores(self, mails: Mails) -> list[Score]:
        filter = self.opened()
        try:
            return [filter.score(filter.read(parse(content))) for _, content in mails]
        finally:
            filter.store.close()

    def learn(self, known: Mails) -> None:
        """Half as marks of people, half as sorted mail."""
        filter = self.opened()
        for start in range(0, len(known), 100):
            with filter.training() as training:
                for number, (label, content) in enumerate(known[start : start + 100], start):
                    person = number % 2 == 0
                    source, by = ("imap", f"user{number % 20}") if person else (BULK, "root")
                    training.learn(filter.read(parse(content)), label, source, by)
        filter.store.close()

    def mark(self, wanted: Iterable[tuple[str, bytes, Label]], marks_a_day: int) -> tuple[int, int]:
        """Marks of authors at the desk of a relay; how many taught something, and how many were refused."""
        filter = self.opened()

        async def all_of_them() -> tuple[int, int]:
            desk = MarkQueue(filter, Feedback(marks_a_day=marks_a_day), lambda: None)
            taken = refused = 0
            for by, content, label in wanted:
                try:
                    author = Author(by, AUTOMATIC if by == TRAP else "imap")
                    taken += (await desk.mark_mail(content, "a mail", label, author)).change.changed
                except Refused:
                    refused += 1
            await asyncio.to_thread(desk.close)
            return taken, refused

        try:
            return asyncio.run(all_of_them())
        finally:
            filter.store.close()


def harm(scores: Sequence[Score], mails: Mails) -> str:
    labels = [label for label, _ in mails]
    hams = [POLICY.classify(score, MANY) for score, label in zip(scores, labels, strict=True) if label == "ham"]
    spams = [POLICY.classify(score, MANY) for score, label in zip(scores, labels, strict=True) if label == "spam"]
    rates = hams.count("spam") / len(hams), hams.count("unsure") / len(hams), spams.count("ham") / len(spams)
    area = measure([score.log_odds for score in scores], [score.posterior for score in scores], labels).roca
    return " | ".join([*(f"{100 * rate:.1f}" for rate in rates), f"{area:.3f}"])


def differing(one: Sequence[Score], other: Sequence[Score]) -> str:
    apart = [abs(a.log_odds - b.log_odds) for a, b in zip(one, other, strict=True) if a != b]
    return f"{len(apart)} of {len(one)}" + (f", by {max(apart):.2g} at most" if apart else "")


ATTACKS: dict[str, Callable[[Material], list[tuple[str, bytes, Label]]]] = {
    "ham of hers, as spam": lambda found: [("mallory", content, "spam") for content in found.hers["ham"]],
    "spam of hers, as ham": lambda found: [("mallory", content, "ham") for content in found.hers["spam"]],
    "ham-like mail to a trap": lambda found: [(TRAP, content, "spam") for content in found.hers["ham"]],
    "what `train` has learnt, as the other": lambda found: [
        ("mallory", content, OTHER[label]) for label, content in found.known[1::2]
    ],
}


@contextmanager
def taught(found: Material) -> Iterator[Place]:
    """A database that knows the known mails."""
    with tempfile.TemporaryDirectory() as name:
        base = Place(Path(name) / "base")
        base.folder.mkdir()
        base.learn(found.known)
        yield base


def alone(attack: str, judged: int, number: int, learnt: int) -> list[str]:
    """Rows: one author's wrong marks, and nobody else meanwhile; number: of marks where there is no limit."""
    found = material(judged, number, learnt)
    with taught(found) as base:
        before, known = base.rows(), base.scores(found.judged)
        rows = []
        if attack == next(iter(ATTACKS)):
            rows.append(f"| {learnt:,} | nothing | | | {harm(known, found.judged)} | | | | |")
        for bound, share, surprises in (
            ("all", SHARE, marks.SURPRISES_A_DAY), ("`marks_a_day`", SHARE, NO_LIMIT), ("none", NO_LIMIT, NO_LIMIT)
        ):  # fmt: skip
            place = base.copy(f"{share}-{surprises}")
            with patch.object(marks, "SURPRISES_A_DAY", surprises):
                taken, refused = place.mark(ATTACKS[attack](found)[:number], share)
            struck, apart = harm(place.scores(found.judged), found.judged), len(before ^ place.rows())
            began = time.monotonic()
            place.command("forget", "--by", ATTACKS[attack](found)[0][0], "--yes")
            seconds = time.monotonic() - began
            left, healed = len(before ^ place.rows()), differing(known, place.scores(found.judged))
            rows.append(
                f"| {learnt:,} | {attack} | {bound} | {taken}, {refused} | {struck} | {apart:,}"
                f" | {left} | {healed} | {seconds:.0f} |"
            )
    return rows


def meanwhile(judged: int, number: int) -> list[str]:
    """Rows: somebody honest marks rightly in between, and the honest marks alone for comparison."""
    found = material(judged, number, LEARNT[0])
    number = min(number, SHARE)
    honest = [("bob", content, label) for label, content in found.his[:number]]
    wrong: list[tuple[str, bytes, Label]] = [("mallory", content, "spam") for content in found.hers["ham"][:number]]
    with taught(found) as base:
        clean, struck = base.copy("clean"), base.copy("struck")
        with patch.object(marks, "SURPRISES_A_DAY", NO_LIMIT):
            clean.mark(honest, NO_LIMIT)
            struck.mark([mark for pair in zip(wrong, honest, strict=True) for mark in pair], NO_LIMIT)
        rows = [f"| the right marks alone | {harm(clean.scores(found.judged), found.judged)} | | |"]
        for title, words in {
            f"{number} marks of each": [],
            "`forget --by`": ["forget", "--by", "mallory", "--yes"],
            "`retrain`, on both": ["retrain"],
        }.items():
            if words:
                struck.command(*words)
            if words == ["retrain"]:
                clean.command(*words)
            scores = struck.scores(found.judged)
            apart = differing(clean.scores(found.judged), scores)
            rows.append(f"| {title} | {harm(scores, found.judged)} | {len(clean.rows() ^ struck.rows()):,} | {apart} |")
    return rows
