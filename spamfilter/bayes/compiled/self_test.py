"""What the helpers must compute, on a handful of inputs, before they are trusted with mail: looked at once, at load.

Takes less than a millisecond. The tests compare far more; this finds a Python that hashes otherwise, a compiler that
rounds otherwise, and a helper that was built wrongly on this machine.
"""

import math
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

BUCKETS = 16
WORDS = [b"a", b"seven77", b"8 bytes.", b"caf\xc3\xa9", b"subject:free money", b"\xe6\xbc\xa2", b"x" * 200]
COUNTS = [(0, 8), (3, 0), (24, 24), (1, 700), (0, 0), (5, 6), (16, 1)]
"""Of WORDS in ham and in spam."""
TEXT = b"Buy NOW: it's $5 \xe6\xbc\xa2\xe5\xad\x97 " + b"Z" * 30 + b" now"
FOUND = {
    1: {b"buy": 1, b"now": 2, b"it's": 1, b"$5": 1, b"\xe6\xbc\xa2": 1, b"\xe5\xad\x97": 1, b"z~3": 1},
    2: {b"^Buy": 1, b"^NOW:": 1, b"^Buy NOW:": 1},
    3: {b"Buy": 1, b"NOW:": 1, b"Buy NOW:": 1},
}
"""Kind of a part -> the tokens of TEXT, or of its first two words; the kinds are those of bayes/tokens.py."""


def first_difference(tokens: Any, scores: Any) -> str:
    """Which function of the helpers does not give what Python gives; empty if all do."""
    checks: dict[str, Callable[[], bool]] = {
        "hashes": lambda: _hashes_differ(tokens),
        "find": lambda: any(_words_differ(tokens, kind) for kind in FOUND),
        "table": lambda: _counts_differ(tokens),
        "soft": lambda: _soft_differs(tokens, scores),
        "eddc": lambda: _eddc_differs(scores),
        "heard": lambda: _heard_differs(scores),
        "loud": lambda: _loud_differs(scores),
    }
    for name, differs in checks.items():
        try:
            if differs():
                return name
        except Exception as error:
            return f"{name}: {error}"
    return ""


def _key(word: bytes) -> int:
    return hash(word) or 1


def _hashes_differ(tokens: Any) -> bool:
    words = [b"", *WORDS]
    return array("q", tokens.hashes(b"\n".join(words))).tolist() != [_key(word) for word in words]


def _words_differ(tokens: Any, kind: int) -> bool:
    text = TEXT if kind == 1 else b"Buy NOW:"
    spellings, ends, hashes, times = tokens.find(((kind, text),))
    bounds = [0, *array("I", ends)]
    words = [spellings[start:end] for start, end in pairwise(bounds)]
    return dict(zip(words, array("I", times), strict=True)) != FOUND[kind] or array("q", hashes).tolist() != [
        *map(_key, words)
    ]


def _table(tokens: Any) -> memoryview:
    """A table of WORDS with COUNTS, as bayes/count_table.py describes it."""
    raw = bytearray(8 * BUCKETS * 4 * 3)
    table = memoryview(raw).cast("q", (BUCKETS, 4, 3))
    tokens.insert(table, array("q", map(_key, WORDS)))
    flat = memoryview(raw).cast("q")
    for word, counts in zip(WORDS, COUNTS, strict=True):
        (slot,) = array("q", tokens.slots(table, array("q", [_key(word)])))
        flat[3 * slot + 1], flat[3 * slot + 2] = counts
    return table


def _counts_differ(tokens: Any) -> bool:
    table = _table(tokens)
    words = [*WORDS, b"not there"]
    numbers = array("d", tokens.counts(table, array("q", map(_key, words)))).tolist()
    expected = [*COUNTS, (0, 0)]
    buckets = [((_key(word) >> 32) & 0xFFFFFFFF) * BUCKETS >> 32 for word in WORDS]
    slots = array("q", tokens.slots(table, array("q", map(_key, WORDS))))
    strays = sum((slot // 4 - bucket) % BUCKETS > len(WORDS) // 4 for slot, bucket in zip(slots, buckets, strict=True))
    return numbers != [ham for ham, _ in expected] + [spam for _, spam in expected] or strays > 0


def _soft_differs(tokens: Any, scores: Any) -> bool:
    logarithms = array("d", (math.log(count + 24.0) for count in range(1000)))
    own, shares, numbers = scores.soft(_table(tokens), array("q", map(_key, WORDS)), logarithms, 1.9, 6.0)
    root = math.sqrt(len(WORDS))
    expected = [
        (logarithms[spam] - logarithms[ham]) * 1.9 * math.sqrt(abs(spam - ham) / (spam + ham + 6.0)) / root
        for ham, spam in COUNTS
    ]
    counts = [float(ham) for ham, _ in COUNTS] + [float(spam) for _, spam in COUNTS]
    return (own, array("d", shares).tolist(), array("d", numbers).tolist()) != (math.fsum(expected), expected, counts)


def _eddc_differs(scores: Any) -> bool:
    ham_learnt, spam_learnt, factor, weight = 30, 710, 0.9, 100.0
    counts = array("d", [ham for ham, _ in COUNTS] + [spam for _, spam in COUNTS])
    found = array("d", scores.eddc(counts, ham_learnt, spam_learnt, 1e-6, factor, weight)).tolist()
    of_ham, of_spam = [], []
    for ham, spam in COUNTS:
        in_ham, in_spam = ham / ham_learnt, spam / spam_learnt
        if abs(in_spam - in_ham) < 1e-6:
            of_ham.append(0.5)
            of_spam.append(0.5)
            continue
        h, s = math.floor(ham * spam_learnt / ham_learnt), math.floor(spam * spam_learnt / spam_learnt)
        x = ((s - h) * (s - h) - 0.25 / (ham + spam)) / ((s + h) * (s + h))
        c = factor * x * x / (1 + 8 / ((ham + spam) * weight))
        of_ham.append(0.5 + c * (in_ham - 0.5))
        of_spam.append(0.5 + c * (in_spam - 0.5))
    return found != of_ham + of_spam


def _heard_differs(scores: Any) -> bool:
    logarithms = array("d", [-1.5, -0.25, -0.75, -0.5, -4.0, -0.125])
    shares = [0.5 * (logarithms[3 + at] - logarithms[at]) for at in range(3)]
    own, heard, found = scores.heard(logarithms, 0.5, 0.25, b"^abc", array("I", [2, 3, 4]), ord("^"), 0.25, 1.0)
    parts = [0.25 / abs(shares[0]), *[1.0 / abs(math.fsum(shares[1:]))] * 2]
    limited = [share * min(1.0, part) for share, part in zip(shares, parts, strict=True)]
    expected = math.fsum(shares) + 0.25, math.fsum(limited) + 0.25, limited
    return (own, heard, array("d", found).tolist()) != expected


def _loud_differs(scores: Any) -> bool:
    part = ("fields", 0.5, 8.0, WORDS[:3], array("d", [8, 0, 2, 0, 16, 2]), array("d", [-1.0, 3.0, 0.0]))
    expected = [(-0.5, "fields", WORDS[0], 1.0, 0.0, -0.5), (-1.5, "fields", WORDS[1], 0.0, 2.0, 1.5)]
    return bool(scores.loud((part,), 3) != expected or scores.loud((part,), 1) != expected[1:])
