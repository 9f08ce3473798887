"""RULES: what is learnt of the mail that passes without anybody's mark, where [feedback] automatic names it.

Guarantee: no rule learns what the filter itself has said of a mail; none changes what was learnt already, and anybody's
mark replaces what it taught (`feedback.mark`). Mail never waits for a rule: what they teach is learnt behind it, a
failure is logged, and beyond a bound what would be learnt is dropped and counted.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from spamfilter.bayes.counts import Label
from spamfilter.bayes.labels import AUTOMATIC
from spamfilter.config.sections import Feedback
from spamfilter.errors import SpamfilterError
from spamfilter.learning.filter import Reading
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import Author, Subject
from spamfilter.mail.message import Message
from spamfilter.stores import Store

log = logging.getLogger(__name__)

MOST_WAITING = 1000
"""Mails that wait for their rules: some seconds of learning, some ten megabytes of tokens."""
MOST_ANSWERED = 20
"""Message-IDs that one answer is asked for: its own thread, and no list of all that somebody knows."""
_MESSAGE_ID = re.compile(r"<[^<>\s]+>")


@dataclass(frozen=True, slots=True)
class Seen:
    """A mail that the relay has judged and answered.

    sender: its reverse-path, '' for a bounce. recipients: in lower case. own: surely of our own users, of an
    authenticated sender or of a client in a trusted network that XFORWARD has named; authenticated: the former.
    """

    id: str
    message: Message
    reading: Reading
    sender: str
    recipients: Collection[str]
    own: bool
    authenticated: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """What it teaches, and when.

    concerns: whether a mail is a case for it; quick, without the store. subjects: which messages are learnt then;
    called outside the event loop.
    """

    label: Label
    concerns: Callable[[Seen, Feedback], bool]
    subjects: Callable[[Seen, Store], Iterable[Subject]]


def _is_answer(seen: Seen, settings: Feedback) -> bool:
    # Without XFORWARD every stranger comes from the mail server in front, and could answer their own spam.
    return seen.own and bool(seen.sender) and bool(_named(seen.message)) and not _by_machine(seen.message)


def _answered(seen: Seen, store: Store) -> Iterable[Subject]:
    """The mails that this one answers, if they were judged here, as ham or unsure."""
    for message_id in _named(seen.message):
        entries = store.journal_named(message_id)
        # Who gives a mail the id of another shall gain nothing by an answer to that.
        if len({entry.digest for entry in entries}) != 1:
            continue
        entry = entries[0]
        if entry.class_ != "spam" and entry.tokens is not None and entry.digest != seen.reading.digest:
            yield Subject(entry.id, entry.id, Reading(entry.digest, entry.tokens))


def _named(message: Message) -> list[str]:
    text = " ".join((message.field(b"in-reply-to"), message.field(b"references")))
    return list(dict.fromkeys(_MESSAGE_ID.findall(text)))[:MOST_ANSWERED]


def _by_machine(message: Message) -> bool:
    """Whether nobody wrote this: a notice of absence answers spam, too."""
    return (
        message.field(b"auto-submitted").partition(";")[0].strip().lower() not in ("", "no")
        or message.field(b"precedence").lower() in ("bulk", "junk", "list", "auto_reply")
        or message.field(b"content-type").lower().startswith("multipart/report")
        or any(name in (b"x-autoreply", b"x-autorespond", b"x-auto-response-suppress") for name, _ in message.fields)
    )


def _is_trapped(seen: Seen, settings: Feedback) -> bool:
    # Who answers all recipients of a spam writes to the trap, too.
    return not seen.authenticated and any(recipient in settings.traps for recipient in seen.recipients)


def _itself(seen: Seen, store: Store) -> Iterable[Subject]:
    return [Subject(seen.id, seen.id, seen.reading)]


RULES: dict[str, Rule] = {
    "answered": Rule("ham", _is_answer, _answered),
    "trap": Rule("spam", _is_trapped, _itself),
}


class Automatic:
    """The rules at work on what the relay has seen, one mail after the other. dropped: mails beyond the bound."""

    def __init__(self, desk: MarkQueue, store: Store) -> None:
        self.dropped = 0
        self._desk = desk
        self._store = store
        self._waiting: deque[tuple[str, Seen]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def saw(self, seen: Seen, settings: Feedback) -> None:
        """Look at a mail; what is to be learnt of it is learnt later. Called in the event loop."""
        for name in settings.automatic:
            if not RULES[name].concerns(seen, settings):
                continue
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((name, seen))
                continue
            if not self.dropped:
                log.warning("automatic: more than %d mails wait to be learnt; further ones are not", MOST_WAITING)
            self.dropped += 1
        if self._waiting and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work())

    async def idle(self) -> None:
        """Wait until everything that was seen is learnt."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker])

    def close(self) -> None:
        """Give up what is waiting."""
        if self._worker is not None:
            self._worker.cancel()
        if self._waiting:
            log.info("automatic: %d mails were not learnt", len(self._waiting))
            self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            name, seen = self._waiting.popleft()
            try:
                await self._teach(name, seen)
            except Exception as error:
                log.warning(
                    "automatic: %s after %s: %s", name, seen.id, error, exc_info=not isinstance(error, SpamfilterError)
                )

    async def _teach(self, name: str, seen: Seen) -> None:
        rule = RULES[name]
        for subject in await asyncio.to_thread(lambda: list(rule.subjects(seen, self._store))):
            marked = await self._desk.mark_read(subject, rule.label, Author(name, AUTOMATIC))
            if marked.change.changed:
                log.info("feedback: %s by %s (%s): %s learnt", rule.label, name, AUTOMATIC, subject.id)
