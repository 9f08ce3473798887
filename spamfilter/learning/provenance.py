"""Provenance of a verdict: the learnings behind each token, and what would change the class.

Guarantee: nothing is written, and learning goes on in the meantime.
The counts of a token are the sum of what each learning has added, so the ledger is read from its end until the counts
are accounted for, at most LOOKED_AT learnings; `cut_short` says that this was not enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.token_codec import subject_words
from spamfilter.bayes.tokens import Token, is_read
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import Evidence, Voice
from spamfilter.learning.counterfactuals import Counterfactuals, Distance, SupposedVerdict, Without
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading, undone_with
from spamfilter.stores import Entry, Store

SHOWN = 25
"""Tokens whose learnings are looked for: as many as a screen shows."""
OTHERS = 10
"""Of these tokens, those that people do not read, if there are enough words that people read."""
SILENT = 0.0005
"""A share of the log-odds below this would be shown as 0.000, and is passed over."""
TOLD = 3
"""Learnings that are named for one token."""
LOOKED_AT = 20_000
"""Learnings that are looked at, at most: three seconds."""
CHUNK = 500
"""Learnings looked at in one transaction: a tenth of a second."""
BLAMED = 3
"""Learnings for which the verdict without them is computed."""
INFLUENCE = 0.5
"""Share of the absolute weight of the shown tokens that such a learning must have added to."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The learnings that gave a token its counts, as ledger ids, the latest first. more: whether there are others."""

    trainings: Sequence[int]
    more: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """A learning, by the id of its ledger entry. id: of the message, '' if it has left the journal; then the subject is
    its words alone.
    """

    training: int
    at: datetime
    label: Label
    source: str
    by: str
    id: str
    subject: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A learning, and the outcome without it.

    itself: whether it is of the judged message. tokens: how many of the shown tokens it has added to.
    """

    training: int
    itself: bool
    tokens: int
    outcome: SupposedVerdict


@dataclass(frozen=True, slots=True)
class Provenance:
    """The learnings behind a verdict, and what would change it.

    traces: of the first pieces of evidence, in their order. origins: the learnings that they and `forgotten` name, the
    latest first. looked_at: number of learnings that were read. cut_short: whether older ones may be missing. learnt:
    the label with which this message itself is learnt. without: for each class next to the verdict the tokens whose
    absence leads there, if any does. marked: label -> the outcome after a mark.
    """

    traces: Sequence[Trace]
    origins: Sequence[Origin]
    looked_at: int
    cut_short: bool
    learnt: Label | None
    distances: Sequence[Distance]
    without: Sequence[Without]
    marked: Mapping[Label, SupposedVerdict]
    forgotten: Sequence[Forgotten]


def shown(evidence: Sequence[Evidence]) -> Sequence[Evidence]:
    """The pieces of evidence whose learnings are looked for, first the words that people read.

    evidence: all of it, the loudest first.
    """
    parts: tuple[list[Evidence], list[Evidence]] = [], []
    for item in evidence:
        if abs(item.weight) >= SILENT:
            parts[not is_read(item.word)].append(item)
    read, others = parts
    others = others[: max(OTHERS, SHOWN - len(read))]
    return [*read[: SHOWN - len(others)], *others]


def provenance(
    filter: Filter, policy: Policy, reading: Reading, score: Score, evidence: Sequence[Evidence]
) -> Provenance:
    """Find the learnings behind this score of a message, and try what would change its class.

    score, evidence: the result of `filter.explained` for all tokens.
    """
    undone, state = _known(filter, reading)
    active = undone[0] if undone else None
    changed = Counterfactuals(filter, policy, state, policy.classify(score, state.learnt))
    search = _Search(filter.store, [_Sought.of(item, filter, state) for item in shown(evidence)])
    search.run(state.last)
    blamed = [entry for _, _, entry in search.blamed if entry.digest != reading.digest]
    if active is not None and any(active.added.values()):
        blamed.insert(0, active)
    forgotten = []
    for entry in blamed[:BLAMED]:
        outcome = changed.forgotten(reading.tokens, entry)
        if outcome is not None:
            held = sum(bool(sought.gift(entry)) for sought in search.sought)
            forgotten.append(Forgotten(entry.id, entry.digest == reading.digest, held, outcome))
    named = search.named | {entry.id: _named(entry) for entry in blamed}
    traces = [sought.trace() for sought in search.sought]
    wanted = {id for trace in traces for id in trace.trainings} | {item.training for item in forgotten}
    return Provenance(
        traces=traces,
        origins=_origins(filter.store, [named[id] for id in wanted]),
        looked_at=search.looked_at,
        cut_short=search.cut_short,
        learnt=active.message_label if active else None,
        distances=changed.distances(score),
        without=changed.without(reading.tokens, evidence),
        marked={label: changed.marked(reading.tokens, undone, label) for label in LABELS},
        forgotten=forgotten,
    )


def _known(filter: Filter, reading: Reading) -> tuple[list[Entry], State]:
    """The learning of a message with what is undone with it, and counts of the same moment, also if it is learnt or
    forgotten meanwhile."""

    def learnt() -> list[Entry]:
        return undone_with(filter.store, filter.store.active(reading.digest))

    undone = learnt()
    while True:
        state = filter.counts_of(reading.tokens, *(entry.tokens for entry in undone))
        before, undone = undone, learnt()
        if undone == before:
            return undone, state


_Named = tuple[Entry, str]
"""A learning, without its tokens, and the words of its subject, for when it has left the journal."""


def _named(entry: Entry) -> _Named:
    return replace(entry, tokens={}), subject_words(entry.tokens)


def _origins(store: Store, named: Sequence[_Named]) -> list[Origin]:
    """The latest first. A mail that training has gone over again keeps its time, and has a later number."""
    kept = store.journal_of([entry.digest for entry, _ in named])
    found = []
    for entry, words in sorted(named, key=lambda one: (one[0].at, one[0].id), reverse=True):
        mail = kept.get(entry.digest)
        id, subject = (mail.id, mail.subject) if mail else ("", words)
        found.append(Origin(entry.id, entry.at, entry.message_label, entry.source, entry.by, id, subject))
    return found


@dataclass(slots=True)
class _Sought:
    """A token whose learnings are looked for. left: the part of its counts that is not found yet, by class."""

    token: Token
    voice: Voice
    weight: float
    left: dict[Label, int]
    found: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, item: Evidence, filter: Filter, state: State) -> "_Sought":
        voice = next(voice for voice in filter.voices if voice.name == item.voice)
        token, counts = item.token.encode(), state.counts[item.voice]
        return cls(token, voice, item.weight, {label: counts.get(token, label) for label in LABELS})

    @property
    def open(self) -> bool:
        return len(self.found) < TOLD and any(count > 0 for count in self.left.values())

    def gift(self, entry: Entry) -> int:
        """The amount that a learning has added to the counts of this token."""
        times = entry.tokens.get(self.voice.name, {}).get(self.token)
        amount = entry.added.get(self.voice.name, 0)
        if times is None or not amount:
            return 0
        return self.voice.likelihood.deltas({self.token: times}, amount).get(self.token, 0)

    def take(self, entry: Entry) -> bool:
        """Note a learning; returns whether it has added anything."""
        gift = self.gift(entry)
        if gift:
            self.left[entry.message_label] -= gift
            self.found.append(entry.id)
        return gift > 0

    def trace(self) -> Trace:
        more = len(self.found) > TOLD or any(count > 0 for count in self.left.values())
        return Trace(tuple(self.found[:TOLD]), more)


class _Search:
    """The search for the learnings behind some tokens, from the latest back.

    It ends when each token has TOLD learnings or all its counts are accounted for, or after LOOKED_AT learnings.
    named: by id, the learnings that a trace may name. blamed: those with the most influence, with
    their tokens: the weight of what each has added to, its id, and itself.
    """

    def __init__(self, store: Store, sought: Sequence[_Sought]) -> None:
        self._store = store
        self.sought = sought
        self.named: dict[int, _Named] = {}
        self.looked_at = 0
        self.cut_short = False
        self.blamed: list[tuple[float, int, Entry]] = []
        self._enough = INFLUENCE * sum(abs(item.weight) for item in sought)

    def run(self, last: int) -> None:
        """Look at the learnings up to the ledger entry `last`."""
        before = last + 1
        while before and (wanted := self._wanted()):
            if self.looked_at >= LOOKED_AT:
                self.cut_short = True
                return
            found = self._store.holders(wanted, before, min(CHUNK, LOOKED_AT - self.looked_at))
            self.looked_at += found.looked_at
            before = found.last
            for entry in found.entries:
                self._take(entry)

    def _wanted(self) -> dict[str, set[Token]]:
        wanted: dict[str, set[Token]] = {}
        for item in self.sought:
            if item.open:
                wanted.setdefault(item.voice.name, set()).add(item.token)
        return wanted

    def _take(self, entry: Entry) -> None:
        given = [item for item in self.sought if item.take(entry)]
        if any(len(item.found) <= TOLD for item in given):
            self.named[entry.id] = _named(entry)
        pull = sum(abs(item.weight) for item in given if (item.weight > 0) == (entry.label == "spam"))
        if given and pull >= self._enough:
            self.blamed = sorted([*self.blamed, (pull, entry.id, entry)], reverse=True)[:BLAMED]
