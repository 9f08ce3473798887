"""What a likelihood must supply: a constant, a weight per word, and an update rule."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from spamfilter.counts import Counts, Label
from spamfilter.features import Token, Tokens


class Likelihood(ABC):
    """One way from counts to the log-odds of spam, and from a label to counts.

    unit: what a count of 1 means, in parts of a message or occurrence; for people to read.
    Invariant: the order of the tokens changes nothing, not even the last bit (sums are exact).
    Invariant: `deltas` depends on nothing but its arguments, so what was learnt can be unlearnt.
    No likelihood looks at words that the message does not have one by one.
    """

    unit: ClassVar[int] = 1

    @abstractmethod
    def weights(self, tokens: Tokens, counts: Counts) -> dict[Token, float]:
        """Known token -> its share of the log-odds (natural logarithm, above 0 speaks for spam)."""

    def constant(self, counts: Counts) -> float:
        """The part of the log-odds that no token owns: the prior, if there is one."""
        return 0.0

    def log_odds(self, tokens: Tokens, counts: Counts) -> float:
        """ln(P(spam) / P(ham)) of a message: the constant and the weights of its tokens."""
        return self.constant(counts) + math.fsum(self.weights(tokens, counts).values())

    @abstractmethod
    def amount(self, tokens: Tokens, label: Label, counts: Counts) -> int:
        """What learning this message now would add; written to the ledger. 0: nothing to learn."""

    def more(self, tokens: Tokens, label: Label, counts: Counts, amount: int) -> int:
        """What another look in bulk training would add to a message that has added `amount` before."""
        return 0

    @abstractmethod
    def deltas(self, tokens: Tokens, amount: int) -> Mapping[Token, int]:
        """What learning with this `amount` adds to each word's count of the class."""
