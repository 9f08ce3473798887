"""A verdict and its explanation as text for a terminal and as JSON.

JSON is a stable interface, documented in docs/json.md; the text is for people and may change. All text of a mail is
escaped. A row of a table has at most `width` columns; sentences are for the caller to fold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spamfilter.bayes.groups import OWN
from spamfilter.bayes.imported.voices import IMPORTED
from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.tokens import is_read
from spamfilter.bayes.verdict import Class
from spamfilter.bayes.voices import Evidence
from spamfilter.learning.counterfactuals import Distance, SupposedVerdict
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.provenance import SILENT, Origin, Provenance, Trace, shown
from spamfilter.system.escaping import harmless, printable
from spamfilter.system.moments import moment_text
from spamfilter.system.terminal import WIDTH, cell

LOUDEST = 5
"""Words for each class that the first sentence names."""
SHOWN_DOUBT = 0.05
"""Log-odds in doubt: less would be shown as 0.0."""
ORIGINS = 10
"""Learnings that are named, the latest."""
TOKEN = 32
"""Columns of the table for a token."""
NARROW_TOKEN = 26
"""Columns of the table for a token on a narrow terminal."""
FIXED = 40
"""Columns of the table for all but the token and what it was learnt from."""
DISGUISES = 10
"""Words that are not written as they look of which the text shows how they are written."""


def judgement_text(
    subject: Subject,
    score: Score,
    class_: Class,
    evidence: Sequence[Evidence],
    because: Provenance | None,
    width: int,
    everything: bool = False,
) -> str:
    """One line; with the provenance also the loudest evidence, the learnings behind it, and what would change it.

    evidence: all tokens that have any weight, the loudest first. everything: show also words that people do not read,
    see `is_read`.
    """
    voices = [f", {voice} {said.heard:+.2f}" for voice, said in score.voices.items()]
    shares = "".join(voices) if len(voices) > 1 else ""
    odds = f"log-odds {score.log_odds:+.2f}{shares}; {subject.reading.size} tokens, {100 * score.known:.0f} % known"
    line = f"{harmless(subject.name)}: {class_}, score {score.posterior:.3f} ({odds})"
    if because is None:
        return line
    lines = [line, *_mainly(evidence, width)]
    lines += [f"  {reason}" for reason in _reasons(score, class_, because)]
    if group := next((item.token.partition(" ")[0] for item in evidence if item.voice == OWN), ""):
        lines.append(f"  the voice {OWN} is what {cell(group, 60)} was taught by its users")
    lines += [*_sum(score, evidence), *_table(evidence, because, width, everything)]
    lines += _disguises(subject.written, width)
    lines += origins_text(because, width, None if everything else ORIGINS)
    lines += _changes(score, class_, because, width)
    return "\n".join(lines)


def _reasons(score: Score, class_: Class, because: Provenance) -> Iterator[str]:
    """Why the class is another one than the score of the whole mail says, a sentence each."""
    if score.passage:
        yield f"by the {score.passage} of its text, which the rest would hide"
    if score.doubt >= SHOWN_DOUBT:
        bounds = {item.class_: item.threshold for item in because.distances}
        held = class_ == "unsure" and not bounds.get("ham", 0) <= score.posterior < bounds.get("spam", 2)
        so = "so it is unsure" if held else "which changes nothing"
        known = f"knows {100 * score.known:.0f} % of its words"
        yield f"{known}: up to {score.doubt:.1f} of the log-odds are in doubt, {so}"
    if score.few_ham:
        counted = score.log_odds - score.few_ham
        yield f"little ham is learnt, so of the log-odds {score.log_odds:+.2f} only {counted:+.2f} count"


def word_text(
    word: str,
    learnt: Mapping[Label, int],
    evidence: Sequence[Evidence],
    silent: Sequence[Evidence],
    because: Provenance,
    width: int,
) -> Iterator[str]:
    """What was learnt of a word, by its forms and voices. silent: forms with counts that speak for neither class."""
    known = [item for item in evidence if item.ham or item.spam]
    if not known and not silent:
        yield f"{cell(word, 60)}: never learnt"
        return
    yield f"{cell(word, 60)}, of {learnt['ham']:,} ham and {learnt['spam']:,} spam learnt"
    if known:
        yield from _table(known, because, width, everything=True)
    for item in silent:
        yield _line(
            f"  {cell(item.token, 60)} says nothing in {item.voice}: {_count(item.ham)} in ham, {_count(item.spam)} in"
            " spam",
            width,
        )


def word_json(
    word: str, learnt: Mapping[Label, int], evidence: Sequence[Evidence], because: Provenance
) -> dict[str, Any]:
    """The same for programs."""
    known = [item._asdict() for item in evidence if item.ham or item.spam]
    trainings = [asdict(item) for item in because.origins]
    return {"word": word, "learnt": dict(learnt), "evidence": known, "trainings": trainings}


def loudest(evidence: Sequence[Evidence]) -> dict[Label, list[str]]:
    """For each class the words that speak most for it, of those that people read; as they are written first."""
    found: dict[Label, dict[str, str]] = {"spam": {}, "ham": {}}
    for item in evidence:
        side = found["spam" if item.weight > 0 else "ham"]
        if len(side) < LOUDEST and abs(item.weight) >= SILENT and is_read(item.word):
            side.setdefault(item.word.lower(), item.word)
    return {label: [*words.values()] for label, words in found.items() if words}


def _mainly(evidence: Sequence[Evidence], width: int) -> Iterator[str]:
    said = {label: ", ".join(cell(word, 32) for word in words) for label, words in loudest(evidence).items()}
    if said:
        yield _line("  " + "; ".join(f"for {label} speak {words}" for label, words in said.items()), width)


def _sum(score: Score, evidence: Sequence[Evidence]) -> Iterator[str]:
    """How the words of the voices, by their weights, add up to the log-odds, and these to the score."""
    shares: dict[str, float] = dict.fromkeys(score.voices, 0.0)
    for item in evidence:
        shares[item.voice] += item.weight
    if len(shares) > 1 and any(shares.values()):
        parts = ", ".join(f"{name} {share:+.2f}" for name, share in shares.items())
        rest = score.log_odds - sum(shares.values())
        others = " and ".join(name for name in score.voices if name in IMPORTED)
        besides = "besides words" + (f" and by {others}'s formula" if others else "")
        yield (
            f"  by weight: {parts}, {besides} {rest:+.2f} = {score.log_odds:+.2f}; calibrated, {score.posterior:.3f}"
        )


def _table(evidence: Sequence[Evidence], because: Provenance, width: int, everything: bool) -> Iterator[str]:
    traced = zip(shown(evidence), because.traces, strict=True)
    rows = [(item, trace) for item, trace in traced if everything or is_read(item.word)]
    room = TOKEN if width >= WIDTH else NARROW_TOKEN
    if everything and rows:
        yield "  ^: words that follow each other in the header; subject:word: in that field"
    if rows:
        yield f"  {'token':<{room}} {'voice':<10} {'ham':>7} {'spam':>7} {'log-odds':>8}  learnt from"
    for item, trace in rows:
        yield (
            f"  {cell(item.token, room, fill=True)} {cell(item.voice, 10, fill=True)} {_count(item.ham):>7}"
            f" {_count(item.spam):>7} {item.weight:>+8.3f}  {_named(trace, width - room - FIXED)}"
        ).rstrip()
    others = [] if everything else [item.weight for item in evidence if not is_read(item.word)]
    if rest := len(evidence) - len(rows) - len(others):
        yield f"  {rest} more word{'s' * (rest > 1)} had less influence"
    if others:
        words = f"{len(others)} word{'s' * (len(others) > 1)}"
        yield f"  {sum(others):+.3f} by {words} that people do not read, of headers and markup (--all)"


def _disguises(written: Mapping[str, str], width: int) -> Iterator[str]:
    for word, disguise in list(written.items())[:DISGUISES]:
        yield _line(f"  {cell(word, 32)} is written {printable(disguise, 60)}", width)
    if len(written) > DISGUISES:
        yield f"  and {len(written) - DISGUISES} more"


def _count(number: float) -> str:
    return f"{number:.5g}" if number < 100_000 else f"{number:.0f}"


def _named(trace: Trace, room: int) -> str:
    """As many learnings as fit; dots say that there are more."""
    named, more = [f"#{id}" for id in trace.trainings], trace.more
    while len(named) > 1 and len(" ".join(named)) + 4 * more > room:
        named, more = named[:-1], True
    return " ".join([*named, *(["..."] if more else [])])


def origins_text(because: Provenance, width: int, most: int | None = None) -> Iterator[str]:
    """The learnings behind the counts that are shown, a line each, the latest `most`."""
    if because.origins:
        yield "  learnt from, the latest first"
    for item in because.origins[:most]:
        yield _line(_origin(item), width)
    if rest := len(because.origins) - len(because.origins[:most]):
        yield f"  and {rest} older (--all)"
    if because.cut_short:
        yield f"  older learnings than the last {because.looked_at:,} were not looked at"


def _origin(item: Origin) -> str:
    way = f"{cell(item.source, 10)} by {cell(item.by, 16)}" if item.by else cell(item.source, 10)
    named = f"  {item.id or '-':<26}  {cell(item.subject, 60)}" if item.id or item.subject else ""
    return f"  {'#' + str(item.training):<8} {moment_text(item.at)}  {item.label:<4}  {way:<14}{named}"


def _changes(score: Score, class_: Class, because: Provenance, width: int) -> Iterator[str]:
    yield "  what would change the verdict"
    doubt = ", whatever is in doubt" if score.doubt >= SHOWN_DOUBT else ""
    for distance in because.distances:
        way, bound = ("rise", "from") if distance.log_odds > 0 else ("fall", "below")
        yield (
            f"    {distance.class_} {bound} a score of {distance.threshold:.3f}{doubt}: log-odds"
            f" {score.log_odds - score.few_ham:+.2f} would have to {way} by {abs(distance.log_odds):.2f}"
        )
    for few in because.without:
        count = len(few.tokens)
        which = "loudest token" if count == 1 else f"{count} loudest tokens"
        side = "ham" if few.outcome.posterior > score.posterior else "spam"
        names = ", ".join(cell(token, 32) for token in few.tokens)
        yield _line(f"    without its {which} for {side}: {_outcome_text(few.outcome)}; that is {names}", width)
    if not because.without:
        sides = {"spam": "spam", "unsure": "spam, or all for ham", "ham": "ham"}[class_]
        yield f"    without all its tokens for {sides}: still {class_}"
    for label, outcome in because.marked.items():
        if because.learnt == label:
            yield f"    marked as {label}: the counts stay, as {label} it is learnt already"
        else:
            yield f"    marked as {label}: {_outcome_text(outcome)}"
    for item in because.forgotten:
        what = "this message itself" if item.itself else f"it taught {item.tokens} of the loudest tokens"
        yield f"    without learning #{item.training} ({what}): {_outcome_text(item.outcome)}"


def _outcome_text(outcome: SupposedVerdict) -> str:
    return f"{outcome.class_}, score {outcome.posterior:.3f}"


def _line(text: str, width: int) -> str:
    """A line of at most this many columns; dots say that it was cut."""
    return text.rstrip() if len(text) <= width else text[: width - 3] + "..."


def judgement_json(
    named: dict[str, str],
    subject: Subject,
    score: Score,
    class_: Class,
    evidence: Sequence[Evidence],
    because: Provenance | None,
) -> dict[str, Any]:
    """The verdict and its explanation for programs, with all evidence."""
    found: list[dict[str, Any]] = [{**item._asdict(), "read": is_read(item.word)} for item in evidence]
    judged: dict[str, Any] = {
        **named,
        "posterior": score.posterior,
        "log_odds": score.log_odds,
        "class": class_,
        "voices": {voice: said.heard for voice, said in score.voices.items()},
        "tokens": subject.reading.size,
        "known": score.known,
        "doubt": score.doubt,
        "few_ham": score.few_ham,
        "passage": score.passage,
        "evidence": found,
    }
    if because is None:
        return judged
    traces = {item[:2]: trace for item, trace in zip(shown(evidence), because.traces, strict=True)}
    for one in found:  # those that are not shown are not traced
        if trace := traces.get((one["token"], one["voice"])):
            one |= {"trainings": list(trace.trainings), "more": trace.more}
    return {
        **judged,
        "loudest": loudest(evidence),
        "reasons": [*_reasons(score, class_, because)],
        "written": subject.written,
        "trainings": [asdict(item) for item in because.origins],
        "looked_at": because.looked_at,
        "cut_short": because.cut_short,
        "learnt": because.learnt,
        "distances": [_plain(item) for item in because.distances],
        "without": [{"tokens": list(few.tokens), **_plain(few.outcome)} for few in because.without],
        "marked": {label: _plain(outcome) for label, outcome in because.marked.items()},
        "forgotten": [
            {"training": item.training, "itself": item.itself, "tokens": item.tokens, **_plain(item.outcome)}
            for item in because.forgotten
        ],
    }


def _plain(said: SupposedVerdict | Distance) -> dict[str, Any]:
    return {name.removesuffix("_"): value for name, value in asdict(said).items()}
