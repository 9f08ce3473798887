"""Passages: what the header says with a part of the text, so that other text beside a spam does not hide it.

The text is cut into PIECES by its words, in their order; a passage is a third of them, two thirds that are neighbours,
or the first or last few. Where header and passage say spam more surely than header and whole text, by a margin, they
are what the filter goes by. Spam with a quoted ham in front of it, of the SpamAssassin corpus: tagged 93 %, without
passages 45 % (benchmarks/evasion.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spamfilter.bayes.doubt import agreement, doubt
from spamfilter.bayes.groups import OWN
from spamfilter.bayes.token_arrays import Spellings
from spamfilter.bayes.tokens import HEADER_PHRASE
from spamfilter.bayes.voices import VoiceScore, heard_of, known, together, weight_of_imports

PIECES = 12
LEAST = 40
"""Words of the text, in each voice, from which on passages are heard: with 20 more ham and spam are taken for each
other, and with 60 up to a hundredth more of short spam hides."""
MARGIN = 1.0
"""Log-odds that a passage must have more than the whole, and loses: with 0 more ham is tagged, and with 2 another
twentieth of spam hides."""
MARGIN_OF_FEW = 1.5
"""The same of less than a third, whose few words are wrong more often: with 1 one ham more in two thousand is tagged,
and with 2 a hundredth more of spam hides."""
SURE = 7.0
"""Log-odds from which on, to either side, no passage is looked for: no spam hides there (benchmarks/evasion.py), and
judging takes a sixth less time."""

_PASSAGES = {
    "beginning": (0, 4, MARGIN),
    "middle": (4, 8, MARGIN),
    "end": (8, 12, MARGIN),
    "first two thirds": (0, 8, MARGIN),
    "last two thirds": (4, 12, MARGIN),
    "first sixth": (0, 2, MARGIN_OF_FEW),
    "last sixth": (10, 12, MARGIN_OF_FEW),
    "first twelfth": (0, 1, MARGIN_OF_FEW),
    "last twelfth": (11, 12, MARGIN_OF_FEW),
}
"""Name -> the first piece, the one after the last, and the margin. The last four are for short spam beside long text:
behind 4,500 bytes of a dictionary 94 % of spam is tagged, and 80 % without them."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The header with the whole text, or with the part of it that is called `name`.

    log_odds: of spam. known: share of its tokens, over all voices, that have counts. doubt: the log-odds in doubt.
    """

    scores: Sequence[VoiceScore]
    log_odds: float
    known: float
    doubt: float
    name: str = ""

    @classmethod
    def of(cls, scores: Sequence[VoiceScore], log_odds: float, known: float, usual: float, name: str = "") -> "Passage":
        """usual: share of words that are known of a usual message."""
        in_doubt = doubt(known, usual, agreement(scores)) if known < usual else 0.0
        # The other filter's formula is unsure by itself where it knows little.
        return cls(scores, log_odds, known, in_doubt * (1 - weight_of_imports(scores)), name)

    @property
    def least(self) -> float:
        """The log-odds if all that is in doubt spoke for ham."""
        return self.log_odds - self.doubt


def most_telling(scores: Sequence[VoiceScore], usual: float, believed: float) -> Passage:
    """The whole message, or the passage that is surer to be spam. usual: share of words that are known of a usual
    message. believed: see `voices.weights`."""
    whole = best = Passage.of(scores, together(heard_of(scores), believed), known(scores), usual)
    cut = whole.least < SURE and whole.log_odds > -SURE
    parts = [part for each in scores if (part := _Parts.of(each))] if cut else []
    if not parts or len(parts) < len(scores):
        return whole
    shared = [part for part in parts if part.score.voice.name != OWN]
    for name, (*pieces, margin) in _PASSAGES.items():
        log_odds = together([(part.score.voice, part.log_odds(*pieces)) for part in parts], believed) - margin
        if log_odds <= max(0.0, best.least):
            continue
        share = sum(part.known(*pieces) for part in shared) / sum(part.tokens(*pieces) for part in shared)
        passage = Passage.of([part.alone(*pieces) for part in parts], log_odds, share, usual, name)
        if passage.least > best.least:
            best = passage
    return best


@dataclass(frozen=True, slots=True)
class _Parts:
    """What one voice says, cut into header and pieces.

    places: where the pieces begin, the first after the header, and where the last ends. shares: the sum of the shares
    of the header, and of each piece; total: of all.
    """

    score: VoiceScore
    places: Sequence[int]
    shares: Sequence[float]
    total: float

    @classmethod
    def of(cls, score: VoiceScore) -> "_Parts | None":
        """None if this voice is heard whole, or has too few words of the text."""
        voice, _, heard = score
        tokens = len(heard.shares)
        if voice.name not in _HEADER_ENDS or voice.likelihood.scale_of_part(1, 1) is None or tokens < LEAST:
            return None
        spellings = heard.tokens if isinstance(heard.tokens, Spellings) else Spellings.of(heard.tokens)
        if not spellings.text:  # hashes alone have no order to cut by
            return None
        header = _HEADER_ENDS[voice.name](spellings)
        if tokens - header < LEAST:
            return None
        places = [header + (tokens - header) * piece // PIECES for piece in range(PIECES + 1)]
        if header:
            shares = np.add.reduceat(heard.shares, [0, *places[:-1]]).tolist()
        else:
            shares = [0.0, *np.add.reduceat(heard.shares, places[:-1]).tolist()]
        return cls(score, places, shares, sum(shares))

    def tokens(self, first: int, last: int) -> int:
        """How many tokens the header and these pieces have."""
        return self.places[0] + self.places[last] - self.places[first]

    def known(self, first: int, last: int) -> int:
        """How many tokens of the header and of these pieces have counts."""
        counts = self.score.tokens.counts
        header, text = (slice(self.places[0]), slice(self.places[first], self.places[last]))
        return sum(int(np.count_nonzero(counts[0, part] + counts[1, part])) for part in (header, text))

    def log_odds(self, first: int, last: int) -> float:
        """What the filter hears of the header and these pieces."""
        heard = self.shares[0] + sum(self.shares[first + 1 : last + 1])
        return self.score.log_odds.heard - self.total + self._scale(first, last) * heard

    def alone(self, first: int, last: int) -> VoiceScore:
        """What the voice says if it hears nothing else."""
        voice, log_odds, heard = self.score
        shares = heard.shares * self._scale(first, last)
        shares[self.places[0] : self.places[first]] = 0
        shares[self.places[last] :] = 0
        return VoiceScore(voice, log_odds._replace(heard=self.log_odds(first, last)), heard._replace(shares=shares))

    def _scale(self, first: int, last: int) -> float:
        return self.score.voice.likelihood.scale_of_part(self.tokens(first, last), len(self.score.tokens.shares)) or 0.0


def _fields_end(tokens: Spellings) -> int:
    """How many tokens there are up to the last one with a colon, which only those of the header have."""
    last = tokens.text.rfind(b":")
    return int(np.searchsorted(tokens.ends, last, "right")) + 1 if last >= 0 else 0


def _phrases_end(tokens: Spellings) -> int:
    """How many tokens there are before the first one that is not marked as a phrase of the header."""
    text = ~tokens.beginning_with(HEADER_PHRASE)
    return int(text.argmax()) if text.any() else len(tokens)


_HEADER_ENDS: dict[str, Callable[[Spellings], int]] = {
    "fields": _fields_end,
    "phrases": _phrases_end,
    "body": lambda tokens: 0,
    OWN: _fields_end,
}
"""Voices that can be heard in part -> how many of their tokens are of the header, which come first."""
