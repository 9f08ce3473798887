"""Marks: whether what a user says of a message may be learnt, and who may change it.

Where each group has a voice (see `bayes.groups`), a user's mark teaches the voice of the mail's group, or else of the
user's group; everybody's voices learn from the owner of the database, from `train`, and from traps. Which message a
mark means: `mark_lookup`.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from spamfilter.bayes.calibration import is_surprise
from spamfilter.bayes.groups import OWN, digest_in, group_in, teaches_group
from spamfilter.bayes.labels import AUTOMATIC, CANARY, COUNTERPART, NOBODYS, Label
from spamfilter.bayes.voices import groups_of
from spamfilter.config.sections import Feedback
from spamfilter.errors import Refused, ShareUsed, StoreConflict
from spamfilter.learning import counterparts
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.transaction import Change, Reading, Training, mark_of
from spamfilter.mail.folded_addresses import folded
from spamfilter.stores import Entry, JournalEntry, Store
from spamfilter.stores.sender_lists import LINK

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
    def user(self) -> str:
        """The name of a user, who speaks for one group at most; '' for the owner of the database."""
        return "" if self.master else self.name

    @property
    def limited(self) -> bool:
        """Whether the limit of marks a day holds: for people, not for the administrator and not for rules."""
        return not self.master and self.source != AUTOMATIC

    def made(self, active: Entry) -> bool:
        """Whether a learning is this author's own: what the link of a digest has marked is its address's, too."""
        own = author_name(self.name)
        return author_name(active.by) in (own, LINK + own)


def author_name(by: str) -> str:
    """The name of an author: an address in the form in which addresses are compared; any other name as it is.

    >>> author_name("Anna@Example.org"), author_name("Anna")
    ('anna@example.org', 'Anna')
    """
    return folded(by) if "@" in by else by


TRIES = 5
"""Times that a mark is learnt if the database ends its transaction for another one, which has committed by then."""


def mark(filter: Filter, subject: Subject, label: Label | None, author: Author, feedback: Feedback) -> Change:
    """Learn a message as its author says, or with label None forget it.

    Raises Refused if another person has marked it otherwise, or the author's marks of the day are used up; then nothing
    has changed. A rule changes nothing that is learnt but counterparts. What no person has marked belongs to the first
    who marks it, also with the same label; forgetting it counts as a mark, too, since others lose what was learnt.
    With a person's mark of spam, ham is learnt, too: see `counterparts`.
    """
    asked, subject = subject.reading, _as_taught_by(author, subject, filter)
    for _ in range(TRIES - 1):
        with suppress(StoreConflict):
            return _learnt(filter, asked, subject, label, author, feedback)
    return _learnt(filter, asked, subject, label, author, feedback)


def learnings_of(store: Store, reading: Reading) -> list[Entry]:
    """The learnings of a message that count: that of its group, and that of everybody, as `train` learns it."""
    return [*store.learnt({reading.digest, reading.digest_for_all}).values()]


def history_of(store: Store, mail: JournalEntry) -> list[Entry]:
    """All that was ever learnt of a mail, by the groups of its recipients and by everybody, the oldest first."""
    reading = Reading(mail.digest, mail.tokens or {})
    names = {name for to in map(folded, mail.recipients) for name in (to, to.rpartition("@")[2])}
    of_groups = (digest_in(reading.digest, name) for name in names)
    said = store.histories([*{reading.digest, reading.digest_for_all, *of_groups}])
    return sorted((entry for history in said.values() for entry in history), key=lambda entry: entry.id)


def _as_taught_by(author: Author, subject: Subject, filter: Filter) -> Subject:
    """The message as this author teaches it: to everybody, or to a group.

    Raises Refused if groups have voices of their own, and this user's mark belongs to none.
    """
    if author.master or author.rule_for_all or not groups_of(filter.voices):
        reading, trained = subject.reading.for_everybody(), subject.reading.digest_for_all
        if trained != reading.digest and filter.store.active(trained) is not None:
            reading = replace(reading, digest=trained)  # learnt by `train`, which knows no groups
        return replace(subject, reading=reading)
    judged_for = group_in(subject.reading.tokens)
    still_a_group = ("@" in judged_for) == (groups_of(filter.voices) == "mailbox")
    # Else [learn] groups was changed since, and the voice that heard this mail judges nobody.
    if judged_for and (still_a_group or filter.store.active(subject.reading.digest) is not None):
        return subject
    group = subject.group or filter.group_of([author.name.removeprefix(LINK)])
    if not group:
        raise Refused(
            f"{subject.name}: came to no single group ([learn] groups), or the filter has not seen to whom it came;"
            " only the administrator can mark it"
        )
    return replace(subject, reading=subject.reading.for_group(group))


def _learnt(
    filter: Filter, asked: Reading, subject: Subject, label: Label | None, author: Author, feedback: Feedback
) -> Change:
    """One transaction. asked: the message as it was marked; subject has it as its author teaches it."""
    marks_a_day = feedback.marks_a_day
    compared = label == "spam" and feedback.counterparts and author.source not in NOBODYS
    group, window = group_in(subject.reading.tokens), timedelta(days=feedback.window_days)
    candidates = counterparts.candidates(filter, group, window) if compared else ()
    with filter.training() as training:
        if label is not None and OWN in asked.tokens and asked.digest != subject.reading.digest:
            _give_way(training, asked)
        active = training.ledger.active(subject.reading.digest)
        if active is not None and OWN in subject.reading.tokens and not teaches_group(active.added):
            if active.label == label:
                return training.learn(subject.reading.for_everybody(), active.label, active.source)
            raise Refused(
                f"{subject.name}: learnt as {active.label} for everybody; only the administrator can change that"
            )
        if active is not None and author.source == AUTOMATIC and active.source != COUNTERPART:
            return training.learn(subject.reading, active.message_label, active.source)
        agrees = active is not None and active.label == label
        own = active is not None and author.made(active)
        if agrees and active is not None and active.source in NOBODYS and author.source != CANARY:
            if author.limited and not _has_left(filter.store, author, marks_a_day):  # it stays without an author
                return training.learn(subject.reading, active.message_label, active.source)
            if OWN not in subject.reading.tokens and teaches_group(active.added):  # everybody learns it now
                at = datetime.now(UTC)  # one moment for both: `forget` finds by it what a mark has replaced
                training.forget(subject.reading, author.source, author.name, at)
                return training.learn(subject.reading, active.message_label, author.source, author.name, at)
            return training.confirm(active, author.source, author.name)
        if active is not None and not agrees:
            _may_change(active, author, subject.name)
        if author.limited and not agrees and label is not None:
            _check_left(filter.store, author, marks_a_day, MISTAKES if own else 1)
        if author.limited and label is None and active is not None and not own:
            _check_left(filter.store, author, marks_a_day)
            training.confirm(active, author.source, author.name)  # so that it counts
        if label is not None and not agrees and not author.master:
            if OWN in subject.reading.tokens:
                _check_room(training, subject)
            elif label == "spam":
                _check_surprise(filter.store, training, subject, author)
        if label is None:
            return _forgotten(training, subject, active, author)
        at = datetime.now(UTC)
        change = training.learn(subject.reading, label, author.source, author.name, at)
        if change.changed and counterparts.learn(training, filter.store, candidates, subject.reading, at):
            return replace(change, after=training.score(subject.reading))
        return change


def _give_way(training: Training, asked: Reading) -> None:
    """Take back a counterpart of a group, of which somebody says now what it is to everybody."""
    active = training.ledger.active(asked.digest)
    if active is not None and active.source == COUNTERPART:
        training.forget(asked, COUNTERPART, COUNTERPART)


def _forgotten(training: Training, subject: Subject, active: Entry | None, author: Author) -> Change:
    """Take a mark back; what `train`, a rule or a mark of spam had taught of the message before it is learnt again."""
    by_person = active is not None and active.source not in NOBODYS
    earlier = training.replaced_by(active) if active is not None and by_person else ()
    nobodys = (entry for entry in earlier if entry.source in NOBODYS)
    replaced = next(
        (entry for entry in nobodys if entry.source != COUNTERPART or mark_of(training.ledger, entry)), None
    )
    change = training.forget(subject.reading, author.source, author.name)
    if replaced is None:
        return change
    training.restore(replaced)
    return replace(change, again=replaced.message_label, after=training.score(subject.reading))


def _may_change(active: Entry, author: Author, name: str) -> None:
    if not (author.master or author.made(active)) and active.source not in NOBODYS:
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
