"""The command `review`: label the messages that teach the filter most, one key for each."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.verdict import EVIDENCE_SHOWN
from spamfilter.commands.command import as_json_option, moment, opened_filter, user
from spamfilter.commands.mark import tell_if_kept
from spamfilter.config.settings import Settings
from spamfilter.errors import InputError, SpamfilterError, StoreBusy, StoreDamaged, StoreError
from spamfilter.learning import marks
from spamfilter.learning.explanation import judgement_text
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.provenance import provenance
from spamfilter.learning.review import Review, Waiting
from spamfilter.relay.judging import policy_for
from spamfilter.reports import rendering
from spamfilter.service.control_socket.client import NoRelay, SocketClient
from spamfilter.system.escaping import harmless
from spamfilter.system.moments import moment_text
from spamfilter.system.paths import database_in
from spamfilter.system.screen import coloured, complain, judgement, sentence, table_width
from spamfilter.system.terminal import keys

SOURCE = "review"
PROMPT = "s spam, h ham, n or space skip, u undo, w why, q quit > "
AT_THE_END = "u undo, q quit > "
LABELLED: dict[str, Label] = {"s": "spam", "h": "ham"}
SHOWN = 200
"""Characters of a sender or a subject that are shown: at most some lines of a terminal."""


@click.command()
@click.option("--since", help="Only mail since then; a span (24h, 7d, 4w) or a date (2026-01-31).")
@click.option(
    "--limit", type=click.IntRange(1, 50_000), default=100, show_default=True, help="Maximum number of messages."
)
@as_json_option
@click.pass_obj
def review(file: Path | None, since: str | None, limit: int, as_json: bool) -> None:
    """Mark the messages that teach the filter most, one key for each; unsure messages first.

    Each answer is learnt at once, so you may stop at any time. Skipped messages come last. It reads the database:
    run it as the user of the relay. If standard input is not a terminal, each line is a key.

    Example: spamfilter review --since 7d
    """
    with ExitStack() as stack:
        filter, settings = _opened(stack, file)
        now = datetime.now(UTC)
        begin = now - timedelta(days=settings.feedback.window_days)
        if since is not None:
            begin = moment("--since", since, now)
        found = Review(filter, settings.verdict.spam)
        present = islice(_present(found, found.waiting(begin, now + timedelta(seconds=1))), limit)
        if as_json:
            for waiting, subject in present:
                click.echo(rendering.to_json(_json(filter, waiting, subject)))
            return
        session = _Session(filter, settings, found, [waiting for waiting, _ in present])
        session.run(stack.enter_context(keys()))


def _opened(stack: ExitStack, file: Path | None) -> tuple[Filter, Settings]:
    try:
        return stack.enter_context(opened_filter(file, whole=False, existing=True))
    except (StoreBusy, StoreDamaged):
        raise
    except (StoreError, InputError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise StoreError(f"review cannot open the database: {reason}; run it as the user of the relay") from error


def _present(review: Review, queue: Sequence[Waiting]) -> Iterator[tuple[Waiting, Subject]]:
    """The messages of the queue that can still be learnt."""
    for waiting in queue:
        subject = review.subject(waiting.entry)
        if subject is not None:
            yield waiting, subject


def _json(filter: Filter, waiting: Waiting, subject: Subject) -> dict[str, Any]:
    entry = waiting.entry
    score, evidence = filter.explained(subject.reading, EVIDENCE_SHOWN)
    return {
        "id": entry.id,
        "at": entry.at,
        "sender": entry.sender,
        "recipients": list(entry.recipients),
        "subject": entry.subject,
        "class": entry.class_,
        "score": entry.score,
        "now": score.posterior,
        "evidence": [{"token": item.token, "weight": item.weight} for item in evidence],
        "skipped": waiting.skipped,
    }


class _Session:
    """One run of `review`: each message is shown once, and the answers can be undone, the last one first."""

    def __init__(self, filter: Filter, settings: Settings, review: Review, queue: Sequence[Waiting]) -> None:
        self._filter = filter
        self._settings = settings
        self._review = review
        self._queue = queue
        self._done: list[tuple[int, Subject, Label | None]] = []
        """Place in the queue, message and label of each answer; None: skipped."""
        self._gone: set[int] = set()
        """Places of messages that others have marked meanwhile."""

    def run(self, pressed: Iterator[str]) -> None:
        """Ask until there are no more keys or messages."""
        at, shown = 0, -1
        if not self._queue:
            sentence("nothing needs review: every message of this period is learnt, or too old to mark by id")
            return
        unsure = sum(waiting.entry.class_ == "unsure" for waiting in self._queue)
        others = len(self._queue) - unsure
        told = f"{unsure:,} unsure message{'s' * (unsure != 1)}, then {others:,} other{'s' * (others != 1)}"
        sentence(f"{told}, the nearest to unsure first")
        while at < len(self._queue) or self._done:
            subject = None
            if at < len(self._queue):
                subject = self._review.subject(self._queue[at].entry)
                if subject is None:
                    self._gone.add(at)
                    at, shown = at + 1, -1
                    continue
                if shown != at:
                    self._show(at, subject)
            elif shown != at:
                click.echo("\nthat was the last one")
            shown = at
            click.echo(AT_THE_END if subject is None else PROMPT, nl=False)
            key = next(pressed, "q").lower()
            click.echo("skip" if key == " " else harmless(key))
            if key == "q":
                break
            try:
                at = self._answer(key, at, subject)
            except SpamfilterError as error:
                if not sys.stdin.isatty():
                    raise  # in a script, the next key is meant for the next message
                complain(str(error))
        self._summary()

    def _answer(self, key: str, at: int, subject: Subject | None) -> int:
        """Do what a key says. Returns the place in the queue to go on."""
        if key == "u":
            return self._undo(at)
        if subject is None:
            return at
        if key == "w":
            recipients = self._queue[at].entry.recipients
            policy = policy_for(recipients, self._settings.policies(), self._settings.policy())
            score, evidence = self._filter.explained(subject.reading)
            class_ = policy.classify(score, self._filter.learnt)
            because = provenance(self._filter, policy, subject.reading, score, evidence)
            told = judgement_text(subject, score, class_, evidence, because, table_width())
            judgement(told, class_)
        elif key in LABELLED:
            if self._review.subject(self._queue[at].entry) is None:
                click.echo(f"{subject.id}: somebody else has marked it meanwhile")
                self._gone.add(at)
                return at + 1
            click.echo(self._mark(subject, LABELLED[key]))
            if LABELLED[key] == "ham":
                tell_if_kept(self._settings.quarantine_path(), subject.id)
            self._done.append((at, subject, LABELLED[key]))
            return at + 1
        elif key in ("n", " "):
            self._review.skip(subject.reading.digest)
            self._done.append((at, subject, None))
            return at + 1
        return at

    def _undo(self, at: int) -> int:
        """Undo the last answer; its message is next."""
        if not self._done:
            click.echo("nothing to undo")
            return at
        last, subject, label = self._done[-1]
        if label is None:
            self._review.unskip(subject.reading.digest)
        else:
            learnt = marks.learnings_of(self._filter.store, subject.reading)
            if (SOURCE, label) not in [(entry.source, entry.label) for entry in learnt]:
                click.echo(f"{subject.id}: not undone, because it was changed since")
                self._gone.add(last)
                self._done.pop()
                return at
            click.echo(self._mark(subject, None))
        self._done.pop()
        return last

    def _mark(self, subject: Subject, label: Label | None) -> str:
        """Mark a message over the socket of the running relay, or else in the database; returns what has changed."""
        try:
            client = SocketClient(self._settings.socket_path())
        except NoRelay:
            author = marks.Author(user(), SOURCE, master=True)
            change = marks.mark(self._filter, subject, label, author, self._settings.feedback)
            return rendering.change_text(subject.name, label, change)
        with closing(client):
            # A connection for each mark, because the relay closes one that is idle for a minute.
            request = {"command": "mark", "id": subject.id, "label": label, "source": SOURCE}
            return str(client.ask({**request, "database": database_in(self._settings.store.url)})["text"])

    def _show(self, at: int, subject: Subject) -> None:
        waiting = self._queue[at]
        entry = waiting.entry
        score, evidence = self._filter.explained(subject.reading, EVIDENCE_SHOWN)
        words = "; ".join(f"{harmless(item.token)} {item.weight:+.2f}" for item in evidence)
        skipped = ", skipped before" if waiting.skipped else ""
        for line in (
            "",
            f"{at + 1} of {len(self._queue)}  {entry.id}  {moment_text(entry.at)}{skipped}",
            f"  from     {harmless(entry.sender[:SHOWN])}",
            f"  to       {harmless(', '.join(entry.recipients)[:SHOWN])}",
            f"  subject  {harmless(entry.subject[:SHOWN])}",
            f"  score    {entry.score:.3f} ({coloured(entry.class_)}) when it came, {score.posterior:.3f} now",
            f"  words    {words or 'the filter knows none'}",
        ):
            sentence(line, indent=11)

    def _summary(self) -> None:
        given = Counter(label for *_, label in self._done)
        numbers = [f"{given[label]} {label}" for label in LABELS]
        left = len(self._queue) - len(self._gone | {at for at, *_ in self._done})
        click.echo(f"marked {', '.join(numbers)}; skipped {given[None]}; {left} left")
