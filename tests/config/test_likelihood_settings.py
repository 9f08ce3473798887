"""The section [learn]: which voices vote, and that every parameter of every likelihood reaches it."""

import json
import tomllib
from pathlib import Path

import pytest

from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.voices import VOICES, Voice, Voices, everybodys
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.settings import load


def learn(text: str) -> Learn:
    """The section with these lines."""
    return Learn.model_validate(tomllib.loads(text))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_likelihood_that_is_named_alone_is_the_filter(name: str) -> None:
    (voice,) = everybodys(learn(f'likelihood = "{name}"\nfields.weight = 7').chosen())
    assert voice == Voice("attributes" if name == "gaussian" else "fields", LIKELIHOODS[name]())


PARAMETERS: dict[str, dict[str, object]] = {
    "soft": {"scale": 2.5, "prior": 1.0, "purity": 2.0, "rate": 0.5},
    "eddc": {"thick": 10.0, "step": 7.0, "goal": 50.0, "doubt": 5.0, "limit": 40.0, "text_limit": 30.0},
    "multinomial": {"smoothing": 0.0, "prior": "equal"},
    "bernoulli": {"smoothing": 0.5, "prior": 0.25},
    "weighted": {"weight": 2.0, "assumed": 0.25, "assumptions": {"grün": {"ham": 0.01}}, "prior": 0.999},
    "poisson": {"smoothing": 2.0, "prior": "equal", "per": "message"},
    "binomial": {"smoothing": 3.0, "prior": "equal"},
    "complement": {"smoothing": 0.0, "normalise": True, "prior": "map"},
    "robinson_fisher": {"strength": 1.0, "assumed": 0.4, "deviation": 0.0},
    "gaussian": {"floor": 1.0, "least": 2, "most": 9.0, "prior": "map"},
}
"""Each parameter of each likelihood, with a value that is not its default."""


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_parameter_of_a_likelihood_can_be_set_in_the_file_and_in_the_environment(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "spamfilter.toml"
    file.write_text(f'[learn]\nlikelihood = "{name}"\n', encoding="utf-8")
    variables = {f"SPAMFILTER_LEARN__{name}__{key}".upper(): toml(value) for key, value in PARAMETERS[name].items()}
    lines = [f"{name}.{key} = {toml(value)}" for key, value in PARAMETERS[name].items()]
    for rules in (learn("\n".join((f'likelihood = "{name}"', *lines))), load(file, variables).learn):
        (voice,) = everybodys(rules.chosen())
        assert type(voice.likelihood) is LIKELIHOODS[name]
        assert vars(voice.likelihood) == PARAMETERS[name]
    default = vars(LIKELIHOODS[name]())
    assert not {key for key, value in PARAMETERS[name].items() if default[key] == value}


SOFT, EDDC, MULTINOMIAL = LIKELIHOODS["soft"](), LIKELIHOODS["eddc"](), LIKELIHOODS["multinomial"]()


@pytest.mark.parametrize(
    ("text", "voices"),
    [
        pytest.param(
            "", (Voice("fields", SOFT, 0.54), Voice("phrases", EDDC, 0.35), Voice("body", SOFT, 0.54)), id="default"
        ),
        pytest.param(
            "voices = []",
            (Voice("fields", SOFT, 0.54), Voice("phrases", EDDC, 0.35), Voice("body", SOFT, 0.54)),
            id="no-voice-named",
        ),
        pytest.param('voices = ["body"]', (Voice("body", SOFT, 1.0),), id="one-voice-has-no-weight"),
        pytest.param(
            'voices = ["grams", "phrases"]',
            (Voice("grams", SOFT, 1.0), Voice("phrases", EDDC, 0.35)),
            id="in-the-order-of-the-file",
        ),
        pytest.param(
            'voices = ["fields", "body", "attributes"]\nlikelihood = "multinomial"',
            (
                Voice("fields", MULTINOMIAL, 0.54),
                Voice("body", MULTINOMIAL, 0.54),
                Voice("attributes", LIKELIHOODS["gaussian"](), 1.0),
            ),
            id="one-likelihood-for-all-voices-of-words",
        ),
        pytest.param(
            'voices = ["fields", "body"]\nbody = { likelihood = "multinomial", weight = 2.0 }',
            (Voice("fields", SOFT, 0.54), Voice("body", MULTINOMIAL, 2.0)),
            id="to-each-voice-its-own",
        ),
        pytest.param(
            "phrases.weight = 1",
            (Voice("fields", SOFT, 0.54), Voice("phrases", EDDC, 1.0), Voice("body", SOFT, 0.54)),
            id="another-weight",
        ),
    ],
)
def test_the_voices_are_those_named_with_their_likelihoods_and_weights(text: str, voices: Voices) -> None:
    assert everybodys(learn(text).chosen()) == voices


def test_every_voice_has_a_section() -> None:
    assert {name for name in VOICES if hasattr(Learn(), name)} == VOICES.keys()
