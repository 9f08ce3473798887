"""Messages, counts and parameters of any row of LIKELIHOODS, drawn by hypothesis.

Guarantee: nothing is left out silently: a parameter of a type that is not known here is a KeyError.
"""

import copy
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Lt
from hypothesis import strategies as st

from spamfilter.bayes.counts import MAX_COUNT, Counts
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Above, Generative, NotBelow, Prior
from spamfilter.bayes.likelihoods.weighted import Chance

WORDS = [b"a", b"b", b"c", b"^d", b"^e", b"f", "grün".encode()]
UNKNOWN = [b"never", b"^learnt", "müll".encode()]
Bag = dict[bytes, int]
Learnings = list[tuple[Label, Bag]]

every = pytest.mark.parametrize("name", LIKELIHOODS)
GENERATIVE = [name for name, row in LIKELIHOODS.items() if issubclass(row, Generative)]
generative = pytest.mark.parametrize("name", GENERATIVE)

ALL_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    Above: st.floats(1e-3, 1e3),
    NotBelow: st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1e6),
    Prior: st.sampled_from(["map", "equal"]) | st.floats(0.01, 0.99),
    Chance: st.floats(0.01, 0.99),
    Annotated[float, Ge(0), Lt(0.5)]: st.floats(0, 0.49),
    Annotated[int, Ge(1)]: st.integers(1, 3),
    bool: st.booleans(),
    Literal["word", "message"]: st.sampled_from(["word", "message"]),
    Mapping[str, Mapping[Label, Chance]]: st.dictionaries(
        st.sampled_from([word.decode() for word in (*WORDS, *UNKNOWN)]),
        st.dictionaries(st.sampled_from(LABELS), st.floats(0.01, 0.99)),
    ),
}
"""The type of a parameter -> its values."""


def models(name: str) -> st.SearchStrategy[Likelihood]:
    """A row with any parameters."""
    row = LIKELIHOODS[name]
    keys = {
        field.name: ALL_TYPES[field.type]
        for field in fields(row)  # type: ignore[arg-type]  # every row of the table is a dataclass
    }
    return st.builds(row, **keys)


def bags(name: str, most: int = 6) -> st.SearchStrategy[Bag]:
    """Words with occurrences; attributes with values, zero among them."""
    values = st.integers(0, 100 * most) if name == Gaussian.name else st.integers(1, most)
    return st.dictionaries(st.sampled_from(WORDS), values)


def learnings(name: str) -> st.SearchStrategy[Learnings]:
    return st.lists(st.tuples(st.sampled_from(LABELS), bags(name)), max_size=15)


def learnt(model: Likelihood, messages: Learnings) -> Counts:
    """The counts after these messages, with tallies."""
    counts = Counts()
    counts.tally()
    for label, tokens in messages:
        learn(model, tokens, label, counts)
    return counts


def learn(model: Likelihood, tokens: Bag, label: Label, counts: Counts) -> Mapping[bytes, int] | None:
    """As a filter learns: a message that adds nothing is no message. Returns what it added."""
    amount = model.amount(tokens, label, counts)
    if not amount:
        return None
    deltas = model.deltas(tokens, amount)
    counts.add(label, deltas)
    return deltas


def recounted(counts: Counts) -> Counts:
    """A copy whose tallies are counted from its words."""
    found = copy.deepcopy(counts)
    found._sums.clear()
    found.tallies = None
    found.tally()
    return found


def mirrored(counts: Counts) -> Counts:
    """The counts with the labels swapped."""
    swapped = copy.deepcopy(counts)
    for label in LABELS:
        swapped.words[label] = counts.words[OTHER[label]]
    swapped.messages = {label: counts.messages[OTHER[label]] for label in LABELS}
    swapped.occurrences = {label: counts.occurrences[OTHER[label]] for label in LABELS}
    return recounted(swapped)


def mirrored_model(model: Likelihood) -> Likelihood:
    """The model with its assumptions about the classes swapped."""
    changes: dict[str, Any] = {}
    if isinstance(model, Generative) and isinstance(model.prior, float):
        changes["prior"] = 1 - model.prior
    if model.name == "robinson_fisher":
        changes["assumed"] = 1 - model.assumed  # type: ignore[attr-defined]  # told by its name
    if model.name == "weighted":
        changes["assumptions"] = {
            word: {OTHER[label]: chance for label, chance in own.items()}
            for word, own in model.assumptions.items()  # type: ignore[attr-defined]  # told by its name
        }
    return replace(model, **changes)  # type: ignore[type-var]  # every row of the table is a dataclass


@st.composite
def any_counts(draw: st.DrawFn, name: str, most: int = MAX_COUNT) -> Counts:
    """Counts of any size, also such as no learning gives."""
    counts = Counts()
    count = st.integers(0, min(40, most)) | st.integers(most // 2, most) | st.just(1)
    keys = sorted(LIKELIHOODS[name]().words(dict.fromkeys(WORDS, 1)))
    for label in LABELS:
        words = {word: number for word in keys if draw(st.booleans()) and (number := draw(count))}
        counts.words[label] = words
        counts.occurrences[label] = min(sum(words.values()), MAX_COUNT)
        counts.messages[label] = draw(count)
    counts.vocabulary = len({*counts.words["ham"], *counts.words["spam"]})
    counts.tally()
    return counts
