"""Marks: which message a user's mark means, and whether it may be learnt.

Where groups have voices of their own (see `bayes.groups`), users teach that of the mail's group, or of their own;
everybody's voices learn from the owner of the database, from `train`, and from traps.

A mail that went through the relay is learnt as it was judged, from the journal: on its way to the user a list, a mail
system or a mail program may have altered it. It is found by the id in its header, by its digest, or by its Message-ID,
and only if its text agrees, so that nobody can teach one mail under the name of another.
"""

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from spamfilter.bayes.calibration import is_surprise
from spamfilter.bayes.counts import Label
from spamfilter.bayes.groups import OWN, group_in, teaches_group
from spamfilter.bayes.labels import AUTOMATIC, CANARY, NOBODYS
from spamfilter.bayes.tokens import HEADER_PHRASE, Token, Tokens, words
from spamfilter.bayes.voices import groups_of
from spamfilter.errors import InputError, Refused, ShareUsed, StoreConflict
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Change, Reading, Training
from spamfilter.mail.header import Field
from spamfilter.mail.letters import as_written
from spamfilter.mail.message import Message, parse
from spamfilter.mail.tagging import header_end
from spamfilter.stores import Entry, JournalEntry, Store
from spamfilter.system.escaping import printable
from spamfilter.system.ids import is_id

WRITTEN_WITHIN = 1.5
"""Seconds to wait for an id that is not in the journal yet: the relay writes it a second behind."""
LOOK_EVERY = 0.1
"""Seconds between two looks for it."""
SAME = 0.7
"""Share of the words of the shorter text that the longer one must have to be a copy of it; without the mail's id, share
of the words that were judged. A list's footer or a warning on top only adds words; re-encoding changes none. Of 4,000
mails of the SpamAssassin and TREC 2007 corpora, each altered in the 17 ways of tests/support/alterations.py, 67,966 of
68,000 copies are recognised, and 67,730 without the id. Under another mail's id none of 4,000 mails is mistaken for it;
under its id and Message-ID 1.2 % are, which are copies of one spam. At 0.5 more are, and from 0.7 to 0.9 there is no
difference."""
TEXTS = ("body", "fields", "phrases")
"""Voices that see the words of the text; the first that both sides have is compared."""
DAY = timedelta(days=1)
MISTAKES = 2
"""An author at the limit can still change their own marks, up to this multiple of the limit; taking one back is always
allowed."""
ESTABLISHED = 1000
"""Messages learnt, from which on the filter's verdict is worth defending: before, it is often wrong."""
MOST_OF_A_GROUP = 2000
"""Messages that a group may teach its own voice, counted by what they add: some 500,000 words, 15 megabytes. A mark
adds little where the filter is nearly right, and nothing where it is sure."""
SURPRISES_A_DAY = 5
"""Learnings as spam of one author, or of one rule, that may contradict the verdict in 24 hours. Spam of one campaign is
known after one or two marks, and contradicts nothing after that; 200 wrong marks, with 1,200 messages learnt,
make 1 % of ham spam, and without this bound 93 % (benchmarks/poisoning.py)."""


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a mark, and its source: cli, imap, address, review, release, web.

    master: the owner of the database, who may change what others have taught, and has no limit.
    rule_for_all: a rule that teaches everybody's voices, as the owner does, even where groups have their own.
    """

    name: str
    source: str
    master: bool = False
    rule_for_all: bool = False

    @property
    def limited(self) -> bool:
        """Whether the limit of marks a day holds: for people, not for the administrator and not for rules."""
        return not self.master and self.source != AUTOMATIC


@dataclass(frozen=True, slots=True)
class Subject:
    """The message of a mark: its name for people, its id ('' if unknown), its digest and tokens.

    disguised, is_test: of the `Message`, where the mail itself is at hand. group: of the mail, where the reading is not
    that of the group.
    """

    name: str
    id: str
    reading: Reading
    disguised: tuple[Field, ...] = ()
    is_test: bool = False
    group: str = ""

    def taught_by(self, author: Author, filter: Filter) -> "Subject":
        """The message as this author teaches it: to everybody, or to a group.

        Raises Refused if groups have voices of their own, and this user's mark belongs to none.
        """
        if author.master or author.rule_for_all or not groups_of(filter.voices):
            return replace(self, reading=self.reading.for_everybody())
        if OWN in self.reading.tokens:
            return self
        group = self.group or filter.group_of([author.name.lower()])
        if not group:
            raise Refused(
                f"{self.name}: belongs to no domain or mailbox with a voice of its own ([learn] groups), so only the"
                " administrator can mark it"
            )
        return replace(self, reading=self.reading.for_group(group))

    @property
    def written(self) -> dict[str, str]:
        """Word as it looks -> as it was written, where these differ."""
        return as_written(self.disguised)


TRIES = 5
"""Times that a mark is learnt if the database ends its transaction for another one, which has committed by then."""


def mark(filter: Filter, subject: Subject, label: Label | None, author: Author, marks_a_day: int) -> Change:
    """Learn a message as its author says, or with label None forget it.

    Raises Refused if another person has marked it otherwise, or the author's marks of the day are used up; then nothing
    has changed. A rule changes nothing that is learnt. What no person has marked belongs to the first who marks it,
    also with the same label; forgetting it counts as a mark, too, since others lose what was learnt.
    """
    subject = subject.taught_by(author, filter)
    for _ in range(TRIES - 1):
        with suppress(StoreConflict):
            return _learnt(filter, subject, label, author, marks_a_day)
    return _learnt(filter, subject, label, author, marks_a_day)


def _learnt(filter: Filter, subject: Subject, label: Label | None, author: Author, marks_a_day: int) -> Change:
    """One transaction."""
    with filter.training() as training:
        active = training.active(subject.reading.digest)
        if active is not None and OWN in subject.reading.tokens and not teaches_group(active.added):
            if active.label == label:
                return training.learn(subject.reading.for_everybody(), active.label, active.source)
            raise Refused(
                f"{subject.name}: learnt as {active.label} for everybody; only the administrator can change that"
            )
        if active is not None and author.source == AUTOMATIC:
            return training.learn(subject.reading, active.message_label, active.source)
        agrees = active is not None and active.label == label
        own = active is not None and active.by == author.name
        if agrees and active is not None and active.source in NOBODYS and author.source != CANARY:
            if author.limited and not _has_left(filter.store, author, marks_a_day):  # it stays without an author
                return training.learn(subject.reading, active.message_label, active.source)
            return training.confirm(subject.reading, active, author.source, author.name)
        if active is not None and not agrees:
            _may_change(active, author, subject.name)
        if author.limited and not agrees and label is not None:
            _check_left(filter.store, author, marks_a_day, MISTAKES if own else 1)
        if author.limited and label is None and active is not None and not own:
            _check_left(filter.store, author, marks_a_day)
            training.confirm(subject.reading, active, author.source, author.name)  # so that it counts
        if label is not None and not author.master and OWN in subject.reading.tokens:
            _check_room(training, subject)
        elif label == "spam" and not author.master:
            _check_surprise(filter.store, training, subject, author)
        if label is None:
            return training.forget(subject.reading, author.source, author.name)
        return training.learn(subject.reading, label, author.source, author.name)


def _may_change(active: Entry, author: Author, name: str) -> None:
    if not author.master and active.by != author.name and active.source not in NOBODYS:
        raise Refused(
            f"{name}: learnt as {active.label} by {active.by or 'somebody else'}; only they or the administrator can"
            " change that"
        )


def _has_left(store: Store, author: Author, marks_a_day: int, times: int = 1) -> bool:
    return store.marks_by(author.name, datetime.now(UTC) - DAY) < times * marks_a_day


def _check_left(store: Store, author: Author, marks_a_day: int, times: int = 1) -> None:
    if not _has_left(store, author, marks_a_day, times):
        raise ShareUsed(
            f"{author.name or 'nobody'}: {marks_a_day} marks in 24 hours are the limit ([feedback] marks_a_day);"
            " go on tomorrow, or ask the administrator"
        )


def _check_surprise(store: Store, training: Training, subject: Subject, author: Author) -> None:
    others = store.surprises_by(author.name, datetime.now(UTC) - DAY, SURPRISES_A_DAY)
    if len(others) < SURPRISES_A_DAY:
        return
    # Without them, as by these very marks the filter may now say what their author does.
    step, learnt = training.step_without(others, subject.reading, "spam")
    if learnt >= ESTABLISHED and is_surprise(step):
        raise ShareUsed(
            f"{author.name or 'nobody'}: {SURPRISES_A_DAY} marks of spam in 24 hours against the verdict are the limit;"
            " go on tomorrow, or ask the administrator, whose mark counts at once"
        )


def _check_room(training: Training, subject: Subject) -> None:
    if training.taught_to_group(subject.reading) >= MOST_OF_A_GROUP:
        raise ShareUsed(
            f"{group_in(subject.reading.tokens)}: has taught as much as {MOST_OF_A_GROUP:,} messages, the limit;"
            " forget some marks (`spamfilter forget --by`), or ask the administrator"
        )


def by_id(filter: Filter, id: str, wait: bool = True) -> Subject:
    """The message of a journal id. wait: until a new one is written, at most WRITTEN_WITHIN.

    Raises InputError, which says what to do instead.
    """
    if not is_id(id):
        raise InputError(f"{printable(id, 40)}: not an id (26 letters and digits)")
    id, store = id.upper(), filter.store
    give_up = time.monotonic() + (WRITTEN_WITHIN if wait else 0)
    while (entry := store.find_journal(id)) is None:
        if time.monotonic() >= give_up:
            raise InputError(
                f"{id}: no message of this id in the journal of {store.where}; it may be too old: name its file"
            )
        time.sleep(LOOK_EVERY)
    tokens = entry.tokens
    if tokens is None:
        active = store.active(entry.digest)
        tokens = active.tokens if active else None
    if tokens is None:
        raise InputError(
            f"{id}: too old to mark by id ([feedback] window_days, window_megabytes); give its file instead"
        )
    if not any(voice.name in tokens for voice in filter.voices):
        raise InputError(f"{id}: judged under another configuration ([learn] voices); give its file instead")
    return Subject(id, id, Reading(entry.digest, tokens))


class MailAtHand(NamedTuple):
    """A mail of which we have the bytes. id: its X-Spamfilter-Id, '' without one."""

    name: str
    message: Message
    reading: Reading
    id: str

    @property
    def subject(self) -> Subject:
        """The mail as it is."""
        return Subject(self.name, "", self.reading, self.message.disguised, self.message.is_test)


def mail_at_hand(filter: Filter, name: str, mail: bytes) -> MailAtHand:
    """The mail in these bytes."""
    message = parse(mail)
    return MailAtHand(name, message, filter.read(message), header_id(mail))


def by_mail(filter: Filter, name: str, mail: bytes) -> Subject:
    """The message in these bytes: as it was judged, if it passed the relay; as it is, if it was learnt as it is.

    A mail may have been learnt in bulk, or before the journal knew it; it must be possible to forget it by the same
    bytes.
    """
    return _as_judged(filter, mail_at_hand(filter, name, mail))


def by_mails(filter: Filter, mails: Sequence[MailAtHand]) -> Iterator[Subject]:
    """As `by_mail`, for at most some hundred mails, with one query for those that the journal may know."""
    message_ids = [mail.message.field(b"message-id") for mail in mails]
    known = filter.store.in_journal([mail.reading.digest for mail in mails], [id for id in message_ids if id])
    for mail, message_id in zip(mails, message_ids, strict=True):
        if mail.id or mail.reading.digest in known or message_id in known:
            yield _as_judged(filter, mail)
        else:
            yield mail.subject


def _as_judged(filter: Filter, mail: MailAtHand) -> Subject:
    reading = mail.reading
    for entry in _candidates(filter.store, mail):
        if entry.digest == reading.digest or _same(entry, mail):
            if entry.tokens is not None:
                group = group_in(entry.tokens)
            elif entry.digest == reading.digest:
                group = ""
            else:
                group = filter.group_of(recipient.lower() for recipient in entry.recipients)  # that it was judged for
            if entry.digest != reading.digest and filter.store.active(reading.digest) is not None:
                return replace(mail.subject, id=entry.id, group=group)
            at_hand = reading.for_group(group) if group else reading
            # Voices that were added after the verdict get their tokens from the mail at hand.
            found = Reading(entry.digest, {**at_hand.tokens, **(entry.tokens or {})})
            return replace(mail.subject, id=entry.id, reading=found)
    return mail.subject


def _candidates(store: Store, mail: MailAtHand) -> Iterator[JournalEntry]:
    """Entries of the journal that may belong to this mail, the likeliest first."""
    if mail.id and (named := store.find_journal(mail.id)):
        yield named
    if same := store.journal_of([mail.reading.digest]).get(mail.reading.digest):
        yield store.find_journal(same.id) or same
    yield from store.journal_named(mail.message.field(b"message-id"))


def _same(entry: JournalEntry, mail: MailAtHand) -> bool:
    """Whether an entry is of this mail, apart from what mailing lists and mail systems change.

    A Message-ID is no secret: who has no more of a mail cannot mark it. Its id has only who got the mail.
    """
    name, subject, tokens = mail.message.field(b"message-id"), mail.message.field(b"subject"), mail.reading.tokens
    named, identified = entry.message_id == name != "", entry.id == mail.id
    agree = _agree if identified else _holds
    title = set(words(entry.subject.encode()))
    if (entry.message_id and name and not named) or not agree(title, set(words(subject.encode()))):
        return False
    texts = [
        (_text(voice, entry.tokens[voice]), _text(voice, tokens[voice]))
        for voice in TEXTS
        if entry.tokens and voice in entry.tokens and voice in tokens
    ]
    if not texts:  # tokens have expired, or are of other voices: only names can tell
        return named and identified
    judged, at_hand = texts[0]
    known_by_name = named and (identified or bool(title))
    return agree(judged, at_hand) and (known_by_name or bool(judged and at_hand))


def _text(voice: str, tokens: Tokens) -> AbstractSet[Token]:
    """The words of the text among the tokens of a voice."""
    if voice == "fields":
        names = {token.partition(b":")[0] for token in tokens if b":" in token}
        return {token for token in tokens if b":" not in token} - names
    return {token for token in tokens if not token.startswith(HEADER_PHRASE)}


def _agree(one: AbstractSet[bytes], other: AbstractSet[bytes]) -> bool:
    """Whether these can be the words of one text; an empty set agrees with any."""
    return len(one & other) >= SAME * min(len(one), len(other))


def _holds(judged: AbstractSet[bytes], at_hand: AbstractSet[bytes]) -> bool:
    """Whether a mail at hand has most words of a text that was judged, and perhaps others."""
    return len(judged & at_hand) >= SAME * len(judged)


def header_id(mail: bytes) -> str:
    """The value of X-Spamfilter-Id in a mail's header, '' without a valid one."""
    head = mail[: header_end(mail)] if b"\r\n" in mail[:1000] else mail.partition(b"\n\n")[0]
    if b"x-spamfilter-id" not in head.lower():
        return ""
    for line in head.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"x-spamfilter-id":
            words = value.decode("ascii", "replace").split()
            return words[0].upper() if words and is_id(words[0]) else ""
    return ""
