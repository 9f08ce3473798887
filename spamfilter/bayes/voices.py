"""A voice: a view of the message, a likelihood with its own counts, a weight. VOICES is the table of views.

The filter's log-odds are the weighted sum of its voices' log-odds. Each voice learns from its own score and never from
the sum: joint training was tried and was less accurate. `pack` and `unpack` write the tokens of a message for the
ledger and the journal.
"""

import json
import math
import zlib
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.likelihoods import Likelihood, Opinion
from spamfilter.bayes.likelihoods.likelihood import Heard
from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.tokens import Token, Tokens, tokenize
from spamfilter.mail.message import Message
from spamfilter.system.compression import compressed

VoiceTokens = Mapping[str, Tokens]
"""Voice name -> its tokens of one message."""

VOICES: dict[str, tuple[str, ...]] = {
    "fields": ("header", "body"),
    "phrases": ("phrases",),
    "body": ("shown",),
    "grams": ("grams",),
    "attributes": ("attributes",),
}
"""Voice -> the families of tokens that it sees."""

_SUBJECT = b"subject:"
_OF_MESSAGE, _OF_LINES = b"M", b"L"
"""The first byte of what `View.packed` gives, and of tokens in lines by `pack`; compressed JSON never begins so."""


class View(Mapping[str, Tokens]):
    """What voices see of a message: the tokens of a voice are found when they are first asked for."""

    __slots__ = ("_found", "_message")

    def __init__(self, names: Iterable[str], message: Message) -> None:
        self._message = message
        self._found: dict[str, Tokens | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Tokens:
        found = self._found[name]
        if found is None:
            families = VOICES.get(name, (name,))  # an imported voice sees the family of its name
            found = tokenize(self._message, families, self._alone if len(families) > 1 else None)
            self._found[name] = found
        return found

    def _alone(self, family: str) -> Tokens | None:
        """The words of the text where the voice of the body sees the same text, and it alone; else None."""
        same = family == "body" and "body" in self._found and self._message.shown == self._message.text
        return self["body"] if same else None

    def seen_by(self, voices: "Voices") -> "View":
        """What these voices see of the message."""
        names = [voice.name for voice in voices]
        return self if names == [*self._found] else View(names, self._message)

    def __contains__(self, name: object) -> bool:
        return name in self._found  # Mapping.__contains__ would look for the tokens

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def packed(self) -> bytes:
        """The names of the voices and the text that their tokens are found in: a third of the size of `pack`."""
        return b"".join((_OF_MESSAGE, compressed(" ".join(self._found).encode() + b"\n" + self._message.packed())))


@dataclass(frozen=True, slots=True)
class Voice:
    """One row of VOICES at work, or with `imported` a row of IMPORTED in imported.py."""

    name: str
    likelihood: Likelihood
    weight: float = 1.0
    imported: bool = False


Voices = tuple[Voice, ...]


def view(voices: Voices, message: Message) -> View:
    """What these voices see of a message."""
    return View((voice.name for voice in voices), message)


def words(voices: Voices, tokens: VoiceTokens) -> dict[str, set[Token]]:
    """The words whose counts each voice needs to judge these tokens, and to learn them."""
    return {voice.name: voice.likelihood.words(tokens[voice.name]) for voice in voices if voice.name in tokens}


MOST_COMPILED = 64
"""The largest number of loudest tokens that the compiled helper looks for, as MOST in compiled/scores.c."""


class Evidence(NamedTuple):
    """One token of the evidence: its counts in messages or occurrences, and its weighted share of the log-odds."""

    token: str
    voice: str
    ham: float
    spam: float
    weight: float


Opinions = Mapping[str, Opinion]
"""Voice name -> its log-odds of one message; a voice without tokens for the message is missing."""


class Said(NamedTuple):
    """What one voice says of a message, and the words behind it."""

    voice: Voice
    opinion: Opinion
    heard: Heard


def told(voices: Sequence[Voice], tokens: VoiceTokens, counts: Mapping[str, Counts]) -> list[Said]:
    """What each voice says that has tokens of the message."""
    return [
        Said(voice, *voice.likelihood.judge(tokens[voice.name], counts[voice.name]))
        for voice in voices
        if voice.name in tokens
    ]


def together(said: Sequence[Said]) -> float:
    """The filter's log-odds: the weighted sum of the voices' log-odds, as they are heard."""
    return math.fsum(voice.weight * opinion.heard for voice, opinion, _ in said)


def weight_of_imports(said: Sequence[Said]) -> float:
    """How much imported voices have to say: 1 while nothing else is learnt, 0 without any."""
    return min(1.0, max((voice.weight for voice, _, _ in said if voice.imported), default=0.0))


def known(said: Sequence[Said]) -> float:
    """The share of the tokens, over all voices, that have counts; 0 of none.

    An imported voice knows its own words: its share counts as much as its weight, and that of the others less.
    """
    if not said:
        return 0.0
    imported = [each for each in said if each.voice.imported]
    if 0 < len(imported) < len(said):
        weight = weight_of_imports(said)
        return weight * known(imported) + (1 - weight) * known([each for each in said if not each.voice.imported])
    ham, spam = np.concatenate([heard.counts for _, _, heard in said], axis=1)
    return int(np.count_nonzero(ham + spam)) / max(1, len(ham))


def loudest(said: Sequence[Said], most: int | None) -> list[Evidence]:
    """The `most` loudest tokens, None for all that have any weight; the loudest first."""
    if not said or most == 0:
        return []
    loud = _loud(said, most)
    loud.sort()
    return [
        Evidence(token.decode("utf-8", "replace"), name, ham, spam, says)
        for _, name, token, ham, spam, says in loud[:most]
    ]


_Row = tuple[float, str, Token, float, float, float]
"""A row of evidence that sorts by loudness: minus loudness, voice, token, counts in ham and in spam, weighted share."""


def _loud(said: Sequence[Said], most: int | None) -> list[_Row]:
    """The rows of the `most` loudest words, and of all that are as loud as the last of them."""
    if score_helper is not None and most is not None and most <= MOST_COMPILED:
        parts = tuple([(voice.name, voice.weight, voice.likelihood.unit, *heard) for voice, _, heard in said])
        return list(score_helper.loud(parts, most))
    loudness = [np.abs(voice.weight * heard.shares) for voice, _, heard in said]
    every = np.concatenate(loudness)
    least = 0.0 if most is None or most >= len(every) else np.partition(every, -most)[-most]
    found = []
    for (voice, _, heard), loud in zip(said, loudness, strict=True):
        for at in np.flatnonzero((loud >= least) & (loud > 0)).tolist():
            ham, spam = (heard.counts[:, at] / voice.likelihood.unit).tolist()
            says = voice.weight * heard.shares.item(at)
            found.append((-abs(says), voice.name, heard.tokens[at], ham, spam, says))
    return found


class Packed(Mapping[str, Tokens]):
    """Tokens as `pack` or `pack_seen` has packed them; they are unpacked when they are first asked for."""

    __slots__ = ("_packed", "_tokens")

    def __init__(self, packed: bytes, tokens: VoiceTokens | None = None) -> None:
        """tokens: what is packed, where that is known."""
        self._packed = packed
        self._tokens = tokens

    def _unpacked(self) -> VoiceTokens:
        if self._tokens is None:
            self._tokens = unpack(self._packed)
        return self._tokens

    def __getitem__(self, name: str) -> Tokens:
        return self._unpacked()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._unpacked())

    def __len__(self) -> int:
        return len(self._unpacked())

    def items(self) -> ItemsView[str, Tokens]:
        return self._unpacked().items()  # Mapping.items would look up each voice

    def packed(self) -> bytes:
        return self._packed


def message_of(tokens: VoiceTokens | None) -> Message | None:
    """The message that these are the tokens of, if it is packed with them."""
    seen = tokens._unpacked() if isinstance(tokens, Packed) else tokens
    return seen._message if isinstance(seen, View) else None


def subject_words(tokens: VoiceTokens) -> str:
    """The words of the subject, in lower case, each once; '' if no voice has the header's fields."""
    for some in tokens.values():
        if words := [token for token in some if token.startswith(_SUBJECT) and b" " not in token]:
            return b" ".join(word.removeprefix(_SUBJECT) for word in words).decode("utf-8", "replace")
    return ""


def pack(tokens: VoiceTokens) -> bytes:
    """Tokens, compressed to a thirtieth of the memory that they take as objects.

    A line of JSON has for each voice its name, the number of its tokens, and the occurrences of those that occur more
    or less than once; the tokens follow, one in a line. If a token contains a line end, all is JSON instead:
    {voice: {token: occurrences}}.
    """
    if isinstance(tokens, Packed) and not tokens.packed().startswith(_OF_MESSAGE):
        return tokens.packed()
    lines = _lines(tokens)
    if lines is None:
        readable = {voice: {token.decode(): n for token, n in some.items()} for voice, some in tokens.items()}
        return compressed(json.dumps(readable, ensure_ascii=False, separators=(",", ":")).encode())
    return _OF_LINES + compressed(lines)


def packed_tokens(tokens: VoiceTokens) -> Packed:
    """Tokens with what `pack` makes of them, for a ledger entry that is written later."""
    return Packed(pack(tokens), {voice: tokens[voice] for voice in tokens})


def _lines(tokens: VoiceTokens) -> bytes | None:
    """The line about the voices, and all tokens, one in a line; None if a token contains a line end."""
    said = [[name, len(some), _not_once(some)] for name, some in tokens.items()]
    parts = []
    for some in filter(len, tokens.values()):
        lines = (some.spellings if isinstance(some, TokenArrays) else Spellings.of([*some])).lines()
        if lines is None:
            return None
        parts.append(lines)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" + b"\n".join(parts)


def _not_once(tokens: Tokens) -> dict[int, int]:
    """Place of a token -> its occurrences, for those that do not occur once."""
    if isinstance(tokens, TokenArrays):
        others = np.flatnonzero(tokens.times != 1)
        return dict(zip(others.tolist(), tokens.times[others].tolist(), strict=True))
    return {at: n for at, n in enumerate(tokens.values()) if n != 1}


def pack_seen(tokens: VoiceTokens) -> bytes:
    """As `pack`, but where the message is known it is packed instead of its tokens, in a tenth of the time.

    For the journal, which is kept for days: another version of the tokenizer would find other tokens.
    """
    return tokens.packed() if isinstance(tokens, View | Packed) else pack(tokens)


def unpack(packed: bytes) -> VoiceTokens:
    """The tokens that `pack` or `pack_seen` has packed."""
    if packed.startswith(_OF_MESSAGE):
        names, _, message = zlib.decompress(packed[1:]).partition(b"\n")
        return View(names.decode().split(), Message.unpacked(message))
    return _read(*_text_of(packed))


def unpack_with(packed: bytes, some: Iterable[Token]) -> VoiceTokens | None:
    """As `unpack` for the result of `pack`; None, in less time, if it has none of these tokens.

    It may also be unpacked where a token only contains one of these.
    """
    text, lined = _text_of(packed)
    if not any((word if lined else json.dumps(word.decode(), ensure_ascii=False).encode()) in text for word in some):
        return None
    return _read(text, lined)


def _text_of(packed: bytes) -> tuple[bytes, bool]:
    """The text that was compressed, and whether its tokens are in lines."""
    lined = packed.startswith(_OF_LINES)
    return zlib.decompress(packed[len(_OF_LINES) :] if lined else packed), lined


def _read(text: bytes, lined: bool) -> VoiceTokens:
    if not lined:
        readable: dict[str, dict[str, int]] = json.loads(text)
        return {voice: {token.encode(): n for token, n in some.items()} for voice, some in readable.items()}
    head, _, below = text.partition(b"\n")
    lines = below.split(b"\n")
    found: dict[str, dict[Token, int]] = {}
    for voice, size, others in json.loads(head):
        mine = found[voice] = dict.fromkeys(lines[:size], 1)
        for at, n in others.items():
            mine[lines[int(at)]] = n
        del lines[:size]
    return found
