"""Which author may change what is learnt."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.labels import AUTOMATIC, BULK, CANARY, LABELS, NOBODYS, Label
from spamfilter.config.sections import Feedback
from spamfilter.errors import Refused
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import Subject
from spamfilter.learning.marks import Author, mark
from spamfilter.stores import Entry
from tests.support.made import VOICE, reading, some
from tests.support.memory_store import MemoryStore

ANN, BOB = Author("ann", "cli"), Author("bob", "imap")
ROOT = Author("root", "cli", master=True)
TRAP = Author("trap", AUTOMATIC)
AUTHORS = (ANN, Author("ann", "address"), BOB, ROOT, TRAP)
SUBJECTS = [Subject(name, "", reading(name, name, "common")) for name in ("one", "two", "three")]
ONE = SUBJECTS[0]


@pytest.fixture
def filter() -> Filter:
    return Filter(MemoryStore(), VOICE)


def marked(filter: Filter, label: Label | None, author: Author, limit: int = 200, subject: Subject = ONE) -> bool:
    return mark(filter, subject, label, author, Feedback(marks_a_day=limit)).changed


def active(filter: Filter, subject: Subject = ONE) -> Entry | None:
    with filter.training() as training:
        return training.ledger.active(subject.reading.digest)


def entries(filter: Filter) -> list[Entry]:
    return filter.store.entries_after(0)


@pytest.mark.parametrize("label", ["ham", None])
def test_what_a_person_taught_only_they_or_the_master_change(filter: Filter, label: Label | None) -> None:
    assert marked(filter, "spam", ANN)
    with pytest.raises(Refused, match="one: learnt as spam by ann; only they or the administrator can change that"):
        marked(filter, label, BOB)
    assert not marked(filter, label, TRAP)
    assert not marked(filter, "spam", BOB)
    assert len(entries(filter)) == 1
    assert marked(filter, label, ANN)
    assert marked(filter, "spam", ANN)
    assert marked(filter, label, ROOT)


def test_a_mark_of_an_address_is_its_own_however_it_was_written(filter: Filter) -> None:
    assert marked(filter, "spam", Author("Ann@Example.org", "imap"))
    assert marked(filter, "ham", Author("ann@example.org", "imap"))


def test_what_the_link_of_a_digest_taught_its_address_changes(filter: Filter) -> None:
    link, address = Author("digest link: ann@example.org", "web"), Author("ann@example.org", "imap")
    assert marked(filter, "ham", link)
    with pytest.raises(Refused, match="learnt as ham by digest link: ann@"):
        marked(filter, "spam", BOB)
    assert marked(filter, "spam", address)
    with pytest.raises(Refused, match="learnt as spam by ann@"):  # others may have Ann's link
        marked(filter, "ham", link)


@pytest.mark.parametrize("source", NOBODYS)
@pytest.mark.parametrize("label", ["ham", None])
def test_what_no_person_taught_anybody_changes(filter: Filter, source: str, label: Label | None) -> None:
    filter.learn(ONE.reading, "spam", source, "somebody")
    assert marked(filter, label, BOB)
    found = active(filter)
    assert (found and (found.label, found.by, found.source)) == (label and (label, "bob", "imap"))


def test_a_rule_teaches_what_nobody_has_taught_and_no_more(filter: Filter) -> None:
    assert marked(filter, "spam", TRAP)
    assert not marked(filter, "ham", Author("answered", AUTOMATIC))
    assert marked(filter, "ham", ANN)
    assert not marked(filter, "spam", TRAP)
    assert [(entry.label, entry.by, bool(entry.undoes)) for entry in entries(filter)] == [
        ("spam", "trap", False), ("spam", "ann", True), ("ham", "ann", False),
    ]  # fmt: skip


def test_the_limit_counts_what_an_author_did_in_24_hours_by_any_way(filter: Filter) -> None:
    old = datetime.now(UTC) - timedelta(hours=24, minutes=1)
    filter.learn(reading("old"), "spam", "cli", "ann", old)
    filter.learn(reading("new"), "spam", "address", "ann", old + timedelta(minutes=2))
    assert marked(filter, "spam", ANN, 3)
    assert marked(filter, None, ANN, 3)
    assert marked(filter, "spam", ANN, 3)
    assert marked(filter, None, ANN, 3)
    with pytest.raises(Refused, match=r"ann: 3 marks in 24 hours are the limit \(\[feedback\] marks_a_day\)"):
        marked(filter, "spam", ANN, 3)
    assert active(filter) is None
    assert not marked(filter, None, ANN, 3)  # what changes nothing is no mark
    assert marked(filter, "spam", BOB, 3)
    assert marked(filter, "ham", ROOT, 3)


def test_at_the_limit_mistakes_can_still_be_mended_for_a_while(filter: Filter) -> None:
    one, two = SUBJECTS[:2]
    assert marked(filter, "spam", ANN, 2, one)
    assert marked(filter, "spam", ANN, 2, two)
    assert marked(filter, "ham", ANN, 2, one)
    assert marked(filter, "spam", ANN, 2, one)
    with pytest.raises(Refused, match="2 marks in 24 hours"):
        marked(filter, "ham", ANN, 2, one)
    assert marked(filter, None, ANN, 2, one)
    assert marked(filter, None, ANN, 2, two)


@pytest.mark.parametrize("source", [BULK, AUTOMATIC])
def test_a_persons_mark_of_what_nobody_marked_is_theirs_and_changes_no_count(filter: Filter, source: str) -> None:
    filter.learn(ONE.reading, "spam", source, "somebody")
    before = filter.store.load(["fields"])
    assert marked(filter, "spam", ANN)
    after = filter.store.load(["fields"])
    assert (after.counts, after.learnt, after.calibration) == (before.counts, before.learnt, before.calibration)
    with pytest.raises(Refused, match="learnt as spam by ann"):
        marked(filter, "ham", BOB)
    assert filter.verify() == []


@pytest.mark.parametrize("source", [BULK, AUTOMATIC])
@pytest.mark.parametrize("labels", [["ham"], ["spam"], ["ham", "spam"], ["spam", "ham", "spam", "ham"]])
def test_a_mark_that_is_forgotten_leaves_what_nobody_marked_as_it_was(
    filter: Filter, source: str, labels: list[Label]
) -> None:
    filter.learn(reading("two"), "ham", BULK)
    filter.learn(ONE.reading, "spam", source, "somebody")
    before = filter.store.load(["fields"])
    for each in labels:
        assert marked(filter, each, ANN)
    change = mark(filter, ONE, None, ANN, Feedback())
    after = filter.store.load(["fields"])
    assert (change.was, change.again) == (labels[-1], "spam")
    assert change.after == filter.score(ONE.reading)
    assert (after.counts, after.learnt, after.calibration) == (before.counts, before.learnt, before.calibration)
    again = active(filter)
    assert again is not None
    assert (again.label, again.source, again.by) == ("spam", source, "somebody")
    assert marked(filter, None, ANN)  # what nobody marked, anybody may take back
    assert active(filter) is None
    assert marked(filter, "ham", ANN)
    assert mark(filter, ONE, None, ANN, Feedback()).again is None
    assert active(filter) is None


def test_the_same_mark_again_is_never_refused(filter: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_check_surprise", "_check_left", "_check_room"):
        monkeypatch.setattr(f"spamfilter.learning.marks.{name}", None)
    filter.learn(ONE.reading, "spam", "imap", "ann")
    assert not marked(filter, "spam", ANN)
    assert not marked(filter, "spam", BOB)


MARKS = st.lists(
    st.tuples(st.sampled_from(AUTHORS), st.sampled_from((*LABELS, None)), st.sampled_from(SUBJECTS)), max_size=30
)


@pytest.mark.parametrize("whole", [True, False], ids=["in-memory", "from-the-store"])
@given(
    taught=st.lists(st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(LABELS), st.sampled_from((BULK, CANARY)))),
    marks=MARKS,
    limit=st.integers(1, 8),
)
@some(60)
def test_whatever_is_marked_the_rules_hold_and_the_counts_are_the_sum_of_the_ledger(
    whole: bool,
    taught: list[tuple[Subject, Label, str]],
    marks: list[tuple[Author, Label | None, Subject]],
    limit: int,
) -> None:
    filter = Filter(MemoryStore(), VOICE, whole=whole)
    for subject, label, source in taught:
        filter.learn(subject.reading, label, source, "sorted")
    for author, wanted, subject in marks:
        before, number = active(filter, subject), len(entries(filter))
        mine = sum(entry.by == author.name and not entry.undoes for entry in entries(filter))
        own = before is not None and before.by == author.name
        share = 2 * limit if own else limit
        try:
            changed: bool | None = marked(filter, wanted, author, limit, subject)
        except Refused:
            changed = None
        after = active(filter, subject)
        by_person = before is not None and before.source not in NOBODYS
        again = wanted is None and by_person and after is not None and after.source in NOBODYS
        if not changed:
            assert (after, len(entries(filter))) == (before, number)
        else:
            assert again or (after and after.label) == wanted
            assert before is None or before.source in NOBODYS or before.by == author.name or author.master
            assert author.source != AUTOMATIC or before is None
            teaches = wanted is not None and (before is None or before.label != wanted)
            assert mine < share or not teaches or not author.limited
        if author.master or (mine < limit and (before is None or before.source in NOBODYS)):
            assert changed is not None
            assert again or (after and after.label) == wanted or (author.source == AUTOMATIC and before is not None)
    assert filter.verify() == []
    fresh = Filter(filter.store, VOICE)
    for subject in SUBJECTS:
        assert filter.score(subject.reading) == fresh.score(subject.reading)
    assert fresh.loaded().counts == fresh.rebuilt(fresh.last).counts
