"""Which message a user's mark means.

A mail that went through the relay is learnt as it was judged, from the journal: on its way to the user a list, a mail
system or a mail program may have altered it. It is found by the id in its header, by its digest, or by its Message-ID,
and only if its text agrees, so that nobody can teach one mail under the name of another.
"""

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from spamfilter.bayes.groups import group_in
from spamfilter.bayes.tokens import HEADER_PHRASE, Token, Tokens, words
from spamfilter.bayes.verdict import TEST_SCORE
from spamfilter.errors import InputError
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.header import Field
from spamfilter.mail.letters import as_written
from spamfilter.mail.message import Message, parse
from spamfilter.mail.tagging import header_id
from spamfilter.stores import UNJUDGED, JournalEntry, Store
from spamfilter.stores.sender_lists import LINK
from spamfilter.system.escaping import printable
from spamfilter.system.ids import id_of

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


@dataclass(frozen=True, slots=True)
class Subject:
    """The message of a mark: its name for people, its id ('' if unknown), its digest and tokens.

    disguised, is_test: of the `Message`, where the mail itself is at hand. group: that a mark teaches, where the
    reading is of none, or of one that there was before [learn] groups was changed.
    """

    name: str
    id: str
    reading: Reading
    disguised: tuple[Field, ...] = ()
    is_test: bool = False
    group: str = ""

    @property
    def written(self) -> dict[str, str]:
        """Word as it looks -> as it was written, where these differ."""
        return as_written(self.disguised)


def by_id(filter: Filter, id: str, wait: bool = True) -> Subject:
    """The message of a journal id. wait: until a new one is written, at most WRITTEN_WITHIN.

    Raises InputError, which says what to do instead.
    """
    name, id, store = id, id_of(id), filter.store
    if not id:
        raise InputError(f"{printable(name, 40)}: not an id (26 letters and digits)")
    give_up = time.monotonic() + (WRITTEN_WITHIN if wait else 0)
    while (entry := store.find_journal(id)) is None:
        if time.monotonic() >= give_up:
            raise InputError(
                f"{id}: no message of this id in the journal of {store.where}; it may be too old: name its file"
            )
        time.sleep(LOOK_EVERY)
    tokens = entry.tokens
    if tokens is None and (active := store.active(entry.digest)):
        tokens = active.tokens
    if tokens is None and entry.class_ == UNJUDGED:
        raise InputError(f"{id}: its text never came, so nothing can be learnt from it")
    if tokens is None:
        raise InputError(
            f"{id}: too old to mark by id ([feedback] window_days, window_megabytes); give its file instead"
        )
    if not any(voice.name in tokens for voice in filter.voices):
        raise InputError(f"{id}: judged under another configuration ([learn] voices); give its file instead")
    is_test, group = entry.log_odds == TEST_SCORE.log_odds, filter.group_of(entry.recipients)
    return Subject(id, id, Reading(entry.digest, tokens), is_test=is_test, group=group)


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


def by_mail(filter: Filter, name: str, mail: bytes, author: str = "") -> Subject:
    """The message in these bytes: as it was judged, if it passed the relay; as it is, if it was learnt as it is.

    A mail may have been learnt in bulk, or before the journal knew it; it must be possible to forget it by the same
    bytes. author: the user who marks it; without its id, no mail of another group is meant by it.
    """
    return _as_judged(filter, mail_at_hand(filter, name, mail), author)


def by_mails(filter: Filter, mails: Sequence[MailAtHand], author: str = "") -> Iterator[Subject]:
    """As `by_mail`, for at most some hundred mails, with one query for those that the journal may know."""
    message_ids = [mail.message.field(b"message-id") for mail in mails]
    known = filter.store.in_journal([mail.reading.digest for mail in mails], [id for id in message_ids if id])
    for mail, message_id in zip(mails, message_ids, strict=True):
        if mail.id or mail.reading.digest in known or message_id in known:
            yield _as_judged(filter, mail, author)
        else:
            yield mail.subject


def _as_judged(filter: Filter, mail: MailAtHand, author: str) -> Subject:
    reading, own = mail.reading, filter.group_of([author.removeprefix(LINK)])
    for entry in _candidates(filter.store, mail):
        if entry.digest == reading.digest or _same(entry, mail):
            if entry.tokens is not None:
                group = group_in(entry.tokens)
            elif entry.digest == reading.digest:
                group = ""
            else:
                group = filter.group_of(entry.recipients)  # that it was judged for
            if own and group and group != own and entry.id != mail.id:
                continue
            of_group = author and group and filter.store.active(entry.digest) is not None
            if entry.digest != reading.digest and not of_group and filter.store.active(reading.digest) is not None:
                return replace(mail.subject, id=entry.id, group=group)
            at_hand = reading.for_group(group) if group else reading
            # Voices that were added after the verdict get their tokens from the mail at hand.
            found = Reading(entry.digest, {**at_hand.tokens, **(entry.tokens or {})})
            # Without its id, it may be the copy of somebody else in another group.
            theirs = filter.group_of(entry.recipients) if entry.id == mail.id or not own else own
            return replace(mail.subject, id=entry.id, reading=found, group=theirs)
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

    A Message-ID is public, so it is not enough: most words of the mail must be there, too. The id is known only to
    those who got the mail.
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
