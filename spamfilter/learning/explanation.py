"""A verdict and its explanation as text for a terminal and as JSON.

JSON is a stable interface, documented in docs/json.md; the text is for people and may change. All text of a mail is
escaped to printable ASCII. A line has at most WIDTH columns, except for the first, which has the mail's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from spamfilter.bayes.model import Score
from spamfilter.bayes.verdict import Class
from spamfilter.bayes.voices import Evidence
from spamfilter.learning.counterfactuals import Outcome
from spamfilter.learning.provenance import Origin, Provenance, Trace, shown
from spamfilter.system.escaping import harmless, printable

WIDTH = 100
"""Columns of a line: as many as fit on half of a common screen."""
DISGUISES = 10
"""Words that are not written as they look of which the text shows how they are written."""
NOTHING: Mapping[str, str] = MappingProxyType({})


def judgement_text(
    name: str,
    score: Score,
    class_: Class,
    tokens: int,
    evidence: Sequence[Evidence],
    because: Provenance | None = None,
    written: Mapping[str, str] = NOTHING,
) -> str:
    """One line; with the provenance also the loudest evidence, the learnings behind it, and what would change it.

    evidence: all tokens that have any weight, the loudest first. written: words that the mail writes otherwise.
    """
    voices = (
        "".join(f", {voice} {said.heard:+.2f}" for voice, said in score.voices.items()) if len(score.voices) > 1 else ""
    )
    odds = f"log-odds {score.log_odds:+.2f}{voices}; {tokens} tokens, {100 * score.known:.0f} % known"
    line = f"{harmless(name)}: {class_}, score {score.posterior:.3f} ({odds})"
    if because is None:
        return line
    doubt = (
        [
            f"  knows {100 * score.known:.0f} % of its words: +-{score.doubt:.1f} of the log-odds are in doubt,"
            f" so it is {class_}"
        ]
        if score.doubt
        else []
    )
    passage = [f"  by the {score.passage} of its text, which the rest would hide"] if score.passage else []
    return "\n".join(
        [
            *(line, *passage, *doubt, *_table(evidence, because), *_disguises(written)),
            *(*_origins(because), *_changes(score, class_, because)),
        ]
    )


def _table(evidence: Sequence[Evidence], because: Provenance) -> Iterator[str]:
    rows = shown(evidence)
    if rows:
        yield f"  {'token':<32} {'voice':<10} {'ham':>7} {'spam':>7} {'log-odds':>8}  learnt from"
    for item, trace in zip(rows, because.traces, strict=True):
        yield (
            f"  {printable(item.token, 32):<32} {printable(item.voice, 10):<10} {_count(item.ham):>7}"
            f" {_count(item.spam):>7} {item.weight:>+8.3f}  {_named(trace)}"
        ).rstrip()
    if rest := len(evidence) - len(rows):
        yield f"  {rest} more words had less influence"


def _disguises(written: Mapping[str, str]) -> Iterator[str]:
    """Words that are not written as they look."""
    for word, disguise in list(written.items())[:DISGUISES]:
        yield _line(f"  {printable(word, 32)} is written {printable(disguise, 60)}")
    if len(written) > DISGUISES:
        yield f"  {len(written) - DISGUISES} more words are not written as they look"


def _count(number: float) -> str:
    return f"{number:.5g}" if number < 100_000 else f"{number:.0f}"


def _named(trace: Trace) -> str:
    return " ".join([*(f"#{id}" for id in trace.trainings), *(["..."] if trace.more else [])])


def _origins(because: Provenance) -> Iterator[str]:
    if because.origins:
        yield "  learnt from, the latest first"
    for item in because.origins:
        yield _line(_origin(item))
    if because.cut_short:
        yield f"  older learnings than the last {because.looked_at:,} were not looked at"


def _origin(item: Origin) -> str:
    way = f"{printable(item.source, 10)} by {printable(item.by, 16)}" if item.by else printable(item.source, 10)
    named = f"  {item.id or '-':<26}  {printable(item.subject, 60)}" if item.id or item.subject else ""
    return f"  {'#' + str(item.training):<8} {item.at:%Y-%m-%d %H:%M}  {item.label:<4}  {way:<14}{named}"


def _changes(score: Score, class_: Class, because: Provenance) -> Iterator[str]:
    yield "  what would change the verdict"
    for distance in because.distances:
        way = "rise" if distance.log_odds > 0 else "fall"
        bound = "from" if distance.log_odds > 0 else "below"
        yield (
            f"    {distance.class_} {bound} a score of {distance.threshold:.3f}: log-odds {score.log_odds:+.2f} would"
            f" have to {way} by {abs(distance.log_odds):.2f}"
        )
    for few in because.without:
        count = len(few.tokens)
        which = "loudest token" if count == 1 else f"{count} loudest tokens"
        side = "ham" if few.outcome.posterior > score.posterior else "spam"
        names = ", ".join(printable(token, 32) for token in few.tokens)
        yield _line(f"    without its {which} for {side}: {_told(few.outcome)}; that is {names}")
    if not because.without:
        sides = {"spam": "spam", "unsure": "spam, or all for ham", "ham": "ham"}[class_]
        yield f"    without all its tokens for {sides}: still {class_}"
    for label, outcome in because.marked.items():
        if because.learnt == label:
            yield f"    marked as {label}: nothing changes, as {label} it is learnt already"
        else:
            yield f"    marked as {label}: {_told(outcome)}"
    for item in because.forgotten:
        what = "this message itself" if item.itself else f"it taught {item.tokens} of the tokens above"
        yield f"    without learning #{item.training} ({what}): {_told(item.outcome)}"


def _told(outcome: Outcome) -> str:
    return f"{outcome.class_}, score {outcome.posterior:.3f}"


def _line(text: str) -> str:
    """A line of at most WIDTH columns; dots say that it was cut."""
    return text.rstrip() if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def judgement_json(
    named: dict[str, str],
    score: Score,
    class_: Class,
    tokens: int,
    evidence: Sequence[Evidence],
    because: Provenance | None = None,
    written: Mapping[str, str] = NOTHING,
) -> dict[str, Any]:
    """The verdict and its explanation for programs, with all evidence."""
    found: list[dict[str, Any]] = [item._asdict() for item in evidence]
    judged: dict[str, Any] = {
        **named,
        "posterior": score.posterior,
        "log_odds": score.log_odds,
        "class": class_,
        "voices": {voice: said.heard for voice, said in score.voices.items()},
        "tokens": tokens,
        "known": score.known,
        "doubt": score.doubt,
        "passage": score.passage,
        "evidence": found,
    }
    if because is None:
        return judged
    for item, trace in zip(found, because.traces, strict=False):  # the others have too little weight to be traced
        item |= {"trainings": list(trace.trainings), "more": trace.more}
    return {
        **judged,
        "written": dict(written),
        "trainings": [asdict(item) for item in because.origins],
        "looked_at": because.looked_at,
        "cut_short": because.cut_short,
        "learnt": because.learnt,
        "distances": [
            {"class": item.class_, "threshold": item.threshold, "log_odds": item.log_odds} for item in because.distances
        ],
        "without": [{"tokens": list(few.tokens), **_plain(few.outcome)} for few in because.without],
        "marked": {label: _plain(outcome) for label, outcome in because.marked.items()},
        "forgotten": [
            {"training": item.training, "itself": item.itself, "tokens": item.tokens, **_plain(item.outcome)}
            for item in because.forgotten
        ],
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"posterior": outcome.posterior, "class": outcome.class_}
