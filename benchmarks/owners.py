"""Does a voice of one's own help owners who disagree about mailing lists, and does it cost the others anything?

Each mail of a stream goes to one of six owners, drawn at random. The first ones are trained with the labels of the
corpus, as an administrator would; then each owner marks what is judged otherwise than the owner wants it. Three owners
want what the corpus says. `first` calls some mailing lists spam; `second` calls the other lists spam, and wants spam
that offers to unsubscribe, as a reader of advertisements does. `nonsense` marks at random. The filter is the product's
default, its own parser, model and thresholds.

    python benchmarks/owners.py [--result FILE] [--processes N]

Needs SPAMFILTER_CORPORA; takes about two minutes.
"""

import argparse
import os
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from corpora import unpacked
from results import write_result

from spamfilter.bayes import model
from spamfilter.bayes.groups import OWN
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.verdict import Class, Policy
from spamfilter.bayes.voices import Voices, VoiceTokens, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.evaluation.error_rates import measure
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.mail.message import Message, parse

STREAMS: Mapping[str, tuple[str, str, int | None, int]] = {
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None, 1000),
    "trec07p first 9,000": ("trec07p-first20000", "index", 9000, 1500),
}
"""Name -> archive, index, most mails, and how many of them are trained first."""
AGREEING = ("third", "fourth", "fifth")
NONSENSE = "nonsense"
OWNERS = ("first", "second", *AGREEING, NONSENSE)
UNWANTED = {
    "first": ("fork.xent", "razor-users", "forteana", "r-help", "perl6", "speakup", "ip-health"),
    "second": ("ilug", "rpm-zzzlist", "exmh", "samba", "beginners.perl", "debian", "sugar"),
}
"""Owner -> parts of the names of mailing lists that the owner calls spam."""
LIST_FIELDS = (b"list-id", b"mailing-list", b"x-mailing-list", b"sender")
VOICES = Learn(groups="domain").chosen()
POLICY = Policy()


class Arrival(NamedTuple):
    """A mail of the stream. label: of the corpus; wanted: by its owner; marked: what the owner would mark."""

    owner: str
    label: Label
    wanted: Label
    marked: Label
    message: Message


def arrivals(stream: str) -> Iterator[Arrival]:
    archive, index, most, _ = STREAMS[stream]
    chance = random.Random(7)
    for label, mail in find_indexed(unpacked(archive) / index)[:most]:
        message, owner = parse(mail.read()), chance.choice(OWNERS)
        wanted = _wanted(owner, label, message)
        yield Arrival(owner, label, wanted, chance.choice(LABELS) if owner == NONSENSE else wanted, message)


def _wanted(owner: str, label: Label, message: Message) -> Label:
    name = next((value for field in LIST_FIELDS if (value := message.field(field))), "").lower()
    if label == "ham" and any(part in name for part in UNWANTED.get(owner, ())):
        return "spam"
    return "ham" if owner == "second" and label == "spam" and b"unsubscribe" in message.text.lower() else label


class Judged(NamedTuple):
    owner: str
    wanted: Label
    class_: Class
    score: model.Score


@dataclass
class Contender:
    """A filter and whom it learns from. weight: of the own voice; 0: all marks teach everybody's voices.

    marking: the owners whose marks it gets.
    """

    name: str
    weight: float
    marking: tuple[str, ...] = OWNERS
    voices: Voices = ()
    state: model.State = field(init=False)
    judged: list[Judged] = field(default_factory=list)

    def __post_init__(self) -> None:
        *shared, own = VOICES
        self.voices = (*shared, replace(own, weight=self.weight or 1.0))
        self.state = model.empty(self.voices)

    def train(self, mail: Arrival, tokens: VoiceTokens) -> None:
        score = model.score(self.voices, tokens, self.state)
        model.taught(self.voices, tokens, mail.label, self.state, score)

    def meet(self, mail: Arrival, tokens: VoiceTokens, own: VoiceTokens) -> None:
        """Judge a mail, and learn it if its owner marks it."""
        seen = own if self.weight else tokens
        score = model.score(self.voices, seen, self.state)
        class_ = POLICY.classify(score, self.state.learnt)
        self.judged.append(Judged(mail.owner, mail.wanted, class_, score))
        if class_ != mail.marked and mail.owner in self.marking:
            model.taught(self.voices, seen, mail.marked, self.state, score)

    def row(self, stream: str) -> str:
        cells = []
        for owner in OWNERS:
            mine = [each for each in self.judged if each.owner == owner]
            lost = sum((each.wanted, each.class_) == ("ham", "spam") for each in mine)
            missed = sum((each.wanted, each.class_) == ("spam", "ham") for each in mine)
            unsure = sum(each.class_ == "unsure" for each in mine)
            scores = [each.score for each in mine]
            wanted = [each.wanted for each in mine]
            area = measure([each.log_odds for each in scores], [each.posterior for each in scores], wanted).roca
            cells.append(f"{lost} / {missed} / {unsure} / {area:.2f}")
        return f"| {stream} | {self.name} | {' | '.join(cells)} |"


WEIGHT = VOICES[-1].weight
EVERYBODY = "marks teach everybody"


def run(stream: str) -> tuple[list[str], str]:
    """The rows of a stream, and what nonsense has changed for the others."""
    contenders = [
        Contender(EVERYBODY, 0),
        Contender("the same without nonsense", 0, OWNERS[:-1]),
        Contender("nobody marks", 0, ()),
        Contender("marks teach their owner: weight 1", 1),
        Contender(f"**weight {WEIGHT:g}, the product**", WEIGHT),
        Contender("weight 3", 3),
        Contender(f"weight {WEIGHT:g} without nonsense", WEIGHT, OWNERS[:-1]),
    ]
    train_first = STREAMS[stream][3]
    lists = dict.fromkeys(OWNERS, 0)
    for number, mail in enumerate(arrivals(stream)):
        seen = view(VOICES, mail.message, f"{mail.owner}.example")
        own = {name: seen[name] for name in seen}
        tokens = {name: own[name] for name in own if name != OWN}
        if number >= train_first:
            lists[mail.owner] += mail.label != mail.wanted
        for contender in contenders:
            if number < train_first:
                contender.train(mail, tokens)
            else:
                contender.meet(mail, tokens, own)
    touched = {
        kind: sum(
            one.score.log_odds != other.score.log_odds
            for one, other in zip(contenders[with_].judged, contenders[without].judged, strict=True)
            if one.owner != NONSENSE
        )
        for kind, with_, without in (("own", 4, 6), ("all", 0, 1))
    }
    others = sum(each.owner != NONSENSE for each in contenders[0].judged)
    said = (
        f"{stream}: {lists['first']} mails of `first` and {lists['second']} of `second` are wanted otherwise than the"
        f" corpus says. Nonsense changed the log-odds of {touched['own']} of the {others:,} mails of the other owners;"
        f" where marks teach everybody, of {touched['all']:,}."
    )
    return [contender.row(stream) for contender in contenders], said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="streams that run at a time")
    arguments = parser.parse_args()
    lines = [
        "Of each owner: ham tagged as spam / spam that passes as ham / unsure / 1-ROCA%, by what the owner wants.",
        "",
        f"| stream | | {' | '.join(OWNERS)} |",
        "|---" * (len(OWNERS) + 2) + "|",
    ]
    with ProcessPoolExecutor(arguments.processes) as pool:
        found = [*pool.map(run, STREAMS)]
    lines += [row for rows, _ in found for row in rows]
    lines += ["", *(f"{said}\n" for _, said in found)]
    text = "\n".join(lines)
    print(text)
    if arguments.result:
        write_result(arguments.result, "A voice of one's own", __file__, text)


if __name__ == "__main__":
    main()
