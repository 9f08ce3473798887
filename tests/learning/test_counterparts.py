"""With a mark of spam, ham is learnt that was let through."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spamfilter.bayes.counts import Counts
from spamfilter.bayes.groups import OWN
from spamfilter.bayes.labels import AUTOMATIC, BULK, CANARY, COUNTERPART, Label
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import Voice
from spamfilter.config.sections import Feedback
from spamfilter.learning import counterparts, marks
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author, mark
from spamfilter.learning.provenance import provenance
from spamfilter.learning.transaction import Reading
from spamfilter.learning.undoing import taught_by, undo
from spamfilter.stores import Entry, JournalEntry
from spamfilter.system.ids import new_id
from tests.support.made import VOICE, journal_entry, reading
from tests.support.memory_store import MemoryStore

ANN, BOB, ROOT = Author("ann", "imap"), Author("bob", "cli"), Author("root", "cli", master=True)
HAM, SPAM = ("lunch", "minutes", "monday", "agenda"), ("pills", "cheap", "winner", "casino")
MOVED = ("received:newhost", "received:by-newhost", "received:for-newhost")
"""What all mail has since the mail server was changed."""
ON, OFF = Feedback(), Feedback(counterparts=False)


def trained() -> Filter:
    filter = Filter(MemoryStore(), VOICE)
    with filter.training() as training:
        for number in range(60):
            training.learn(reading(f"ham{number}", *HAM, f"word{number}"), "ham", "train")
            training.learn(reading(f"spam{number}", *SPAM, f"word{number}"), "spam", "train")
    return filter


@pytest.fixture
def filter() -> Filter:
    return trained()


def came(filter: Filter, read: Reading, **changes: object) -> JournalEntry:
    """A message that the relay judges now; from a domain of its own if nothing else is said."""
    score, id = filter.score(read), new_id()
    verdict = {
        "log_odds": score.log_odds, "score": score.posterior, "class_": Policy().classify(score, filter.learnt),
        "sender": f"a@{id.lower()}.example",
    }  # fmt: skip
    entry = journal_entry(
        **{"id": id, "at": datetime.now(UTC), "digest": read.digest, "tokens": read.tokens, **verdict, **changes}
    )
    filter.store.write_journal([entry])
    return entry


def came_ham(filter: Filter, number: int = 8, *words: str, **changes: Any) -> list[JournalEntry]:
    return [came(filter, reading(f"let-through{at}", *HAM, *words), **changes) for at in range(number)]


def marked(
    filter: Filter, read: Reading, label: Label | None = "spam", author: Author = ANN, feedback: Feedback = ON
) -> bool:
    return mark(filter, Subject("it", "", read), label, author, feedback).changed


def learnt(filter: Filter) -> Sequence[Entry]:
    """The counterparts that count."""
    return filter.store.learnings(source=COUNTERPART)


def test_a_bounce_is_none(filter: Filter) -> None:
    came(filter, reading("bounce", *HAM), sender="")
    mail = came(filter, reading("mail", *HAM))
    assert [one.id for one in counterparts.candidates(filter, "", timedelta(days=14))] == [mail.id]


SPAM_SEEN = reading("seen", "viagra", "pills")


def with_one(filter: Filter) -> tuple[dict[str, Counts], dict[str, Counts], Reading]:
    """Mark SPAM_SEEN, with one counterpart: the counts before and after, and the counterpart."""
    came_ham(filter, 1)
    before = filter.store.load(["fields"]).counts
    assert marked(filter, SPAM_SEEN)
    (one,) = learnt(filter)
    return before, filter.store.load(["fields"]).counts, Reading(one.digest, one.tokens)


@pytest.mark.parametrize("passed", [0, 1, 3, 30])
def test_mails_that_were_let_through_are_learnt_as_ham(filter: Filter, passed: int) -> None:
    digests = {entry.digest for entry in came_ham(filter, passed)}
    assert marked(filter, SPAM_SEEN)
    found = learnt(filter)
    assert len(found) == {0: 0, 1: 1, 3: 2, 30: 3}[passed]  # not of the quarter that is least sure
    assert {(one.label, one.source) for one in found} <= {("ham", COUNTERPART)}
    assert {one.digest for one in found} <= digests
    assert not marked(filter, SPAM_SEEN)
    assert learnt(filter) == found
    assert filter.verify() == []


def test_what_all_new_mail_has_in_common_is_no_evidence_of_spam() -> None:
    ham_afterwards = {}
    for feedback in (ON, OFF):
        filter = trained()
        for number in range(12):
            came(filter, reading(f"let-through{number}", *HAM, *MOVED))
            marked(filter, reading(f"missed{number}", f"new{number}", *MOVED), feedback=feedback)
        ham_afterwards[feedback.counterparts] = filter.score(reading("next", *HAM[::3], *MOVED)).posterior
    assert ham_afterwards[True] < 0.3 < 0.6 < ham_afterwards[False]


@pytest.mark.parametrize(
    ("label", "author", "feedback"),
    [
        pytest.param("ham", ANN, ON, id="of-ham"),
        pytest.param("spam", Author("trap", AUTOMATIC), ON, id="by-a-rule"),
        pytest.param("spam", Author("doctor", CANARY), ON, id="by-a-probe"),
        pytest.param("spam", ANN, OFF, id="switched-off"),
    ],
)
def test_other_marks_have_none(filter: Filter, label: Label, author: Author, feedback: Feedback) -> None:
    came_ham(filter)
    assert marked(filter, SPAM_SEEN, label, author, feedback)
    assert not learnt(filter)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"class_": "unsure"}, id="unsure"),
        pytest.param({"score": 0.11}, id="not-surely-ham"),
        pytest.param({"action": "reject"}, id="of-a-blocked-sender"),
        pytest.param({"tokens": None}, id="without-its-words"),
        pytest.param({"at": datetime.now(UTC) - timedelta(days=15)}, id="too-old"),
        pytest.param({"digest": SPAM_SEEN.digest}, id="the-mail-itself"),
        pytest.param({"digest": reading("ham1").digest}, id="learnt"),
    ],
)
def test_a_mail_that_is_not_surely_ham_is_none(filter: Filter, changes: dict[str, Any]) -> None:
    came_ham(filter, **changes)
    assert marked(filter, SPAM_SEEN)
    assert not learnt(filter)


def test_each_mark_of_many_in_one_go_has_its_own(filter: Filter) -> None:
    came_ham(filter, 60)
    for number in range(10):
        assert marked(filter, reading(f"seen{number}", "viagra", f"pills{number}"))
    assert len(learnt(filter)) == 30
    for number in range(10):
        assert marked(filter, reading(f"seen{number}"), None)
    assert not learnt(filter)
    assert marked(filter, SPAM_SEEN)
    assert len(learnt(filter)) == 3


def test_a_day_has_so_many(filter: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterparts, "A_DAY", 5)
    came_ham(filter, 60)
    for number in range(4):
        assert marked(filter, reading(f"seen{number}", "viagra", f"pills{number}"))
    assert len(learnt(filter)) == 6


def test_what_somebody_has_taken_back_is_none(filter: Filter) -> None:
    (one,) = came_ham(filter, 1)
    filter.learn(Reading(one.digest, one.tokens or {}), "spam", "imap", "bob")
    filter.forget(Reading(one.digest, one.tokens or {}), "imap", "bob")
    assert marked(filter, SPAM_SEEN)
    assert not learnt(filter)


def test_a_copy_of_the_marked_spam_that_had_passed_is_none(filter: Filter) -> None:
    words = (*HAM[:2], "offer", "bargain", "shares")
    for number in range(8):
        assert came(filter, reading(f"copy{number}", *words)).class_ == "ham"
    for number in range(3):  # until the spam is known
        marked(filter, reading(f"other{number}", *words), author=ROOT)
    assert filter.score(reading("copy0", *words)).posterior > 0.1
    before = len(learnt(filter))
    marked(filter, reading("last", *words), author=ROOT)
    assert len(learnt(filter)) == before


def test_one_domain_has_two_a_day(filter: Filter) -> None:
    came_ham(filter, sender="news@Lists.example")
    for number in range(4):
        assert marked(filter, reading(f"seen{number}", "viagra", f"pills{number}"))
    assert len(learnt(filter)) == 2


def test_those_of_a_clock_that_was_ahead_are_not_of_today(filter: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # always UTC here
            return datetime.now(UTC) + timedelta(days=400)

    came_ham(filter, sender="news@lists.example")
    with monkeypatch.context() as clock:
        clock.setattr(marks, "datetime", Ahead)
        assert marked(filter, reading("ahead", "viagra"))
    before = len(learnt(filter))
    assert marked(filter, reading("today", "viagra", "pills"))
    assert (before, len(learnt(filter))) == (2, 4)


def test_a_sender_of_much_mail_leaves_room_for_others(filter: Filter) -> None:
    came_ham(filter, 60)
    for number in range(counterparts.LATEST + 10):
        came(filter, reading(f"cron{number}", *HAM), sender="cron@busy.example")
    for number in range(10):
        assert marked(filter, reading(f"seen{number}", "viagra", f"pills{number}"))
    assert len(learnt(filter)) > 20


@pytest.mark.parametrize("label", ["ham", None])
def test_they_are_taken_back_with_their_mark(filter: Filter, label: Label | None) -> None:
    came_ham(filter)
    without = Filter(MemoryStore(), VOICE)
    for entry in filter.store.entries_after(0):
        without.learn(Reading(entry.digest, entry.tokens), entry.message_label, entry.source)
    assert marked(filter, SPAM_SEEN)
    assert learnt(filter)
    for each in (filter, without):
        assert marked(each, SPAM_SEEN, label) or label is None
    assert not learnt(filter)
    assert filter.store.load(["fields"]).counts == without.store.load(["fields"]).counts
    assert filter.verify() == []


def test_all_that_an_author_taught_is_undone_with_its_counterparts(filter: Filter) -> None:
    came_ham(filter)
    before = filter.store.load(["fields"]).counts
    for number in range(3):
        assert marked(filter, reading(f"seen{number}", "viagra", f"pills{number}"))
    assert len(learnt(filter)) > 3
    undo(filter, taught_by(filter.store, "ann", None), "cli", "root", lambda ids: None)
    assert not learnt(filter)
    assert filter.store.load(["fields"]).counts == before


def test_what_an_author_has_taken_back_does_not_come_again(filter: Filter) -> None:
    came_ham(filter)
    before = filter.store.load(["fields"]).counts
    seen = [reading(f"seen{number}", "viagra", f"pills{number}") for number in range(3)]
    assert all(marked(filter, one, label) for label in ("spam", None) for one in seen)
    for author in ("ann", COUNTERPART):
        undo(filter, taught_by(filter.store, author, None), "cli", "root", lambda ids: None)
        assert not taught_by(filter.store, author, None)
    assert filter.store.load(["fields"]).counts == before


@pytest.mark.parametrize("label", ["ham", "spam"])
def test_a_persons_mark_of_a_counterpart_is_taken_back_to_nothing(filter: Filter, label: Label) -> None:
    before, _, one = with_one(filter)
    assert marked(filter, one, label, BOB, OFF)
    assert marked(filter, SPAM_SEEN, None)
    assert marked(filter, one, None, BOB)
    assert filter.store.load(["fields"]).counts == before


@pytest.mark.parametrize("label", ["ham", "spam"])
def test_a_mark_of_a_counterpart_that_is_taken_back_leaves_it_one(filter: Filter, label: Label) -> None:
    """While the mark that it was learnt with still counts; and with that it goes."""
    before, with_it, mine = with_one(filter)
    assert marked(filter, mine, label, BOB, OFF)
    assert not learnt(filter)
    assert mark(filter, Subject("it", "", mine), None, BOB, ON).again == "ham"
    assert [entry.digest for entry in learnt(filter)] == [mine.digest]
    assert filter.store.load(["fields"]).counts == with_it
    assert marked(filter, SPAM_SEEN, None)
    assert filter.store.load(["fields"]).counts == before
    assert filter.verify() == []


@pytest.mark.parametrize("author", ["bob", "ann"])
def test_what_is_forgotten_of_an_author_leaves_the_counterparts_of_others(filter: Filter, author: str) -> None:
    before, with_it, one = with_one(filter)
    assert marked(filter, one, "spam", Author(author, "imap"), OFF)
    undo(filter, taught_by(filter.store, author, None), "cli", "root", lambda ids: None)
    assert filter.store.load(["fields"]).counts == (with_it if author == "bob" else before)
    assert filter.verify() == []


def test_a_person_may_be_called_counterpart(filter: Filter) -> None:
    namesake = Author(COUNTERPART, "web")
    came_ham(filter)
    before = filter.store.load(["fields"]).counts
    assert marked(filter, SPAM_SEEN, author=namesake)
    assert len(filter.store.learnings(source=COUNTERPART)) == 3
    assert marked(filter, SPAM_SEEN, None, namesake)
    assert filter.store.load(["fields"]).counts == before
    assert marked(filter, SPAM_SEEN, author=namesake)
    undo(filter, taught_by(filter.store, COUNTERPART, None), "cli", "root", lambda done: None)
    assert COUNTERPART not in {entry.by for entry in filter.store.learnings()}
    assert filter.verify() == []


def test_counterparts_that_the_administrator_forgets_stay_nobodys(filter: Filter) -> None:
    came_ham(filter)
    assert marked(filter, SPAM_SEEN)
    digests = [entry.digest for entry in learnt(filter)]
    undo(filter, taught_by(filter.store, COUNTERPART, None), "cli", "root", lambda done: None)
    assert not learnt(filter)
    for history in filter.store.histories(digests).values():
        assert [entry.by for entry in history] == [COUNTERPART, COUNTERPART]


@pytest.mark.parametrize("label", ["ham", None])
def test_what_another_mark_would_make_of_it_is_told_without_its_counterparts(
    filter: Filter, label: Label | None
) -> None:
    came_ham(filter, 8, *SPAM[:1])
    read = reading("seen", *SPAM[:1], *HAM[:1], "viagra")
    assert marked(filter, read)
    assert learnt(filter)
    score, evidence = filter.explained(read)
    because = provenance(filter, Policy(), read, score, evidence)
    itself = next(each.outcome for each in because.forgotten if each.itself)
    told = because.marked["ham"] if label else itself
    marked(filter, read, label)
    assert told.posterior == filter.score(read).posterior


def test_who_teaches_a_counterpart_has_it(filter: Filter) -> None:
    came_ham(filter)
    assert marked(filter, SPAM_SEEN)
    ours, answered, trained = learnt(filter)
    assert marked(filter, Reading(ours.digest, ours.tokens), "ham", BOB)
    assert marked(filter, Reading(answered.digest, answered.tokens), "ham", Author("answered", AUTOMATIC))
    filter.learn(Reading(trained.digest, trained.tokens), "ham", BULK, "root")
    assert marked(filter, SPAM_SEEN, None)
    found = {entry.digest: (entry.label, entry.source) for entry in filter.store.learnings()}
    expected = {ours.digest: "cli", answered.digest: AUTOMATIC, trained.digest: BULK}
    assert found.items() >= {digest: ("ham", source) for digest, source in expected.items()}.items()
    assert filter.verify() == []


def test_a_person_who_marks_a_counterpart_is_believed(filter: Filter) -> None:
    came_ham(filter, 1)
    assert marked(filter, SPAM_SEEN)
    (one,) = learnt(filter)
    assert marked(filter, Reading(one.digest, one.tokens), "spam", BOB, OFF)
    assert not learnt(filter)
    assert marked(filter, SPAM_SEEN, None)
    assert [entry.by for entry in filter.store.learnings() if entry.digest == one.digest] == ["bob"]
    assert filter.verify() == []


def test_what_is_marked_already_and_copies_leave_room_for_the_others_of_a_domain(filter: Filter) -> None:
    came_ham(filter, 20, sender="a@lists.example")
    for number in range(4):
        read = reading(f"marked{number}", *HAM)
        came(filter, read, sender="a@lists.example")
        marked(filter, read, "ham")
    for _ in range(4):
        came(filter, reading("copy", *HAM), sender="a@lists.example")
    assert marked(filter, SPAM_SEEN)
    assert len(learnt(filter)) == 2


def test_an_author_at_the_limit_changes_nothing_of_a_counterpart(filter: Filter) -> None:
    came_ham(filter)
    limited = Feedback(marks_a_day=1)
    assert marked(filter, SPAM_SEEN, feedback=limited)
    before = filter.store.entries_after(0)
    one = learnt(filter)[0]
    assert not marked(filter, Reading(one.digest, one.tokens), "ham", feedback=limited)
    assert filter.store.entries_after(0) == before
    assert marked(filter, SPAM_SEEN, None)
    assert not learnt(filter)


def trained_with_groups() -> Filter:
    filter = Filter(MemoryStore(), (*VOICE, Voice(OWN, Soft(), groups="domain")))
    with filter.training() as training:
        for number in range(60):
            training.learn(reading(f"ham{number}", *HAM), "ham", "train")
            training.learn(reading(f"spam{number}", *SPAM), "spam", "train")
    return filter


def came_for(filter: Filter, group: str, number: int) -> None:
    for at in range(number):
        came(filter, reading(f"{group[:3]}{at}", *HAM).for_group(group), recipients=[f"ann@{group}"])


def test_the_mail_of_other_groups_takes_no_room_from_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterparts, "A_DAY", 3)
    filter = trained_with_groups()
    came_for(filter, "quiet.example", 20)
    came_for(filter, "busy.example", counterparts.LATEST + 10)
    for number, group in enumerate(("busy.example", "quiet.example")):
        mark(filter, Subject("it", "", SPAM_SEEN.copy(number), group=group), "spam", ANN, ON)
        assert len(learnt(filter)) == 3 * (number + 1)


def test_a_group_whose_name_is_not_written_so_has_them() -> None:
    filter, group = trained_with_groups(), "xn--mller-kva.example"
    for at in range(20):
        written = "ann@m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller.example"
        came(filter, reading(f"one{at}", *HAM).for_group(group), recipients=[written])
    mark(filter, Subject("it", "", SPAM_SEEN, group=group), "spam", ANN, ON)
    assert len(learnt(filter)) == 3


def test_what_a_rule_taught_a_group_is_learnt_again_after_the_administrators_mark() -> None:
    filter = trained_with_groups()
    subject = Subject("it", "", reading("asked", *HAM).for_group("one.example"), group="one.example")
    mark(filter, subject, "ham", Author("answered", AUTOMATIC), ON)
    before = filter.learnt["ham"]
    mark(filter, subject, "ham", ROOT, ON)
    assert filter.learnt["ham"] == before + 1
    assert mark(filter, subject, None, ROOT, ON).again == "ham"
    assert filter.learnt["ham"] == before
    (one,) = [entry for entry in filter.store.learnings() if entry.digest == subject.reading.digest]
    assert (one.source, one.by) == (AUTOMATIC, "answered")
    assert filter.verify() == []


def test_the_administrators_mark_of_one_of_a_group_teaches_everybody() -> None:
    filter = trained_with_groups()
    came_for(filter, "one.example", 20)
    mark(filter, Subject("it", "", SPAM_SEEN, group="one.example"), "spam", ANN, ON)
    one, before = learnt(filter)[0], filter.learnt["ham"]
    assert mark(filter, Subject("one", "", Reading(one.digest, one.tokens)), "ham", ROOT, ON).changed
    mark(filter, Subject("it", "", SPAM_SEEN, group="one.example"), None, ANN, ON)
    assert filter.learnt["ham"] == before + 1
    assert filter.verify() == []


def test_they_are_learnt_by_the_group_of_the_mark_or_not_at_all() -> None:
    filter = trained_with_groups()
    for group in ("one.example", "other.example"):
        came_for(filter, group, 20)
    for number in range(2):
        mark(filter, Subject("it", "", SPAM_SEEN.copy(number), group="one.example"), "spam", ANN, ON)
    found = {entry.digest for entry in learnt(filter)}
    assert len(found) == 6
    assert found <= {reading(f"one{number}").for_group("one.example").digest for number in range(20)}
    mark(filter, Subject("it", "", SPAM_SEEN.copy(4)), "spam", ROOT, ON)  # for everybody, whose mail is of groups
    assert {entry.digest for entry in learnt(filter)} == found
