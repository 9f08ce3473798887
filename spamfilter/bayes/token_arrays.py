"""The distinct tokens of a message with their hashes and occurrences, in arrays.

`TokenArrays` is the mapping token -> occurrences that `tokens.tokenize` gives where the compiled helper is in use. Its
tokens become Python objects only when they are asked for, as evidence and the ledger do; judging needs the arrays only.
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
    """The tokens, one after the other in one string of bytes, `text`.

    ends: where each ends in it. hashes: of each, as by `hashed`. Both of shape (tokens,).
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
        return len(self.hashes)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        if at < 0:
            at = range(len(self))[at]
        return self.text[self.ends[at - 1] if at else 0 : self.ends[at]]

    def __iter__(self) -> Iterator[bytes]:
        lines = self.lines() if len(self) else None
        if lines is not None:
            return iter(lines.split(b"\n"))  # half the time of cutting them one by one
        ends = self.ends.tolist()
        return map(self.text.__getitem__, map(slice, (0, *ends), ends))

    def lines(self) -> bytes | None:
        """The tokens, one in a line; None if one of them contains a line end."""
        if b"\n" in self.text:
            return None
        breaks = np.asarray(self.ends[:-1] + np.arange(max(len(self) - 1, 0)), np.intp)
        line_ends = np.zeros(len(self.text) + len(breaks), np.bool_)
        line_ends[breaks] = True
        lines = np.full(len(line_ends), ord("\n"), np.uint8)
        lines[~line_ends] = np.frombuffer(self.text, np.uint8)
        return lines.tobytes()

    def beginning_with(self, character: bytes) -> NDArray[np.bool_]:
        """Which tokens begin with this character of ASCII; shape (tokens,)."""
        starts = np.zeros(len(self), np.intp)
        starts[1:] = self.ends[:-1]
        return np.asarray(np.frombuffer(self.text, np.uint8)[starts] == ord(character))


class TokenArrays(Mapping[bytes, int]):
    """Token -> occurrences, or another whole number. times: in the order of `spellings`, shape (tokens,)."""

    __slots__ = ("_plain", "spellings", "times")

    def __init__(self, spellings: Spellings, times: NDArray[np.integer[Any]]) -> None:
        self.spellings = spellings
        self.times = times
        self._plain: dict[bytes, int] | None = None

    @classmethod
    def of_parts(cls, text: bytes, ends: bytes, hashes: bytes, times: bytes) -> "TokenArrays":
        """What the compiled helper finds; the occurrences have 32 bits each."""
        spellings = Spellings(text, np.frombuffer(ends, np.uint32), np.frombuffer(hashes, np.int64))
        return cls(spellings, np.frombuffer(times, np.uint32))

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

    # Mapping's own would ask for each token by itself.
    def keys(self) -> KeysView[bytes]:
        return self._dict().keys()

    def values(self) -> ValuesView[int]:
        return self._dict().values()

    def items(self) -> ItemsView[bytes, int]:
        return self._dict().items()

    def __repr__(self) -> str:
        return f"TokenArrays({self._dict()})"


_NO_ENDS = np.empty(0, np.uint32)


def by_hash(tokens: Mapping[bytes, int]) -> TokenArrays:
    """Tokens without their spellings, twelve bytes each: enough to read and change their counts in a table by hash.

    The result has no spellings to list: reading a token raises ValueError or IndexError.
    """
    if isinstance(tokens, TokenArrays):
        return TokenArrays(Spellings(b"", _NO_ENDS, tokens.spellings.hashes), tokens.times)
    times = np.fromiter(tokens.values(), np.uint32, len(tokens))
    return TokenArrays(Spellings(b"", _NO_ENDS, hashed([*tokens])), times)
