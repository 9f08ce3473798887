"""Doubt: what is unknown and divided leaves a verdict open, and what is usual is learnt."""

import random

import pytest

from spamfilter.bayes import model
from spamfilter.bayes.doubt import AGREED, DIVIDED, UNKNOWN, agreement, compared, doubt
from spamfilter.bayes.labels import Label
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import everybodys, voice_scores
from spamfilter.config.settings import Settings

VOICES = everybodys(Settings().voices())


def tokens(*words: str) -> dict[str, dict[bytes, int]]:
    return {voice.name: {word.encode(): 1 for word in words} for voice in VOICES}


def many(kind: str, number: int = 100) -> list[str]:
    return [f"{kind}{at}" for at in range(number)]


def state(number: int = 400) -> model.State:
    """What is known after so many mails of a hundred words, which are the same in each class."""
    made = model.empty(VOICES)
    for at in range(number):
        label: Label = "spam" if at % 2 else "ham"
        seen = tokens(*many(label))
        model.taught(VOICES, seen, label, made, model.score(VOICES, seen, made))
    return made


@pytest.mark.parametrize(
    ("known", "agreed", "in_doubt"),
    [
        pytest.param(0.8, 0.0, 0.0, id="as-much-known-as-usual"),
        pytest.param(1.0, 0.0, 0.0, id="all-known"),
        pytest.param(0.6, 1.0, 0.2 * UNKNOWN, id="one-sided"),
        pytest.param(0.6, AGREED, 0.2 * UNKNOWN, id="just-one-sided"),
        pytest.param(0.6, 0.0, 0.2 * (UNKNOWN + DIVIDED * AGREED), id="divided"),
        pytest.param(0.0, 0.0, 0.8 * (UNKNOWN + DIVIDED * AGREED), id="nothing-known"),
    ],
)
def test_doubt_rises_with_what_is_unknown_and_with_what_is_divided(
    known: float, agreed: float, in_doubt: float
) -> None:
    assert doubt(known, 0.8, agreed) == pytest.approx(in_doubt)


def test_evidence_agrees_as_far_as_it_is_one_sided() -> None:
    made = state()

    def agreed(*words: str) -> float:
        return agreement(voice_scores(VOICES, tokens(*words), made.counts))

    ham, spam = many("ham"), many("spam")
    assert agreed(*spam) == pytest.approx(1)
    assert agreed(*ham, *many("new")) == pytest.approx(1)
    assert agreed(*ham, *spam) < 0.2
    assert 0.3 < agreed(*ham[:30], *spam) < 0.8
    assert agreed(*many("new")) == agreement([]) == 1


def test_voices_of_different_opinions_do_not_agree() -> None:
    made = state()
    said = voice_scores(
        VOICES, {**tokens(*many("spam")), "phrases": {word.encode(): 1 for word in many("ham")}}, made.counts
    )
    fields, phrases, body = (voice.weight for voice in VOICES)
    assert agreement(said) == pytest.approx((fields + body - phrases) / (fields + phrases + body))


def test_a_header_does_not_outvote_a_text_that_people_read() -> None:
    made = state()

    def agreed(*text: str) -> float:
        words = {**tokens(*many("spam")), "body": {word.encode(): 1 for word in text}}
        return agreement(voice_scores(VOICES, words, made.counts))

    assert agreed() == pytest.approx(1)
    both = [word for pair in zip(many("ham"), many("spam"), strict=True) for word in pair]
    assert agreed(*both[:4]) > agreed(*both[:40]) > agreed(*both)
    assert agreed(*many("ham")) < agreed(*both) < agreed(*many("ham", 10), *many("spam")) < 1
    assert agreed(*many("ham")) < 0
    assert agreed(*many("new")) == pytest.approx(1)


def test_mail_of_another_kind_is_in_doubt_and_usual_mail_is_not() -> None:
    made = state()
    assert model.score(VOICES, tokens(*many("spam")), made).doubt == 0
    words = [*many("spam", 20), *many("ham", 8), *many("new", 30)]
    foreign = model.score(VOICES, tokens(*random.Random(1).sample(words, len(words))), made)
    assert foreign.posterior > 0.75
    assert foreign.doubt > 5
    assert foreign.least < 0.5 < foreign.most


def test_the_less_was_usually_known_the_less_is_in_doubt() -> None:
    """A filter of mail that differs from day to day must not doubt all of it."""
    made = state()
    mixed = tokens(*many("spam", 50), *many("new", 50))
    before = model.score(VOICES, mixed, made).doubt
    for number in range(2_000):
        seen = tokens(*many(f"{number}-"), "ham0")
        model.taught(VOICES, seen, "ham", made, model.score(VOICES, seen, made))
    assert model.score(VOICES, mixed, made).doubt == 0 < before


@pytest.mark.parametrize(
    ("ham", "spam", "share"),
    [(0, 0, 0.15), (0, 50, 0.15), (1, 50, 0.15), (10, 20, 10 / 18), (9, 10, 1), (260, 5000, 0.5), (520, 9000, 1)],
)
def test_evidence_for_spam_counts_as_far_as_there_is_ham_to_compare_with(ham: int, spam: int, share: float) -> None:
    assert compared(ham, spam) == pytest.approx(share)


def test_good_mail_is_not_spam_where_hardly_any_was_learnt() -> None:
    made = model.empty(VOICES)

    def learn(label: Label, *words: str) -> None:
        seen = tokens(*words)
        model.taught(VOICES, seen, label, made, model.score(VOICES, seen, made))

    learn("ham", "agenda")
    for at in range(40):
        learn("spam", *many("word")[at : at + 30])
    new = tokens(*many("word", 30))
    score = model.score(VOICES, new, made)
    assert 0.5 < score.posterior < 0.9 < made.calibration.posterior(score.log_odds)
    assert Policy().classify(score, made.learnt) == "unsure"
    assert 0 < score.few_ham < score.log_odds
    for _ in range(600):  # most of which teach nothing, as the filter is sure of them
        learn("ham", "agenda")
    assert model.score(VOICES, new, made).few_ham == 0
