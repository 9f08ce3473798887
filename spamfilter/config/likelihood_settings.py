"""The section [learn] of the configuration: which voices vote, by which likelihood, with which parameters.

The keys of a likelihood are the fields of its class, with their bounds and defaults: a new row of LIKELIHOODS needs no
line here.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from spamfilter.bayes.groups import OWN, Groups
from spamfilter.bayes.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import VOICES, Voice, Voices
from spamfilter.config.sections import Section, empty_or

DEFAULT_VOICES = ("fields", "phrases", "body")
ATTRIBUTES = "attributes"
"""The voice whose tokens are numbers."""
OWN_WEIGHT = 2.0
"""The weight of a group's own voice: with 1 a group that differs is heard later, and with 3 more ham is lost
(benchmarks/owners.py)."""

Positive = Annotated[float, Field(gt=0, le=1e6)]


def _known(likelihood: str) -> str:
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"not a likelihood; known: {', '.join(LIKELIHOODS)}")
    return likelihood


Kind = Annotated[str, AfterValidator(_known)]


def fits(voice: str, likelihood: str) -> bool:
    """Whether there are this voice and this likelihood, and they go together: gaussian is for numbers, and only it."""
    return voice in VOICES and likelihood in LIKELIHOODS and (voice == ATTRIBUTES) == (likelihood == Gaussian.name)


def _parameters(row: type[Likelihood]) -> type[Section]:
    keys: dict[str, Any] = {}
    for field in fields(row):  # type: ignore[arg-type]  # every row of the table is a dataclass
        made = field.default_factory
        keys[field.name] = (field.type, Field(default_factory=made) if made is not MISSING else field.default)
    return create_model(row.name, __base__=Section, **keys)


def _voice(likelihood: str, weight: float) -> type[Section]:
    return create_model("voice", __base__=Section, likelihood=(Kind, likelihood), weight=(Positive, weight))


class _Choice(Section):
    voices: list[str] = Field(default=[])
    likelihood: Annotated[str, empty_or(_known)] = ""
    groups: Groups = ""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for name in self.voices:
            if name not in VOICES:
                raise ValueError(f"voice {name!r} is not known; known: {', '.join(VOICES)}")
        if len(set(self.voices)) != len(self.voices):
            raise ValueError("voices must name each voice once")
        if self.likelihood not in ("", Gaussian.name) and self.voices == [ATTRIBUTES]:
            raise ValueError(f"likelihood {self.likelihood!r} is for words, and no voice of words is named")
        every = {name: getattr(self, name).likelihood for name in VOICES}
        for name, kind in (*every.items(), *self.kinds().items()):
            if not fits(name, kind):
                raise ValueError(f"likelihood {kind!r} is not for voice {name!r}: gaussian is for numbers, and only it")
        return self

    def kinds(self) -> dict[str, str]:
        """The voices that vote, each with its likelihood."""
        names = self.voices or list(DEFAULT_VOICES)
        if self.likelihood and not self.voices:
            names = [ATTRIBUTES if self.likelihood == Gaussian.name else "fields"]
        return {
            name: self.likelihood if self.likelihood and name != ATTRIBUTES else getattr(self, name).likelihood
            for name in names
        }

    def chosen(self) -> Voices:
        """The voices that vote, and OWN. A single one needs no weight: its log-odds are the filter's."""
        return self._voices(self.kinds())

    def as_learnt(self, rules: object) -> Voices:
        """The voices and likelihoods by which counts were made, with the parameters of this section.

        rules: those of the counts, as the database keeps them. Where they name what this version does not know, the
        voices of this section.
        """
        kinds = rules.get("voices") if isinstance(rules, dict) else None
        if kinds and isinstance(kinds, dict) and all(fits(name, kind) for name, kind in kinds.items()):
            return self._voices(kinds)
        return self.chosen()

    def _voices(self, kinds: Mapping[str, str]) -> Voices:
        # OWN is there even if nothing has one, so that what groups were taught before is taken back exactly.
        return (
            *(
                Voice(name, self.parametrised(kind), getattr(self, name).weight if len(kinds) > 1 else 1.0)
                for name, kind in kinds.items()
            ),
            Voice(OWN, self.parametrised(Soft.name), OWN_WEIGHT, groups=self.groups),
        )

    def parametrised(self, kind: str) -> Likelihood:
        """A likelihood with the parameters of its section."""
        section = getattr(self, kind)
        return LIKELIHOODS[kind](**{key: getattr(section, key) for key in type(section).model_fields})


_SECTIONS: dict[str, type[Section]] = {
    "fields": _voice("soft", 0.54),
    "phrases": _voice("eddc", 0.35),
    "body": _voice("soft", 0.54),
    "grams": _voice("soft", 1.0),
    "attributes": _voice("gaussian", 1.0),
    **{name: _parameters(row) for name, row in LIKELIHOODS.items()},
}


if TYPE_CHECKING:
    Learn = _Choice
else:
    Learn = create_model("Learn", __base__=_Choice, **{name: (row, row()) for name, row in _SECTIONS.items()})
