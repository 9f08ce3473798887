"""What the compiled helper computes of counts is what Python computes, to the last bit."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes import voices
from spamfilter.bayes.compiled import score_helper
from spamfilter.bayes.count_table import HashedTable
from spamfilter.bayes.counts import MAX_COUNT, Counts
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS, eddc, likelihood, soft
from spamfilter.bayes.likelihoods.likelihood import LogOdds, MessageCounts, TokenShares
from spamfilter.bayes.token_arrays import Spellings, TokenArrays
from spamfilter.bayes.tokens import tokenize
from spamfilter.bayes.voices import Evidence, LogOddsByVoice, Voice, VoiceScore
from spamfilter.mail.message import Message
from tests.support.made import some
from tests.support.probabilities import judged
from tests.support.real import require_helpers
from tests.support.without_helpers import without_helpers

COUNT = st.integers(0, 30) | st.integers(0, 3000) | st.sampled_from([2**31, 2**53 - 1, 2**53 + 1, MAX_COUNT])


@pytest.fixture(autouse=True)
def built() -> None:
    """Skips without the helper; fails where the tests require everything."""
    require_helpers()


@some(300)
@given(
    st.sampled_from(["soft", "eddc"]),
    st.lists(st.tuples(st.booleans(), COUNT, COUNT), max_size=40),
    st.tuples(*[st.integers(0, 3000) | st.just(2**40)] * 2),
    st.integers(0, 8),
)
def test_opinion_and_evidence_are_what_python_makes_of_the_same_counts(
    name: str, words: list[tuple[bool, int, int]], learnt: tuple[int, int], most: int
) -> None:
    head, text = (
        b" ".join(b"%d" % number for number, (marked, *_) in enumerate(words) if marked is part)
        for part in (True, False)
    )
    tokens, counts = tokenize(Message((), (), head, text, text, 0, 0, ()), ("phrases",)), Counts(HashedTable())
    for number, (marked, *each) in enumerate(words):
        for label, count in zip(LABELS, each, strict=True):
            counts.kept.put([b"^" * marked + b"%d" % number], label, np.array([count]))
    counts.messages = dict(zip(LABELS, learnt, strict=True))

    def found() -> tuple[LogOddsByVoice, float, list[Evidence]]:
        chosen = (Voice("phrases", LIKELIHOODS[name](), 0.35), Voice("body", LIKELIHOODS[name](), 0.7))
        return judged(chosen, dict.fromkeys(("phrases", "body"), tokens), {"phrases": counts, "body": counts}, most)

    quick = found()
    with pytest.MonkeyPatch.context() as patch:
        without_helpers(patch)
        assert quick == found()


@some(100)
@given(st.lists(st.tuples(COUNT, COUNT), max_size=40), st.integers(0, 3000), st.integers(0, 3000))
def test_shares_are_what_python_computes(pairs: list[tuple[int, int]], ham: int, spam: int) -> None:
    numbers = np.array(pairs, np.float64).reshape(-1, 2).T.copy()
    message = MessageCounts([b""] * len(pairs), np.ones(len(pairs)), numbers)
    counts = Counts()
    counts.messages = {"ham": ham, "spam": spam}
    quick = [row.shares(message, counts).tolist() for row in (soft.Soft(), eddc.Eddc())]
    with pytest.MonkeyPatch.context() as patch:
        without_helpers(patch)
        assert quick == [row.shares(message, counts).tolist() for row in (soft.Soft(), eddc.Eddc())]


@some(500)
@given(
    st.lists(st.floats(-1e300, 1e300) | st.sampled_from([1e16, -1e16, 1.0, 2**-53, -(2**-53)]), max_size=60)
    | st.lists(st.floats(-64, 64) | st.floats(-1e-15, 1e-15), max_size=60)
)
def test_a_sum_is_the_exact_one(values: list[float]) -> None:
    assert likelihood.exact_sum(np.array(values)) == math.fsum(values)


@pytest.mark.parametrize("size", [4096, 4097, 20_000])
@pytest.mark.parametrize("value", [math.nextafter(64, 0), -math.nextafter(64, 0), 2**-56])
def test_a_sum_of_many_is_exact(size: int, value: float) -> None:
    chance = random.Random(size)
    values = [value] * (size - 10) + [chance.uniform(-1, 1) for _ in range(10)]
    assert likelihood.exact_sum(np.array(values)) == math.fsum(values)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_summed(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        likelihood.exact_sum(np.array([1.0, value]))


@pytest.mark.parametrize("numbers", [[], [0.0], [-0.0, 1.0, -1.0, 1.0], [0.5] * 9, [3.0, 2.0, 1.0, -4.0]], ids=str)
@pytest.mark.parametrize("most", [1, 2, 64, 65, None])
def test_the_loudest_are_the_same_without_the_helper(numbers: Sequence[float], most: int | None) -> None:
    said: list[VoiceScore] = []
    for name, weight, shares in (("fields", 0.5, numbers), ("phrases", 2.0, [1.0, 0.25])):
        words = Spellings.of([b"%d" % number for number in range(len(shares))])
        counts = np.arange(2.0 * len(shares)).reshape(2, -1)
        heard = TokenShares(words, counts, np.array(shares) * weight)
        said.append(VoiceScore(Voice(name, LIKELIHOODS["soft"]()), LogOdds(0.0, 0.0), heard))
    quick = voices._loud(said, most, voices.BELIEVED)
    assert len(quick) >= min(most or 65, 2)
    with pytest.MonkeyPatch.context() as patch:
        without_helpers(patch)
        assert quick == voices._loud(said, most, voices.BELIEVED)


TABLE = np.zeros((2, 4, 2), np.int64)
ONE = np.ones(1, np.int64)
WORD = b"word", np.array([4], np.uint32), 94


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param("soft", (TABLE.reshape(4, 4), ONE, np.ones(1), 1.0, 1.0), id="no slots"),
        pytest.param("soft", (TABLE.reshape(4, 2, 2), ONE, np.ones(1), 1.0, 1.0), id="half a bucket"),
        pytest.param("soft", (TABLE, ONE, np.ones(1), math.nan, 1.0), id="no scale"),
        pytest.param("heard", (np.ones(4), 1.0, 0.0, *WORD, 1.0, 1.0), id="a word without an end"),
        pytest.param("heard", (np.ones(0), 1.0, 0.0, *WORD, 1.0, 1.0), id="a word without logarithms"),
        pytest.param("heard", (np.array([math.nan, 1.0]), 1.0, 0.0, *WORD, 1.0, 1.0), id="no number"),
        pytest.param("loud", ((), 0), id="none"),
        pytest.param("loud", ((), 65), id="too many"),
        pytest.param("loud", ((("name", 1.0, 1, [b"word"], np.ones(1), np.ones(1)),), 1), id="one count of a word"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, given: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"whole buckets|two logarithms|two counts|finite|from 1 to 64"):
        getattr(score_helper, name)(*given)


@pytest.mark.parametrize("end", [5, 2**32 - 1])
def test_words_that_end_beyond_their_text_begin_with_no_character(end: int) -> None:
    logarithms, ends = np.array([0.0, 0.0, 1.0, 1.0]), np.array([end, end], np.uint32)
    own, heard, shares = score_helper.heard(logarithms, 1.0, 0.0, b"word", ends, ord("w"), 0.5, 0.25)
    assert np.frombuffer(shares).tolist() == [0.5, 0.25]
    assert (own, heard) == (2, 0.75)


@pytest.mark.parametrize("label", LABELS)
def test_a_count_beyond_the_logarithms_at_hand_is_judged_all_the_same(label: Label) -> None:
    counts, words = Counts(HashedTable()), Spellings.of([b"often"])
    tokens = TokenArrays(words, np.ones(1, np.uint32))
    counts.add(label, {b"often": soft.COMMON})
    exact = math.log((soft.COMMON + 24) / 24) * 1.9 * math.sqrt(soft.COMMON / (soft.COMMON + 6))
    assert soft.Soft().log_odds(tokens, counts) == pytest.approx(exact if label == "spam" else -exact, rel=1e-12)


def test_logarithms_are_the_same_one_by_one_and_in_rows_of_any_length() -> None:
    numbers = np.arange(soft.COMMON) + 24.0
    assert all(
        np.array_equal(np.log(numbers[start : start + size]), np.log(numbers)[start : start + size])
        for size in (*range(1, 20), 4095)
        for start in range(0, soft.COMMON - size, 97)
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("total", ("text",)),
        ("soft", (TABLE, "text", b"", 1.0, 1.0)),
        ("eddc", ("text", 1.0, 1.0, 1.0, 1.0, 1.0)),
        ("heard", (b"", 1.0, 0.0, "text", "text", 94, 1.0, 1.0)),
        ("loud", ([], 1)),
        ("loud", (([],), 1)),
        ("loud", ((("name", 1.0, 1, [b"word"], b"", "text"),), 1)),
        ("loud", ((("name", 1.0, 1, 5, np.ones(2), np.ones(1)),), 1)),
    ],
)
def test_a_wrong_type_is_a_type_error(name: str, given: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(score_helper, name)(*given)
