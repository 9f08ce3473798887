"""The tokens of a message as bytes: `pack` for the ledger, `pack_seen` for the journal, `unpack` for both."""

import json
import zlib
from collections.abc import ItemsView, Iterable, Iterator, Mapping

import numpy as np

from spamfilter.bayes.groups import OWN
from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.tokens import Token, Tokens
from spamfilter.bayes.voices import OF_MESSAGE, View, VoiceTokens
from spamfilter.errors import StoreDamaged
from spamfilter.mail.message import Message
from spamfilter.system.compression import compressed

_SUBJECT = b"subject:"
_OF_LINES = b"L"
"""The first byte of tokens in lines by `pack`, as OF_MESSAGE; compressed JSON never begins so."""


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
    return seen.message if isinstance(seen, View) else None


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
    if isinstance(tokens, Packed) and not tokens.packed().startswith(OF_MESSAGE):
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
    """The tokens that `pack` or `pack_seen` has packed. Raises StoreDamaged."""
    if packed.startswith(OF_MESSAGE):
        names, _, message = _decompressed(packed[1:]).partition(b"\n")
        found = {name: group for name, _, group in (text.partition("=") for text in names.decode().split())}
        return View(found, Message.unpacked(message), found.get(OWN, ""))
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
    return _decompressed(packed[len(_OF_LINES) :] if lined else packed), lined


def _decompressed(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)  # which compares a checksum, so that what it returns is as it was
    except zlib.error as error:
        raise StoreDamaged(
            f"words of a mail are damaged in the database ({error}); put a backup in its place"
        ) from error


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
