"""Both tables hold the same counts, however full they are, and also where hashes share a bucket."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes import count_table as module
from spamfilter.bayes.count_table import BUCKET, NARROW, HashedTable, SpelledTable, Words
from spamfilter.bayes.labels import LABELS, Label
from tests.support.made import some, spelled

WORDS = st.lists(st.integers(0, 400).map(b"%d".__mod__), unique=True, max_size=120)
STEPS = st.lists(st.tuples(WORDS, st.sampled_from(LABELS), st.integers(0, 2**62)), max_size=12)


def put(words: Words, tokens: list[bytes], label: Label, first: int) -> None:
    words.put(tokens, label, np.array([max(first - at, 0) for at in range(len(tokens))], np.int64))


@some(150)
@given(steps=STEPS, asked=WORDS)
def test_both_hold_the_same(steps: list[tuple[list[bytes], Label, int]], asked: list[bytes]) -> None:
    kept = [SpelledTable(), HashedTable(), HashedTable(10_000)]
    for tokens, label, first in steps:
        for words in kept:
            put(words, tokens, label, first)
    plain = kept[0]
    for words in kept[1:]:
        assert words == plain
        assert plain == words
        for mine, theirs in zip(words.columns(asked), plain.columns(asked), strict=True):
            assert mine.tolist() == theirs.tolist()
        for label in LABELS:
            assert words.column(asked, label).tolist() == plain.column(asked, label).tolist()
            assert sorted(words.all_of(label)) == sorted(plain.all_of(label))


@pytest.mark.parametrize(
    "hashed",
    [
        pytest.param(lambda number: 1 + number, id="all-begin-in-one-bucket"),
        pytest.param(lambda number: -1 - number, id="the-last-bucket-runs-into-the-first"),
        pytest.param(lambda number: 0 if number == 2 else number, id="zero-is-a-hash"),
        pytest.param(lambda number: -(2**63) + number, id="the-smallest-hashes"),
    ],
)
def test_hashes_that_crowd_lose_no_word(monkeypatch: pytest.MonkeyPatch, hashed: Callable[[int], int]) -> None:
    def chosen(word: bytes) -> int:
        return hashed(int(word))

    monkeypatch.setattr(module, "hash", chosen, raising=False)
    kept, plain = HashedTable(), SpelledTable()
    for start in range(0, 40 * BUCKET, 10):
        tokens = [b"%d" % number for number in range(2 + start, 12 + start)]
        for words in (kept, plain):
            put(words, tokens, "spam", 1_000 + start)
    everything = [b"%d" % number for number in range(2, 2 + 80 * BUCKET)]
    assert kept.column(everything, "spam").tolist() == plain.column(everything, "spam").tolist()
    assert kept == plain


def test_a_table_grows_and_gives_up_what_counts_nothing() -> None:
    kept = HashedTable()
    room = kept._keys.size
    for turn in range(20):
        tokens = [b"%d-%d" % (turn, number) for number in range(room // 4)]
        put(kept, tokens, "ham", 2**40)
        kept.put(tokens, "ham", np.zeros(len(tokens), np.int64))
    assert kept._keys.size <= 4 * room
    put(kept, [b"%d" % number for number in range(10 * room)], "ham", 2**40)
    assert kept == spelled(ham={b"%d" % number: 2**40 - number for number in range(10 * room)})


@pytest.mark.parametrize("expected", [0, 1_000, 10_007])
def test_a_bucket_is_a_cache_line(expected: int) -> None:
    table = HashedTable(expected).table
    assert table.ctypes.data % module.LINE == 0
    assert table[0].nbytes == module.LINE


def test_a_copy_goes_its_own_way() -> None:
    kept = HashedTable()
    put(kept, [b"a"], "ham", 1)
    other = copy.deepcopy(kept)
    put(other, [b"a", b"b"], "spam", 9)
    assert kept == spelled(ham={b"a": 1})
    assert kept != other
    with pytest.raises(TypeError):
        hash(kept)
    assert kept != "words"


@pytest.mark.parametrize("again", [1, 300, 600])
def test_words_that_counted_nothing_until_now_survive_the_growth_that_they_cause(again: int) -> None:
    """Unlearnt and learnt again, together with new words that the table has no room for."""
    kept, plain = HashedTable(), SpelledTable()
    old = [b"old%d" % number for number in range(600)]
    new = [b"new%d" % number for number in range(400)]
    for words in (kept, plain):
        words.put(old, "spam", np.ones(600, np.int64))
        words.put(old, "spam", np.zeros(600, np.int64))
        words.put([*old[:again], *new], "spam", np.full(again + 400, 8))
    assert kept == plain
    assert kept.column(old, "spam").tolist() == [8] * again + [0] * (600 - again)


@pytest.mark.parametrize("largest", [NARROW, NARROW + 1, 2**62 - 1])
def test_counts_of_any_size_are_kept(largest: int) -> None:
    filled, put_in = HashedTable(), HashedTable()
    filled.fill(b"a\nb\nc", np.array([1, largest, 0]), np.array([largest, 0, 3]))
    for label, counts in (("ham", [1, largest, 0]), ("spam", [largest, 0, 3])):
        put_in.put([b"a", b"b", b"c"], label, np.array(counts))
    assert filled == put_in == spelled(ham={b"a": 1, b"b": largest}, spam={b"a": largest, b"c": 3})


def test_a_table_is_filled_without_the_helper_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [b"%d" % number for number in range(3_000)]
    ham, spam = np.arange(1, 3_001), np.arange(3_000)
    lines, quick, slow = b"\n".join(tokens), HashedTable(), HashedTable(3_000)
    quick.fill(lines, ham, spam)
    monkeypatch.setattr(module, "token_helper", None)
    slow.fill(lines, ham, spam)
    assert quick == slow
    assert [column.tolist() for column in slow.columns([*tokens, b"none"])] == [[*ham, 0], [*spam, 0]]


def test_more_counts_than_words_are_refused() -> None:
    with pytest.raises(ValueError, match="2 words, and counts of 2 and 3"):
        HashedTable().fill(b"a\nb", np.ones(2, np.int64), np.ones(3, np.int64))
