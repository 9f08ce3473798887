"""A voice: a view of the message, a likelihood with its own counts, a weight.

The filter's log-odds are the weighted sum of its voices' log-odds. Each voice learns from its own
score and never from the sum: joint training was tried and lost. VOICES is the table of views.
"""

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spamfilter.counts import Counts
from spamfilter.features import Token, Tokens, tokenize
from spamfilter.likelihoods import Likelihood, Opinion
from spamfilter.message import Message

VoiceTokens = Mapping[str, Tokens]
"""Voice name -> its tokens of one message."""


class View(Mapping[str, Tokens]):
    """What voices see of a message: the tokens of each are found when they are first asked for."""

    __slots__ = ("_found", "_message")

    def __init__(self, names: Iterable[str], message: Message) -> None:
        self._message = message
        self._found: dict[str, Tokens | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Tokens:
        found = self._found[name]
        if found is None:
            found = self._found[name] = tokenize(self._message, VOICES[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def packed(self) -> bytes:
        """The names and what of the message the tokens are found in: a third of the room of the tokens, packed."""
        return b"".join(
            (_OF_MESSAGE, zlib.compress(" ".join(self._found).encode() + b"\n" + self._message.packed(), 1))
        )


def pack(tokens: VoiceTokens) -> bytes:
    """Tokens as zlib-compressed JSON {voice: {token: occurrences}}, a thirtieth of the room they take as objects."""
    readable = {voice: {token.decode(): n for token, n in some.items()} for voice, some in tokens.items()}
    # Level 1: a third faster than 6 for a tenth more bytes.
    return zlib.compress(json.dumps(readable, ensure_ascii=False, separators=(",", ":")).encode(), 1)


def pack_seen(tokens: VoiceTokens) -> bytes:
    """As `pack`, in a tenth of the time where the message is still at hand, for what need not be exact for ever."""
    return tokens.packed() if isinstance(tokens, View) else pack(tokens)


def unpack(packed: bytes) -> VoiceTokens:
    """What `pack` or `pack_seen` has packed."""
    if packed.startswith(_OF_MESSAGE):
        names, _, message = zlib.decompress(packed[1:]).partition(b"\n")
        return View(names.decode().split(), Message.unpacked(message))
    return _read(zlib.decompress(packed))


def spellings(words: Iterable[Token]) -> list[bytes]:
    """How `pack` writes these tokens, for `unpack_with`."""
    return [json.dumps(word.decode(), ensure_ascii=False).encode() + b":" for word in words]


def unpack_with(packed: bytes, spelt: Iterable[bytes]) -> VoiceTokens | None:
    """As `unpack`, or None without any of these spellings, which is known in a third of the time.

    A token that ends like one that is looked for may pass, too.
    """
    text = zlib.decompress(packed)
    return _read(text) if any(word in text for word in spelt) else None


def _read(text: bytes) -> VoiceTokens:
    readable: dict[str, dict[str, int]] = json.loads(text)
    return {voice: {token.encode(): n for token, n in some.items()} for voice, some in readable.items()}


_OF_MESSAGE = b"M"
"""Begins what `View.packed` gives; no compressed JSON begins so."""

VOICES: dict[str, tuple[str, ...]] = {
    "fields": ("header", "body"),
    "phrases": ("phrases",),
    "body": ("body",),
    "grams": ("grams",),
    "attributes": ("attributes",),
}
"""Voice -> the families of tokens that it sees."""


@dataclass(frozen=True, slots=True)
class Voice:
    """One row of VOICES at work."""

    name: str
    likelihood: Likelihood
    weight: float = 1.0


Voices = tuple[Voice, ...]


def view(voices: Voices, message: Message) -> View:
    """What these voices see of a message."""
    return View((voice.name for voice in voices), message)


def words(voices: Voices, tokens: VoiceTokens) -> dict[str, set[Token]]:
    """The words whose counts each voice needs to judge these tokens, and to learn them."""
    return {voice.name: voice.likelihood.words(tokens[voice.name]) for voice in voices if voice.name in tokens}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one token said: its counts in messages or occurrences, and its share of the log-odds."""

    token: str
    voice: str
    ham: float
    spam: float
    weight: float


Opinions = Mapping[str, Opinion]
"""Voice name -> what it says of one message; a voice without tokens for the message is silent."""


def together(voices: Voices, opinions: Opinions) -> float:
    """The filter's log-odds: the weighted sum of what is heard of the voices."""
    return math.fsum(voice.weight * opinions[voice.name].heard for voice in voices if voice.name in opinions)


def judged(
    voices: Voices, tokens: VoiceTokens, counts: Mapping[str, Counts], most: int | None = 0
) -> tuple[dict[str, Opinion], list[Evidence]]:
    """What the voices say, and the tokens that made it, the loudest first: all that say anything, or `most`."""
    opinions: dict[str, Opinion] = {}
    loud: list[tuple[float, str, Token, float, float, float]] = []
    for voice in voices:
        if voice.name in tokens:
            opinions[voice.name], said = voice.likelihood.judge(tokens[voice.name], counts[voice.name], most)
            unit, weight = voice.likelihood.unit, voice.weight
            loud += [
                (-abs(weight * share), voice.name, token, ham / unit, spam / unit, weight * share)
                for token, share, ham, spam in said
            ]
    loud.sort()
    return opinions, [
        Evidence(token.decode("utf-8", "replace"), name, ham, spam, says)
        for _, name, token, ham, spam, says in loud[:most]
    ]
