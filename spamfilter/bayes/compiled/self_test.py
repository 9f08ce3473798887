"""A self-test of the compiled helpers on a handful of inputs, run once when they are loaded.

It takes less than a millisecond, and finds a Python with another hash, a compiler that rounds otherwise, and a helper
that was built wrongly on this machine. That the helpers compute what Python computes is shown by
tests/bayes/test_token_arrays.py and test_scores.py; the numbers here are those of helpers that passed them.
"""

from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

BUCKETS = 16
WORDS = [b"a", b"seven77", b"8 bytes.", b"caf\xc3\xa9", b"subject:free money", b"\xe6\xbc\xa2", b"x" * 200]
HAM, SPAM = [0.0, 3.0, 24.0, 1.0, 0.0, 5.0, 16.0], [8.0, 0.0, 24.0, 700.0, 0.0, 6.0, 1.0]
"""Counts of WORDS."""
TEXT = b"Buy NOW: it's $5 \xe6\xbc\xa2\xe5\xad\x97 " + b"Z" * 30 + b" now"
FOUND = {
    1: {b"buy": 1, b"now": 2, b"it's": 1, b"$5": 1, b"\xe6\xbc\xa2": 1, b"\xe5\xad\x97": 1, b"z~3": 1},
    2: {b"^Buy": 1, b"^NOW:": 1, b"^Buy NOW:": 1},
    3: {b"Buy": 1, b"NOW:": 1, b"Buy NOW:": 1},
}
"""Kind of a part -> the tokens of TEXT, or of its first two words; the kinds are those of bayes/tokens.py."""
SOFT_SHARES = [
    0.06785714285714284, -0.019435030849143067, 0.0, 7.798851729466347, 0.0, 0.0027214486630525022,
    -0.13592444786343558,
]  # fmt: skip
SOFT_SUM = 7.714070842273964
EDDC_CHANCES = [
    0.054890441422415226, 0.149362242501887, 0.6921981925273741, 0.17714968441643708, 0.5, 0.3017752148509291,
    0.5292341708561584, 0.06492107936219177, 0.06170280312735876, 0.2013258134903247, 0.8361670791036093, 0.5,
    0.20768823936468, 0.06272268381351737,
]  # fmt: skip
HEARD_SHARES = [0.25, -1.2, 0.2]
HEARD_OWN, HEARD_SUM = -0.8125, -0.5


def first_difference(tokens: Any, scores: Any) -> str:
    """The first function of the helpers that does not give what it must; empty if all do."""
    for name, passes in CHECKS.items():
        try:
            if not passes(tokens, scores):
                return name
        except Exception as error:
            return f"{name}: {error}"
    return ""


def _key(word: bytes) -> int:
    return hash(word) or 1


KEYS = array("q", map(_key, WORDS))


def _doubles(numbers: bytes) -> list[float]:
    return array("d", numbers).tolist()


def _table(tokens: Any) -> memoryview:
    """A table of WORDS with their counts, as bayes/count_table.py describes it."""
    raw = bytearray(8 * BUCKETS * 4 * 3)
    table = memoryview(raw).cast("q", (BUCKETS, 4, 3))
    tokens.insert(table, KEYS)
    flat = memoryview(raw).cast("q")
    for slot, ham, spam in zip(array("q", tokens.slots(table, KEYS)), HAM, SPAM, strict=True):
        flat[3 * slot + 1], flat[3 * slot + 2] = int(ham), int(spam)
    return table


def _hashes(tokens: Any, scores: Any) -> bool:
    return array("q", tokens.hashes(b"\n".join([b"", *WORDS]))) == array("q", [_key(b""), *KEYS])


def _find(tokens: Any, scores: Any) -> bool:
    for kind, expected in FOUND.items():
        spellings, ends, hashes, times = tokens.find(((kind, TEXT if kind == 1 else b"Buy NOW:"),))
        words = [spellings[start:end] for start, end in pairwise([0, *array("I", ends)])]
        if dict(zip(words, array("I", times), strict=True)) != expected or [*array("q", hashes)] != [*map(_key, words)]:
            return False
    return True


def _counts(tokens: Any, scores: Any) -> bool:
    table = _table(tokens)
    numbers = _doubles(tokens.counts(table, array("q", [*KEYS, _key(b"not there")])))
    buckets = [((key >> 32) & 0xFFFFFFFF) * BUCKETS >> 32 for key in KEYS]
    slots = array("q", tokens.slots(table, KEYS))
    near = [(slot // 4 - bucket) % BUCKETS <= len(KEYS) // 4 for slot, bucket in zip(slots, buckets, strict=True)]
    return numbers == [*HAM, 0.0, *SPAM, 0.0] and all(near)


def _soft(tokens: Any, scores: Any) -> bool:
    in_place_of_logarithms = array("d", (count / 64 for count in range(1000)))  # exact on every machine
    total, shares, numbers = scores.soft(_table(tokens), KEYS, in_place_of_logarithms, 1.9, 6.0)
    return (total, _doubles(shares), _doubles(numbers)) == (SOFT_SUM, SOFT_SHARES, HAM + SPAM)


def _eddc(tokens: Any, scores: Any) -> bool:
    return _doubles(scores.eddc(array("d", HAM + SPAM), 30, 710, 1e-6, 0.9, 100.0)) == EDDC_CHANCES


def _heard(tokens: Any, scores: Any) -> bool:
    logarithms = array("d", [-1.5, -0.25, -0.75, -0.5, -4.0, -0.125])
    own, heard, shares = scores.heard(logarithms, 0.5, 0.25, b"^abc", array("I", [2, 3, 4]), ord("^"), 0.25, 1.0)
    return (own, heard, _doubles(shares)) == (HEARD_OWN, HEARD_SUM, HEARD_SHARES)


def _loud(tokens: Any, scores: Any) -> bool:
    part = ("fields", 0.5, 8.0, WORDS[:3], array("d", [8, 0, 2, 0, 16, 2]), array("d", [-1.0, 3.0, 0.0]))
    rows = [(-0.5, "fields", WORDS[0], 1.0, 0.0, -0.5), (-1.5, "fields", WORDS[1], 0.0, 2.0, 1.5)]
    return bool(scores.loud((part,), 3) == rows and scores.loud((part,), 1) == rows[1:])


CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "hashes": _hashes,
    "find": _find,
    "table": _counts,
    "soft": _soft,
    "eddc": _eddc,
    "heard": _heard,
    "loud": _loud,
}
"""Function of the helpers, or what several do together -> its check."""
