"""A voice: a view of the message, a likelihood with its own counts, a weight. VOICES is the table of views.

The filter's log-odds are the weighted sum of its voices' log-odds, in which what is said for ham counts less where the
text is spam: see `weights`. Each voice learns from its own score and never from the sum: joint training was tried
and was less accurate.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.groups import OWN, Groups, own_tokens, word_in
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import Likelihood, LogOdds
from spamfilter.bayes.likelihoods.likelihood import TokenShares
from spamfilter.bayes.tokens import Token, Tokens, tokenize
from spamfilter.mail.message import Message
from spamfilter.system.compression import compressed

VoiceTokens = Mapping[str, Tokens]
"""Voice name -> its tokens of one message."""

VOICES: dict[str, tuple[str, ...]] = {
    "fields": ("header", "text"),
    "phrases": ("phrases",),
    "body": ("shown",),
    "grams": ("grams",),
    "attributes": ("attributes",),
}
"""Voice -> the families of tokens that it sees. The voice OWN of a group is no row: it has the tokens of another."""
_OF_OWN = "fields"
"""The voice of which OWN has the tokens."""
TEXT = "body"
"""The voice that hears what people read."""
BELIEVED = 2.0
"""Log-odds of the text up to which what the other voices say for ham is mostly believed, before anything is learnt."""
BELIEVED_LATER = -0.4
"""The same limit of a filter that has learnt very much: with 0 the hard case of `weights` is at 2.7, with -1 mixed mail
with feedback is a twentieth worse."""
HALFWAY = 400
"""Messages learnt of each class at which the limit is halfway; with 600 the hard case is at 2.6. The limit falls by the
square of the number: most is believed before, and little after. By the number itself, one ham and one spam more of six
thousand mixed mails were wrong."""

OF_MESSAGE = b"M"
"""The first byte of what `View.packed` gives."""


class View(Mapping[str, Tokens]):
    """What voices see of a message: the tokens of a voice are found when they are first asked for."""

    __slots__ = ("_found", "_group", "message")

    def __init__(self, names: Iterable[str], message: Message, group: str = "") -> None:
        """group: whose voice OWN is among them; '' if that is nobody's."""
        self.message = message
        self._group = group
        self._found: dict[str, Tokens | None] = dict.fromkeys(name for name in names if group or name != OWN)

    def __getitem__(self, name: str) -> Tokens:
        found = self._found[name]
        if found is None:
            found = own_tokens(self._tokens(_OF_OWN), self._group) if name == OWN else self._tokens(name)
            self._found[name] = found
        return found

    def _tokens(self, name: str) -> Tokens:
        """The tokens of a voice of everybody, whether or not it is among these."""
        found = self._found.get(name)
        if found is None:
            found = tokenize(self.message, VOICES.get(name, (name,)))  # an imported voice sees the family of its name
            if name in self._found:
                self._found[name] = found
        return found

    def find(self) -> None:
        """Find the tokens of everybody's voices now. Those of OWN are not needed where its group has learnt nothing."""
        for name in self._found:
            if name != OWN:
                self._tokens(name)

    def seen_by(self, voices: "Voices") -> "View":
        """What these voices see of the message."""
        names = [voice.name for voice in voices if self._group or voice.name != OWN]
        return self if names == [*self._found] else View(names, self.message, self._group)

    def __contains__(self, name: object) -> bool:
        return name in self._found  # Mapping.__contains__ would look for the tokens

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def packed(self) -> bytes:
        """The names of the voices and the text that their tokens are found in: a third of the size of `pack`."""
        names = " ".join(f"{OWN}={self._group}" if name == OWN else name for name in self._found)
        return b"".join((OF_MESSAGE, compressed(names.encode() + b"\n" + self.message.packed())))


@dataclass(frozen=True, slots=True)
class Voice:
    """One row of VOICES at work, or OWN, or with `imported` a row of IMPORTED in imported/voices.py.

    groups: what has counts of its own in OWN.
    """

    name: str
    likelihood: Likelihood
    weight: float = 1.0
    imported: bool = False
    groups: Groups = ""


Voices = tuple[Voice, ...]


def view(voices: Voices, message: Message, group: str = "") -> View:
    """What these voices see of a message, that of a group among them if one is named."""
    return View((voice.name for voice in voices), message, group)


def everybodys(voices: Sequence[Voice]) -> Voices:
    """The voices that learn from everybody: without OWN and imported ones."""
    return tuple(voice for voice in voices if voice.name != OWN and not voice.imported)


def groups_of(voices: Voices) -> Groups:
    """What has a voice of its own among these."""
    return next((voice.groups for voice in voices if voice.name == OWN), "")


def words(voices: Voices, *messages: VoiceTokens) -> dict[str, set[Token]]:
    """The words whose counts each voice needs to judge these messages, and to learn them; for some voices none."""
    found: dict[str, set[Token]] = {voice.name: set() for voice in voices}
    for voice in voices:
        for tokens in messages:
            if voice.name in tokens:
                found[voice.name] |= voice.likelihood.words(tokens[voice.name])
    return found


MOST_COMPILED = 64
"""The largest number of loudest tokens that the compiled helper looks for, as MOST in compiled/scores.c."""


class Evidence(NamedTuple):
    """One token of the evidence: its counts in messages or occurrences, and its weighted share of the log-odds."""

    token: str
    voice: str
    ham: float
    spam: float
    weight: float

    @property
    def word(self) -> str:
        """The token without the name of its group."""
        return word_in(self.token, self.voice)


LogOddsByVoice = Mapping[str, LogOdds]
"""Voice name -> its log-odds of one message; a voice without tokens for the message is missing."""


class VoiceScore(NamedTuple):
    """What one voice says of a message, and the words behind it."""

    voice: Voice
    log_odds: LogOdds
    tokens: TokenShares


def voice_scores(voices: Sequence[Voice], tokens: VoiceTokens, counts: Mapping[str, Counts]) -> list[VoiceScore]:
    """What each voice says that has tokens of the message; of OWN only if its group has learnt any of them."""
    scores = []
    for voice in voices:
        if voice.name not in tokens or (voice.name == OWN and not counts[OWN].vocabulary):
            continue
        log_odds, shares = voice.likelihood.judge(tokens[voice.name], counts[voice.name])
        if voice.name != OWN or shares.counts.any():
            scores.append(VoiceScore(voice, log_odds, shares))
    return scores


def believed_of(learnt: Mapping[Label, int]) -> float:
    """Log-odds of the text up to which what the others say for ham is mostly believed.

    learnt: messages of each class.
    """
    few = min(learnt.values())
    return BELIEVED_LATER + (BELIEVED - BELIEVED_LATER) / (1 + (few / HALFWAY) ** 2)


def weights(said: Sequence[tuple[Voice, float]], believed: float) -> list[float]:
    """How much each voice counts, by the log-odds that each is heard with.

    What a voice of everybody says for ham is multiplied by the probability of ham by the text alone, with odds of
    e^believed for it beforehand: senders, lists and ways of good mail carry spam, too, and do not outvote what people
    read. Trained on the first half of SpamAssassin's mail and judging the second, that lowers 1-ROCA% from 4.8 to 2.5
    (benchmarks/accuracy.py). Were `believed` always 2, it would be 3.6; were it always 0, a filter that has learnt ten
    mails of each class would lose a tenth of some day's ham (benchmarks/cold.py).
    """
    text = next((heard for voice, heard in said if voice.name == TEXT), -math.inf)
    ham = 1 / (1 + math.exp(min(text - believed, 700.0)))
    return [
        voice.weight * (ham if heard < 0 and voice.name not in (TEXT, OWN) and not voice.imported else 1.0)
        for voice, heard in said
    ]


def together(said: Sequence[tuple[Voice, float]], believed: float) -> float:
    """The filter's log-odds, of the log-odds that each voice is heard with."""
    return math.fsum(weight * heard for weight, (_, heard) in zip(weights(said, believed), said, strict=True))


def heard_of(scores: Sequence[VoiceScore]) -> list[tuple[Voice, float]]:
    """Each voice, and the log-odds that it is heard with."""
    return [(voice, log_odds.heard) for voice, log_odds, _ in scores]


def weight_of_imports(scores: Sequence[VoiceScore]) -> float:
    """How much imported voices have to say: 1 while nothing else is learnt, 0 without any."""
    return min(1.0, max((voice.weight for voice, _, _ in scores if voice.imported), default=0.0))


def known(scores: Sequence[VoiceScore]) -> float:
    """The share of the tokens, over everybody's voices, that have counts; 0 of none.

    An imported voice knows its own words: its share counts as much as its weight, and that of the others less.
    """
    scores = [each for each in scores if each.voice.name != OWN]
    if not scores:
        return 0.0
    imported = [each for each in scores if each.voice.imported]
    if 0 < len(imported) < len(scores):
        weight = weight_of_imports(scores)
        return weight * known(imported) + (1 - weight) * known([each for each in scores if not each.voice.imported])
    ham, spam = np.concatenate([heard.counts for _, _, heard in scores], axis=1)
    return int(np.count_nonzero(ham + spam)) / max(1, len(ham))


def loudest(scores: Sequence[VoiceScore], most: int | None, believed: float) -> list[Evidence]:
    """The `most` loudest tokens, None for all that have any weight; the loudest first."""
    if not scores or most == 0:
        return []
    loud = _loud(scores, most, believed)
    loud.sort()
    return [
        Evidence(token.decode("utf-8", "replace"), name, ham, spam, says)
        for _, name, token, ham, spam, says in loud[:most]
    ]


_Row = tuple[float, str, Token, float, float, float]
"""A row of evidence that sorts by loudness: minus loudness, voice, token, counts in ham and in spam, weighted share."""


def _loud(scores: Sequence[VoiceScore], most: int | None, believed: float) -> list[_Row]:
    """The rows of the `most` loudest words, and of all that are as loud as the last of them."""
    weighed = [*zip(scores, weights(heard_of(scores), believed), strict=True)]
    if score_helper is not None and most is not None and most <= MOST_COMPILED:
        parts = tuple([(voice.name, weight, voice.likelihood.unit, *heard) for (voice, _, heard), weight in weighed])
        return list(score_helper.loud(parts, most))
    loudness = [np.abs(weight * heard.shares) for (*_, heard), weight in weighed]
    every = np.concatenate(loudness)
    least = 0.0 if most is None or most >= len(every) else np.partition(every, -most)[-most]
    found = []
    for ((voice, _, heard), weight), loud in zip(weighed, loudness, strict=True):
        for at in np.flatnonzero((loud >= least) & (loud > 0)).tolist():
            ham, spam = (heard.counts[:, at] / voice.likelihood.unit).tolist()
            says = weight * heard.shares.item(at)
            found.append((-abs(says), voice.name, heard.tokens[at], ham, spam, says))
    return found
