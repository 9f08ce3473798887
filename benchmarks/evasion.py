"""Does text that nobody reads hide a spam from the filter, beside bogofilter under the same attacks?

Every second message of a stream is learnt as feedback comes, judged and then learnt. Of the others the hams are judged
as they are; each spam is written anew with a filler and without one. Fillers: a licence as any prose, words of a
dictionary (what is frequent in the ham of the other corpus), a ham that was learnt, quoted, and words made up at
random. Places: before and behind the text, in the alternative of plain text that is not shown beside one of HTML, and
in HTML that is not displayed.

    python benchmarks/evasion.py [--only CORPUS] [--size BYTES]... [--result FILE]

Needs SPAMFILTER_CORPORA and bogofilter; takes about five minutes. Exits with 1 where less than GOAL per cent of ours
is tagged.
"""

import argparse
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attacks import Parts, apart, block, frequent, hidden_html, hidden_part, whole
from corpora import unpacked
from peers import MAIL, Bogofilter, stripped
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import view
from spamfilter.config.settings import Settings
from spamfilter.evaluation.contenders import Contender
from spamfilter.evaluation.runs import CONFIGURED, entrants
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

CORPORA = {
    "SpamAssassin interleaved": ("spamassassin", "index.interleaved", None),
    "trec07p first 4,000": ("trec07p-first20000", "index", 4000),
}
SIZES = (4_500, 20_000)
GOAL = 92.0
"""Per cent of spam that must be tagged with each filler in each place."""
PROSE = Path("/usr/share/common-licenses/GPL-3")
LEARNT: Mapping[Label, int] = {"ham": 10**6, "spam": 10**6}
"""More than any policy asks for, so that what could be rejected is counted."""
BOGOFILTER_SPAM = 0.99

PLACES: dict[str, Callable[[Parts, bytes], bytes]] = {
    "before": lambda parts, filler: whole(parts, before=filler),
    "behind": lambda parts, filler: whole(parts, after=filler),
    "unseen alternative": hidden_part,
    "hidden HTML": hidden_html,
}
VOICES, OURS = entrants([CONFIGURED], Settings().learn)
POLICY = Policy()


def fillers(size: int, hams: Sequence[bytes], others: Sequence[bytes]) -> dict[str, Iterator[bytes]]:
    """Name -> fillers of this size, each another one. hams: that were learnt; others: words of other people's ham."""
    chance = random.Random(7)
    prose = PROSE.read_bytes()
    letters = b"abcdefghijklmnopqrstuvwxyz"

    def cut(made: Callable[[], bytes]) -> Iterator[bytes]:
        while True:
            text = b""
            while len(text) < size:
                text += made()
            yield text[:size] + b"\n"

    def quoted() -> bytes:
        return b"".join(b"> " + line + b"\n" for line in apart(chance.choice(hams)).text.splitlines())

    def passage() -> bytes:
        begin = prose.index(b"\n", chance.randrange(len(prose) - size))
        return prose[begin : begin + size]

    return {
        "prose": cut(passage),
        "dictionary": cut(lambda: block(chance.sample(others, 500))),
        "quoted ham": cut(quoted),
        "made-up words": cut(lambda: block(bytes(chance.choices(letters, k=chance.randint(4, 9))) for _ in range(200))),
    }


class Judge:
    """A filter, and the function by which it reads a mail."""

    def __init__(self, contender: Contender, tokens: Callable[[bytes], object]) -> None:
        self._contender = contender
        self._tokens = tokens

    def learn(self, mail: bytes, label: Label) -> None:
        self._contender.learn(self._tokens(mail), label)  # type: ignore[arg-type]

    def score(self, mail: bytes) -> Score:
        return self._contender.score(self._tokens(mail))  # type: ignore[arg-type]


def judges() -> tuple[Judge, Judge]:
    """Ours, and bogofilter."""
    return Judge(OURS()[0], lambda mail: view(VOICES, parse(mail))), Judge(
        Bogofilter(), lambda mail: {MAIL: {stripped(mail): 1}}
    )


def share(found: Sequence[bool]) -> str:
    return f"{100 * sum(found) / max(1, len(found)):.1f}"


def row(name: str, mails: Sequence[bytes], ours: Judge, peer: Judge) -> tuple[str, float]:
    """A line of the table, and the share of ours that is called spam."""
    scores = [ours.score(mail) for mail in mails]
    classes = [POLICY.classify(score, LEARNT) for score in scores]
    cells = [share([class_ == kind for class_ in classes]) for kind in ("spam", "unsure", "ham")]
    refused = share([score.least >= POLICY.reject for score in scores])
    theirs = share([peer.score(mail).posterior >= BOGOFILTER_SPAM for mail in mails])
    return f"| {name} | {' | '.join(cells)} | {refused} | {theirs} |", float(cells[0])


def attacked(
    corpus: str, mails: Sequence[tuple[Label, Mail]], others: Sequence[bytes], sizes: Sequence[int]
) -> Iterator[tuple[str, float]]:
    """Lines of the table about one corpus, and for each attack the share that is tagged all the same."""
    ours, peer = judges()
    hams = []
    for label, mail in mails[::2]:
        data = mail.read()
        ours.learn(data, label)
        peer.learn(data, label)
        if label == "ham":
            hams.append(data)
    rest = [(label, mail.read()) for label, mail in mails[1::2]]
    yield row(f"{corpus} | ham as it is | ", [data for label, data in rest if label == "ham"], ours, peer)[0], 100.0
    spams = [apart(data) for label, data in rest if label == "spam"]
    yield row(f"{corpus} | spam without a filler | ", [whole(parts) for parts in spams], ours, peer)[0], 100.0
    for size in sizes:
        for place, put in PLACES.items():
            for filler, texts in fillers(size, hams, others).items():
                name = f"{corpus} | {filler}, {size:,} bytes | {place}"
                yield row(name, [put(parts, text) for parts, text in zip(spams, texts, strict=False)], ours, peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CORPORA, help="only this corpus")
    parser.add_argument("--size", type=int, action="append", help="bytes of a filler")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    streams = {name: find_indexed(unpacked(folder) / index)[:most] for name, (folder, index, most) in CORPORA.items()}
    lines = [
        "| corpus | what is added | where | spam | unsure | ham | sure enough to reject | bogofilter: spam |",
        "|---|---|---|---|---|---|---|---|",
    ]
    missed = []
    for corpus, mails in streams.items():
        if arguments.only in (None, corpus):
            other = next(name for name in streams if name != corpus)
            hams = (mail.read() for label, mail in streams[other] if label == "ham")
            guessed = frequent(itertools.islice(hams, 2000), 10_000)
            for line, tagged in attacked(corpus, mails, guessed, arguments.size or SIZES):
                print(line, flush=True)
                lines.append(line)
                missed += [line] * (tagged < GOAL)
    lines += ["", f"Per cent; {len(missed)} attacks leave less than {GOAL:g} % tagged. {Bogofilter.version()}."]
    if arguments.result:
        write_result(arguments.result, "Text that nobody reads", __file__, "\n".join([*lines, ""]))
    if missed:
        sys.exit(lines[-1])


if __name__ == "__main__":
    main()
