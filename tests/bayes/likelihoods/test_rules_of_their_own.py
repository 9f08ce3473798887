"""soft, eddc and robinson_fisher, which are no probabilities of a message: each against its definition."""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.counts import MAX_COUNT, Counts
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.eddc import Eddc
from spamfilter.bayes.likelihoods.likelihood import Generative
from spamfilter.bayes.likelihoods.robinson_fisher import RobinsonFisher
from spamfilter.bayes.likelihoods.soft import Soft
from tests.bayes.likelihoods.drawn import WORDS, Bag, Learnings, any_counts, bags, learn, learnings, learnt
from tests.support.made import some
from tests.support.probabilities import word_shares

HEADER = [b"^from", b"^from me", b"^subject", b"^x", b"^y"]
MAILS = st.dictionaries(st.sampled_from([*HEADER, *WORDS]), st.integers(1, 3))


def test_the_other_rows_are_generative() -> None:
    here = {"soft", "eddc", "robinson_fisher"}
    assert {name for name, row in LIKELIHOODS.items() if not issubclass(row, Generative)} == here


@some(60)
@given(any_counts("soft"), bags("soft"))
def test_soft_is_the_scaled_sum_of_its_log_odds_times_their_purity(counts: Counts, tokens: Bag) -> None:
    expected = math.fsum(plain_soft(counts.get(word, "spam"), counts.get(word, "ham")) for word in tokens)
    scale = 1.9 / math.sqrt(len(tokens)) if tokens else 1.0
    assert Soft().log_odds(tokens, counts) == pytest.approx(scale * expected, rel=1e-9, abs=1e-9)


def plain_soft(spam_eighths: int, ham_eighths: int) -> float:
    """What a word says, by exact fractions as far as they go."""
    spam, ham = Fraction(spam_eighths, 8), Fraction(ham_eighths, 8)
    ratio, purity = (spam + 3) / (ham + 3), abs(spam - ham) / (spam + ham + Fraction(3, 4))
    return (math.log(ratio.numerator) - math.log(ratio.denominator)) * math.sqrt(purity)


@pytest.mark.parametrize(
    ("ham", "spam", "says"),
    [
        pytest.param(0, 0, 0.0, id="unknown"),
        pytest.param(8, 8, 0.0, id="of-both-classes-alike"),
        pytest.param(0, 2, 1.9 * math.log(3.25 / 3) / 2, id="a-quarter-of-a-message-is-half-pure"),
        pytest.param(
            0, 18, 1.9 * math.log(5.25 / 3) * math.sqrt(3) / 2, id="two-and-a-quarter-are-three-quarters-pure"
        ),
        pytest.param(10, 20, 1.9 * math.log(5.5 / 4.25) * math.sqrt(1.25 / 4.5), id="of-both"),
    ],
)
def test_a_word_says_less_the_more_it_is_of_both_classes(ham: int, spam: int, says: float) -> None:
    for mirrored in (False, True):
        counts = Counts()
        for label, eighths in zip(LABELS[::-1] if mirrored else LABELS, (ham, spam), strict=True):
            if eighths:
                counts.add(label, {b"a": eighths})
        assert Soft().log_odds({b"a": 1}, counts) == pytest.approx(-says if mirrored else says)


@some(60)
@given(learnings("soft"), st.sampled_from([3.0, 1.0, 0.25]))
def test_soft_learns_by_how_wrong_it_was(messages: Learnings, rate: float) -> None:
    soft, counts = Soft(rate=rate), Counts()
    ham, spam = dict[bytes, int](), dict[bytes, int]()
    for label, tokens in messages:
        evidence = [plain_soft(spam.get(word, 0), ham.get(word, 0)) for word in tokens]
        s = 1.9 / math.sqrt(len(tokens)) * sum(evidence) if tokens else 0.0
        p = 1 / (1 + math.exp(-s if label == "spam" else s))
        w = math.floor(8 * min(1, rate * (1 - p)) + 0.5)
        assert soft.amount(tokens, label, counts) == w
        assert soft.deltas(tokens, w) == (dict.fromkeys(tokens, w) if w else {})
        learn(soft, tokens, label, counts)
        mine = spam if label == "spam" else ham
        mine.update({word: mine.get(word, 0) + w for word in tokens if w})
    assert counts.words == {"ham": ham, "spam": spam}


@pytest.mark.parametrize(
    ("eighths", "label", "amount"),
    [
        pytest.param(0, "spam", 8, id="nothing-known"),
        pytest.param(100, "ham", 8, id="wrong"),
        pytest.param(24, "spam", 4, id="p-of-0.725-is-0.55-of-a-message"),
        pytest.param(100, "spam", 1, id="p-of-0.909-is-0.182-of-a-message"),
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


@pytest.mark.parametrize(("amount", "more"), [(0, 8), (7, 8), (8, 8), (9, 7), (15, 1), (16, 0), (99, 0)])
def test_soft_adds_at_most_two_messages_in_all_rounds(amount: int, more: int) -> None:
    assert Soft().more({b"a": 1}, "spam", Counts(), amount) == more


@dataclass
class PlainEddc:
    """Exponential differential document count as it is defined, one word at a time."""

    words: dict[Label, dict[bytes, int]] = field(default_factory=lambda: {"ham": {}, "spam": {}})
    learnt: dict[Label, int] = field(default_factory=lambda: {"ham": 0, "spam": 0})

    def says(self, s: int, h: int) -> float:
        both = self.learnt["spam"] + self.learnt["ham"]
        ls, lh = max(1, self.learnt["spam"]), max(1, self.learnt["ham"])
        if s + h == 0 or abs(s / ls - h / lh) < 1e-6:
            return 0.0
        ss, hh, n = s * max(ls, lh) // ls, h * max(ls, lh) // lh, s + h
        e = min(5.0, (3 * both) ** 0.2)
        x = ((ss - hh) ** 2 - 0.25 / n) / (ss + hh) ** 2
        cf = min(1.0, 0.8 + both / 20) * x**2 / (1 + 8 / (n * e**e))
        return math.log((0.5 + cf * (s / ls - 0.5)) / (0.5 + cf * (h / lh - 0.5)))

    def score(self, tokens: Bag) -> float:
        words = math.fsum(self.says(self.words["spam"].get(t, 0), self.words["ham"].get(t, 0)) for t in tokens)
        priors = math.log(max(1, self.learnt["spam"]) / max(1, self.learnt["ham"]))
        return 0.59 / math.log(10) * (words + priors)

    def add(self, tokens: list[bytes], label: Label) -> None:
        for token in tokens:
            self.words[label][token] = self.words[label].get(token, 0) + 1

    def learn(self, tokens: Bag, label: Label) -> int:
        """Learns, and returns 0 for nothing, else 1 and the repeats of the header."""
        sign = 1 if label == "spam" else -1
        z = sign * self.score(tokens)
        if z >= 20:
            return 0
        self.add(list(tokens), label)
        self.learnt[label] += 1
        z2 = sign * self.score(tokens)
        most = 0 if z <= -3 else min(4, math.floor(math.sqrt(min(self.learnt.values())) / 2))
        if z2 >= 20 or z2 - z >= 14:
            return 1
        for repeat in range(1, most + 1):
            self.add([token for token in tokens if token.startswith(b"^")], label)
            before, z2 = z2, sign * self.score(tokens)
            if z2 > 30 or z2 - before >= 8.4:
                return 1 + repeat
        return 1 + most


@some(60)
@given(st.lists(st.tuples(st.sampled_from(LABELS), MAILS), max_size=25), MAILS)
def test_eddc_scores_and_learns_as_it_is_defined(messages: Learnings, tokens: Bag) -> None:
    eddc, counts, plain = Eddc(), Counts(), PlainEddc()
    for label, mail in messages:
        amount = eddc.amount(mail, label, counts)
        assert eddc.log_odds(mail, counts) == pytest.approx(plain.score(mail), rel=1e-9, abs=1e-9)
        assert amount == plain.learn(mail, label)
        learn(eddc, mail, label, counts)
    assert counts.words == plain.words
    assert counts.messages == plain.learnt
    assert eddc.log_odds(tokens, counts) == pytest.approx(plain.score(tokens), rel=1e-9, abs=1e-9)
    shares = {t: 0.59 / math.log(10) * plain.says(counts.get(t, "spam"), counts.get(t, "ham")) for t in tokens}
    heard = word_shares(Eddc(limit=1e6, text_limit=1e6), tokens, counts)
    assert heard == pytest.approx({t: share for t, share in shares.items() if share})


def long_mail(header: int, text: int) -> Bag:
    return {**{b"^h%d" % n: 1 for n in range(header)}, **{b"t%d" % n: 1 for n in range(text)}}


def known(each: int) -> tuple[Counts, PlainEddc]:
    """So many messages learnt of both classes, of words that the mails below do not have."""
    counts, plain = Counts(), PlainEddc()
    for label in LABELS:
        word = label.encode()
        counts.add(label, {word: each}, messages=each)
        plain.words[label][word] = plain.learnt[label] = each
    return counts, plain


@pytest.mark.parametrize(
    ("each", "tokens", "amount"),
    [
        pytest.param(3, long_mail(2, 2), 1, id="little-known"),
        pytest.param(4, long_mail(2, 2), 2, id="four-of-each"),
        pytest.param(16, long_mail(2, 2), 3, id="sixteen-of-each"),
        pytest.param(36, long_mail(2, 2), 4, id="thirty-six-of-each"),
        pytest.param(64, long_mail(2, 2), 5, id="sixty-four-of-each"),
        pytest.param(1000, long_mail(2, 2), 5, id="never-more-than-four-repeats"),
        pytest.param(64, long_mail(0, 5), 5, id="without-a-header-all-repeats-gain-nothing"),
    ],
)
def test_eddc_repeats_the_header_more_often_the_more_it_knows(each: int, tokens: Bag, amount: int) -> None:
    counts, plain = known(each)
    assert Eddc().amount(tokens, "spam", counts) == amount == plain.learn(tokens, "spam")


def test_eddc_learns_nothing_far_from_an_error_and_once_what_is_long_or_contradicted() -> None:
    mail = long_mail(50, 4000)
    counts, plain = known(64)
    assert Eddc().amount(mail, "spam", counts) == 1 == plain.learn(mail, "spam")
    for _ in range(3):
        learn(Eddc(), mail, "spam", counts)
    assert Eddc().amount(mail, "spam", counts) == 0
    counts, plain = known(64)
    for _ in range(2):
        learn(Eddc(), long_mail(60, 0), "spam", counts)
        plain.learn(long_mail(60, 0), "spam")
    assert Eddc().log_odds(long_mail(60, 0), counts) > 3
    assert Eddc().amount(long_mail(60, 0), "ham", counts) == 1 == plain.learn(long_mail(60, 0), "ham")


@pytest.mark.parametrize("amount", range(6))
def test_eddc_adds_its_repeats_to_the_words_of_the_header_alone(amount: int) -> None:
    tokens: Bag = {b"^from": 3, b"^from me": 1, b"from": 2, b"to ^me": 1}
    expected = {b"^from": amount, b"^from me": amount, b"from": 1, b"to ^me": 1} if amount else {}
    assert dict(Eddc().deltas(tokens, amount)) == expected


def test_the_thresholds_of_eddc_can_be_set() -> None:
    tokens, (counts, _) = long_mail(10, 10), known(64)
    learn(Eddc(), tokens, "spam", counts)
    score = Eddc().log_odds(tokens, counts)
    assert 0 < score < 20
    assert Eddc(thick=score).amount(tokens, "spam", counts) == 0
    assert Eddc(thick=score + 1e-9, step=1e-9).amount(tokens, "spam", counts) == 1
    assert Eddc(step=100, goal=1e-9).amount(tokens, "spam", counts) == 2


def plain_fisher(counts: Counts, tokens: Bag, s: float, x: float, deviation: float) -> float:
    """ln(I / (1 - I)), with the tails of chi-squared as sums of exact fractions of a Poisson variable."""
    fs = []
    for word in tokens:
        ham, spam = counts.get(word, "ham"), counts.get(word, "spam")
        if ham + spam:
            in_ham, in_spam = (Fraction(counts.get(word, label), counts.messages[label] or 1) for label in LABELS)
            p = in_spam / (in_spam + in_ham)
            f = (Fraction(s) * Fraction(x) + (ham + spam) * p) / (Fraction(s) + ham + spam)
            if abs(f - Fraction(1, 2)) >= Fraction(deviation):
                fs.append(f)
    if not fs:
        return 0.0

    def tail(values: list[Fraction]) -> tuple[float, float]:
        mean = -math.fsum(math.log(value) for value in values)
        terms = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(len(values) + 120)]
        return math.fsum(terms[: len(values)]), math.fsum(terms[len(values) :])

    (h, not_h), (s_, not_s) = tail(fs), tail([1 - f for f in fs])
    return math.log(h + not_s) - math.log(s_ + not_h)


@some(80)
@given(
    learnings("robinson_fisher"),
    bags("robinson_fisher"),
    st.sampled_from([0.45, 1.0]),
    st.sampled_from([0.5, 0.25]),
    st.sampled_from([0.0, 0.1001, 0.3701]),
)
def test_robinson_fisher_is_two_tests_of_the_words_that_speak(
    messages: Learnings, tokens: Bag, strength: float, assumed: float, deviation: float
) -> None:
    model = RobinsonFisher(strength, assumed, deviation)
    counts = learnt(model, messages)
    expected = plain_fisher(counts, tokens, strength, assumed, deviation)
    assert model.log_odds(tokens, counts) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_word_that_is_exactly_undecided_is_heard_where_no_deviation_is_asked_for() -> None:
    counts = learnt(RobinsonFisher(), [("spam", {b"a": 1, b"b": 1}), ("ham", {b"a": 1})])
    without = RobinsonFisher(deviation=0.0).log_odds({b"b": 1}, counts)
    diluted = RobinsonFisher(deviation=0.0).log_odds({b"a": 1, b"b": 1}, counts)
    assert 0 < diluted < without
    assert diluted == pytest.approx(plain_fisher(counts, {b"a": 1, b"b": 1}, 0.45, 0.5, 0.0), rel=1e-9)


@pytest.mark.parametrize("label", LABELS)
def test_robinson_fisher_stays_finite_and_rises_where_its_tests_have_no_number_left(label: Label) -> None:
    counts = Counts()
    words = [b"%d" % number for number in range(2_000)]
    counts.add(label, dict.fromkeys(words, 900), 1_000)
    counts.add(OTHER[label], {b"x": 1}, 1_000)
    scores = [RobinsonFisher().log_odds(dict.fromkeys(words[:size], 1), counts) for size in range(0, 2_001, 40)]
    assert all(math.isfinite(score) for score in scores)
    towards = scores if label == "spam" else [-score for score in scores]
    assert towards == sorted(towards)
    assert len(set(towards)) == len(towards)
    assert towards[-1] > 10_000


def test_robinson_fisher_is_undecided_where_much_speaks_for_both_classes() -> None:
    counts = Counts()
    for label in LABELS:
        words = {f"{label}{number}".encode(): 900 for number in range(1_000)}
        counts.add(label, words, 1_000)
    both = dict.fromkeys([*counts.words["ham"], *counts.words["spam"]], 1)
    assert RobinsonFisher().log_odds(both, counts) == pytest.approx(0, abs=1e-9)
    more = {**dict.fromkeys(list(counts.words["ham"])[:-1], 1), **dict.fromkeys(counts.words["spam"], 1)}
    assert 0 <= RobinsonFisher().log_odds(more, counts) < math.inf
