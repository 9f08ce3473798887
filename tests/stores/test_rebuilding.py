"""All counts written beside those that judge, which they replace in one step; on every store, and noticed by others."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.model import State
from spamfilter.bayes.voices import Voice
from spamfilter.errors import StoreBusy, StoreDamaged, StoreFull
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.learning.transaction import Reading
from spamfilter.stores import Entry, Learning, Relearnt, Rewriting, Store, open_store
from spamfilter.stores.sql import editions
from spamfilter.system import batches
from tests.faults.databases import small_disk
from tests.support.made import NOON
from tests.support.memory_store import KINDS, stored

Opened = Callable[[], Store]
GREEN = "grün".encode()
STEP = (5, -3, 2, 1)
NONE = (0, 0, 0, 0)
NAMES = ("fields", "body", "old")
OLD = (Voice("old", Soft()),)


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    with stored(request.param) as again:
        yield again


def learnt(store: Store) -> list[Entry]:
    """The entries of a ledger of three learnings, of which the second is undone."""
    filter = Filter(store, OLD)
    for name, label in (("first", "spam"), ("second", "ham"), ("third", "ham")):
        filter.learn(Reading(name.encode().ljust(16), {"old": {b"a": 1, name.encode(): 2}}), label, "cli", "ann")  # type: ignore[arg-type]  # labels are literals
    filter.forget(Reading(b"second".ljust(16), {}), "address", "bob")
    return store.entries_after(0)


def counted(tallied: bool, words: dict[Label, dict[bytes, int]], **messages: int) -> Counts:
    counts = Counts()
    if tallied:
        counts.tally()
    for label, deltas in words.items():
        counts.add(label, deltas, messages[label])
    return counts


def anew() -> tuple[State, list[Relearnt]]:
    """Counts that do not follow from the ledger, so that a test can tell them from others."""
    fields = counted(True, {"ham": {b"a": 3, b"b": 1, GREEN: 1}, "spam": {b"a": 7}}, ham=2, spam=4)
    body = counted(False, {"ham": {b"c": 5}, "spam": {b"d": 1, b"c": 2}}, ham=1, spam=1)
    state = State({"fields": fields, "body": body}, {"ham": 1, "spam": 1}, Calibration(3, -4, 5, 2**60), 4)
    tokens = {"old": {b"a": 1, b"third": 2}, "fields": {b"a": 1, GREEN: 2}, "body": {}}
    return state, [Relearnt(1, {"fields": 7, "body": 1}, STEP, None), Relearnt(3, {"fields": 1}, (0, 1, 0, 0), tokens)]


def all_of(state: State, lessons: Iterable[Relearnt]) -> Rewriting:
    words = {name: {**counts.words["ham"], **counts.words["spam"]} for name, counts in state.counts.items()}
    return Rewriting(words, lessons)


NO_REST = Rewriting({}, [])


def rebuild(store: Store) -> tuple[State, list[Relearnt]]:
    state, lessons = anew()
    edition = store.new_edition()
    store.write_beside(edition, state, all_of(state, lessons))
    with store.learning() as learning:
        learning.rebuild(edition, state, NO_REST)
        learning.put_setting("name", "new")
    store.sweep_editions()
    return state, lessons


def rebuild_as(store: Store, state: State) -> None:
    edition = store.new_edition()
    store.write_beside(edition, state, all_of(state, []))
    with store.learning() as learning:
        learning.rebuild(edition, state, NO_REST)
    store.sweep_editions()


def shown(store: Store) -> tuple[State, list[object], list[Entry], list[Entry], object]:
    """All that the store holds of what was learnt; with the tallies, which equality of counts may ignore."""
    state = store.load(NAMES)
    tallies: list[object] = [state.counts[name].tallies for name in NAMES]
    return state, tallies, store.entries_after(0), store.learnings(), store.get_setting("name")


def test_the_counts_and_the_calibration_are_those_given_and_no_others(opened: Opened) -> None:
    store = opened()
    learnt(store)
    state, _ = rebuild(store)
    for view in (store, opened()):
        kept = view.load(NAMES)
        assert kept.counts == {**state.counts, "old": Counts()}
        assert kept.counts["fields"].tallies == {"ham": {3: 1, 1: 2}, "spam": {7: 1}}
        assert not any((kept.counts["body"].tallies or {}).values())
        assert (kept.learnt, kept.calibration, kept.last) == ({"ham": 1, "spam": 1}, state.calibration, 4)
        assert view.get_setting("name") == "new"


def test_words_of_one_message_come_with_the_totals_given(opened: Opened) -> None:
    store = opened()
    learnt(store)
    state, _ = rebuild(store)
    part = opened().state({"fields": {GREEN, b"unknown"}, "body": {b"c"}, "old": {b"a"}})
    assert part.counts["fields"].words == {"ham": {GREEN: 1}, "spam": {}}
    assert part.counts["body"].words == {"ham": {b"c": 5}, "spam": {b"c": 2}}
    assert part.counts["old"].words == {"ham": {}, "spam": {}}
    for voice in ("fields", "body"):
        for name in ("messages", "occurrences", "vocabulary"):
            assert getattr(part.counts[voice], name) == getattr(state.counts[voice], name)
    assert part.counts["fields"].tallies == state.counts["fields"].tallies
    assert part.calibration == state.calibration


def test_the_ledger_says_what_each_entry_adds_now_and_nothing_else_of_it_changes(opened: Opened) -> None:
    store = opened()
    before = learnt(store)
    _, (first, third) = rebuild(store)
    after = opened().entries_after(0)
    for old, new in zip(before, after, strict=True):
        for name in ("id", "at", "digest", "label", "source", "by", "undoes"):
            assert getattr(new, name) == getattr(old, name)
    assert [(entry.added, entry.calibrated) for entry in after] == [
        (first.added, first.calibrated), ({}, NONE), (third.added, third.calibrated), ({}, NONE),
    ]  # fmt: skip
    assert [entry.tokens for entry in after] == [
        before[0].tokens, before[1].tokens, third.tokens, before[3].tokens,
    ]  # fmt: skip
    assert [(entry.id, entry.added) for entry in opened().learnings()] == [(1, first.added), (3, third.added)]
    with store.learning() as learning:
        assert [learning.active(entry.digest) for entry in before] == [after[0], None, after[2], None]


def test_learning_goes_on_from_what_was_rebuilt(opened: Opened) -> None:
    store = opened()
    learnt(store)
    state, _ = rebuild(store)
    new = Entry("spam", {"fields": 2}, STEP, {}, NOON, b"new".ljust(16), "cli", "")
    counts = state.counts["fields"]
    growth = counts.add("spam", {b"new": 2, b"a": 2})
    with store.learning() as learning:
        learning.append(new)
        learning.change("fields", "spam", {b"new": 2, b"a": 2}, 1, growth)
    kept = opened().load(["fields"]).counts["fields"]
    assert (kept, kept.tallies) == (counts, {"ham": {3: 1, 1: 2}, "spam": {9: 1, 2: 1}})


def test_what_was_changed_before_in_the_same_transaction_is_replaced_too(opened: Opened) -> None:
    store = opened()
    learnt(store)
    state, lessons = anew()
    edition = store.new_edition()
    with store.learning() as learning:
        learning.change("fields", "spam", {b"a": 8, b"gone": 8}, 1, Growth(2, {8: 2}))
        learning.calibrate(Calibration().plus(STEP))
        learning.rebuild(edition, state, all_of(state, lessons))
    kept = opened().load(["fields"])
    assert (kept.counts["fields"], kept.counts["fields"].tallies) == (
        state.counts["fields"], state.counts["fields"].tallies,
    )  # fmt: skip
    assert kept.calibration == state.calibration


def test_the_state_that_was_given_is_not_the_stores_own(opened: Opened) -> None:
    store = opened()
    learnt(store)
    state, _ = rebuild(store)
    before = shown(store)
    state.counts["fields"].add("ham", {b"a": 100})
    assert shown(store) == before


def test_more_words_than_one_statement_takes_are_all_written(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editions, "BATCH", 7)
    store = opened()
    counts = counted(True, {"ham": {b"w%d" % number: 1 + number for number in range(50)}}, ham=1)
    rebuild_as(store, State({"fields": counts}, {"ham": 0, "spam": 0}, Calibration(), 0))
    rebuild_as(store, State({"fields": counts}, {"ham": 0, "spam": 0}, Calibration(), 0))  # and swept in as many steps
    kept = opened().load(["fields"]).counts["fields"]
    assert kept == counts
    assert kept.tallies == counts.tallies
    assert len(kept.kept.all_of("ham")) == 50


def test_an_empty_store_is_rebuilt_to_an_empty_one(opened: Opened) -> None:
    store = opened()
    rebuild_as(store, State({"fields": Counts()}, {"ham": 0, "spam": 0}, Calibration(), 0))
    assert store.load(["fields"]).counts["fields"] == Counts()
    assert opened().verify() == []


# What is written beside, while others learn


def test_counts_that_are_written_beside_judge_nobody(opened: Opened) -> None:
    store = opened()
    learnt(store)
    before = shown(store)
    state, (first, third) = anew()
    edition = store.new_edition()
    store.write_beside(edition, state, all_of(state, [first, replace(third, tokens=None)]))
    assert shown(store) == shown(opened()) == before
    Filter(store, OLD).learn(Reading(b"more".ljust(16), {"old": {b"a": 1}}), "ham", "cli")
    assert Filter(opened(), OLD).verify() == []


def test_what_changes_after_it_was_written_is_written_with_the_last_step(opened: Opened) -> None:
    """A word that counts more, one that counts nothing any more, an entry that is undone, and one that is new."""
    store = opened()
    learnt(store)
    state, (first, third) = anew()
    edition = store.new_edition()
    store.write_beside(edition, state, all_of(state, [first, third]))
    with store.learning() as learning:
        new = learning.append(Entry("spam", {}, NONE, {}, NOON, b"new".ljust(16), "cli", ""))
    state.counts["fields"].add("spam", {b"a": 2, b"new": 1}, 1)
    state.counts["fields"].subtract("ham", {b"b": 1}, 1)
    changed = {"fields": {b"a", b"b", b"new"}}
    with store.learning() as learning:
        learning.rebuild(edition, state, Rewriting(changed, [Relearnt(new.id, {"fields": 2}, STEP, None)], [first.id]))
    kept = opened().load(NAMES)
    assert kept.counts == {**state.counts, "old": Counts()}
    assert kept.counts["fields"].tallies == state.counts["fields"].tallies
    assert [(entry.id, entry.added) for entry in opened().entries_after(0)] == [
        (1, {}), (2, {}), (3, third.added), (4, {}), (5, {"fields": 2}),
    ]  # fmt: skip


def test_a_retraining_without_room_on_the_disk_leaves_it_to_those_who_mark(tmp_path: Path) -> None:
    words = {b"word%d" % number: 1 for number in range(60_000)}
    with small_disk(tmp_path / "disk", 40) as disk, closing(open_store(f"sqlite:///{disk}/spamfilter.db")) as store:
        filter = Filter(store, OLD)
        filter.learn(Reading(b"first".ljust(16), {"old": words}), "spam", "cli")
        (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free - editions.ROOM - 1_000_000))
        for _ in range(2):  # what the first one has written is not in the way of the second
            with pytest.raises(
                StoreFull, match=r"spamfilter\.db: only 1\d\.\d MB are left on its disk, which marks and"
            ):
                retrain(store, OLD, {}, lambda told: None)
            assert shutil.disk_usage(disk).free > editions.ROOM / 2
        more = {b"more%d" % number: 1 for number in range(15_000)}
        filter.learn(Reading(b"second".ljust(16), {"old": more}), "ham", "cli")
        assert filter.verify() == []
        (disk / "other").unlink()
        retrain(store, OLD, {}, lambda told: None)
        assert Filter(store, OLD).verify() == []


def test_a_retraining_that_is_broken_off_by_hand_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ctrl_c(seconds: float) -> None:
        if len(of_editions()) > 1:
            monkeypatch.undo()
            raise KeyboardInterrupt

    def of_editions() -> list[tuple[int, int]]:
        return database.execute("SELECT edition, count(*) FROM words GROUP BY edition").fetchall()

    path = tmp_path / "store.db"
    with closing(open_store(f"sqlite:///{path}")) as store, closing(sqlite3.connect(path)) as database:
        filter = Filter(store, OLD)
        filter.learn(Reading(b"first".ljust(16), {"old": {b"a": 1, b"b": 1, b"c": 1}}), "spam", "cli")
        monkeypatch.setattr(editions, "BATCH", 1)
        monkeypatch.setattr(batches, "sleep", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            retrain(store, OLD, {}, lambda told: None)
        assert of_editions() == [(0, 3)]
        assert filter.verify() == []


@pytest.mark.parametrize("late", [False, True], ids=["beside", "at the last step"])
def test_a_rebuilding_gives_way_to_one_that_began_later(opened: Opened, late: bool) -> None:
    store, other = opened(), opened()
    learnt(store)
    state, lessons = anew()
    edition = store.new_edition()
    store.write_beside(edition, state, all_of(state, lessons))
    newer = other.new_edition()
    assert newer > edition

    def go_on() -> None:
        if late:
            with store.learning() as learning:
                learning.rebuild(edition, state, NO_REST)
        else:
            store.write_beside(edition, state, all_of(state, lessons))

    with pytest.raises(StoreBusy, match="has begun to rebuild the counts since"):
        go_on()
    other.write_beside(newer, state, all_of(state, lessons))
    with other.learning() as learning:
        learning.rebuild(newer, state, NO_REST)
    assert opened().load(NAMES).counts == {**state.counts, "old": Counts()}


def test_nothing_is_left_of_editions_that_do_not_judge(tmp_path: Path) -> None:
    with stored("sqlite", tmp_path) as opened:
        store = opened()
        learnt(store)
        state, lessons = anew()
        store.write_beside(store.new_edition(), state, all_of(state, lessons))  # and breaks off
        rebuild(store)
        with closing(sqlite3.connect(tmp_path / "store.db")) as database:
            for table in ("words", "classes", "vocabularies", "tallies", "amounts"):
                assert len(database.execute(f"SELECT DISTINCT edition FROM {table}").fetchall()) == 1, table


def test_a_changed_bit_in_the_key_of_a_word_does_not_keep_a_rebuilding_from_ending(tmp_path: Path) -> None:
    """The row then says that it is of edition 1, and stands where those of edition 0 are: no search finds it."""
    path = tmp_path / "store.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        learnt(store)
    kept, changed = re.subn(rb"\x08(\x13\x0f..olda)", b"\x09\\1", path.read_bytes())  # types: of 0, of 1
    assert changed
    path.write_bytes(kept)
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.new_edition()  # number 1
        with pytest.raises(StoreDamaged, match=r"store\.db: rows of words are not found by their key; move it away"):
            store.new_edition()


# All or nothing


def _after_it(learning: Learning, edition: int, error: type[BaseException]) -> None:
    state, lessons = anew()
    learning.rebuild(edition, state, all_of(state, lessons))
    learning.put_setting("name", "new")
    raise error


def _among_its_lessons(learning: Learning, edition: int, error: type[BaseException]) -> None:
    state, lessons = anew()

    def broken() -> Iterator[Relearnt]:
        yield lessons[0]
        raise error

    learning.rebuild(edition, state, all_of(state, broken()))


def _after_a_later_change(learning: Learning, edition: int, error: type[BaseException]) -> None:
    state, lessons = anew()
    learning.rebuild(edition, state, all_of(state, lessons))
    learning.change("fields", "ham", {b"more": 1}, 1, Growth(1, {1: 1}))
    learning.calibrate(Calibration())
    raise error


Breaks = Callable[[Learning, int, type[BaseException]], None]


def _broken(store: Store, breaks: Breaks, error: type[BaseException]) -> None:
    edition = store.new_edition()
    with store.learning() as learning:
        breaks(learning, edition, error)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("breaks", [_after_it, _among_its_lessons, _after_a_later_change])
def test_a_rebuilding_that_breaks_off_leaves_everything(
    opened: Opened, breaks: Breaks, error: type[BaseException]
) -> None:
    store = opened()
    learnt(store)
    store.put_setting("name", "old")
    before = shown(store)
    with pytest.raises(error):
        _broken(store, breaks, error)
    assert shown(store) == before
    assert shown(opened()) == before
    Filter(store, OLD).learn(Reading(b"more".ljust(16), {"old": {b"a": 1}}), "ham", "cli")
    assert Filter(opened(), OLD).verify() == []


# Noticed by other processes


def by_entries(store: Store) -> None:
    store.entries_after(0)


def by_learning(store: Store) -> None:
    with store.learning():
        pass


LOOKS = [by_entries, by_learning]
Look = Callable[[Store], None]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("first", LOOKS)
def test_others_notice_at_their_next_look_at_the_ledger_and_once(opened: Opened, first: Look, look: Look) -> None:
    here, there = opened(), opened()
    learnt(here)
    first(there)
    before = there.generation
    rebuild(here)
    look(there)
    assert there.generation > before
    noticed = there.generation
    look(there)
    here.put_setting("x", 1)
    first(there)
    assert there.generation == noticed
    rebuild(here)
    look(there)
    assert there.generation > noticed


@pytest.mark.parametrize("look", LOOKS)
def test_a_process_that_has_only_loaded_the_counts_notices_at_its_first_look(opened: Opened, look: Look) -> None:
    here, there = opened(), opened()
    learnt(here)
    there.load(NAMES)
    before = there.generation
    rebuild(here)
    look(there)
    assert there.generation > before


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_rebuilds_sees_it_as_others_do(opened: Opened, look: Look) -> None:
    store = opened()
    learnt(store)
    look(store)
    before = store.generation
    rebuild(store)
    look(store)
    assert store.generation > before


def test_learning_is_no_reason_to_load_all_anew_nor_is_a_rebuilding_that_breaks_off(opened: Opened) -> None:
    here, there = opened(), opened()
    by_entries(there)
    before = there.generation
    learnt(here)
    with pytest.raises(RuntimeError):
        _broken(here, _among_its_lessons, RuntimeError)
    by_entries(there)
    by_learning(there)
    assert there.generation == before
