"""What do the likelihoods reach on the sets that textbooks use?

The Federalist papers, two newsgroups, Spambase, the SMS Spam Collection and three sets of reviews, through the
evaluation that `spamfilter evaluate` runs. A text is judged as a mail without header. One class of each set is called
ham and the other spam, whatever they are. Bulk training takes its 5 rounds, cross-validation its 10 folds.

    python benchmarks/textbook.py [--result FILE]

The plots stand beside the result. Needs SPAMFILTER_CORPORA; takes about six minutes.
"""

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from corpora import unpacked
from numpy.typing import NDArray
from results import write_result

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import LIKELIHOODS, Likelihood
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.binomial import Binomial
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.likelihoods.likelihood import Prior
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.tokens import Token, Tokens
from spamfilter.bayes.voices import Voice, Voices, VoiceTokens, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.evaluation.contenders import ONE_RULE, Learner
from spamfilter.evaluation.plots import draw
from spamfilter.evaluation.protocols import Example, Trial
from spamfilter.evaluation.runs import CONFIGURED, RunOutcome, entrants, evaluate
from spamfilter.learning.bulk.labelled_mail import interleaved
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

Texts = list[tuple[Label, bytes]]

OTHER_WORDS = b"other words"
"""Stands for all words of a paper that are not function words, so that its length is right."""
DEFAULT = "the default"
OF_WORDS = [name for name in LIKELIHOODS if name != Gaussian.name]
COMPARED = [CONFIGURED, *OF_WORDS, ONE_RULE]
DRAWN = {
    *(DEFAULT, "soft", "eddc", "multinomial", "bernoulli", "robinson_fisher", ONE_RULE),
    *("gaussian, values", "gaussian, logarithms", "bernoulli, above the mean", "multinomial, deciles"),
}
"""More curves in one picture than colours cannot be told apart."""
REVIEWS = {"amazon_cells": "Amazon", "imdb": "IMDb", "yelp": "Yelp"}
TENTHS = np.arange(1, 10) / 10


@dataclass(frozen=True, slots=True)
class Paper:
    """A Federalist paper. counts: function word -> occurrences; words: all words; marks: of punctuation."""

    number: int
    author: str
    counts: Mapping[Token, int]
    words: int
    marks: int

    def tokens(self, with_marks: bool = False) -> dict[Token, int]:
        """Its function words and, as one token, all others, with the marks of punctuation or without."""
        length = self.words + self.marks * with_marks
        return {**self.counts, OTHER_WORDS: length - sum(self.counts.values())}


def papers(folder: Path) -> list[Paper]:
    """The Federalist papers by counts of 70 function words. Authors are HAMILTON, MADISON, JAY, BOTH and DISPUTED."""
    csv.field_size_limit(2**20)
    with (folder / "federalist" / "federalist.csv").open(encoding="utf-8", newline="") as file:
        marks = {row["number"]: len(re.findall(r"<\w+>", row["text"])) for row in csv.DictReader(file)}
    found = []
    with (folder / "federalist" / "federalist_fw70_counts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            number, author, words = row.pop("number"), row.pop("author"), row.pop("n_words")
            counts = {word.encode(): int(times) for word, times in row.items() if times != "0"}
            found.append(Paper(int(number), author, counts, int(words), marks[number]))
    return found


def newsgroups(folder: Path) -> Texts:
    """comp.sys.ibm.pc.hardware as ham, comp.sys.mac.hardware as spam; seven articles without a word are left out."""
    files: dict[Label, str] = {"ham": "ibm.pc", "spam": "mac"}
    return [
        (label, text)
        for label, name in files.items()
        for text in (folder / "20news_raw" / f"comp.sys.{name}.hardware.txt").read_bytes().split(b"\n")
        if text.strip()
    ]


def mixed(texts: Texts) -> Texts:
    """Both classes, evenly mixed as `train` mixes folders."""
    spam, ham = (
        [Mail("", partial(bytes, text)) for label, text in texts if label == which] for which in ("spam", "ham")
    )
    return [(label, mail.read()) for label, mail in interleaved(spam, ham)]


def messages(folder: Path) -> Texts:
    """The SMS Spam Collection, in its order."""
    return [
        ("spam" if label == b"spam" else "ham", text)
        for label, _, text in _columns(folder / "sms" / "SMSSpamCollection")
    ]


def reviews(folder: Path, site: str) -> Texts:
    """Sentences of reviews on one site: praise as ham, complaint as spam."""
    rows = _columns(folder / "sentiment" / f"{site}_labelled.txt")
    return [("ham" if praise.strip() == b"1" else "spam", text) for text, _, praise in rows]


def _columns(file: Path) -> list[tuple[bytes, bytes, bytes]]:
    """Lines of two columns; a text has no tab of its own."""
    return [line.partition(b"\t") for line in file.read_bytes().split(b"\n") if line.strip()]


def spambase(folder: Path) -> tuple[list[Label], NDArray[np.float64]]:
    """The labels of Spambase and its 57 attributes, shape (4601, 57)."""
    rows = np.loadtxt(folder / "spambase" / "spambase.data", delimiter=",")
    return ["spam" if label else "ham" for label in rows[:, -1]], rows[:, :-1]


def of_texts(texts: Texts, voices: Voices) -> list[Example]:
    """Each text as a mail that has no header."""
    return [
        example(str(number), label, view(voices, parse(b"\n" + text)))
        for number, (label, text) in enumerate(texts, start=1)
    ]


def example(name: str, label: Label, tokens: VoiceTokens) -> Example:
    return Example(name, label, lambda: tokens)


def spambase_views(values: NDArray[np.float64]) -> list[dict[str, Tokens]]:
    """View -> tokens of each row of Spambase.

    values: in thousandths, which is all their digits. logarithms: 1000 ln(1 + 10 x), for values that are nearly all 0
    or small. above: the attributes above their mean over all rows. halves, deciles: every attribute with the number of
    its bin, cut at that mean, or at the deciles of all rows as far as they differ; labels are not looked at.
    occurrences: the 54 frequencies of words and characters, as if they were counts.
    """
    names = [b"a%d" % number for number in range(1, values.shape[1] + 1)]
    means = values.mean(axis=0)
    halves = (values > means).astype(int)
    deciles = np.column_stack(
        [np.searchsorted(np.unique(np.quantile(column, TENTHS)), column) for column in values.T]
    ).astype(int)
    scaled, logarithms = (np.rint(1000 * found).astype(int) for found in (values, np.log1p(10 * values)))

    def numbers(row: NDArray[np.int_]) -> dict[Token, int]:
        return dict(zip(names, row.tolist(), strict=True))

    def bins(row: NDArray[np.int_]) -> dict[Token, int]:
        return {b"%s=%d" % (name, number): 1 for name, number in numbers(row).items()}

    return [
        {
            "values": numbers(scaled[at]),
            "logarithms": numbers(logarithms[at]),
            "above": {name: 1 for name, above in numbers(halves[at]).items() if above},
            "halves": bins(halves[at]),
            "deciles": bins(deciles[at]),
            "occurrences": {name: times for name, times in list(numbers(scaled[at]).items())[:54] if times},
        }
        for at in range(len(values))
    ]


def learner(name: str, voice: str, likelihood: Likelihood) -> Learner:
    return Learner(name, (Voice(voice, likelihood),))


def by_sign(outcome: RunOutcome) -> float:
    """Accuracy in per cent of the plain rule, spam where the log-odds are above 0; no calibration comes into it."""
    run = outcome.run
    right = [(odds > 0) == (label == "spam") for odds, label in zip(run.log_odds, run.labels, strict=True)]
    return 100 * sum(right) / len(right)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def figures(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Accuracy and 1-ROCA% of each contender with 95 % intervals, the best accuracy in bold."""
    best = max(round(outcome.metrics.accuracy, 1) for outcome in outcomes)

    def row(outcome: RunOutcome) -> list[str]:
        found, bounds = outcome.metrics, outcome.intervals
        low, high = bounds["accuracy"]
        mark = "**" if round(found.accuracy, 1) == best else ""
        return [
            outcome.likelihood,
            f"{mark}{found.accuracy:.1f}{mark} ({low:.1f} to {high:.1f})",
            f"{by_sign(outcome):.1f}",
            f"{found.roca:.2f} ({bounds['roca'][0]:.2f} to {bounds['roca'][1]:.2f})",
        ]

    return table(["", "accuracy %", "by sign %", "1-ROCA%"], map(row, outcomes))


def compared(
    texts: Texts, names: Sequence[str] = COMPARED, protocol: str = "cross-validation", resamples: int = 500
) -> list[RunOutcome]:
    """The likelihoods, the default and the one-rule baseline under a protocol."""
    voices, enter = entrants(names, Learn())
    found = evaluate(of_texts(texts, voices), enter, protocol, resamples=resamples)
    return [replace(one, likelihood=DEFAULT) if one.likelihood == CONFIGURED else one for one in found]


def of_federalist(folder: Path) -> list[str]:
    found = papers(folder)
    label: dict[str, Label] = {"HAMILTON": "ham", "MADISON": "spam"}
    known = [
        example(str(paper.number), label[paper.author], {"fields": paper.tokens()})
        for paper in found
        if paper.author in label
    ]
    unknown = [paper for paper in found if paper.author in ("BOTH", "DISPUTED")]
    models: list[Callable[[Prior], Likelihood]] = [
        lambda prior: Multinomial(prior=prior),
        lambda prior: Poisson(prior=prior),
        lambda prior: Binomial(prior=prior),
    ]
    priors: tuple[Prior, ...] = ("map", "equal")

    def enter() -> list[Learner]:
        return [
            learner(f"{model(prior).name}, {prior} prior", "fields", model(prior))
            for model in models
            for prior in priors
        ]

    rows = []
    for outcome, contender in zip(evaluate(known, enter, "cross-validation"), enter(), strict=True):
        contender.train(lambda: [(one.read(), one.label) for one in known], 1)
        itself = sum((contender.score(one.read()).log_odds > 0) == (one.label == "spam") for one in known)
        odds = {paper.number: -contender.score({"fields": paper.tokens()}).log_odds for paper in unknown}
        to_hamilton = [str(number) for number, value in odds.items() if value > 0]
        rows.append(
            [
                outcome.likelihood,
                f"{itself} of {len(known)}",
                f"{round(by_sign(outcome) * len(known) / 100)} of {len(known)}",
                ", ".join(f"no. {number}" for number in to_hamilton) or "none",
                str(len(unknown) - len(to_hamilton)),
                f"{odds[55]:+.2f}",
            ]
        )
    head = ["", "known right, once learnt", "cross-validated", "unknown: Hamilton", "Madison", "log-odds of no. 55"]
    return [
        "## The Federalist papers",
        "",
        paragraph(f"""
            {len(known)} papers are known to be of Hamilton or of Madison, {len(unknown)} are disputed or joint. Tokens
            are 70 function words and one for all other words. A paper is Hamilton's where its log-odds, here those of
            Hamilton, are above 0.
        """),
        "",
        *table(head, rows),
        paragraph("""
            Mosteller and Wallace gave all disputed papers to Madison, and were least certain of no. 55; it is the one
            that moves here with model and prior. The binomial model takes the token of the other words for a word
            like any, and leans a little further to Madison for that.
        """),
        "",
    ]


def of_newsgroups(folder: Path, plot: Path | None) -> list[str]:
    texts = mixed(newsgroups(folder))

    def enter() -> list[Learner]:
        models = (Multinomial(smoothing=0.0), Multinomial(), Bernoulli(smoothing=0.0), Bernoulli())
        return [learner(f"{model.name}, m = {model.smoothing:g}", "fields", model) for model in models]

    examples = of_texts(texts, (Voice("fields", Multinomial()),))
    curve = evaluate(examples, enter, "learning-curve", Trial(split="random"))
    if plot:
        draw(plot, curve, "comp.sys.ibm.pc.hardware or comp.sys.mac.hardware")
    rows = [
        [name, *(f"{one.metrics.accuracy:.1f}" for one in curve if one.likelihood == name)]
        for name in dict.fromkeys(one.likelihood for one in curve)
    ]
    in_turn = {
        one.likelihood: one.metrics.accuracy
        for one in compared(newsgroups(folder), (CONFIGURED, "multinomial"), resamples=0)
    }
    return [
        "## Newsgroups: comp.sys.ibm.pc.hardware or comp.sys.mac.hardware",
        "",
        paragraph(f"""
            {len(texts):,} articles without header. Accuracy in per cent, trained on so many of a random half, judging
            the other half. m is the smoothing; without it a word that one class lacks settles the matter.
        """),
        "",
        *table(["trained on", *dict.fromkeys(one.run.part for one in curve)], rows),
        *shown(plot, "Learning curves of multinomial and Bernoulli with and without smoothing"),
        "By 10-fold cross-validation:",
        "",
        *figures(compared(texts)),
        paragraph(f"""
            Smoothing helps the multinomial model in the end. For the Bernoulli model it is a mixed blessing: every
            absent word speaks, and the smoothing says more of it in the class that has fewer texts, so that its curve
            goes up and down with the balance of the classes. Articles are evenly mixed here, as `train` mixes folders.
            Trained on one group and then on the other, the multinomial model has {in_turn["multinomial"]:.1f} % right,
            and the default, which learns from errors, {in_turn[DEFAULT]:.1f} %.
        """),
        "",
    ]


def of_spambase(folder: Path, plot: Path | None) -> list[str]:
    labels, values = spambase(folder)
    rows = zip(labels, spambase_views(values), strict=True)
    examples = [example(str(number), label, tokens) for number, (label, tokens) in enumerate(rows, start=1)]

    def enter() -> list[Learner]:
        return [
            learner("gaussian, values", "values", Gaussian(least=1, most=1e9)),
            learner("gaussian, logarithms", "logarithms", Gaussian(least=1, most=1e9)),
            learner("bernoulli, above the mean", "above", Bernoulli()),
            learner("multinomial, cut at the mean", "halves", Multinomial()),
            learner("bernoulli, deciles", "deciles", Bernoulli()),
            learner("multinomial, deciles", "deciles", Multinomial()),
            learner("multinomial, frequencies", "occurrences", Multinomial()),
        ]

    found = evaluate(examples, enter, "cross-validation")
    if plot:
        draw(plot, [one for one in found if one.likelihood in DRAWN], "Spambase, 10 folds")
    return [
        "## Spambase",
        "",
        paragraph(f"""
            {len(labels):,} mails as {values.shape[1]} numbers, most of them 0. Bins are cut at the mean of an attribute
            over all rows, or at its deciles as far as they differ. 10-fold cross-validation.
        """),
        "",
        *figures(found),
        *shown(plot, "ROC and reliability of the Gaussian and the binned models"),
        paragraph("""
            An attribute that is 0 in most mails has no bell's shape, and neither have its logarithms: bins do better.
            How they are cut matters less.
        """),
        "",
    ]


def of_messages(folder: Path, plot: Path | None) -> list[str]:
    texts = messages(folder)
    crossed, streamed = compared(texts), compared(texts, protocol="prequential")
    if plot:
        draw(plot, [one for one in crossed if one.likelihood in DRAWN], "SMS Spam Collection, 10 folds")
    return [
        "## SMS Spam Collection",
        "",
        f"{len(texts):,} short messages, {sum(label == 'spam' for label, _ in texts)} of them spam; 10 folds:",
        "",
        *figures(crossed),
        *shown(plot, "ROC and reliability on the SMS Spam Collection"),
        "In the order of the collection, each judged and then learnt:",
        "",
        *figures(streamed),
        paragraph(f"""
            In accuracy most likelihoods are within each other's intervals; what differs is how they rank the messages.
            The default is made for mail with a header, and these are sixteen words without one: by 1-ROCA% it is behind
            these in cross-validation: {ahead(crossed)}; and these in the stream: {ahead(streamed)}.
        """),
        "",
    ]


def of_reviews(folder: Path) -> list[str]:
    lines = ["## Sentences of reviews", "", "1,000 of each site, half of them praise, half complaint; 10 folds.", ""]
    for site, name in REVIEWS.items():
        lines += [f"{name}:", "", *figures(compared(reviews(folder, site)))]
    return [
        *lines,
        paragraph("""
            The sets are small: most likelihoods are within each other's intervals, near 80 per cent. One voice or
            three makes little difference to single sentences, which have no header and few phrases that come twice.
        """),
        "",
    ]


def ahead(outcomes: Sequence[RunOutcome]) -> str:
    """The contenders with a smaller 1-ROCA% than the default has."""
    roca = {one.likelihood: one.metrics.roca for one in outcomes}
    return ", ".join(sorted(name for name, value in roca.items() if value < roca[DEFAULT])) or "none"


def shown(plot: Path | None, text: str) -> list[str]:
    return [f"![{text}]({plot.name})", ""] if plot else []


def paragraph(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the tables to this file, too, and plots beside it")
    arguments = parser.parse_args()
    folder, result = unpacked("textbook"), arguments.result

    def plot(name: str) -> Path | None:
        return result.with_name(f"{result.stem}-{name}.svg") if result else None

    sections: list[Callable[[], list[str]]] = [
        partial(of_federalist, folder),
        partial(of_newsgroups, folder, plot("newsgroups")),
        partial(of_spambase, folder, plot("spambase")),
        partial(of_messages, folder, plot("sms")),
        partial(of_reviews, folder),
    ]
    default = ", ".join(f"{voice.name} by {voice.likelihood.name} x {voice.weight:g}" for voice in Learn().chosen())
    lines = [
        paragraph(f"""
            Accuracy is that of the filter, spam where the calibrated probability is at least one half; by sign that of
            the plain rule, spam where the log-odds are above 0. In brackets: 95 % intervals of 500 bootstrap samples
            of the messages. The default is an empty configuration: {default}.
        """),
        "",
    ]
    print("\n".join(lines), flush=True)
    for section in sections:
        found = section()
        lines += found
        print("\n".join(found), flush=True)
    if result:
        write_result(result, "The likelihoods on textbook sets", __file__, "\n".join(lines))


if __name__ == "__main__":
    main()
