"""The tokens of a message as judging wants them: each once, with its hash and its occurrences, in arrays.

`Seen` is the mapping token -> occurrences that `features.tokenize` gives, made by the compiled helper: its words become
Python objects only if somebody asks for them, as evidence and the ledger do, and judging does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Spellings(Sequence[bytes]):
    """The tokens, one after the other in one string of bytes. hashes: of each, shape (tokens,), as `words.hashed`."""

    __slots__ = ("_ends", "_text", "hashes")

    def __init__(self, text: bytes, ends: NDArray[np.uint32], hashes: Integers) -> None:
        self._text = text
        self._ends = ends
        self.hashes = hashes

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        return self._text[self._ends.item(at - 1) if at else 0 : self._ends.item(at)]

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self._ends.tolist():
            yield self._text[start:end]
            start = end

    def beginning_with(self, character: bytes) -> NDArray[np.bool_]:
        """Which tokens begin with this character of ASCII; shape (tokens,)."""
        starts = np.zeros(len(self), np.intp)
        starts[1:] = self._ends[:-1]
        return np.asarray(np.frombuffer(self._text, np.uint8)[starts] == ord(character))


class Seen(Mapping[bytes, int]):
    """Token -> occurrences. times: the occurrences in the order of `spellings`, shape (tokens,)."""

    __slots__ = ("_plain", "spellings", "times")

    def __init__(self, text: bytes, ends: bytes, hashes: bytes, times: bytes) -> None:
        self.spellings = Spellings(text, np.frombuffer(ends, np.uint32), np.frombuffer(hashes, np.int64))
        self.times = np.frombuffer(times, np.uint32)
        self._plain: dict[bytes, int] | None = None

    def _dict(self) -> dict[bytes, int]:
        if self._plain is None:
            self._plain = dict(zip(self.spellings, self.times.tolist(), strict=True))
        return self._plain

    def __getitem__(self, token: bytes) -> int:
        return self._dict()[token]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._dict())

    def __len__(self) -> int:
        return len(self.spellings)

    def __repr__(self) -> str:
        return f"Seen({self._dict()})"
