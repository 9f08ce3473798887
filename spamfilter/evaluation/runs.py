"""Evaluation of contenders on labelled mail, on the ledger or on the journal, for `evaluate` and the benchmarks.

Guarantee: nothing is written but the file of scores; all learning is in memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from spamfilter.bayes.groups import teaches_group
from spamfilter.bayes.labels import COUNTERPART, IMPORT, LABELS, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.token_codec import pack, unpack
from spamfilter.bayes.verdict import CLASSES
from spamfilter.bayes.voices import VOICES, Voice, Voices, VoiceTokens, everybodys, view
from spamfilter.config.likelihood_settings import ATTRIBUTES, Learn, fits
from spamfilter.errors import InputError, NotMail, file_errors
from spamfilter.evaluation.contenders import ONE_RULE, Contender, Learner, OneRule
from spamfilter.evaluation.error_rates import Metrics, contradicted, intervals, measure
from spamfilter.evaluation.protocols import PROTOCOLS, Example, Progress, Run, Trial
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import UNJUDGED, Store

CONFIGURED = "configured"
"""The contender that is the filter of the configuration."""
JOURNAL = "journal"
"""The name under which the relay's own scores in the journal are shown among the contenders."""

PLAIN = Trial()
"""The default parameters of a protocol."""


@dataclass(frozen=True, slots=True)
class Day:
    """The messages of a day of a small user, by their label and class, and the marks that they got."""

    ham: int
    ham_as_spam: int
    ham_unsure: int
    spam: int
    spam_as_ham: int
    spam_unsure: int
    marks: int


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The figures of one contender.

    intervals: measure -> its 95 % confidence interval. microseconds: processor time for one message, to judge it, to
    learn it, or both; 0 if unknown. suspects: name, label and posterior of messages whose verdict contradicts the
    label, the most confident first. known: median share of a message's tokens that have counts; None of the journal.
    days: with a small user.
    """

    likelihood: str
    protocol: str
    run: Run
    metrics: Metrics
    intervals: dict[str, tuple[float, float]]
    microseconds: float
    suspects: list[tuple[str, Label, float]]
    known: float | None
    days: list[Day]


def evaluate(
    examples: Sequence[Example],
    entrants: Callable[[], Sequence[Contender]],
    protocol: str = "prequential",
    trial: Trial = PLAIN,
    progress: Progress = lambda _: None,
    resamples: int = 500,
) -> list[RunOutcome]:
    """Run every contender under a row of PROTOCOLS. Raises InputError if the judged messages lack a class."""
    both_classes(examples)
    runs = PROTOCOLS[protocol](examples, entrants, trial, progress)
    return [outcome(run, protocol, resamples) for run in runs]


def both_classes(examples: Sequence[Example]) -> None:
    """Raise InputError unless there are messages of both classes."""
    for label in LABELS:
        if not any(example.label == label for example in examples):
            raise InputError(
                f"no {label} among {len(examples)} messages to judge: a filter is measured by both classes"
            )


def outcome(run: Run, protocol: str, resamples: int) -> RunOutcome:
    """The figures of one run."""
    both_classes(run.examples)
    labels = run.labels
    suspects = contradicted(run.log_odds, run.posteriors, labels)
    return RunOutcome(
        likelihood=run.contender,
        protocol=protocol,
        run=run,
        metrics=measure(run.log_odds, run.posteriors, labels),
        intervals=intervals(run.log_odds, run.posteriors, labels, resamples) if resamples else {},
        microseconds=1e6 * run.seconds / (len(labels) + run.looks),
        suspects=[(run.examples[at].name, labels[at], run.posteriors[at]) for at in suspects],
        known=median(run.known) if run.known else None,
        days=_days(run),
    )


def _days(run: Run) -> list[Day]:
    verdicts = zip(run.labels, run.classes, strict=True)
    days = []
    for messages, marks in run.days:
        found = Counter(islice(verdicts, messages))
        days.append(
            Day(
                ham=sum(found["ham", class_] for class_ in CLASSES),
                ham_as_spam=found["ham", "spam"],
                ham_unsure=found["ham", "unsure"],
                spam=sum(found["spam", class_] for class_ in CLASSES),
                spam_as_ham=found["spam", "ham"],
                spam_unsure=found["spam", "unsure"],
                marks=marks,
            )
        )
    return days


def entrants(names: Sequence[str], learn: Learn) -> tuple[Voices, Callable[[], Sequence[Contender]]]:
    """A function that makes contenders by name, and the voices whose tokens they need.

    A name is 'configured', 'one_rule' (of the voice `fields`), a likelihood (likewise, or of `attributes` for numbers),
    or likelihoods by voice, as in 'fields=bernoulli,body=soft'. Raises InputError for any other.
    """
    chosen = {name: _voices(name, learn) for name in names}
    seen = {voice.name: voice for voices in chosen.values() for voice in voices}

    def enter() -> list[Contender]:
        return [OneRule() if name == ONE_RULE else Learner(name, voices) for name, voices in chosen.items()]

    return tuple(seen.values()), enter


def _voices(name: str, learn: Learn) -> Voices:
    if name == CONFIGURED:
        return everybodys(learn.chosen())
    if name == ONE_RULE:
        return _voices("multinomial", learn)
    if name in LIKELIHOODS:
        return everybodys(learn.model_copy(update={"voices": [], "likelihood": name}).chosen())
    pairs = [pair.partition("=")[::2] for pair in name.split(",")]
    if len(dict(pairs)) < len(pairs) or not all(fits(voice, likelihood) for voice, likelihood in pairs):
        raise InputError(
            f"{name!r}: not a contender; name {CONFIGURED}, {ONE_RULE}, a likelihood ({', '.join(LIKELIHOODS)}),"
            f" or likelihoods by voice ({', '.join(VOICES)}), each voice once, as in fields=soft,phrases=eddc; gaussian"
            f" is for {ATTRIBUTES}, and only it"
        )
    weights = {voice: getattr(learn, voice).weight if len(pairs) > 1 else 1.0 for voice, _ in pairs}
    return tuple(Voice(voice, learn.parametrised(kind), weights[voice]) for voice, kind in pairs)


def of_mails(mails: Iterable[tuple[Label, Mail]], voices: Voices) -> list[Example]:
    """Labelled mails as examples; a mail is read from its file each time it is needed."""

    def tokens(mail: Mail) -> VoiceTokens:
        return view(voices, parse(mail.read()))

    return [Example(mail.name, label, partial(tokens, mail)) for label, mail in mails]


def mails_alone(mails: Iterable[tuple[Label, Mail]], problems: list[str]) -> list[tuple[Label, Mail]]:
    """Labelled mails without the files that are no mail; `problems` takes a sentence for each of these files."""
    found = []
    for label, mail in mails:
        try:
            mail.read()
        except NotMail as error:
            problems.append(str(error))
        else:
            found.append((label, mail))
    return found


def by_arrival(mails: Sequence[tuple[Label, Mail]]) -> list[tuple[Label, Mail]]:
    """Mails in the order of arrival: by the date in the last Received field, which a sender cannot forge.

    A mail without one is placed by its Date field, and a mail without any date after the one before it.
    """
    last, places = 0.0, []
    for number, (_, mail) in enumerate(mails):
        last = _arrived(mail) or last
        places.append((last, number))
    return [mails[number] for _, number in sorted(places)]


def _arrived(mail: Mail) -> float:
    message = parse(mail.read())
    for text in (message.field(b"received").rpartition(";")[2], message.field(b"date")):
        try:
            moment = parsedate_to_datetime(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return 0.0


def of_ledger(store: Store, voices: Voices) -> list[Example]:
    """The learnings of an installation that count, in their order, with the tokens in the ledger.

    A mail is named by its id while the journal has it, else by the number of its learning, as `judge --explain` does.
    Mail that further rounds of bulk training have reinforced stands at the place of the last one. A voice without
    tokens in an entry is silent there. What groups have learnt is left out.
    Raises InputError if the ledger has no tokens of a voice at all.
    """
    active = {entry.id for entry in store.learnings()}
    found: list[Example] = []
    known: set[str] = set()
    last = 0
    while entries := store.entries_after(last):
        last = entries[-1].id
        journalled = store.journal_of([entry.digest for entry in entries])
        for entry in entries:
            if entry.id in active and entry.label != IMPORT and not teaches_group(entry.added):
                known |= entry.tokens.keys()
                mail = journalled.get(entry.digest)
                name = mail.id if mail else f"#{entry.id}"
                found.append(Example(name, entry.message_label, partial(unpack, pack(entry.tokens))))
    lacking = [voice.name for voice in voices if voice.name not in known]
    if found and lacking:
        raise InputError(f"{store.where}: the ledger has no tokens of {', '.join(lacking)}; evaluate mail")
    return found


def of_journal(store: Store) -> Run | None:
    """The verdicts of the relay on messages that were labelled later; None unless both classes occur.

    Users label wrong verdicts more often than right ones, so this run looks worse than the filter is.
    """
    learnings = {entry.digest: entry for entry in store.learnings() if entry.source != COUNTERPART}
    run = Run(JOURNAL)
    for digest, entry in store.journal_of(learnings).items():
        if entry.class_ == UNJUDGED or entry.at > learnings[digest].at:
            continue  # it was judged after it had been learnt
        run.examples.append(Example(entry.id, learnings[digest].message_label, dict))
        run.log_odds.append(entry.log_odds)
        run.posteriors.append(entry.score)
        run.classes.append(entry.class_)
    return run if len(set(run.labels)) == len(LABELS) else None


def write_scores(file: Path, run: Run) -> None:
    """Write a line 'label, log-odds, probability, class, share of known tokens', with tabs, for each message."""
    columns = zip(run.labels, run.log_odds, run.posteriors, run.classes, run.known, strict=True)
    lines = ("{}\t{:.6f}\t{:.6f}\t{}\t{:.3f}\n".format(*values) for values in columns)
    with file_errors(file):
        file.write_text("".join(lines), encoding="utf-8")
