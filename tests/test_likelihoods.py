"""Properties of every row of LIKELIHOODS, and direct computations of each to hold it against."""

import copy
import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.counts import LABELS, MAX_COUNT, Counts, Label
from spamfilter.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.likelihoods.multinomial import Multinomial
from spamfilter.likelihoods.soft import Soft
from tests.made import some

WORDS = [b"a", b"b", b"c", b"d", b"e", b"f", "grün".encode()]
TOKENS = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 6))
LEARNINGS = st.lists(st.tuples(st.sampled_from(LABELS), TOKENS), max_size=15)
COUNT = st.integers(1, 40) | st.integers(MAX_COUNT // 2, MAX_COUNT) | st.just(1)
Learnings = list[tuple[Label, dict[bytes, int]]]

every = pytest.mark.parametrize("name", LIKELIHOODS)


def other(label: Label) -> Label:
    return "ham" if label == "spam" else "spam"


def learnt(likelihood: Likelihood, learnings: Learnings) -> Counts:
    counts = Counts()
    for label, tokens in learnings:
        counts.add(label, likelihood.deltas(tokens, likelihood.amount(tokens, label, counts)))
    return counts


def mirrored(counts: Counts) -> Counts:
    swapped = copy.deepcopy(counts)
    swapped.words = {label: swapped.words[other(label)] for label in LABELS}
    swapped.messages = {label: swapped.messages[other(label)] for label in LABELS}
    swapped.occurrences = {label: swapped.occurrences[other(label)] for label in LABELS}
    return swapped


@st.composite
def any_counts(draw: st.DrawFn) -> Counts:
    counts = Counts()
    for label in LABELS:
        words: Mapping[bytes, int] = draw(st.dictionaries(st.sampled_from(WORDS), COUNT))
        for word, count in words.items():
            if word not in counts.words[other(label)]:
                counts.vocabulary += 1
            counts.words[label][word] = count
        counts.occurrences[label] = sum(words.values())
        counts.messages[label] = draw(COUNT | st.just(0))
    return counts


@every
@some(80)
@given(LEARNINGS, TOKENS, st.sampled_from(LABELS))
def test_to_learn_and_unlearn_is_the_identity(
    name: str, learnings: Learnings, tokens: dict[bytes, int], label: Label
) -> None:
    likelihood = LIKELIHOODS[name]()
    counts = learnt(likelihood, learnings)
    before = copy.deepcopy(counts)
    deltas = likelihood.deltas(tokens, likelihood.amount(tokens, label, counts))
    counts.add(label, deltas)
    counts.subtract(label, deltas)
    assert counts == before


@every
@some(80)
@given(LEARNINGS, TOKENS, st.randoms(use_true_random=False))
def test_the_order_of_tokens_and_words_changes_not_a_bit(
    name: str, learnings: Learnings, tokens: dict[bytes, int], random: object
) -> None:
    likelihood = LIKELIHOODS[name]()
    counts = learnt(likelihood, learnings)
    items = list(tokens.items())
    random.shuffle(items)  # type: ignore[attr-defined]  # hypothesis gives a Random
    turned = copy.deepcopy(counts)
    for label in LABELS:
        turned.words[label] = dict(reversed(counts.words[label].items()))
    assert likelihood.log_odds(dict(items), turned) == likelihood.log_odds(tokens, counts)
    assert likelihood.weights(dict(items), turned) == likelihood.weights(tokens, counts)
    for label in LABELS:
        assert likelihood.amount(dict(items), label, turned) == likelihood.amount(tokens, label, counts)


@every
@some(80)
@given(any_counts(), TOKENS)
def test_mirrored_counts_give_the_mirrored_score(name: str, counts: Counts, tokens: dict[bytes, int]) -> None:
    likelihood = LIKELIHOODS[name]()
    turned = mirrored(counts)
    log_odds = likelihood.log_odds(tokens, counts)
    assert likelihood.log_odds(tokens, turned) == pytest.approx(-log_odds, rel=1e-9, abs=1e-9)
    for label in LABELS:
        assert likelihood.amount(tokens, label, counts) == likelihood.amount(tokens, other(label), turned)


@every
@some(150)
@given(any_counts(), TOKENS)
def test_scores_are_finite_whatever_the_counts(name: str, counts: Counts, tokens: dict[bytes, int]) -> None:
    likelihood = LIKELIHOODS[name]()
    assert math.isfinite(likelihood.log_odds(tokens, counts))
    assert all(math.isfinite(weight) for weight in likelihood.weights(tokens, counts).values())
    for label in LABELS:
        amount = likelihood.amount(tokens, label, counts)
        assert amount >= 0
        assert all(delta > 0 for delta in likelihood.deltas(tokens, amount).values())


@every
@some(150)
@given(any_counts(), TOKENS)
def test_the_score_is_the_constant_and_the_weights(name: str, counts: Counts, tokens: dict[bytes, int]) -> None:
    likelihood = LIKELIHOODS[name]()
    weights = likelihood.weights(tokens, counts)
    total = likelihood.constant(counts) + math.fsum(weights.values())
    assert likelihood.log_odds(tokens, counts) == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert set(weights) == {token for token in tokens if any(token in counts.words[label] for label in LABELS)}


@every
@some(100)
@given(any_counts(), TOKENS, st.sampled_from(LABELS), st.integers(0, 40))
def test_another_look_adds_as_if_it_had_been_added_at_once(
    name: str, counts: Counts, tokens: dict[bytes, int], label: Label, amount: int
) -> None:
    likelihood = LIKELIHOODS[name]()
    more = likelihood.more(tokens, label, counts, amount)
    assert 0 <= more <= likelihood.amount(tokens, label, counts)
    if more:
        first, second = likelihood.deltas(tokens, amount), likelihood.deltas(tokens, more)
        both = {token: first.get(token, 0) + second[token] for token in second}
        assert likelihood.deltas(tokens, amount + more) == both


@pytest.mark.parametrize(("amount", "more"), [(0, 8), (7, 8), (8, 8), (9, 7), (15, 1), (16, 0), (99, 0)])
def test_soft_adds_at_most_two_messages_in_all_rounds(amount: int, more: int) -> None:
    assert Soft().more({b"a": 1}, "spam", Counts(), amount) == more


@every
def test_nothing_learnt_speaks_for_neither_class(name: str) -> None:
    assert LIKELIHOODS[name]().log_odds({b"a": 1}, Counts()) == 0
    assert LIKELIHOODS[name]().log_odds({}, Counts()) == 0
    assert LIKELIHOODS[name]().weights({b"a": 1}, Counts()) == {}


@every
def test_a_message_without_tokens_can_be_learnt_and_scored(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    counts = learnt(likelihood, [("spam", {}), ("ham", {b"a": 1})])
    assert counts.messages == {"ham": 1, "spam": 1}
    assert math.isfinite(likelihood.log_odds({}, counts))


@every
@pytest.mark.parametrize("label", LABELS)
def test_to_learn_a_message_moves_its_score_towards_the_label(name: str, label: Label) -> None:
    likelihood = LIKELIHOODS[name]()
    tokens = {b"a": 1, b"b": 2}
    scores = []
    counts = learnt(likelihood, [("spam", {b"a": 1}), ("ham", {b"b": 1})])
    for _ in range(3):
        scores.append(likelihood.log_odds(tokens, counts))
        counts.add(label, likelihood.deltas(tokens, likelihood.amount(tokens, label, counts)))
    assert all((later > earlier) is (label == "spam") for earlier, later in pairwise(scores))


def _close(exact: Fraction | int, log_odds: float) -> bool:
    exact = Fraction(exact)
    return math.isclose(log_odds, math.log(exact.numerator) - math.log(exact.denominator), rel_tol=1e-9, abs_tol=1e-9)


@some(100)
@given(LEARNINGS, TOKENS)
def test_multinomial_is_the_product_of_its_fractions(learnings: Learnings, tokens: dict[bytes, int]) -> None:
    counts = learnt(Multinomial(), learnings)
    bags: dict[Label, list[bytes]] = {label: [] for label in LABELS}
    for label, bag in learnings:
        bags[label] += [word for word, times in bag.items() for _ in range(times)]
    known = {*bags["ham"], *bags["spam"]}
    messages = {label: sum(1 for mine, _ in learnings if mine == label) for label in LABELS}
    ratio = Fraction(messages["spam"] + 1, messages["ham"] + 1)
    for word, times in tokens.items():
        if word in known:
            shares = {label: Fraction(bags[label].count(word) + 1, len(bags[label]) + len(known)) for label in LABELS}
            ratio *= (shares["spam"] / shares["ham"]) ** times
    assert _close(ratio, Multinomial().log_odds(tokens, counts))


@some(100)
@given(any_counts(), TOKENS)
def test_soft_is_the_scaled_product_of_its_fractions(counts: Counts, tokens: dict[bytes, int]) -> None:
    ratio = Fraction(1)
    for word in tokens:
        shares = {label: Fraction(counts.get(word, label), 8) + 3 for label in LABELS}
        ratio *= shares["spam"] / shares["ham"]
    scale = 1.4 / math.sqrt(len(tokens)) if tokens else 1.0
    assert _close(ratio, Soft().log_odds(tokens, counts) / scale)


@pytest.mark.parametrize(
    ("eighths", "label", "amount"),
    [
        pytest.param(0, "spam", 8, id="nothing-known"),
        pytest.param(100, "ham", 8, id="wrong"),
        pytest.param(24, "spam", 7, id="p-of-0.725-is-0.825-of-a-message"),
        pytest.param(100, "spam", 2, id="p-of-0.909-is-0.274-of-a-message"),
        pytest.param(10**6, "spam", 0, id="sure"),
        pytest.param(10**6, "ham", 8, id="surely-wrong"),
        pytest.param(MAX_COUNT, "ham", 8, id="as-wrong-as-can-be"),
    ],
)
def test_soft_learns_as_much_as_it_was_wrong(eighths: int, label: Label, amount: int) -> None:
    counts = Counts()
    if eighths:
        counts.add("spam", {b"a": eighths})
    assert Soft().amount({b"a": 1}, label, counts) == amount
    assert dict(Soft().deltas({b"a": 3, b"b": 1}, amount)) == ({b"a": amount, b"b": amount} if amount else {})


def test_soft_sees_presence_and_multinomial_occurrences() -> None:
    for likelihood, same in ((Soft(), True), (Multinomial(), False)):
        counts = learnt(likelihood, [("spam", {b"a": 1}), ("ham", {b"b": 1})])
        assert (likelihood.log_odds({b"a": 1}, counts) == likelihood.log_odds({b"a": 5}, counts)) is same
