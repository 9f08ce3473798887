"""Messages as arrays of word ids, and the product's likelihoods over arrays of counts, for trying variants of them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spamfilter.bayes.counts import LABELS, Counts, Label
from spamfilter.bayes.likelihoods import Likelihood
from spamfilter.bayes.likelihoods.eddc import LEAP, REPEATS, Eddc
from spamfilter.bayes.likelihoods.likelihood import Floats, Matrix
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.tokens import HEADER_PHRASE, Token
from spamfilter.bayes.voices import view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.mail.message import parse

REPEAT: dict[str, Callable[[bool, int], int]] = {
    "never": lambda doubted, rarer: 0,
    "always": lambda doubted, rarer: REPEATS,
    "undoubted": lambda doubted, rarer: 0 if doubted else REPEATS,
    "by root": lambda doubted, rarer: min(REPEATS, math.isqrt(rarer) // 2),
    "both": lambda doubted, rarer: 0 if doubted else min(REPEATS, math.isqrt(rarer) // 2),
}
"""How often the header may be learnt again; from whether the score contradicted the label clearly, and the messages
that the rarer class has learnt."""


@dataclass(frozen=True)
class Voice:
    """What it sees (a key of Corpus.views), its likelihood, and the rule of REPEAT where that is Eddc."""

    view: str
    likelihood: Likelihood
    repeats: str = "both"


class Said(NamedTuple):
    """Of each message: the voice's log-odds; the header's and the text's part of them, and the share of the header's
    words that were known; messages that had been learnt of the rarer class."""

    own: Floats
    header: Floats
    text: Floats
    known: Floats
    learnt: Floats


class Words(NamedTuple):
    """Ids of the distinct words of a message; the first `header` of them are the header's."""

    ids: NDArray[np.int32]
    header: int = 0


@dataclass
class Corpus:
    """Messages in their order. sizes: view -> distinct words; interleaved: another order, by places."""

    labels: list[Label] = field(default_factory=list)
    views: dict[str, list[Words]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    interleaved: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, mails: Iterable[tuple[Label, bytes]]) -> "Corpus":
        corpus, voices = cls(), Learn().chosen()
        words: dict[Token, int] = {}
        phrases: dict[Token, int] = {}

        def add(name: str, ids: dict[Token, int], tokens: Iterable[Token], header: int = 0) -> None:
            found = np.array([ids.setdefault(token, len(ids)) for token in tokens], np.int32)
            corpus.views.setdefault(name, []).append(Words(found, header))

        for label, data in mails:
            seen = view(voices, parse(data))
            header = [token for token in seen["phrases"] if token[:1] == HEADER_PHRASE]
            text = [token for token in seen["phrases"] if token[:1] != HEADER_PHRASE]
            corpus.labels.append(label)
            add("fields", words, seen["fields"])
            add("without Received", words, (token for token in seen["fields"] if token[:9] != b"received:"))
            add("body", words, seen["body"])
            add("phrases", phrases, header + text, len(header))
            add("phrases of the text", phrases, text)
        corpus.sizes = {name: len(phrases if name.startswith("phrases") else words) for name in corpus.views}
        corpus._rename("shared", phrases, lambda token: token.removeprefix(HEADER_PHRASE))
        corpus._rename("folded", phrases, bytes.lower)
        return corpus

    def _rename(self, name: str, phrases: Iterable[Token], rename: Callable[[Token], Token]) -> None:
        """The phrases under other names; a word of header and text counts as the header's."""
        ids: dict[Token, int] = {}
        new = np.array([ids.setdefault(rename(token), len(ids)) for token in phrases], np.int32)
        self.views[name], self.sizes[name] = [], len(ids)
        for old, number in self.views["phrases"]:
            header = np.unique(new[old[:number]])
            text = np.setdiff1d(new[old[number:]], header)
            self.views[name].append(Words(np.concatenate([header, text]), len(header)))


class Learner:
    """A voice with its counts; adds what the product adds."""

    def __init__(self, voice: Voice, size: int) -> None:
        self._voice, self._counts = voice, {label: np.zeros(size) for label in LABELS}
        self._totals = Counts()  # for its messages; the words are in the arrays
        self._seen = dict.fromkeys(LABELS, 0)

    def _shares(self, ids: NDArray[np.int32]) -> tuple[Matrix, Floats]:
        counts = np.array([self._counts[label][ids] for label in LABELS])
        matrix = Matrix([], np.ones(len(ids)), counts, np.zeros(len(ids), np.intp), 1)
        return matrix, self._voice.likelihood.shares(matrix, self._totals)

    def _own(self, matrix: Matrix, shares: Floats) -> float:
        return float(self._voice.likelihood.total(matrix, shares, self._totals)[0])

    def judge(self, words: Words) -> tuple[float, float, float, float, float]:
        """The values of Said."""
        matrix, shares = self._shares(words.ids)
        known = matrix.known[: words.header].mean() if words.header else 1.0
        header, text = (math.fsum(part.tolist()) for part in (shares[: words.header], shares[words.header :]))
        return self._own(matrix, shares), header, text, float(known), float(min(self._seen.values()))

    def learn(self, words: Words, label: Label, own: float, before: int | None = None) -> int:
        """What the message has added in all; before: in earlier rounds, if any (only Soft looks again)."""
        rule = self._voice.likelihood
        self._seen[label] += before is None
        if isinstance(rule, Eddc):
            self._reinforce(rule, words, label, own if label == "spam" else -own)
            return 1
        amount = rule.amount({}, label, self._totals, own)
        if before is not None and isinstance(rule, Soft):
            amount = min(amount, max(0, rule.most - before))
        self._counts[label][words.ids] += amount
        self._totals.messages[label] += before is None
        return amount + (before or 0)

    def _reinforce(self, rule: Eddc, words: Words, label: Label, before: float) -> None:
        if before >= rule.thick:
            return
        counts, sign = self._counts[label], 1 if label == "spam" else -1
        counts[words.ids] += 1
        self._totals.messages[label] += 1
        most = REPEAT[self._voice.repeats](before <= -rule.doubt, min(self._totals.messages.values()))
        after = sign * self._own(*self._shares(words.ids)) if most else 0.0
        if after >= rule.thick or after - before >= rule.step:
            return
        for _ in range(most):
            counts[words.ids[: words.header]] += 1
            before, after = after, sign * self._own(*self._shares(words.ids))
            if after > rule.goal or after - before >= LEAP:
                return
