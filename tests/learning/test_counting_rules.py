"""The rules of the counts: who may use counts, and by which voices."""

import pytest

from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Voice, everybodys
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.counting_rules import rules, rules_text, usable

FIELDS = (Voice("fields", Soft()),)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param(rules(FIELDS), True, id="the-same"),
        pytest.param({**rules(FIELDS), "tokenizer": TOKENIZER - 1}, True, id="an-older-tokenizer"),
        pytest.param({**rules(FIELDS), "tokenizer": TOKENIZER + 1}, False, id="a-newer-tokenizer"),
        pytest.param({"tokenizer": TOKENIZER, "voices": {"fields": "poisson"}}, False, id="another-likelihood"),
        pytest.param({"tokenizer": TOKENIZER, "voices": {"body": "soft"}}, False, id="another-voice"),
        pytest.param({"tokenizer": TOKENIZER}, False, id="no-voices"),
        pytest.param({**rules(FIELDS), "revisions": {"soft": 0}}, True, id="another-formula"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_counts_are_for_the_voices_that_made_them(kept: object, expected: bool) -> None:
    assert usable(kept, FIELDS) == expected


def test_a_revised_formula_is_another_rule_that_says_so() -> None:
    poisson = (Voice("fields", Poisson()),)
    before = {"tokenizer": TOKENIZER, "voices": {"fields": "poisson"}}
    assert before != rules(poisson)
    assert usable(before, poisson)
    assert rules_text(before) == f'fields by "poisson" (tokenizer {TOKENIZER})'
    assert rules_text(rules(poisson)) == f'fields by "poisson", revision 2 (tokenizer {TOKENIZER})'


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param({"fields": "poisson"}, [("fields", "poisson", 1.0)], id="one"),
        pytest.param(
            {"fields": "soft", "body": "poisson"}, [("fields", "soft", 0.54), ("body", "poisson", 0.54)], id="two"
        ),
        pytest.param({"fields": "of-a-newer-version"}, None, id="unknown-likelihood"),
        pytest.param({"sound": "soft"}, None, id="unknown-voice"),
        pytest.param({"fields": "gaussian"}, None, id="words-by-numbers"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_voices_of_the_counts_have_the_parameters_of_the_configuration(
    kinds: dict[str, str], expected: list[tuple[str, str, float]] | None
) -> None:
    """Rules that this version cannot follow leave the voices of the configuration."""
    learn = Learn.model_validate({"poisson": {}})
    voices = learn.as_learnt({"tokenizer": 1, "voices": kinds})
    if expected is None:
        assert voices == learn.chosen()
    else:
        assert [(voice.name, voice.likelihood.name, voice.weight) for voice in everybodys(voices)] == expected
