"""Tokens that wait in little more than half of the room: their hashes at hand, which scores need, and the rest packed.

Guarantee: they are what was folded, whoever asks for whatever; who asks for more than hashes waits for it.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spamfilter.seen import Integers, Seen, Spellings
from spamfilter.voices import Packed, in_lines, is_in_lines


@lru_cache(maxsize=2)
def _lines(packed: bytes) -> tuple[bytes, Integers]:
    """The tokens of all voices on a line each, and where each line ends."""
    _, lines = in_lines(packed)
    return lines, np.append(np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")), len(lines))


@lru_cache(maxsize=4)
def _unfolded(packed: bytes, first: int, size: int) -> tuple[bytes, NDArray[np.uint32]]:
    """The tokens of one voice, so many lines from `first` on, as `Spellings` has them: without line ends."""
    lines, breaks = _lines(packed)
    ends = breaks[first : first + size]
    start = int(breaks[first - 1]) + 1 if first else 0
    text = lines[start : ends[-1]].replace(b"\n", b"") if size else b""
    return text, (ends - start - np.arange(size)).astype(np.uint32)


class _Spellings(Spellings):
    """One voice's lines, from `first` on. Those asked for last are kept: who asks for the text asks for the ends."""

    __slots__ = ("first", "packed")

    def __init__(self, packed: bytes, first: int, hashes: Integers) -> None:
        self.packed, self.first, self.hashes = packed, first, hashes

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def text(self) -> bytes:  # type: ignore[override]
        return _unfolded(self.packed, self.first, len(self))[0]

    @property
    def ends(self) -> NDArray[np.uint32]:  # type: ignore[override]
        return _unfolded(self.packed, self.first, len(self))[1]


class _Folded(Seen):
    __slots__ = ("_voice",)
    spellings: _Spellings

    def __init__(self, voice: str, spellings: _Spellings) -> None:
        self.spellings, self._voice, self._plain = spellings, voice, None

    @property
    def times(self) -> NDArray[np.integer[Any]]:  # type: ignore[override]
        head, _ = in_lines(self.spellings.packed)
        (others,) = [others for voice, _, others in json.loads(head) if voice == self._voice]
        times = np.ones(len(self), np.uint32)
        times[[*map(int, others)]] = [*others.values()]
        return times


def folded(tokens: Packed, names: Collection[str]) -> dict[str, Seen] | None:
    """The tokens of these voices, in less room; None where they are not known by their hashes."""
    packed, first = tokens.packed(), 0
    found: dict[str, Seen] = {}
    for name, some in tokens.items():
        if name in names and isinstance(some, Seen) and is_in_lines(packed):
            found[name] = _Folded(name, _Spellings(packed, first, some.spellings.hashes))
        first += len(some)
    return found if len(found) == len(names) else None
