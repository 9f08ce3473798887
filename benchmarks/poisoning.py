"""What can an attacker do to the filter by what it reads and by what it is taught, and what heals it?

Every second message of a stream is learnt once, in order, as feedback comes; of the others some are judged, without
learning but for the attack. The filter is the product's default, its own parser and model.

1. Good words: spam stuffed with words that are hammiest in the filter's own counts (the attacker knows them), or
   most frequent in the ham of the other corpus (the attacker guesses); and how many marks stop it.
2. Floods of dictionaries: spam full of innocent words, learnt as spam, as that it is (Nelson et al., Exploiting Machine
   Learning to Subvert Your Spam Filter, LEET 2008); beside multinomial and bogofilter.
3. One ham as the target: spam with guesses of its words, learnt as spam (the focused attack of the same paper).
4. Bounds of the tokenizer and the model, taken out one by one.
5. Wrong marks of one author, on a real database: mass_feedback.py.
6. Spam that is learnt because a user answers its sender: laundering.py.

    python benchmarks/poisoning.py [--result FILE] [--quick] [--processes N] [--only answers|marks]

Needs SPAMFILTER_CORPORA and bogofilter; takes about a quarter of an hour. --only: the last part, or that of wrong
marks, alone.
"""

import argparse
import itertools
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import laundering
import mass_feedback
from attacks import PLACES, apart, flood, forged, frequent, sliced, whole
from corpora import unpacked
from peers import MAIL, Bogofilter, stripped
from results import write_result

from spamfilter.bayes import model
from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.eddc import Eddc
from spamfilter.bayes.voices import Voice, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.evaluation.error_rates import measure
from spamfilter.evaluation.runs import CONFIGURED, entrants
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.mail import message
from spamfilter.mail.message import parse

Mails = Sequence[tuple[Label, bytes]]
CORPORA = {
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None),
    "trec07p first 10,000": ("trec07p-first20000", "index", 10_000),
}
SPAM, UNSURE = 0.9, 0.5
NUMBERS = (10, 100, 1000)
SHARES = (1, 2, 5, 10)
"""Floods in per cent of what was learnt before."""
DICTIONARY = 10_000
LEARNT = 2000
"""Mails of each stream that are learnt before, at most."""
HALF_RIGHT = (0.1, 0.3, 0.5, 0.9)
"""Share of the target's words that the attacker guesses."""
SENT = (10, 30, 100)


@dataclass(frozen=True)
class Stream:
    """learnt, judged: every second message each; guessed: words that other people's ham has."""

    name: str
    learnt: Mails
    judged: Mails
    guessed: list[bytes]


def read(name: str, judged: int) -> Stream:
    found = {title: find_indexed(unpacked(archive) / index)[:most] for title, (archive, index, most) in CORPORA.items()}
    others = (mail.read() for title, mails in found.items() if title != name for label, mail in mails if label == "ham")
    guessed = frequent(itertools.islice(others, 2000), DICTIONARY)
    mails = [(label, mail.read()) for label, mail in found[name][: 2 * LEARNT]]
    rest = mails[1::2]
    step = max(1, len(rest) // judged)
    return Stream(name, mails[::2], rest[::step][:judged], guessed)


def bounded(voice: Voice, bounds: Mapping[str, float]) -> Voice:
    """The voice; that of the phrases with other values of these fields of its rule."""
    rule = voice.likelihood
    return replace(voice, likelihood=replace(rule, **bounds)) if isinstance(rule, Eddc) else voice


class Victim:
    """A filter that is attacked; what it learns can be taken back."""

    def __init__(self, likelihood: str = CONFIGURED, **bounds: float) -> None:
        self.voices = tuple(bounded(voice, bounds) for voice in entrants([likelihood], Learn())[0])
        self.state = model.empty(self.voices, SpelledTable)  # which can list its words

    def posterior(self, mail: bytes) -> float:
        return self.score(mail).posterior

    def score(self, mail: bytes) -> model.Score:
        return model.score(self.voices, view(self.voices, parse(mail)), self.state)

    def learn(self, mail: bytes, label: Label) -> model.Lesson:
        tokens = view(self.voices, parse(mail))
        return model.taught(self.voices, tokens, label, self.state, model.score(self.voices, tokens, self.state))

    def unlearn(self, lessons: Sequence[model.Lesson]) -> None:
        for lesson in reversed(lessons):
            model.apply(self.voices, lesson, self.state, -1)

    def train(self, mails: Mails) -> None:
        for label, mail in mails:
            self.learn(mail, label)

    def hammiest(self, header: bool, number: int = max(NUMBERS)) -> list[bytes]:
        """Words of the text that speak for ham the loudest, or words of header fields, the loudest first."""
        counts = self.state.counts["fields"].words
        known = [
            (counts["spam"].get(word, 0) + 24) / (count + 24) for word, count in counts["ham"].items()
        ]  # eighths of a message, and the prior of the soft rule
        order = sorted(zip(known, counts["ham"], strict=True))
        return [
            word for _, word in order
            if b" " not in word and b"~" not in word and (b":" in word[1:-1]) == header
        ][:number]  # fmt: skip


class Peer:
    """bogofilter, which cannot unlearn what it has learnt."""

    def __init__(self) -> None:
        self._program = Bogofilter()

    def score(self, mail: bytes) -> model.Score:
        return self._program.score({MAIL: {stripped(mail): 1}})

    def learn(self, mail: bytes, label: Label) -> None:
        self._program.learn({MAIL: {stripped(mail): 1}}, label)

    def train(self, mails: Mails) -> None:
        for label, mail in mails:
            self.learn(mail, label)


def per_cent(part: int, of: int) -> str:
    return f"{100 * part / of:.1f}"


def passed(posteriors: Sequence[float]) -> str:
    """Shares that pass as ham, and as unsure."""
    ham = sum(p < UNSURE for p in posteriors)
    unsure = sum(UNSURE <= p < SPAM for p in posteriors)
    return f"{per_cent(ham, len(posteriors))} / {per_cent(unsure, len(posteriors))}"


def harm(victim: Victim | Peer, judged: Mails) -> str:
    """Shares of ham lost and unsure, spam that passes as ham, 1-ROCA%."""
    scores = [victim.score(mail) for _, mail in judged]
    labels = [label for label, _ in judged]
    hams = [score.posterior for score, label in zip(scores, labels, strict=True) if label == "ham"]
    spams = [score.posterior for score, label in zip(scores, labels, strict=True) if label == "spam"]
    lost = sum(p >= SPAM for p in hams)
    unsure = sum(UNSURE <= p < SPAM for p in hams)
    missed = sum(p < UNSURE for p in spams)
    area = measure([score.log_odds for score in scores], [score.posterior for score in scores], labels).roca
    return f"{per_cent(lost, len(hams))} | {per_cent(unsure, len(hams))} | {per_cent(missed, len(spams))} | {area:.3f}"


def of(mails: Mails, label: Label, most: int) -> list[bytes]:
    return [mail for kind, mail in mails if kind == label][:most]


def knowledge(stream: Stream, victim: Victim) -> dict[str, list[bytes]]:
    return {"knows the counts": victim.hammiest(header=False), "guesses": stream.guessed}


def good_words(stream: Stream, victim: Victim, most: int) -> list[str]:
    """Rows: what passes of stuffed spam, without any mark."""
    spams = [apart(mail) for mail in of(stream.judged, "spam", most)]
    before = passed([victim.posterior(whole(parts)) for parts in spams])
    rows = [f"| {stream.name} | - | - | {before} | | |"]
    for attacker, words in knowledge(stream, victim).items():
        for place, stuff in PLACES.items():
            cells = [passed([victim.posterior(stuff(parts, words[:number])) for parts in spams]) for number in NUMBERS]
            rows.append(f"| {stream.name} | {attacker} | {place} | {' | '.join(cells)} |")
    tokens = victim.hammiest(header=True)
    cells = [passed([victim.posterior(forged(parts, tokens[:number])) for parts in spams]) for number in NUMBERS]
    rows.append(f"| {stream.name} | knows the counts | forged header fields | {' | '.join(cells)} |")
    return rows


def marks_needed(stream: Stream, victim: Victim, most: int) -> list[str]:
    """Rows: stuffed spam one after the other; what is not called spam is marked as spam."""
    spams = [apart(mail) for mail in of(stream.judged, "spam", most)]
    rows = []
    attacks: dict[str, Callable[[], Iterator[bytes]]] = {
        "1,000 words it knows, always the same": lambda: _same(spams, victim.hammiest(False), PLACES["at the start"]),
        "1,000 words it guesses, always the same": lambda: _same(spams, stream.guessed[:1000], PLACES["at the start"]),
        "1,000 words it knows, anew for each mail": lambda: (
            PLACES["at the start"](parts, victim.hammiest(False)) for parts in spams
        ),
        "100 header words it knows, always the same": lambda: _same(spams, victim.hammiest(True)[:100], forged),
    }
    for title, attack in attacks.items():
        lessons, marked_at = [], []
        for number, mail in enumerate(attack(), 1):
            if victim.posterior(mail) < SPAM:
                marked_at.append(number)
                lessons.append(victim.learn(mail, "spam"))
        first = sum(number <= 20 for number in marked_at)
        rows.append(
            f"| {stream.name} | {title} | {first} | {len(marked_at)} of {len(spams)} | {harm(victim, stream.judged)} |"
        )
        victim.unlearn(lessons)
    return rows


def _same(spams: Sequence[object], words: Sequence[bytes], stuff: Callable[..., bytes]) -> Iterator[bytes]:
    return (stuff(parts, words) for parts in spams)


VICTIMS: dict[str, Callable[[], Victim | Peer]] = {
    "default": Victim,
    "multinomial": lambda: Victim("multinomial"),
    "bogofilter": Peer,
}


def floods(stream: Stream, name: str) -> list[str]:
    """Rows: words of a dictionary, learnt as spam in mails after all else was learnt."""
    spams = [apart(mail).head for mail in of(stream.learnt, "spam", 500)]
    hams = [apart(mail).head for mail in of(stream.learnt, "ham", 500)]
    victim = VICTIMS[name]()
    victim.train(stream.learnt)
    rows = [f"| {stream.name} | {name} | none | - | {harm(victim, stream.judged)} |"]
    attacks = {"headers of spam": (stream.guessed, spams)}
    if isinstance(victim, Victim):
        attacks["no header"] = (stream.guessed, [b""])
    if isinstance(victim, Victim) and name == "default":
        attacks["headers of ham"] = (stream.guessed, hams)
        attacks["no header, knows the counts"] = (victim.hammiest(False, DICTIONARY), [b""])
    for title, (dictionary, heads) in attacks.items():
        # What reads on is sent all words at once, as in the paper.
        mails = _flood(dictionary, heads, message.MAX_TEXT if isinstance(victim, Victim) else 10**6)
        lessons, sent = [], 0
        for share in SHARES:
            while sent < share * len(stream.learnt) // 100:
                lessons.append(victim.learn(next(mails), "spam"))
                sent += 1
            rows.append(f"| {stream.name} | {name} | {title} | {share} % | {harm(victim, stream.judged)} |")
        if isinstance(victim, Victim):
            victim.unlearn([lesson for lesson in lessons if lesson is not None])
    return rows


def _flood(dictionary: Sequence[bytes], heads: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Mails with other words of the dictionary each time, as many as fit into so many bytes."""
    chance = random.Random(1)
    for number in itertools.count():
        yield flood(heads[number % len(heads)], sliced(dictionary, chance, size), number)


def focused(stream: Stream, victim: Victim, targets: int) -> list[str]:
    """Rows: what becomes of hams whose words somebody guesses and sends in spam."""
    chance = random.Random(2)
    heads = [apart(mail).head for mail in of(stream.learnt, "spam", 500)]
    hams = [mail for mail in of(stream.judged, "ham", 10**6) if victim.posterior(mail) < UNSURE]
    hams = chance.sample(hams, targets)
    rows = []
    for named in (False, True):
        for share in HALF_RIGHT:
            found: dict[int, list[float]] = {number: [] for number in SENT}
            for ham in hams:
                parts, lessons = apart(ham), []
                known = parts.text.split()
                own = b"".join(
                    line + b"\n" for line in parts.head.split(b"\n") if line.lower().startswith((b"from:", b"subject:"))
                )
                for number in range(1, max(SENT) + 1):
                    head = heads[number % len(heads)]
                    guess = [word for word in known if chance.random() < share]
                    lessons.append(victim.learn(flood(own + head if named else head, guess, number), "spam"))
                    if number in found:
                        found[number].append(victim.posterior(ham))
                victim.unlearn(lessons)
            cells = [
                f"{per_cent(sum(p >= SPAM for p in each), targets)} / "
                f"{per_cent(sum(UNSURE <= p < SPAM for p in each), targets)}"
                for each in found.values()
            ]
            knows = "words, sender and subject" if named else "words"
            rows.append(f"| {stream.name} | {knows} | {share:.0%} | {' | '.join(cells)} |")
    return rows


@dataclass(frozen=True)
class Bounds:
    """What stands for a bound that is taken out: bytes of the text that are read, and fields of the phrases' rule."""

    text: int | None = None
    phrases: Mapping[str, float] = field(default_factory=dict)


BOUNDS = {
    "none taken out": Bounds(),
    "4,000 bytes of text": Bounds(text=65_536),
    "20 from the header's phrases": Bounds(phrases={"limit": math.inf}),
    "15 from the text's phrases": Bounds(phrases={"text_limit": math.inf}),
    "no repeats against the score": Bounds(phrases={"doubt": math.inf}),
}


@contextmanager
def read_up_to(text: int | None) -> Iterator[None]:
    """Mails, with so many bytes of their text; None: with those of the product."""
    if text is None:
        yield
    else:
        with patch.multiple(message, MAX_TEXT=text, MAX_BODY=text):
            yield


def bounds(stream: Stream, bound: str, most: int) -> list[str]:
    """A row: the worst good words and the flood, without this bound."""
    with read_up_to(BOUNDS[bound].text):
        victim = _trained(stream, **BOUNDS[bound].phrases)
        spams = [apart(mail) for mail in of(stream.judged, "spam", most)]
        words, tokens = victim.hammiest(False), victim.hammiest(True)
        cells = [
            passed([victim.posterior(whole(parts)) for parts in spams]),
            passed([victim.posterior(PLACES["at the end"](parts, words)) for parts in spams]),
            passed([victim.posterior(PLACES["in a hidden part"](parts, words)) for parts in spams]),
            passed([victim.posterior(forged(parts, tokens[:100])) for parts in spams]),
        ]
        mails = _flood(stream.guessed, [b""], message.MAX_TEXT)
        before = harm(victim, stream.judged)
        for _ in range(5 * len(stream.learnt) // 100):
            victim.learn(next(mails), "spam")
        after = harm(victim, stream.judged)
    ends = [" / ".join(each.split(" | ")[::3]) for each in (before, after)]
    return [f"| {stream.name} | {bound} | {' | '.join([*cells, *ends])} |"]


def _trained(stream: Stream, **bounds: float) -> Victim:
    victim = Victim(CONFIGURED, **bounds)
    victim.train(stream.learnt)
    return victim


@dataclass(frozen=True)
class Size:
    """How many mails are judged, spams stuffed, hams aimed at, wrong marks made without a limit, and how many mails are
    judged of which an answered stranger sends the spam."""

    judged: int
    spams: int
    targets: int
    marks: int
    answered: int


WHOLE, QUICK = Size(400, 80, 6, 400, 1000), Size(100, 20, 2, 40, 100)


def stuffed(name: str, size: Size) -> dict[str, list[str]]:
    """The rows of three parts on one stream, by one filter that has learnt it."""
    stream = read(name, size.judged)
    victim = _trained(stream)
    return {
        "words": good_words(stream, victim, size.spams),
        "marks": marks_needed(stream, victim, size.spams),
        "target": focused(stream, victim, size.targets),
    }


def flooded(name: str, victim: str, size: Size) -> dict[str, list[str]]:
    return {"floods": floods(read(name, size.judged), victim)}


def unbounded(name: str, bound: str, size: Size) -> dict[str, list[str]]:
    return {"bounds": bounds(read(name, size.judged), bound, size.spams)}


def marked(attack: str, learnt: int, size: Size) -> dict[str, list[str]]:
    return {"author": mass_feedback.alone(attack, size.judged, size.marks, learnt)}


def answered(name: str, size: Size) -> dict[str, list[str]]:
    stream = read(name, size.answered)
    return {"answers": laundering.laundered(name, stream.learnt, stream.judged, stream.guessed)}


def interleaved(size: Size) -> dict[str, list[str]]:
    return {"meanwhile": mass_feedback.meanwhile(size.judged, size.marks)}


HARM = "ham lost | ham unsure | spam as ham | 1-ROCA%"
PARTS: dict[str, tuple[str, str]] = {
    "words": ("Good words", "stream | the attacker | words | 10 | 100 | 1,000"),
    "marks": ("Marks until stuffed spam is caught", f"stream | words | marks in the first 20 | in all | {HARM}"),
    "floods": ("Floods of dictionaries", f"stream | filter | flood | of what was learnt | {HARM}"),
    "target": ("One ham as the target", "stream | the attacker knows | words guessed | 10 | 30 | 100"),
    "bounds": (
        "Without a bound",
        "stream | taken out | as it came | 1,000 words at the end | in a hidden part | 100 forged header words"
        " | ham lost / 1-ROCA% before a flood of 5 % | after",
    ),
    "author": (
        "Wrong marks of one author",
        f"learnt before | what one author marks | bounds | marks taken, refused | {HARM} | rows that differ from before"
        " | after `forget --by` | log-odds that differ then | seconds it took",
    ),
    "meanwhile": (
        "And right marks of another in turns with them",
        f"| {HARM} | rows that differ from the right marks alone | log-odds that differ",
    ),
    "answers": (
        "Answers that launder spam",
        "stream | the question | the rule | stuffed spam sent, not tagged | answers | learnt as ham"
        f" | stuffed spam tagged before | after each answer | {HARM}",
    ),
}


EXPLAINED = (
    "All rates in per cent. `a / b`: of stuffed spam, what passes as ham / as unsure; of a target, how many are lost /"
    " are unsure. Ham is lost from a probability of 0.9 on, and unsure from 0.5; spam below 0.5 passes as ham. The"
    " dictionary that is guessed is of the other corpus. Answers: the rule as before learnt the mail of every"
    " Message-ID in In-Reply-To and References; sent and tagged is spam with 1,000 guessed words at its start."
)


def table(title: str, head: str, rows: Sequence[str]) -> list[str]:
    return [f"## {title}", "", f"| {head} |", "|---" * (head.count("|") + 1) + "|", *rows, ""]


def wrong_marks(pool: ProcessPoolExecutor, size: Size) -> list[Future[dict[str, list[str]]]]:
    attacks = itertools.product(mass_feedback.ATTACKS, mass_feedback.LEARNT)
    return [
        *(pool.submit(marked, attack, learnt, size) for attack, learnt in attacks),
        pool.submit(interleaved, size),
    ]


def others(pool: ProcessPoolExecutor, size: Size) -> list[Future[dict[str, list[str]]]]:
    """All parts but those of the answers and of wrong marks."""
    runs = [pool.submit(stuffed, name, size) for name in CORPORA]
    runs += [pool.submit(flooded, name, victim, size) for name in CORPORA for victim in VICTIMS]
    runs += [pool.submit(unbounded, next(iter(CORPORA)), bound, size) for bound in BOUNDS]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too")
    parser.add_argument("--quick", action="store_true", help="fewer mails, to see that it runs")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="parts that run at a time")
    parser.add_argument("--only", choices=("answers", "marks"), help="only answers that launder spam, or wrong marks")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else WHOLE
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    with ProcessPoolExecutor(arguments.processes) as pool:
        runs = [pool.submit(answered, name, size) for name in CORPORA if arguments.only != "marks"]
        if arguments.only != "answers":
            runs += wrong_marks(pool, size)
        if not arguments.only:
            runs += others(pool, size)
        for each in runs:
            for part, rows in each.result().items():
                found[part] += rows
                print("\n".join(rows), flush=True)
    lines = [EXPLAINED, ""]
    lines += [line for part, (title, head) in PARTS.items() if found[part] for line in table(title, head, found[part])]
    if arguments.result:
        write_result(arguments.result, "Poisoning", __file__, "\n".join(lines))


if __name__ == "__main__":
    main()
