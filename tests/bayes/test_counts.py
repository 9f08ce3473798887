"""Counts: exact arithmetic, and no change where it raises an error."""

import copy
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import MAX_COUNT, Counts, Growth
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.errors import CountError
from tests.support.made import some

DELTAS = st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(1, 5))
STEPS = st.lists(st.tuples(st.sampled_from(LABELS), DELTAS, st.integers(0, 2)), max_size=12)


def counted(steps: list[tuple[Label, dict[bytes, int], int]]) -> Counts:
    counts = Counts()
    for label, deltas, messages in steps:
        counts.add(label, deltas, messages)
    return counts


@some(100)
@given(STEPS)
def test_counts_are_the_sum_of_what_was_added(steps: list[tuple[Label, dict[bytes, int], int]]) -> None:
    counts = counted(steps)
    for label in LABELS:
        sums: Counter[bytes] = Counter()
        for _, deltas, _ in (step for step in steps if step[0] == label):
            sums.update(deltas)
        assert counts.words[label] == sums
        assert counts.occurrences[label] == sum(sums.values())
        assert counts.messages[label] == sum(messages for mine, _, messages in steps if mine == label)
    assert counts.vocabulary == len({*counts.words["ham"], *counts.words["spam"]})


@some(100)
@given(STEPS, st.randoms(use_true_random=False))
def test_what_is_taken_away_in_any_order_leaves_nothing(
    steps: list[tuple[Label, dict[bytes, int], int]], random: object
) -> None:
    counts = counted(steps)
    random.shuffle(steps)  # type: ignore[attr-defined]  # hypothesis gives a Random
    for label, deltas, messages in steps:
        counts.subtract(label, deltas, messages)
    assert counts == Counts()


@some(100)
@given(STEPS)
def test_tallies_that_follow_each_change_are_those_of_the_words(
    steps: list[tuple[Label, dict[bytes, int], int]],
) -> None:
    counts, later = Counts(), counted(steps)
    counts.tally()
    later.tally()
    for label, deltas, messages in steps:
        counts.add(label, deltas, messages)
    assert counts.tallies == later.tallies == {label: Counter(counts.words[label].values()) for label in LABELS}
    assert counts == later
    for label, deltas, messages in steps:
        counts.subtract(label, deltas, messages)
    assert counts.tallies == {"ham": {}, "spam": {}}


def test_a_change_says_how_the_vocabulary_and_the_tallies_have_grown() -> None:
    counts = Counts()
    counts.tally()
    assert counts.add("spam", {b"a": 1, b"b": 1}) == Growth(2, {1: 2})
    assert counts.add("spam", {b"a": 2}) == Growth(0, {1: -1, 3: 1})
    assert counts.add("ham", {b"a": 1}) == Growth(0, {1: 1})
    assert counts.subtract("spam", {b"a": 3, b"b": 1}) == Growth(-1, {1: -1, 3: -1})
    assert counts.messages == {"ham": 1, "spam": 1}


@pytest.mark.parametrize(
    ("label", "deltas", "messages"),
    [
        pytest.param("spam", {b"a": 1, b"b": 4}, 1, id="one-word-too-much"),
        pytest.param("spam", {b"a": 1, b"new": 1}, 1, id="unknown-word"),
        pytest.param("ham", {b"a": 1}, 0, id="word-of-the-other-class"),
        pytest.param("spam", {b"a": 1}, 3, id="too-many-messages"),
        pytest.param("ham", {}, 1, id="no-message-of-this-class"),
    ],
)
def test_taking_away_too_much_changes_nothing(label: Label, deltas: dict[bytes, int], messages: int) -> None:
    counts = counted([("spam", {b"a": 2, b"b": 3}, 2)])
    before = copy.deepcopy(counts)
    with pytest.raises(CountError, match="below zero"):
        counts.subtract(label, deltas, messages)
    assert counts == before


@pytest.mark.parametrize(
    ("deltas", "messages"),
    [
        pytest.param({b"a": 1, b"b": MAX_COUNT}, 1, id="word"),
        pytest.param({b"b": MAX_COUNT + 1}, 1, id="new-word"),
        pytest.param({}, MAX_COUNT, id="messages"),
        pytest.param({b"c": MAX_COUNT - 1, b"d": MAX_COUNT - 1}, 1, id="sum-of-words"),
    ],
)
def test_a_count_beyond_what_a_store_can_hold_changes_nothing(deltas: dict[bytes, int], messages: int) -> None:
    counts = counted([("spam", {b"b": 1}, 1)])
    before = copy.deepcopy(counts)
    with pytest.raises(CountError, match="past what the store can hold"):
        counts.add("spam", deltas, messages)
    assert counts == before


def test_the_largest_count_is_held() -> None:
    counts = counted([("spam", {b"a": MAX_COUNT}, 1)])
    assert counts.get(b"a", "spam") == MAX_COUNT == 2**62 - 1


def test_a_word_of_both_classes_stays_in_the_vocabulary_until_both_are_gone() -> None:
    counts = counted([("spam", {b"a": 1}, 1), ("ham", {b"a": 1}, 1)])
    seen = [counts.vocabulary]
    for label in LABELS:
        counts.subtract(label, {b"a": 1})
        seen.append(counts.vocabulary)
    assert seen == [1, 1, 0]


def test_counts_are_equal_by_what_they_count_and_differ_by_any_of_it() -> None:
    counts = counted([("spam", {b"a": 1}, 1)])
    assert counts == counted([("spam", {b"a": 1}, 1)])
    assert counts != counted([("ham", {b"a": 1}, 1)])
    assert counts != counted([("spam", {b"a": 1}, 2)])
    assert counts != counted([("spam", {b"a": 2}, 1)])
    assert counts != "counts"
    tallied = copy.deepcopy(counts)
    tallied.tally()
    assert counts == tallied
    assert tallied.tallies is not None
    tallied.tallies["spam"] = {2: 1}
    assert counts == tallied  # those of one follow from its words
    counts.tally()
    assert counts != tallied
    with pytest.raises(TypeError):
        hash(counts)


def test_counts_that_know_hashes_only_do_not_list_their_words() -> None:
    with pytest.raises(TypeError, match="hash only"):
        assert Counts(HashedTable()).words
