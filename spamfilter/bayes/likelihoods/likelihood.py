"""What every likelihood supplies: the share of each word in the log-odds, and its update rule if it has one of its own.

A likelihood writes its formula over MessageCounts, the arrays of a message.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray

from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.token_arrays import Floats as Floats
from spamfilter.bayes.token_arrays import TokenArrays
from spamfilter.bayes.tokens import Token, Tokens

Above = Annotated[float, Gt(0), Le(1e6)]
NotBelow = Annotated[float, Ge(0), Le(1e6)]
Prior = Literal["map", "empirical", "equal"] | Annotated[float, Gt(0), Lt(1)]
"""P(class) before a word is read, of C classes: "map" is (N_c + 1) / (N + C), "empirical" N_c / N, "equal" 1 / C; or a
number, which is P(spam)."""

_COMPARED = {Ge: operator.ge, Gt: operator.gt, Le: operator.le, Lt: operator.lt}

Name = TypeVar("Name")
"""What names a class."""

FEW = 2**31
"""Amounts up to which the sum over all words of a message stays far below 2**63."""
IMPOSSIBLE = float(np.finfo(np.float64).tiny)
"""Replaces a probability of 0, so that logarithms are finite without smoothing: if all classes are impossible, the one
with the fewest impossible words wins, as in the limit of a smoothing that goes to 0."""


IMPOSSIBLE_WORD = float(np.log(IMPOSSIBLE)) / 2
"""Below this is what a word of probability 0 adds to a logarithm, and above it what any other word does, once."""


class MessageCounts(NamedTuple):
    """The distinct words of a message with their counts.

    tokens, times: the word and its occurrences, each of shape (tokens,). counts: of the word in each class, shape
    (classes, tokens). labels: the classes, in this order.
    """

    tokens: Sequence[Token]
    times: Floats
    counts: Floats
    labels: tuple[str, ...] = LABELS

    @classmethod
    def of(cls, tokens: Tokens, counts: Counts) -> "MessageCounts":
        if isinstance(tokens, TokenArrays):
            return cls(tokens.spellings, tokens.times.astype(np.float64), counts.numbers(tokens.spellings))
        words = list(tokens)
        times = np.fromiter(tokens.values(), np.float64, len(words))
        return cls(words, times, counts.numbers(words), counts.kept.labels)

    def each_once(self) -> "MessageCounts":
        """The same words, as if each occurred once."""
        return self._replace(times=np.ones_like(self.times))

    def of_class(self, label: str) -> Floats:
        """The counts of each word in this class."""
        return np.asarray(self.counts[self.labels.index(label)])

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which words have any count."""
        return np.asarray(self.counts.any(axis=0))


class LogOdds(NamedTuple):
    """Log-odds of spam. own: what the voice itself learns from; heard: what the filter sums."""

    own: float
    heard: float


class TokenShares(NamedTuple):
    """The words of a message as the filter hears them: the tokens, their counts in ham and in spam, shape (2, tokens),
    and the share of each in the log-odds, shape (tokens,); both doubles, in C order, as the compiled helper needs."""

    tokens: Sequence[Token]
    counts: Floats
    shares: Floats


class Likelihood(ABC):
    """One way from counts to the log-odds of spam, and from a label to counts.

    name: of its row and of its section in the configuration. revision: of its formula; counts and calibration of
    another one are used until `spamfilter retrain`. unit: counts for one message or occurrence, by which
    they are divided for people. needs_tallies: whether it needs the tallies of Counts.
    Invariant: the order of the tokens changes nothing, not even the last bit (sums are exact).
    Invariant: `deltas` depends on its arguments alone, so what was learnt can be unlearnt.
    Invariant: no score looks at the words that a message does not have one by one.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    unit: ClassVar[int] = 1
    needs_tallies: ClassVar[bool] = False

    @abstractmethod
    def shares(self, message: MessageCounts, counts: Counts) -> Floats:
        """The share of each word in the log-odds, natural logarithm; 0 if unknown; shape (tokens,)."""

    def constants(self, message: MessageCounts, counts: Counts) -> float:
        """The part of the log-odds that is no word's share: prior, absent words."""
        return 0.0

    def total(self, message: MessageCounts, shares: Floats, counts: Counts) -> float:
        """The log-odds of a message, from the shares of its words."""
        return exact_sum(shares) + self.constants(message, counts)

    def heard(self, message: MessageCounts, shares: Floats) -> Floats:
        """The shares as the filter sums them, for a likelihood that limits them."""
        return shares

    def scale_of_part(self, tokens: int, of: int) -> float | None:
        """What to multiply the shares by if only so many tokens of the message are heard; None: it is heard whole."""
        return None

    def log_odds(self, tokens: Tokens, counts: Counts) -> float:
        """ln(P(spam) / P(ham)) of a message."""
        return self.judge(tokens, counts)[0].own

    def judge(self, tokens: Tokens, counts: Counts) -> tuple[LogOdds, TokenShares]:
        """The opinion, and the words behind what is heard."""
        message = MessageCounts.of(tokens, counts)
        shares = self.shares(message, counts)
        own = self.total(message, shares, counts)
        heard = self.heard(message, shares)
        all_heard = own if heard is shares else self.total(message, heard, counts)
        return LogOdds(own, all_heard), TokenShares(message.tokens, message.counts, heard)

    def words(self, tokens: Tokens) -> set[Token]:
        """The words whose counts a message needs."""
        return set(tokens)

    def amount(self, tokens: Tokens, label: Label, counts: Counts, log_odds: float | None = None) -> int:
        """How much learning this message would add, as the ledger has it; 0: nothing to learn.

        log_odds: of the message by these counts, if they are known.
        """
        return 1

    def more(self, tokens: Tokens, label: Label, counts: Counts, amount: int) -> int:
        """What a further round of bulk training would add for a message that has added `amount` before.

        A likelihood that adds anything has additive deltas: those of two amounts are together those of their sum.
        """
        return 0

    @classmethod
    def reinforces(cls) -> bool:
        """Whether further rounds can add anything."""
        return cls.more is not Likelihood.more

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        """Word -> what learning with this `amount` adds to its count in the class; no word for 0."""
        if isinstance(tokens, TokenArrays) and 0 < amount <= FEW:
            return TokenArrays(tokens.spellings, np.full(len(tokens), amount, np.int64))
        return dict.fromkeys(tokens, amount) if amount else {}


class Generative(Likelihood):
    """A likelihood that gives each class a probability of the message; the posterior follows by Bayes' theorem.

    Every message is learnt whole, once. `prior` is a field of each row. There may be any number of classes.
    """

    prior: Prior
    skips_unknown: ClassVar[bool] = True

    @abstractmethod
    def given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        """What each word adds to ln P(message | class), without factors that are the same in every class."""

    def rest(self, label: str, message: MessageCounts, counts: Counts) -> float:
        """What the words that are absent add to it."""
        return 0.0

    def log_prior(self, label: str, counts: Counts) -> float:
        """ln P(class). Raises ValueError for a number where there are not two classes."""
        if isinstance(self.prior, str):
            return log_priors(counts.messages, self.prior)[label]
        if len(counts.messages) != len(LABELS):
            raise ValueError(f"a number is a prior of two classes, and these are {len(counts.messages)}")
        return float(np.log(self.prior if label == "spam" else 1 - self.prior))

    def heard_given(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        """What each word adds to ln P(message | class): 0 for an unknown one, where these are skipped."""
        given = self.given(label, message, counts)
        return np.where(message.known, given, 0.0) if self.skips_unknown else given

    def chance(self, label: str, message: MessageCounts, counts: Counts) -> Floats:
        """P(word | class) of each word of a message, as the formula of the row has it."""
        return np.exp(self.given(label, message.each_once(), counts))

    def impossible(self, label: str, message: MessageCounts, counts: Counts) -> bool:
        """Whether the class gives the message a probability of 0, as can be without smoothing."""
        return bool((self.heard_given(label, message.each_once(), counts) < IMPOSSIBLE_WORD).any())

    def log_likelihood(self, label: str, message: MessageCounts, counts: Counts) -> float:
        """ln P(message | class), without factors that are the same in every class."""
        rest = self.rest(label, message, counts)
        return exact_sum(np.append(self.heard_given(label, message, counts), rest))

    def shares(self, message: MessageCounts, counts: Counts) -> Floats:
        return self.heard_given("spam", message, counts) - self.heard_given("ham", message, counts)

    def constants(self, message: MessageCounts, counts: Counts) -> float:
        rest = self.rest("spam", message, counts) - self.rest("ham", message, counts)
        return rest + self.log_prior("spam", counts) - self.log_prior("ham", counts)


def check_bounds(likelihood: Generative) -> None:
    """Raises ValueError for a parameter of one of our likelihoods that is out of its bounds."""
    if not type(likelihood).__module__.startswith("spamfilter."):
        return
    if isinstance(likelihood.prior, str):
        log_priors({}, likelihood.prior)  # raises for another name
    hints = {**get_type_hints(type(likelihood), include_extras=True), "prior": get_args(Prior)[1]}
    for name, hint in hints.items():
        value = getattr(likelihood, name)
        for bound in getattr(hint, "__metadata__", ()):
            compared, limit = _COMPARED[type(bound)], getattr(bound, type(bound).__name__.lower())
            if not isinstance(value, str) and not compared(value, limit):
                raise ValueError(f"{name} = {value!r}: wanted is {bound}")


def log_priors(learnt: Mapping[Name, int], prior: Literal["map", "empirical", "equal"]) -> dict[Name, float]:
    """Class -> ln P(class), by how many messages of each were learnt: the named ones of Prior. Raises ValueError for
    another name."""
    if prior not in ("map", "empirical", "equal"):
        raise ValueError(f"{prior!r} is no prior; map, empirical and equal are known")
    total, classes = sum(learnt.values()), len(learnt)
    if prior == "equal":
        return dict.fromkeys(learnt, -float(np.log(classes)) if classes else 0.0)
    more = int(prior == "map")
    return {label: float(log(ratio(number + more, total + more * classes))) for label, number in learnt.items()}


class OfOccurrences(Generative):
    """A message adds each word as often as it has it."""

    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        if isinstance(tokens, TokenArrays):
            return tokens
        return {token: times for token, times in tokens.items() if times}


def exact_sum(values: Floats) -> float:
    """The sum of finite numbers, rounded once, so that it does not depend on their order."""
    return float(score_helper.total(values)) if score_helper is not None else fsum(values.tolist())


def ratio(above: Floats | float, below: float) -> Floats | float:
    """above / below, or 0 where `below` is 0."""
    return above / below if below else above * 0.0


def log(probability: Floats | float) -> Floats:
    """The natural logarithm of probabilities, finite for 0 (see IMPOSSIBLE)."""
    return np.log(np.maximum(probability, IMPOSSIBLE))
