"""The tokens of a message as judging wants them: each once, with its hash and its occurrences, in arrays.

`Seen` is the mapping token -> occurrences that `features.tokenize` gives, made by the compiled helper: its words become
Python objects only if somebody asks for them, as evidence and the ledger do, and judging does not.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def hashed(tokens: Sequence[bytes]) -> Integers:
    """The hash of each token, Python's own of 64 bits; never 0, which means a free slot of a table."""
    if isinstance(tokens, Spellings):
        return tokens.hashes
    keys = np.fromiter(map(hash, tokens), np.int64, len(tokens))
    keys[keys == 0] = 1
    return keys


class Spellings(Sequence[bytes]):
    """The tokens, one after the other in one string of bytes, `text`, and where each of them ends in it.

    hashes: of each, shape (tokens,), as `hashed`.
    """

    __slots__ = ("ends", "hashes", "text")

    def __init__(self, text: bytes, ends: NDArray[np.uint32], hashes: Integers) -> None:
        self.text = text
        self.ends = ends
        self.hashes = hashes

    @classmethod
    def of(cls, tokens: Sequence[bytes]) -> "Spellings":
        """These tokens, each of them named once."""
        ends = np.cumsum([len(token) for token in tokens], dtype=np.uint32)
        return cls(b"".join(tokens), ends, hashed(tokens))

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        if at < 0:
            at = range(len(self))[at]
        return self.text[self.ends.item(at - 1) if at else 0 : self.ends.item(at)]

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield self.text[start:end]
            start = end

    def beginning_with(self, character: bytes) -> NDArray[np.bool_]:
        """Which tokens begin with this character of ASCII; shape (tokens,)."""
        starts = np.zeros(len(self), np.intp)
        starts[1:] = self.ends[:-1]
        return np.asarray(np.frombuffer(self.text, np.uint8)[starts] == ord(character))


class Seen(Mapping[bytes, int]):
    """Token -> occurrences. times: the occurrences in the order of `spellings`, shape (tokens,)."""

    __slots__ = ("_plain", "spellings", "times")

    def __init__(self, text: bytes, ends: bytes, hashes: bytes, times: bytes) -> None:
        self.spellings = Spellings(text, np.frombuffer(ends, np.uint32), np.frombuffer(hashes, np.int64))
        self.times: NDArray[np.integer[Any]] = np.frombuffer(times, np.uint32)
        self._plain: dict[bytes, int] | None = None

    def _dict(self) -> dict[bytes, int]:
        if self._plain is None:
            self._plain = dict(zip(self.spellings, self.times.tolist(), strict=True))
        return self._plain

    def parts(self) -> tuple[bytes, bytes, bytes, bytes]:
        """What it can be made of again; not for what `with_times` gives, whose numbers are of another kind."""
        spelt = self.spellings
        return spelt.text, spelt.ends.tobytes(), spelt.hashes.tobytes(), self.times.tobytes()

    def with_times(self, times: NDArray[np.integer[Any]]) -> "Seen":
        """The same tokens with other whole numbers, in this order: what learning adds to their counts, for instance."""
        other = Seen.__new__(Seen)
        other.spellings, other.times, other._plain = self.spellings, times, None
        return other

    def __getitem__(self, token: bytes) -> int:
        return self._dict()[token]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._dict())

    def __len__(self) -> int:
        return len(self.spellings)

    # Mapping's own would ask for each token by itself.
    def keys(self) -> KeysView[bytes]:
        return self._dict().keys()

    def values(self) -> ValuesView[int]:
        return self._dict().values()

    def items(self) -> ItemsView[bytes, int]:
        return self._dict().items()

    def __repr__(self) -> str:
        return f"Seen({self._dict()})"
