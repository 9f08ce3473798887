"""The arguments of `classify`: what they ask for, read and checked."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from spamfilter.errors import InputError
from spamfilter.tables.classifier import Priors, TableClassifier
from spamfilter.tables.columns import KINDS, Options
from spamfilter.tables.reading import Format, Table, decoded, read, read_classes

NAMED_PRIORS = ("map", "empirical", "equal")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Those of one call, by the names of its options."""

    table: Path | None
    classes: tuple[str, ...]
    format_: Format | None
    label: str
    no_header: bool
    columns: tuple[str, ...]
    likelihoods: tuple[str, ...]
    smoothings: tuple[str, ...]
    prior: str
    words: Path | None
    most_frequent: int | None
    least_count: int
    fake_document: bool
    unbiased: bool
    bins: int
    new: Path | None
    shown: tuple[str, ...]
    itself: bool
    folds: int | None
    curve: bool
    plot: Path | None
    seed: int
    as_json: bool

    def counting(self) -> Options:
        """How columns are counted, but for the likelihood."""
        smoothing, of_kind = _smoothings(self.smoothings)
        return Options(
            smoothing, of_kind, vocabulary=_words(self.words), most_frequent=self.most_frequent,
            least_count=self.least_count, fake_document=self.fake_document, unbiased=self.unbiased, bins=self.bins,
        )  # fmt: skip

    def known(self) -> Table:
        """The rows to learn. Raises InputError if there is none."""
        if (self.table is None) == (not self.classes):
            raise InputError("name a table, or a file of texts for each class with --class NAME=FILE")
        if self.table is not None:
            found = read(self.table, self.label, self.format_, not self.no_header)
        else:
            found = read_classes({name: Path(file) for name, file in _pairs(self.classes, "--class").items()})
        if not found.rows:
            raise InputError(f"{self.table or self.classes[0]}: no row")
        return found

    def maker(self, counting: Options, likelihood: str) -> TableClassifier:
        """A classifier that has learnt nothing yet."""
        options = replace(counting, likelihood=likelihood)
        return TableClassifier(_pairs(self.columns, "--column"), options, _priors(self.prior))


def _smoothings(said: tuple[str, ...]) -> tuple[float, dict[str, float]]:
    """m of all kinds, and kind -> m of those that are named."""
    found: dict[str, float] = {}
    for each in said:
        kind, equals, value = each.rpartition("=")
        if equals and kind not in KINDS:
            raise InputError(f"--smoothing {each!r}: {kind!r} is no kind; the kinds are {', '.join(KINDS)}")
        found[kind] = _number(f"--smoothing {each!r}", value)
        if not 0 <= found[kind] <= 1e6:
            raise InputError(f"--smoothing {each!r}: wanted is 0 to 1,000,000")
    return found.pop("", 1.0), found


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option}: {text!r} is no number") from None


def _pairs(said: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for each in said:
        name, equals, value = each.rpartition("=") if option == "--column" else each.partition("=")
        if not (name and equals and value):
            raise InputError(f"{option} {each!r}: wanted is NAME=VALUE")
        if name in found and option != "--column":  # of patterns the last one holds
            raise InputError(f"{option} {each!r}: {name!r} is named twice")
        found[name] = value
    return found


def _priors(said: str) -> Priors:
    if said in NAMED_PRIORS:
        return cast("Priors", said)
    if "=" not in said:
        raise InputError(f"--prior {said!r}: wanted is {', '.join(NAMED_PRIORS)}, or NAME=P,NAME=P")
    found = {}
    for name, value in _pairs(tuple(said.split(",")), "--prior").items():
        found[name.strip()] = _number("--prior", value)
    if any(not 0 < value < 1 for value in found.values()) or abs(sum(found.values()) - 1) > 1e-6:
        raise InputError(f"--prior {said}: each is between 0 and 1, and their sum is 1")
    return found


def _words(file: Path | None) -> frozenset[str] | None:
    return None if file is None else frozenset(filter(None, map(str.strip, decoded(file).splitlines())))
