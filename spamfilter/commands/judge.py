"""The commands `judge` and `word`: the verdicts on mails, and why; what was learnt of a word."""

from itertools import pairwise
from pathlib import Path

import click

from spamfilter.bayes import tokens
from spamfilter.bayes.verdict import TEST_EVIDENCE, TEST_SCORE
from spamfilter.commands.command import (
    as_json_option,
    named_mails,
    names_argument,
    opened_filter,
    subjects,
    tell_problems,
)
from spamfilter.learning.explanation import judgement_json, judgement_text, origins_text, word_json, word_text
from spamfilter.learning.provenance import provenance
from spamfilter.learning.transaction import Reading
from spamfilter.relay.judging import policy_for
from spamfilter.reports import rendering
from spamfilter.system.escaping import printable
from spamfilter.system.process import gc_paused
from spamfilter.system.screen import judgement, sentence, table_width

FEW = 10
"""Up to this many messages, the words of each are read from the database. For more, all counts are loaded at once:
loading 300,000 words takes as long as looking up those of ten messages (benchmarks/judge_speed.py)."""


@click.command()
@names_argument
@click.option(
    "--explain",
    is_flag=True,
    help="Show the words that made the score, who taught them, and what would change the verdict.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="With --explain: show also words that people do not read, of headers and markup.",
)
@as_json_option
@click.pass_obj
def judge(file: Path | None, names: tuple[str, ...], explain: bool, everything: bool, as_json: bool) -> None:
    """Judge messages without delivering or learning them.

    Rules on senders (`spamfilter lists`) are not asked: a file does not say from which client the mail came, for whom,
    and who proved its sender. Mail that the relay has judged shows the rule that it has met with --explain.

    With --explain: the most influential words, their counts and log-odds; the trainings that gave these counts
    (#: the number in the ledger), with id and subject if they are in the journal; and what would change the
    verdict.

    Example: spamfilter judge --explain message.eml
    """
    problems: list[str] = []
    with gc_paused(), opened_filter(file, whole=len(names) > FEW, existing=True) as (filter, settings):
        policies, everybodys = settings.policies(), settings.policy()
        rules = len(settings.rules()) + filter.store.rules_version()[1]
        mails = named_mails(names or ("-",), problems)
        for number, subject in enumerate(subjects(filter, mails, settings.subject_prefixes(), problems)):
            if number == FEW:  # a folder has more mails than there are names
                filter.hold_all()
            reading = subject.reading
            score, evidence = filter.explained(reading, None if explain else 0)
            entry = filter.store.find_journal(subject.id) if subject.id and (explain or policies) else None
            policy = policy_for(entry.recipients if entry else (), policies, everybodys)
            if subject.is_test:
                score, evidence = TEST_SCORE, [*TEST_EVIDENCE]
            class_ = "spam" if subject.is_test else policy.classify(score, filter.learnt)
            explained = explain and not subject.is_test
            because = provenance(filter, policy, reading, score, evidence) if explained else None
            listed = entry.listed if entry and explain else ""
            if as_json:
                judged = judgement_json(rendering.name_json(subject), subject, score, class_, evidence, because)
                more = {"listed": listed, "policy": policy.name} if explain else {}
                click.echo(rendering.to_json({**judged, **more}))
            else:
                told = judgement_text(subject, score, class_, evidence, because, table_width(), everything)
                told += "; by the test line GTUBE" * subject.is_test
                judgement(told, class_)
                if policy.name and explain:
                    sentence(f"  by the thresholds for {policy.name}, its recipient", indent=4)
                if listed:
                    sentence(f"  rule on its sender when it came: {printable(listed, 400)}", indent=4)
    if rules and not as_json:
        which = f"{rules:,} rule{'s' * (rules != 1)} on senders"
        sentence(f"{which} not asked: only the relay knows client, envelope and proof", err=True)
    tell_problems(problems)


def _forms(word: str) -> list[bytes]:
    """The tokens that a word may be, as it is, in a text, and in a subject."""
    written, lower = (form.encode("utf-8", "surrogateescape") for form in (word, word.lower()))
    parts = [] if word.isascii() else tokens.words(written)
    subject = [lower, *parts, *(b" ".join(pair) for pair in pairwise(parts))]
    return [written, lower, *parts, *(b"subject:" + part for part in subject)]


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@as_json_option
@click.pass_obj
def word(file: Path | None, words: tuple[str, ...], as_json: bool) -> None:
    """Show what was learnt of a word: in how much ham and spam it was, and from which mails.

    It is looked for in the text and in the subject. A word as `judge --explain` shows it, such as from:example, is
    taken as it is. Of scripts without spaces, each character is a word too. Of voices that count occurrences, the
    numbers are occurrences.

    Example: spamfilter word viagra from:example
    """
    with opened_filter(file, whole=False, existing=True) as (filter, settings):
        for each in words:
            reading = Reading(b"", {voice.name: dict.fromkeys(_forms(each), 1) for voice in filter.voices})
            score, evidence = filter.explained(reading)
            because = provenance(filter, settings.policy(), reading, score, evidence)
            speaking = {(item.token, item.voice) for item in evidence}
            silent = [item for item in filter.counted(reading) if (item.token, item.voice) not in speaking]
            if as_json:
                click.echo(rendering.to_json(word_json(each, filter.learnt, [*evidence, *silent], because)))
            else:
                width = table_width()
                lines = [
                    *word_text(each, filter.learnt, evidence, silent, because, width),
                    *origins_text(because, width),
                ]
                click.echo("\n".join(lines))
