"""Voices: the weighted sum of their log-odds, and the evidence that adds up to it."""

import json
import math
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.groups import OWN
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods.eddc import Eddc
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import MessageCounts
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.token_codec import Packed, pack, unpack, unpack_with
from spamfilter.bayes.tokens import FEATURES, tokenize
from spamfilter.bayes.voices import (
    BELIEVED,
    BELIEVED_LATER,
    HALFWAY,
    VOICES,
    Evidence,
    Voice,
    believed_of,
    heard_of,
    loudest,
    together,
    view,
    voice_scores,
    weights,
    words,
)
from spamfilter.mail.message import parse
from tests.support.made import mail, some
from tests.support.probabilities import judged, word_shares
from tests.support.without_helpers import without_helpers

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
    opinions, _, _ = judged(TWO, {"one": first, "two": second}, counts)
    one, two = Soft().log_odds(first, counts["one"]), Multinomial().log_odds(second, counts["two"])
    assert opinions == {"one": (one, one), "two": (two, two)}
    assert together(heard_of(voice_scores(TWO, {"one": first, "two": second}, counts)), BELIEVED) == pytest.approx(
        one + 0.25 * two, abs=1e-12
    )


@pytest.mark.parametrize("class_", LABELS)
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({"limit": 0.25}, {b"^": 0.25}, id="header"),
        pytest.param({"text_limit": 0.125}, {b"": 0.125}, id="text"),
        pytest.param({"limit": 0.25, "text_limit": 0.125}, {b"^": 0.25, b"": 0.125}, id="each-for-itself"),
        pytest.param({}, {}, id="neither-at-its-limit"),
    ],
)
def test_the_filter_hears_less_of_header_and_text_than_the_voice_learns_from(
    class_: Label, limits: dict[str, float], most: dict[bytes, float]
) -> None:
    eddc, counts = Eddc(**limits), Counts()
    counts.add(class_, {b"^cheap": 3, b"^pills": 2, b"now": 3, b"or": 2}, messages=4)
    counts.add(OTHER[class_], {b"lunch": 1}, messages=4)
    tokens = {"phrases": {b"^cheap": 1, b"^pills": 1, b"now": 1, b"or": 1}}
    opinions, _, found = judged((Voice("phrases", eddc, 0.5),), tokens, {"phrases": counts}, None)
    alone = word_shares(Eddc(), tokens["phrases"], counts)
    assert opinions["phrases"].own == pytest.approx(math.fsum(alone.values()))
    shares, expected = {item.token.encode(): item.weight for item in found}, 0.0
    for prefix, pair in ((b"^", (b"^cheap", b"^pills")), (b"", (b"now", b"or"))):
        said = sum(alone[word] for word in pair)
        part = math.copysign(most[prefix], said) if prefix in most else said
        assert abs(part) <= abs(said)
        assert sum(shares[word] for word in pair) == pytest.approx(0.5 * part)
        assert shares[pair[0]] / shares[pair[1]] == pytest.approx(alone[pair[0]] / alone[pair[1]])
        expected += part
    assert opinions["phrases"].heard == pytest.approx(expected)
    assert (opinions["phrases"].heard == opinions["phrases"].own) == (not most)


@some(80)
@given(LEARNINGS, TOKENS, TOKENS)
def test_evidence_adds_up_to_the_score_but_for_the_priors(
    learnings: Learnings, first: dict[bytes, int], second: dict[bytes, int]
) -> None:
    counts = counts_of(learnings)
    tokens = {"one": first, "two": second}
    opinions, known, found = judged(TWO, tokens, counts, None)
    said = voice_scores(TWO, tokens, counts)
    priors = 0.25 * Multinomial().constants(MessageCounts.of(second, counts["two"]), counts["two"])
    assert together(heard_of(said), BELIEVED) == pytest.approx(
        math.fsum(item.weight for item in found) + priors, abs=1e-9
    )
    assert [abs(item.weight) for item in found] == sorted((abs(item.weight) for item in found), reverse=True)
    assert judged(TWO, tokens, counts, 2) == (opinions, known, found[:2])
    assert judged(TWO, tokens, counts, 0) == (opinions, known, [])


def test_a_voice_without_tokens_for_a_message_is_silent() -> None:
    counts = counts_of([("spam", {b"a": 1})])
    opinions, _, found = judged(TWO, {"one": {b"a": 1}}, counts, None)
    assert opinions["one"].own == Soft().log_odds({b"a": 1}, counts["one"])
    assert (set(opinions), {item.voice for item in found}) == ({"one"}, {"one"})
    assert (judged(TWO, {}, counts), together(heard_of([]), BELIEVED)) == (({}, 0.0, []), 0)


def test_evidence_tells_counts_in_messages_and_is_text() -> None:
    soft = (Voice("one", Soft()),)
    counts = Counts()
    counts.add("spam", {"grün".encode(): 12})
    counts.add("ham", {"grün".encode(): 4})
    _, known, (item,) = judged(soft, {"one": {"grün".encode(): 1, b"unknown": 1}}, {"one": counts}, None)
    assert known == 0.5
    assert item == Evidence("grün", "one", ham=0.5, spam=1.5, weight=item.weight)
    purity = math.sqrt((12 - 4) / (12 + 4 + 6))
    assert item.weight == pytest.approx(1.9 / math.sqrt(2) * math.log((12 + 24) / (4 + 24)) * purity)


def test_equally_loud_evidence_comes_in_the_order_of_the_tokens() -> None:
    soft = (Voice("one", Soft()),)
    counts = Counts()
    counts.add("spam", {b"b": 8, b"c": 8, b"a": 8})
    _, _, found = judged(soft, {"one": {b"c": 1, b"b": 1, b"a": 1}}, {"one": counts}, None)
    assert [item.token for item in found] == ["a", "b", "c"]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_which_of_equally_loud_evidence_is_left_out_depends_on_the_tokens_alone(most: int) -> None:
    soft = (Voice("one", Soft()),)
    counts = Counts()
    counts.add("spam", {b"b": 8, b"c": 8, b"a": 8})
    for order in permutations((b"a", b"b", b"c")):
        _, _, found = judged(soft, {"one": dict.fromkeys(order, 1)}, {"one": counts}, most)
        assert [item.token for item in found] == ["a", "b", "c"][:most]


@pytest.mark.parametrize("name", VOICES)
def test_every_voice_sees_something_of_a_mail(name: str) -> None:
    message = parse(mail())
    seen = view((Voice(name, Soft()),), message)
    assert set(seen) == {name}
    assert seen[name]


@pytest.mark.parametrize("name", VOICES)
def test_a_voice_sees_its_families_of_tokens_summed(name: str) -> None:
    message = parse(mail("message-id", "message-id subject"))
    expected: Counter[bytes] = Counter()
    for family in VOICES[name]:
        expected.update(tokenize(message, [family]))
    assert view((Voice(name, Soft()),), message)[name] == expected
    assert set(VOICES[name]) <= FEATURES.keys()


def test_a_word_of_header_and_text_counts_in_both() -> None:
    message = parse(mail(body="subject message-id subject"))
    voices = tuple(Voice(name, Soft()) for name in ("fields", "body"))
    seen = view(voices, message)
    assert (seen["fields"][b"subject"], seen["body"][b"subject"]) == (3, 2)


def test_each_voice_is_asked_which_words_it_needs() -> None:
    voices = (Voice("fields", Soft()), Voice("attributes", Gaussian()), Voice("body", Soft()))
    tokens = {"fields": {b"a": 2, b"b": 1}, "attributes": {b"size": 700}}
    assert words(voices, tokens) == {
        "fields": {b"a", b"b"},
        "attributes": {b"size", b"size sum", b"size squares"},
        "body": set(),
    }


ANY_TOKENS = st.dictionaries(st.text(max_size=4).map(str.encode), st.integers(0, 9) | st.just(0.5), max_size=6)


@some(200)
@given(st.dictionaries(st.sampled_from([*VOICES]), ANY_TOKENS))
def test_tokens_that_were_packed_are_the_same(tokens: dict[str, dict[bytes, int]]) -> None:
    packed = pack(tokens)
    assert unpack(packed) == tokens
    assert Packed(packed) == tokens
    assert pack(Packed(packed)) == packed


def as_json(tokens: dict[str, dict[bytes, int]]) -> bytes:
    """Tokens in the JSON format, which databases also have."""
    readable = {voice: {token.decode(): n for token, n in some.items()} for voice, some in tokens.items()}
    return zlib.compress(json.dumps(readable, ensure_ascii=False).encode())


@pytest.mark.parametrize("packed", [pack, as_json])
def test_only_what_holds_a_token_is_unpacked(packed: Callable[[dict[str, dict[bytes, int]]], bytes]) -> None:
    tokens = {"fields": {b"one": 1, b'"quoted"': 2}, "body": {b"three": 1}}
    assert unpack(packed(tokens)) == tokens
    for word in (b"one", b'"quoted"', b"three"):
        assert unpack_with(packed(tokens), [b"none", word]) == tokens
    assert unpack_with(packed(tokens), [b"none", b"nor this"]) is None


def test_what_is_said_for_ham_counts_less_where_the_text_is_spam() -> None:
    fields, body = Voice("fields", Soft(), 0.5), Voice("body", Soft(), 0.25)
    own, imported = Voice(OWN, Soft(), 1.0), Voice("bogofilter", Soft(), 1.0, imported=True)
    for text, share in ((-10.0, 1.0), (2.0, 0.5), (2.0 + math.log(3), 0.25), (10_000.0, 0.0)):
        said = [(fields, -8.0), (body, text), (own, -1.0), (imported, -1.0)]
        assert weights(said, 2.0) == pytest.approx([0.5 * share, 0.25, 1.0, 1.0], abs=1e-5)
        assert together(said, 2.0) == pytest.approx(-4 * share + text / 4 - 2, abs=1e-4)
        assert weights([(fields, 8.0), (body, text)], 2.0) == [0.5, 0.25]  # what is said for spam counts in any case
    assert weights([(fields, -8.0), (own, -1.0)], 2.0) == [0.5, 1.0]  # without the voice of the text


def test_the_text_is_heeded_more_the_more_is_learnt() -> None:
    assert believed_of({"ham": 0, "spam": 10_000}) == BELIEVED
    assert believed_of({"ham": 5_000, "spam": HALFWAY}) == pytest.approx((BELIEVED + BELIEVED_LATER) / 2)
    assert believed_of({"ham": HALFWAY // 2, "spam": HALFWAY}) == pytest.approx(0.8 * BELIEVED + 0.2 * BELIEVED_LATER)
    assert believed_of({"ham": 10**9, "spam": 10**9}) == pytest.approx(BELIEVED_LATER, abs=1e-5)


@pytest.mark.parametrize("helpers", [True, False])
def test_evidence_shows_how_much_is_believed(helpers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not helpers:
        without_helpers(monkeypatch)
    voices = (Voice("fields", Soft()), Voice("body", Soft()))
    counts = {"fields": Counts(), "body": Counts()}
    for name, word, label in (("fields", b"to:list", "ham"), ("body", b"pills", "spam")):
        for each in LABELS:
            counts[name].add(each, {word if each == label else b"other": 50 * Soft.unit}, messages=50)
    said = voice_scores(voices, {"fields": {b"to:list": 1}, "body": {b"pills": 1}}, counts)
    (_, header), (_, text) = heard_of(said)
    assert header < 0 < BELIEVED < text
    found = {item.token: item.weight for item in loudest(said, 10, BELIEVED)}
    assert found["pills"] == pytest.approx(text)
    assert found["to:list"] == pytest.approx(header / (1 + math.exp(text - BELIEVED)))
    assert together(heard_of(said), BELIEVED) == pytest.approx(sum(found.values()))
