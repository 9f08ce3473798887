"""What holds for every row of LIKELIHOODS, with any parameters."""

import copy
import math
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.counts import MAX_COUNT, Counts
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Generative, MessageCounts
from spamfilter.bayes.voices import Voice
from tests.bayes.likelihoods.drawn import (
    any_counts,
    bags,
    every,
    generative,
    learn,
    learnings,
    learnt,
    mirrored,
    mirrored_model,
    models,
    recounted,
)
from tests.support.made import some
from tests.support.probabilities import class_probabilities, judged, log_joint, word_shares

LABEL = st.sampled_from(LABELS)


def drawn_generative(name: str, data: st.DataObject) -> Generative:
    model = data.draw(models(name))
    assert isinstance(model, Generative)
    return model


@every
@some(30)
@given(st.data())
def test_to_learn_and_unlearn_is_the_identity(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts = learnt(model, data.draw(learnings(name)))
    before = copy.deepcopy(counts)
    tokens, label = data.draw(bags(name)), data.draw(LABEL)
    deltas = model.deltas(tokens, model.amount(tokens, label, counts))
    counts.add(label, deltas)
    counts.subtract(label, deltas)
    assert counts == before
    assert counts.tallies == before.tallies


@every
@some(30)
@given(st.data())
def test_tallies_after_any_learnings_and_unlearnings_are_those_counted_anew(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    kept: list[tuple[Label, Mapping[bytes, int]]] = []
    counts = Counts()
    counts.tally()
    for label, tokens in data.draw(learnings(name)):
        deltas = learn(model, tokens, label, counts)
        if deltas is not None:
            kept.append((label, deltas))
        undo = data.draw(st.booleans())
        if kept and undo:
            counts.subtract(*kept.pop(data.draw(st.integers(0, len(kept) - 1))))
        assert counts.tallies == recounted(counts).tallies
        assert {each: sum(tally.values()) for each, tally in (counts.tallies or {}).items()} == {
            each: len(counts.words[each]) for each in LABELS
        }


@every
@some(30)
@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_tokens_and_words_changes_not_a_bit(name: str, data: st.DataObject, random: object) -> None:
    model = data.draw(models(name))
    counts = learnt(model, data.draw(learnings(name)))
    tokens = data.draw(bags(name))
    items = list(tokens.items())
    random.shuffle(items)  # type: ignore[attr-defined]  # hypothesis gives a Random
    turned = copy.deepcopy(counts)
    for label in LABELS:
        turned.words[label] = dict(reversed(counts.words[label].items()))
    turned = recounted(turned)
    assert model.log_odds(dict(items), turned) == model.log_odds(tokens, counts)
    assert word_shares(model, dict(items), turned) == word_shares(model, tokens, counts)
    for label in LABELS:
        assert model.amount(dict(items), label, turned) == model.amount(tokens, label, counts)


@every
@some(40)
@given(st.data())
def test_mirrored_counts_give_the_mirrored_score(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts, tokens = data.draw(any_counts(name, most=10_000)), data.draw(bags(name))
    turned, other = mirrored(counts), mirrored_model(model)
    log_odds = model.log_odds(tokens, counts)
    assert other.log_odds(tokens, turned) == pytest.approx(-log_odds, rel=1e-9, abs=1e-9)
    for label in LABELS:
        assert model.amount(tokens, label, counts) == other.amount(tokens, OTHER[label], turned)
    if isinstance(model, Generative) and isinstance(other, Generative):
        here, there = class_probabilities(model, tokens, counts), class_probabilities(other, tokens, turned)
        for label in LABELS:
            assert there[OTHER[label]] == pytest.approx(here[label], abs=1e-9)


@every
@some(80)
@given(st.data())
def test_nothing_is_infinite_or_no_number_whatever_the_counts_and_parameters(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts, tokens = data.draw(any_counts(name)), data.draw(bags(name, most=2**31))
    assert math.isfinite(model.log_odds(tokens, counts))
    assert all(math.isfinite(weight) for weight in word_shares(model, tokens, counts).values())
    for label in LABELS:
        amount = model.amount(tokens, label, counts)
        assert amount >= 0
        assert all(delta > 0 for delta in model.deltas(tokens, amount).values())
    if isinstance(model, Generative):
        assert all(math.isfinite(value) for value in log_joint(model, tokens, counts).values())
        assert all(0 <= value <= 1 for value in class_probabilities(model, tokens, counts).values())


TINY, HUGE = 5e-324, 1e300
"""The least number above zero, and one near the end of all numbers."""


@every
@pytest.mark.parametrize("smoothing", [0.0, TINY, 1e-17, 1.0, HUGE])
@pytest.mark.parametrize(("count", "messages"), [(0, 0), (0, 1), (1, 1), (1, MAX_COUNT), (MAX_COUNT, MAX_COUNT)])
def test_the_extremes_of_counts_and_smoothing_give_a_number(
    name: str, count: int, messages: int, smoothing: float
) -> None:
    row = LIKELIHOODS[name]
    smooths = "smoothing" in vars(row())
    model = row(smoothing=smoothing) if smooths else row()  # type: ignore[call-arg]  # it has been looked for
    counts = Counts()
    for word in sorted(model.words({b"a": 1})):
        counts.words["spam"].update({word: count} if count else {})
    counts.vocabulary = len(counts.words["spam"])
    counts.occurrences["spam"] = count
    counts.messages["spam"] = messages
    counts.tally()
    for tokens in ({b"a": 1}, {b"a": 1, b"b": 10}, {b"b": 3}, {}):
        assert math.isfinite(model.log_odds(tokens, counts))
        for label in LABELS:
            assert model.amount(tokens, label, counts) >= 0
        if isinstance(model, Generative):
            assert math.fsum(class_probabilities(model, tokens, counts).values()) == pytest.approx(1)


@every
@some(30)
@given(st.data())
def test_a_score_is_what_the_words_say_and_what_none_of_them_says(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    weights = word_shares(model, tokens, counts)
    assert weights.keys() <= tokens.keys()
    assert 0 not in weights.values()
    if type(model).total is not Likelihood.total:
        assert name == "robinson_fisher"  # its words are combined by a test, to less than their sum
        return
    total = model.constants(MessageCounts.of(tokens, counts), counts) + math.fsum(weights.values())
    assert model.judge(tokens, counts)[0].heard == pytest.approx(total, rel=1e-9, abs=1e-9)


@every
@some(30)
@given(st.data(), st.integers(0, 8))
def test_a_judgement_is_the_score_with_the_loudest_words(name: str, data: st.DataObject, most: int) -> None:
    model = data.draw(models(name))
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    weights = word_shares(model, tokens, counts)
    opinions, known, loudest = judged((Voice("one", model),), {"one": tokens}, {"one": counts}, most)
    said = {item.token.encode(): item.weight for item in loudest}
    assert opinions["one"].own == model.log_odds(tokens, counts)
    assert known == sum(any(counts.get(token, label) for label in LABELS) for token in tokens) / max(1, len(tokens))
    assert said.items() <= weights.items()
    assert [abs(item.weight) for item in loudest] == sorted(map(abs, weights.values()), reverse=True)[:most]


@every
@some(30)
@given(st.data())
def test_an_amount_is_the_same_whether_the_score_is_known_or_not(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    log_odds = model.log_odds(tokens, counts)
    for label in LABELS:
        assert model.amount(tokens, label, counts, log_odds) == model.amount(tokens, label, counts)


@every
@some(30)
@given(st.data(), st.integers(0, 40))
def test_another_look_adds_as_if_it_had_been_added_at_once(name: str, data: st.DataObject, amount: int) -> None:
    model = data.draw(models(name))
    counts, tokens, label = data.draw(any_counts(name)), data.draw(bags(name)), data.draw(LABEL)
    more = model.more(tokens, label, counts, amount)
    assert 0 <= more <= model.amount(tokens, label, counts)
    if more:
        first, second = model.deltas(tokens, amount), model.deltas(tokens, more)
        both = {token: first.get(token, 0) + second[token] for token in second}
        assert model.deltas(tokens, amount + more) == both


@every
@some(30)
@given(st.data())
def test_the_words_that_are_asked_for_are_all_that_a_message_needs(name: str, data: st.DataObject) -> None:
    model = data.draw(models(name))
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    asked = model.words(tokens)
    part = copy.deepcopy(counts)
    part._sums.clear()
    for label in LABELS:
        part.words[label] = {word: count for word, count in counts.words[label].items() if word in asked}
    assert model.log_odds(tokens, part) == model.log_odds(tokens, counts)
    for label in LABELS:
        amount = model.amount(tokens, label, counts)
        assert model.amount(tokens, label, part) == amount
        assert model.deltas(tokens, amount).keys() <= asked


@every
def test_nothing_learnt_speaks_for_neither_class(name: str) -> None:
    model, counts = LIKELIHOODS[name](), learnt(LIKELIHOODS[name](), [])
    assert model.log_odds({b"a": 1}, counts) == 0
    assert model.log_odds({}, counts) == 0
    assert word_shares(model, {b"a": 1}, counts) == {}


@every
def test_a_message_without_tokens_can_be_learnt_and_scored(name: str) -> None:
    model = LIKELIHOODS[name]()
    counts = learnt(model, [("spam", {}), ("ham", {b"a": 1})])
    assert counts.messages == {"ham": 1, "spam": 1}
    assert math.isfinite(model.log_odds({}, counts))


@every
@pytest.mark.parametrize("label", LABELS)
def test_to_learn_a_message_moves_its_score_towards_the_label(name: str, label: Label) -> None:
    model = LIKELIHOODS[name]()
    tokens = {b"a": 1, b"b": 1}
    counts = learnt(model, [("spam", {b"a": 1}), ("ham", {b"b": 1})])
    if name == "gaussian":
        model, tokens = Gaussian(least=1), {b"a": 6}
        counts = learnt(model, [("spam", {b"a": 10}), ("ham", {b"a": 2})])
    scores = []
    for _ in range(3):
        scores.append(model.log_odds(tokens, counts))
        learn(model, tokens, label, counts)
    assert all((later > earlier) is (label == "spam") for earlier, later in pairwise(scores))


@generative
@some(40)
@given(st.data())
def test_the_probabilities_of_the_classes_sum_to_one_and_their_ratio_is_the_score(
    name: str, data: st.DataObject
) -> None:
    model = drawn_generative(name, data)
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    joint, posterior = log_joint(model, tokens, counts), class_probabilities(model, tokens, counts)
    log_odds = model.log_odds(tokens, counts)
    assert math.fsum(posterior.values()) == pytest.approx(1, abs=1e-12)
    scale = 1e-9 * max(1.0, *(abs(value) for value in joint.values()))
    assert joint["spam"] - joint["ham"] == pytest.approx(log_odds, abs=scale)
    assert posterior["spam"] == pytest.approx(1 / (1 + math.exp(max(-700.0, min(700.0, -log_odds)))), abs=1e-9)


@generative
@some(20)
@given(st.data(), st.floats(0.01, 0.99))
def test_a_prior_that_is_a_number_is_the_posterior_of_an_empty_message(
    name: str, data: st.DataObject, prior: float
) -> None:
    model = LIKELIHOODS[name](prior=prior)  # type: ignore[call-arg]  # every generative row has a prior
    assert isinstance(model, Generative)
    counts = learnt(model, data.draw(learnings(name)))
    if name != "bernoulli":  # where every known word is absent from an empty message, and that says something
        assert class_probabilities(model, {}, counts)["spam"] == pytest.approx(prior, abs=1e-9)
    assert class_probabilities(model, {}, learnt(model, []))["spam"] == pytest.approx(prior, abs=1e-9)
