"""Tokens that wait in little more than half of the room: their hashes at hand, which scores need, and the rest packed.

Guarantee: they are what was folded, whoever asks for whatever; who asks for more than hashes waits for it.
"""

import json
from collections.abc import Collection
from functools import lru_cache

import numpy as np

from spamfilter.bayes.token_arrays import Seen, Spellings
from spamfilter.bayes.voices import Packed, in_lines, is_in_lines

_in_lines = lru_cache(maxsize=2)(in_lines)


@lru_cache(maxsize=4)
def _unfolded(packed: bytes, first: int, size: int) -> tuple[bytes, bytes]:
    """The tokens of one voice, so many lines from `first` on, as `Spellings` has them: without line ends."""
    _, lines = _in_lines(packed)
    spelt = Spellings.of(lines.split(b"\n")[first : first + size])
    return spelt.text, spelt.end_bytes


class _Spellings(Spellings):
    """One voice's lines, from `first` on. Those asked for last are kept: who asks for the text asks for the ends."""

    __slots__ = ("first", "packed")

    def __init__(self, packed: bytes, first: int, hashes: bytes) -> None:
        self.packed, self.first, self.hash_bytes = packed, first, hashes

    @property
    def text(self) -> bytes:  # type: ignore[override]
        return _unfolded(self.packed, self.first, len(self))[0]

    @property
    def end_bytes(self) -> bytes:  # type: ignore[override]
        return _unfolded(self.packed, self.first, len(self))[1]


class _Folded(Seen):
    __slots__ = ("_voice",)
    spellings: _Spellings

    def __init__(self, voice: str, spellings: _Spellings) -> None:
        self.spellings, self._voice, self._plain = spellings, voice, None

    @property
    def _times(self) -> bytes:  # type: ignore[override]
        head, _ = _in_lines(self.spellings.packed)
        (others,) = [others for voice, _, others in json.loads(head) if voice == self._voice]
        times = np.ones(len(self), np.uint32)
        times[[*map(int, others)]] = [*others.values()]
        return times.tobytes()


def folded(tokens: Packed, names: Collection[str]) -> dict[str, Seen] | None:
    """The tokens of these voices, in less room; None where they are not known by their hashes."""
    packed, first = tokens.packed(), 0
    found: dict[str, Seen] = {}
    for name, some in tokens.items():
        if name in names and isinstance(some, Seen) and is_in_lines(packed):
            found[name] = _Folded(name, _Spellings(packed, first, some.spellings.hash_bytes))
        first += len(some)
    return found if len(found) == len(names) else None
