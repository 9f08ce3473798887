"""Each generative row against its formula, computed plainly: exact fractions, and loops over the whole vocabulary."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, pvariance
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.complement import Complement
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Generative, MessageCounts, OfOccurrences
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.likelihoods.weighted import Weighted
from tests.bayes.likelihoods.drawn import UNKNOWN, WORDS, Bag, Learnings, bags, every, generative, learnings, learnt
from tests.support.made import some
from tests.support.probabilities import log_joint, word_shares

SMOOTHINGS = [Fraction(1, 4), Fraction(1), Fraction(3)]
PRIORS: list[str | float] = ["map", "equal", 0.25]
ASSUMPTIONS: dict[str, dict[Label, float]] = {"a": {"ham": 0.25, "spam": 0.75}, "never": {"spam": 0.125}}


def ln(exact: Fraction) -> float:
    return math.log(exact.numerator) - math.log(exact.denominator)


@dataclass(frozen=True)
class Seen:
    """What was learnt, counted plainly."""

    messages: Learnings
    m: Fraction

    def of(self, label: Label) -> list[Bag]:
        return [tokens for mine, tokens in self.messages if mine == label]

    @property
    def vocabulary(self) -> set[bytes]:
        return {word for _, tokens in self.messages for word in tokens}

    def occurrences(self, label: Label) -> Counter[bytes]:
        total: Counter[bytes] = Counter()
        for tokens in self.of(label):
            total.update(tokens)
        return total

    def presence(self, label: Label) -> Counter[bytes]:
        return Counter(word for tokens in self.of(label) for word in tokens)

    def prior(self, label: Label, prior: str | float) -> Fraction:
        if prior == "map":
            return Fraction(len(self.of(label)) + 1, len(self.messages) + 2)
        spam = Fraction(1, 2) if prior == "equal" else Fraction(prior)
        return spam if label == "spam" else 1 - spam


def product(factors: list[Fraction]) -> float:
    """The logarithm of a product, exact until the end."""
    found = Fraction(1)
    for factor in factors:
        found *= factor
    return ln(found)


def multinomial(seen: Seen, label: Label, tokens: Bag) -> float:
    f, known = seen.occurrences(label), seen.vocabulary
    below = f.total() + seen.m * len(known)
    return product([((f[word] + seen.m) / below) ** times for word, times in tokens.items() if word in known])


def bernoulli(seen: Seen, label: Label, tokens: Bag) -> float:
    n, messages = seen.presence(label), len(seen.of(label))
    chance = {word: (n[word] + seen.m) / (messages + 2 * seen.m) for word in seen.vocabulary}
    return product([p if word in tokens else 1 - p for word, p in chance.items()])


def weighted(seen: Seen, label: Label, tokens: Bag) -> float:
    ham, spam = seen.presence("ham"), seen.presence("spam")
    factors = []
    for word in tokens:
        n = ham[word] + spam[word]
        counted = Fraction(seen.presence(label)[word], len(seen.of(label)) or 1)
        assumed = Fraction(ASSUMPTIONS.get(word.decode(), {}).get(label, 0.5))
        factors.append((seen.m * assumed + n * counted) / (seen.m + n))
    return product(factors)


def poisson(seen: Seen, label: Label, tokens: Bag) -> float:
    f, length = seen.occurrences(label), sum(tokens.values())
    rates = {word: (f[word] + seen.m) / (f.total() + seen.m * len(seen.vocabulary)) for word in seen.vocabulary}
    return _of_rates(rates, length, tokens)


def poisson_per_message(seen: Seen, label: Label, tokens: Bag) -> float:
    f = seen.occurrences(label)
    rates = {word: (f[word] + seen.m) / (len(seen.of(label)) + 2 * seen.m) for word in seen.vocabulary}
    return _of_rates(rates, 1, tokens)


def _of_rates(rates: Mapping[bytes, Fraction], length: int, tokens: Bag) -> float:
    powers = product([(rates[word] * length) ** times for word, times in tokens.items() if word in rates])
    return powers - float(sum(rates.values()) * length)


def binomial(seen: Seen, label: Label, tokens: Bag) -> float:
    f, known = seen.occurrences(label), seen.vocabulary
    length = sum(times for word, times in tokens.items() if word in known)
    chance = {word: (f[word] + seen.m) / (f.total() + seen.m * len(known)) for word in known}
    return product([p ** tokens.get(word, 0) * (1 - p) ** (length - tokens.get(word, 0)) for word, p in chance.items()])


def complement(seen: Seen, label: Label, tokens: Bag) -> float:
    f, known = seen.occurrences(OTHER[label]), seen.vocabulary
    below = f.total() + seen.m * len(known)
    return -product([((f[word] + seen.m) / below) ** times for word, times in tokens.items() if word in known])


def complement_normalised(seen: Seen, label: Label, tokens: Bag) -> float:
    f, known = seen.occurrences(OTHER[label]), seen.vocabulary
    below = f.total() + seen.m * len(known)
    logarithms = {word: ln((f[word] + seen.m) / below) for word in known}
    whole = math.fsum(logarithms.values()) or 1.0
    return math.fsum(times * logarithms[word] / whole for word, times in tokens.items() if word in known)


def gaussian(seen: Seen, label: Label, tokens: Bag) -> float:
    factors = []
    for attribute, value in tokens.items():
        values = {mine: [bag[attribute] for bag in seen.of(mine) if attribute in bag] for mine in LABELS}
        if values["ham"] and values["spam"]:
            mean, variance = fmean(values[label]), max(float(pvariance(map(Fraction, values[label]))), float(seen.m))
            factors.append(-0.5 * (math.log(2 * math.pi * variance) + (value - mean) ** 2 / variance))
    return math.fsum(factors)


Formula = Callable[[Seen, Label, Bag], float]
FORMULAS: dict[str, tuple[str, Formula, str, dict[str, object]]] = {
    "multinomial": ("multinomial", multinomial, "smoothing", {}),
    "bernoulli": ("bernoulli", bernoulli, "smoothing", {}),
    "weighted": ("weighted", weighted, "weight", {"assumptions": ASSUMPTIONS}),
    "poisson": ("poisson", poisson, "smoothing", {}),
    "poisson, per message": ("poisson", poisson_per_message, "smoothing", {"per": "message"}),
    "binomial": ("binomial", binomial, "smoothing", {}),
    "complement": ("complement", complement, "smoothing", {}),
    "complement-normalised": ("complement", complement_normalised, "smoothing", {"normalise": True}),
    "gaussian": ("gaussian", gaussian, "floor", {"least": 1}),
}
"""Case -> row, its formula, the parameter that is m there, and others."""


def made(name: str, **parameters: object) -> Generative:
    model = LIKELIHOODS[name](**parameters)
    assert isinstance(model, Generative)
    return model


def test_every_generative_row_has_its_formula() -> None:
    assert {row for row, *_ in FORMULAS.values()} == {
        name for name, row in LIKELIHOODS.items() if issubclass(row, Generative)
    }


@pytest.mark.parametrize("case", FORMULAS)
@some(60)
@given(st.data(), st.sampled_from(SMOOTHINGS), st.sampled_from(PRIORS))
def test_a_row_computes_its_formula(case: str, data: st.DataObject, m: Fraction, prior: str | float) -> None:
    name, formula, key, others = FORMULAS[case]
    seen = Seen(data.draw(learnings(name)), m)
    tokens = {**data.draw(bags(name)), **dict.fromkeys(data.draw(st.sets(st.sampled_from(UNKNOWN))), 2)}
    model = made(name, **{key: float(m), "prior": prior, **others})
    counts = learnt(model, seen.messages)
    joint = log_joint(model, tokens, counts)
    expected = {label: ln(seen.prior(label, prior)) + formula(seen, label, tokens) for label in LABELS}
    assert joint == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert model.log_odds(tokens, counts) == pytest.approx(expected["spam"] - expected["ham"], rel=1e-9, abs=1e-9)


@some(40)
@given(learnings("multinomial"), st.sampled_from([0.0, 0.25, 1.0, 1000.0]), st.sampled_from(LABELS))
def test_the_chances_of_all_words_of_a_class_sum_to_one_in_the_multinomial(
    messages: Learnings, smoothing: float, label: Label
) -> None:
    model = Multinomial(smoothing)
    counts = learnt(model, messages)
    vocabulary = dict.fromkeys({*counts.words["ham"], *counts.words["spam"]}, 1)
    chances = [math.exp(each) for each in model.given(label, MessageCounts.of(vocabulary, counts), counts).tolist()]
    if counts.vocabulary and (smoothing or counts.occurrences[label]):
        assert math.fsum(chances) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "poisson", "binomial"])
def test_without_smoothing_the_class_with_fewer_impossible_words_wins(name: str) -> None:
    model = made(name, smoothing=0.0, prior="equal")
    counts = learnt(model, [("spam", {b"a": 1, b"b": 1, b"e": 1}), ("ham", {b"c": 1, b"e": 1, b"f": 1})])
    assert model.log_odds({b"a": 1, b"b": 1, b"c": 1, b"e": 1}, counts) > 500
    assert model.log_odds({b"a": 1, b"c": 1, b"f": 1, b"e": 1}, counts) < -500
    assert model.log_odds({b"a": 1, b"c": 1, b"e": 1}, counts) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_row_says_what_it_does_about_unknown_words(name: str) -> None:
    assert sum(name in group for group in (SKIPS, COUNTS_THEM, {"weighted"}, {"soft"})) == 1


SKIPS = {"multinomial", "bernoulli", "binomial", "complement", "robinson_fisher", "eddc", "gaussian"}
COUNTS_THEM = {"poisson"}
STRANGERS: Bag = {b"never": 2, b"^learnt": 1}


@pytest.mark.parametrize("name", sorted(SKIPS))
@some(30)
@given(st.data())
def test_unknown_words_are_skipped(name: str, data: st.DataObject) -> None:
    model = LIKELIHOODS[name]()
    counts, tokens = learnt(model, data.draw(learnings(name))), data.draw(bags(name))
    assert model.log_odds({**tokens, **STRANGERS}, counts) == model.log_odds(tokens, counts)
    assert word_shares(model, {**tokens, **STRANGERS}, counts) == word_shares(model, tokens, counts)


@pytest.mark.parametrize("per", ["word", "message"])
@some(30)
@given(st.data())
def test_unknown_words_make_a_text_longer_and_change_no_odds_in_the_poisson_model(
    per: Literal["word", "message"], data: st.DataObject
) -> None:
    model = Poisson(per=per)
    counts, tokens = learnt(model, data.draw(learnings("poisson"))), data.draw(bags("poisson"))
    before = model.log_odds(tokens, counts)
    assert model.log_odds({**tokens, **STRANGERS}, counts) == pytest.approx(before, rel=1e-9, abs=1e-9)
    assert not STRANGERS.keys() & word_shares(model, {**tokens, **STRANGERS}, counts).keys()


@pytest.mark.parametrize("name", ["multinomial", "poisson", "binomial"])
def test_a_hundred_unknown_words_leave_equal_priors_as_they_are(name: str) -> None:
    model = made(name, prior="equal")
    counts = learnt(model, [("spam", {b"a": 8}), ("ham", {b"b": 2, b"c": 2, b"d": 2, b"e": 1})])
    assert model.log_odds({b"new%d" % number: 1 for number in range(100)}, counts) == pytest.approx(0, abs=1e-9)


@some(30)
@given(st.data(), st.sampled_from(SMOOTHINGS))
def test_the_poisson_model_by_the_word_has_the_odds_of_the_multinomial(data: st.DataObject, m: Fraction) -> None:
    """The rates of a class sum to 1, so a text of a given length has the multinomial distribution."""
    messages, tokens = data.draw(learnings("poisson")), data.draw(bags("poisson"))
    odds = [
        model.log_odds(tokens, learnt(model, messages))
        for model in (Poisson(smoothing=float(m)), Multinomial(smoothing=float(m)))
    ]
    assert odds[0] == pytest.approx(odds[1], rel=1e-9, abs=1e-9)


def test_by_the_message_a_short_text_speaks_by_what_it_lacks() -> None:
    model = Poisson(prior="equal", per="message")
    counts = learnt(model, [("spam", {b"a": 1}), ("ham", {b"b": 8, b"c": 8})])
    assert model.log_odds({b"new": 1}, counts) == pytest.approx((9 + 9 + 1 - 2 - 1 - 1) / 3)


@some(30)
@given(learnings("weighted"), bags("weighted"))
def test_unknown_words_speak_by_their_assumptions_alone_in_the_weighted_model(messages: Learnings, tokens: Bag) -> None:
    model = Weighted(assumed=0.25, assumptions={"never": {"spam": 0.5}, "^learnt": {"ham": 0.125, "spam": 0.0625}})
    counts = learnt(model, messages)
    before = model.log_odds(tokens, counts)
    assert model.log_odds({**tokens, b"other": 3}, counts) == pytest.approx(before, abs=1e-12)
    assert model.log_odds({**tokens, b"never": 3}, counts) == pytest.approx(before + math.log(2), abs=1e-12)
    assert model.log_odds({**tokens, b"^learnt": 1}, counts) == pytest.approx(before - math.log(2), abs=1e-12)


@some(30)
@given(learnings("soft"), bags("soft").filter(bool), st.integers(1, 9))
def test_unknown_words_dilute_the_others_by_the_root_of_their_number_in_soft(
    messages: Learnings, tokens: Bag, more: int
) -> None:
    model = Soft()
    counts = learnt(model, messages)
    diluted = {**tokens, **{b"new%d" % number: 1 for number in range(more)}}
    share = math.sqrt(len(tokens) / (len(tokens) + more))
    assert model.log_odds(diluted, counts) == pytest.approx(share * model.log_odds(tokens, counts), abs=1e-12)


@every
def test_whether_a_word_that_is_repeated_says_more_is_as_its_row_says(name: str) -> None:
    model = Gaussian(least=1) if name == Gaussian.name else LIKELIHOODS[name]()
    tokens: Bag = {b"a": 3}
    counts = learnt(model, [("spam", {b"a": 1, b"b": 1}), ("ham", {b"b": 1}), ("ham", {b"a": 6, b"c": 1})])
    of_occurrences = isinstance(model, OfOccurrences | Gaussian)
    assert (model.log_odds(tokens, counts) != model.log_odds({b"a": 1}, counts)) is of_occurrences


@generative
def test_a_generative_row_learns_each_message_once_and_whole(name: str) -> None:
    model, counts = LIKELIHOODS[name](), Counts()
    for label in LABELS:
        assert model.amount({b"a": 1}, label, counts) == 1
        assert model.more({b"a": 1}, label, counts, 1) == 0


def test_a_gaussian_keeps_number_sum_and_squares_and_a_zero_is_a_value() -> None:
    assert Gaussian().deltas({b"size": 3, b"links": 0}, 1) == {
        b"size": 1, b"size sum": 3, b"size squares": 9, b"links": 1,
    }  # fmt: skip
    counts = learnt(Gaussian(), [("spam", {b"links": 0}), ("spam", {b"links": 4}), ("ham", {b"links": 1})])
    assert Gaussian().moments(b"links", "spam", counts) == (2.0, 4.0)
    assert Gaussian().moments(b"links", "ham", counts) == (1.0, 1 / 12)
    assert Gaussian().moments(b"size", "ham", counts) is None


def test_an_attribute_that_one_class_has_never_had_says_nothing() -> None:
    counts = learnt(Gaussian(), [("spam", {b"a": 5, b"b": 1}), ("ham", {b"a": 1})])
    pure = Gaussian(least=1)
    assert pure.log_odds({b"b": 1}, counts) == 0
    assert pure.log_odds({b"a": 5, b"b": 1}, counts) == pure.log_odds({b"a": 5}, counts) != 0


def test_gaussian_is_silent_until_it_knows_enough_and_never_loud() -> None:
    def heard(model: Gaussian, counts: Counts, value: int) -> float:
        return model.judge({b"a": value}, counts)[0].heard

    few = learnt(Gaussian(), [("spam", {b"a": 5}), ("ham", {b"a": 1})] * 29)
    enough = learnt(Gaussian(), [("spam", {b"a": 5}), ("ham", {b"a": 1})] * 30)
    assert (heard(Gaussian(), few, 100), heard(Gaussian(), enough, 100)) == (0, 5)
    assert heard(Gaussian(least=29), few, 1) == -5
    assert Gaussian().log_odds({b"a": 100}, enough) == pytest.approx((99**2 - 95**2) * 6)


def test_of_two_classes_the_complement_is_the_multinomial() -> None:
    messages: Learnings = [("spam", {WORDS[0]: 3, WORDS[1]: 1}), ("ham", {WORDS[1]: 2, WORDS[2]: 1})]
    tokens: Bag = {WORDS[0]: 2, WORDS[2]: 1}
    counts = learnt(Multinomial(), messages)
    assert Complement().log_odds(tokens, counts) == pytest.approx(Multinomial(prior="equal").log_odds(tokens, counts))
