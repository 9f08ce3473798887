"""Voices: the weighted sum of their log-odds, and the evidence that adds up to it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.counts import LABELS, Counts, Label
from spamfilter.features import tokenize
from spamfilter.likelihoods.multinomial import Multinomial
from spamfilter.likelihoods.soft import Soft
from spamfilter.message import parse
from spamfilter.voices import VOICES, Evidence, Voice, evidence, log_odds, view
from tests.made import mail, some

TWO = (Voice("one", Soft(), 1.0), Voice("two", Multinomial(), 0.25))
TOKENS = st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 3))
LEARNINGS = st.lists(st.tuples(st.sampled_from(LABELS), TOKENS), max_size=8)
Learnings = list[tuple[Label, dict[bytes, int]]]


def counts_of(learnings: Learnings) -> dict[str, Counts]:
    found = {}
    for voice in TWO:
        counts = found[voice.name] = Counts()
        for label, tokens in learnings:
            counts.add(label, voice.likelihood.deltas(tokens, voice.likelihood.amount(tokens, label, counts)))
    return found


@some(80)
@given(LEARNINGS, TOKENS, TOKENS)
def test_log_odds_are_the_weighted_sum_of_the_voices(
    learnings: Learnings, first: dict[bytes, int], second: dict[bytes, int]
) -> None:
    counts = counts_of(learnings)
    expected = Soft().log_odds(first, counts["one"]) + 0.25 * Multinomial().log_odds(second, counts["two"])
    assert log_odds(TWO, {"one": first, "two": second}, counts) == pytest.approx(expected, abs=1e-12)


@some(80)
@given(LEARNINGS, TOKENS, TOKENS)
def test_evidence_adds_up_to_the_score_but_for_the_priors(
    learnings: Learnings, first: dict[bytes, int], second: dict[bytes, int]
) -> None:
    counts = counts_of(learnings)
    tokens = {"one": first, "two": second}
    found = evidence(TWO, tokens, counts)
    priors = 0.25 * Multinomial().constant(counts["two"])
    assert log_odds(TWO, tokens, counts) == pytest.approx(math.fsum(item.weight for item in found) + priors, abs=1e-9)
    assert [abs(item.weight) for item in found] == sorted((abs(item.weight) for item in found), reverse=True)
    assert evidence(TWO, tokens, counts, 2) == found[:2]


def test_a_voice_without_tokens_for_a_message_is_silent() -> None:
    counts = counts_of([("spam", {b"a": 1})])
    assert log_odds(TWO, {"one": {b"a": 1}}, counts) == Soft().log_odds({b"a": 1}, counts["one"])
    assert {item.voice for item in evidence(TWO, {"one": {b"a": 1}}, counts)} == {"one"}
    assert log_odds(TWO, {}, counts) == 0


def test_evidence_tells_counts_in_messages_and_is_text() -> None:
    soft = (Voice("one", Soft()),)
    counts = Counts()
    counts.add("spam", {"grün".encode(): 12})
    counts.add("ham", {"grün".encode(): 4})
    (item,) = evidence(soft, {"one": {"grün".encode(): 1, b"unknown": 1}}, {"one": counts})
    assert item == Evidence("grün", "one", ham=0.5, spam=1.5, weight=item.weight)
    assert item.weight == pytest.approx(1.4 / math.sqrt(2) * math.log((12 + 24) / (4 + 24)))


def test_equally_loud_evidence_comes_in_the_order_of_the_tokens() -> None:
    soft = (Voice("one", Soft()),)
    counts = Counts()
    counts.add("spam", {b"b": 8, b"c": 8, b"a": 8})
    found = evidence(soft, {"one": {b"c": 1, b"b": 1, b"a": 1}}, {"one": counts})
    assert [item.token for item in found] == ["a", "b", "c"]


@pytest.mark.parametrize("name", VOICES)
def test_every_voice_sees_something_of_a_mail(name: str) -> None:
    message = parse(mail())
    seen = view((Voice(name, Soft()),), message)
    assert set(seen) == {name}
    assert seen[name]


def test_the_voice_of_fields_sees_all_tokens() -> None:
    message = parse(mail())
    assert VOICES["fields"](message) == tokenize(message)
