"""RULES: the rules by which passing mail is learnt without a mark; [feedback] automatic names those in use.

Guarantee: no rule learns the filter's own verdicts; none changes what is learnt but counterparts, and any user's mark
replaces what it taught (`marks.mark`). An answer teaches at most the one mail that it answers, and only if its sender
received it.
Mail never waits for a rule: it is learnt after delivery, a failure is logged, and what exceeds MOST_WAITING is dropped,
counted and logged.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from spamfilter.bayes.labels import AUTOMATIC, COUNTERPART, Label
from spamfilter.bayes.token_codec import message_of
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.config.sections import Feedback
from spamfilter.errors import SpamfilterError
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.learning.marks import DAY, Author
from spamfilter.learning.transaction import Reading
from spamfilter.mail.attached_mails import addresses_in
from spamfilter.mail.folded_addresses import folded
from spamfilter.mail.message import Message
from spamfilter.stores import JournalEntry, Store

log = logging.getLogger(__name__)

MOST_WAITING = 1000
"""Mails that wait for their rules: some seconds of learning, some ten megabytes of tokens."""
RECEIVED_A_DAY = 10
"""Of the mails that one user received, those that answers teach in 24 hours: all that most users answer. The
reverse-path can be forged, so this is what bounds a stranger for certain."""
SENT_A_DAY = 2
"""Of the mails that came from one domain, by their reverse-path, those that answers teach in 24 hours. A stranger who
is answered teaches the words of the question. Of questions with the words of their spam, two lowered the share that is
tagged from 85 to 77 %, the third to nothing: benchmarks/laundering.py. Our own domains are no exception: anybody may
claim them."""
_MESSAGE_ID = re.compile(r"<[^<>\s]+>")


@dataclass(frozen=True, slots=True)
class Seen:
    """A mail that the relay has judged and replied to.

    sender: its reverse-path, '' for a bounce. recipients: in lower case. proven: the sender is one of our users, as a
    mail server says that the kernel knows. authenticated: the same by a port, where any process may say so.
    """

    id: str
    message: Message
    reading: Reading
    sender: str
    recipients: Collection[str]
    proven: bool
    authenticated: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """The label that a rule teaches, and the messages.

    for_all: whether it teaches everybody's voices, as `Author.rule_for_all` says. concerns: whether the rule applies to
    a mail; quick, without the store. subjects: the messages to learn if it does; called outside the event loop.
    """

    label: Label
    for_all: bool
    concerns: Callable[[Seen, Feedback], bool]
    subjects: Callable[[Seen, Store], Iterable[Subject]]


def _is_answer(seen: Seen, settings: Feedback) -> bool:
    # Where the sender is only a claim, a spammer could answer their own spam.
    return seen.proven and bool(seen.sender) and bool(_parent(seen.message)) and not _by_machine(seen.message)


def _answered(seen: Seen, store: Store) -> Iterable[Subject]:
    """The mail that this one answers, if its sender received it, it was judged ham or unsure, and was never learnt but
    as a counterpart."""
    entries = store.journal_named(_parent(seen.message))
    # A sender who gives a mail the Message-ID of another must gain nothing by an answer to the other one.
    # By LMTP each group has a verdict, and a digest, of its own.
    mails = {Reading(entry.digest, entry.tokens or {}).digest_for_all for entry in entries}
    if len(mails) != 1 or any(entry.class_ == "spam" for entry in entries):
        return
    answerer = folded(seen.sender)
    received = ((entry, to) for entry in entries for to in entry.recipients if folded(to) == answerer)
    entry, mine = next(received, (entries[0], ""))
    if not mine or entry.tokens is None or not _goes_to_sender(seen, entry, entry.tokens):
        return
    said = store.histories([entry.digest])[entry.digest]
    if entry.digest == seen.reading.digest or any(each.source != COUNTERPART for each in said):
        return
    domain = entry.sender.rpartition("@")[2].lower()
    of_user, sent = store.marks_on_mail("answered", datetime.now(UTC) - DAY, mine, domain)
    if of_user >= RECEIVED_A_DAY or sent >= SENT_A_DAY:
        log.info("automatic: %s is answered, but not learnt: enough for a day of this user or domain", entry.id)
        return
    yield Subject(entry.id, entry.id, Reading(entry.digest, entry.tokens))


def _goes_to_sender(seen: Seen, entry: JournalEntry, tokens: VoiceTokens) -> bool:
    """Whether an answer goes to a domain that the mail names as its sender's: one that is passed on to colleagues, with
    the Message-ID in In-Reply-To, is no answer."""
    message = message_of(tokens)
    named = addresses_in(message.fields, b"from", b"reply-to") if message is not None else set()
    domains = {address.rpartition("@")[2] for address in (folded(entry.sender), *named)}
    return any(folded(to).rpartition("@")[2] in domains for to in seen.recipients)


def _parent(message: Message) -> str:
    """The Message-ID of the mail that this one answers, '' without one or with several.

    The field References is not asked: it names a whole thread, and a stranger could choose by it what is learnt.
    """
    named = _MESSAGE_ID.findall(message.field(b"in-reply-to"))
    return named[0] if len(named) == 1 else ""


def _by_machine(message: Message) -> bool:
    """Whether a program wrote this mail: a notice of absence answers spam, too."""
    return (
        message.field(b"auto-submitted").partition(";")[0].strip().lower() not in ("", "no")
        or message.field(b"precedence").lower() in ("bulk", "junk", "list", "auto_reply")
        or message.field(b"content-type").lower().startswith("multipart/report")
        or any(name in (b"x-autoreply", b"x-autorespond", b"x-auto-response-suppress") for name, _ in message.fields)
    )


def _is_trapped(seen: Seen, settings: Feedback) -> bool:
    # A user who replies to all recipients of a spam also writes to the trap.
    trapped = any(recipient in settings.traps for recipient in seen.recipients)
    return trapped and not seen.authenticated and not seen.message.is_test


RULES: dict[str, Rule] = {
    "answered": Rule("ham", False, _is_answer, _answered),
    "trap": Rule("spam", True, _is_trapped, lambda seen, _: [Subject(seen.id, seen.id, seen.reading)]),
}


class Automatic:
    """Applies the rules to what the relay has seen, one mail after the other."""

    def __init__(
        self, queue: MarkQueue, store: Store, noted: Callable[[str, str], object] = lambda limit, text: None
    ) -> None:
        """noted: called for each mail beyond MOST_WAITING, with the name of the limit and a sentence."""
        self._noted = noted
        self._queue = queue
        self._store = store
        self._waiting: deque[tuple[str, Seen]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def saw(self, seen: Seen, settings: Feedback) -> None:
        """Note a mail for the rules that it concerns; they are applied later. Called in the event loop."""
        for name in settings.automatic:
            if not RULES[name].concerns(seen, settings):
                continue
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((name, seen))
            else:
                self._noted("automatic", f"{MOST_WAITING} mails wait for [feedback] automatic; {seen.id} is not learnt")
        if self._waiting and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work())

    async def idle(self) -> None:
        """Wait until everything that was seen is learnt."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker])

    def close(self) -> None:
        """Stop; what is waiting is not learnt."""
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
                unforeseen = not isinstance(error, SpamfilterError)
                log.warning("automatic: %s after %s: %s", name, seen.id, error, exc_info=unforeseen)

    async def _teach(self, name: str, seen: Seen) -> None:
        rule = RULES[name]
        for subject in await asyncio.to_thread(lambda: list(rule.subjects(seen, self._store))):
            author = Author(name, AUTOMATIC, rule_for_all=rule.for_all)
            marked = await self._queue.mark_read(subject, rule.label, author)
            if marked.change.changed:
                log.info("feedback: %s by %s (%s): %s learnt", rule.label, name, AUTOMATIC, subject.id)
