"""A voice: a view of the message, a likelihood with its own counts, a weight.

The filter's log-odds are the weighted sum of its voices' log-odds. Each voice learns from its own
score and never from the sum: joint training was tried and lost. VOICES is the table of views.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spamfilter.counts import Counts
from spamfilter.features import Token, Tokens, tokenize
from spamfilter.likelihoods import Likelihood
from spamfilter.message import Message

View = Callable[[Message], Tokens]
VoiceTokens = Mapping[str, Tokens]
"""Voice name -> its tokens of one message."""

VOICES: dict[str, View] = {"fields": tokenize}


@dataclass(frozen=True, slots=True)
class Voice:
    """One row of VOICES at work."""

    name: str
    likelihood: Likelihood
    weight: float = 1.0

    def tokens(self, message: Message) -> Tokens:
        return VOICES[self.name](message)


Voices = tuple[Voice, ...]


def view(voices: Voices, message: Message) -> dict[str, Tokens]:
    """What each voice sees of a message."""
    return {voice.name: voice.tokens(message) for voice in voices}


def log_odds(voices: Voices, tokens: VoiceTokens, counts: Mapping[str, Counts]) -> float:
    """The weighted sum of the voices' log-odds; a voice without tokens for the message is silent."""
    return math.fsum(
        voice.weight * voice.likelihood.log_odds(tokens[voice.name], counts[voice.name])
        for voice in voices
        if voice.name in tokens
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one token said: its counts in messages or occurrences, and its share of the log-odds."""

    token: str
    voice: str
    ham: float
    spam: float
    weight: float


def evidence(
    voices: Voices, tokens: VoiceTokens, counts: Mapping[str, Counts], most: int | None = None
) -> list[Evidence]:
    """The tokens that made the score, the loudest first; all of them, or `most`."""
    shares: list[tuple[float, Voice, Token]] = [
        (voice.weight * weight, voice, token)
        for voice in voices
        if voice.name in tokens
        for token, weight in voice.likelihood.weights(tokens[voice.name], counts[voice.name]).items()
    ]
    shares.sort(key=lambda share: (-abs(share[0]), share[2]))
    return [
        Evidence(
            token=token.decode("utf-8", "replace"),
            voice=voice.name,
            ham=counts[voice.name].get(token, "ham") / voice.likelihood.unit,
            spam=counts[voice.name].get(token, "spam") / voice.likelihood.unit,
            weight=weight,
        )
        for weight, voice, token in shares[:most]
    ]
