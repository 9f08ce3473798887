"""The contract of counts and ledger, tested on every row of STORES and on the store in memory."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import State
from spamfilter.errors import CountError, StoreError
from spamfilter.stores import STORES, Entry, Store, open_store
from spamfilter.stores.sql.database import TOGETHER
from spamfilter.stores.store import ENTRIES
from tests.stores.made import GREEN, STEP, entry, learn, write
from tests.support.made import NOON, journal_entry, spelled
from tests.support.memory_store import KINDS


def test_every_row_of_the_table_is_held_to_this_contract() -> None:
    assert {*KINDS} == {"memory", *STORES}


def counted(*learnt: Entry) -> Counts:
    counts = Counts()
    for one in learnt:
        counts.add(one.label, dict.fromkeys(one.tokens["fields"], 8))
    return counts


def shown(store: Store) -> tuple[State, list[Entry], list[Entry]]:
    """All that the store holds of what was learnt."""
    return store.load(["fields"]), store.entries_after(0), store.learnings()


def test_a_new_store_is_empty(store: Store) -> None:
    empty = State({"fields": Counts()}, {"ham": 0, "spam": 0}, Calibration(), 0)
    assert store.load(["fields"]) == empty
    assert store.state({"fields": {b"a": 1}}) == empty
    assert store.entries_after(0) == []
    assert store.news(0) == ([], 0)
    assert store.learnings() == []
    assert store.find_journal("01") is None
    assert store.get_setting("x") is None
    assert store.verify() == []
    assert store.where


def test_what_was_learnt_can_be_loaded(store: Store) -> None:
    one, two = learn(store, entry(1), vocabulary=3) + learn(store, entry(2, "ham"), vocabulary=1)
    state = store.load(["fields", "other"])
    assert state.counts == {"fields": counted(one, two), "other": Counts()}
    assert (state.learnt, state.last) == ({"ham": 1, "spam": 1}, two.id)
    assert one.id < two.id


def test_the_state_of_some_tokens_has_their_counts_and_the_totals_of_all(store: Store) -> None:
    learn(store, entry(1), vocabulary=3)
    learn(store, entry(2, "ham"), vocabulary=1)
    whole = store.load(["fields"])
    part = store.state({"fields": {GREEN: 9, b"number:2": 1, b"unknown": 1}})
    assert part.counts["fields"].words == {"ham": {GREEN: 8, b"number:2": 8}, "spam": {GREEN: 8}}
    for name in ("messages", "occurrences", "vocabulary"):
        assert getattr(part.counts["fields"], name) == getattr(whole.counts["fields"], name)
    assert (part.learnt, part.calibration, part.last) == (whole.learnt, whole.calibration, whole.last)


def test_the_state_of_some_tokens_has_the_tallies_of_all(store: Store) -> None:
    whole = Counts()
    whole.tally()
    changes: list[tuple[Label, dict[bytes, int], int]] = [
        ("spam", {b"a": 1, b"b": 1, b"c": 3}, 1), ("ham", {b"a": 2}, 1), ("spam", {b"a": 2}, 1),
        ("spam", {b"b": -1, b"c": -3}, -1),
    ]  # fmt: skip
    for number, (label, deltas, messages) in enumerate(changes):
        sizes = {word: abs(delta) for word, delta in deltas.items()}
        growth = whole.add(label, sizes) if messages > 0 else whole.subtract(label, sizes)
        with store.learning() as learning:
            learning.append(entry(number))
            learning.change("fields", label, deltas, messages, growth)
            assert learning.state({"fields": {b"c": 1}}).counts["fields"].tallies == whole.tallies
        assert store.state({"fields": {}}).counts["fields"].tallies == whole.tallies
    assert whole.tallies == {"ham": {2: 1}, "spam": {3: 1}}
    assert store.load(["fields"]).counts["fields"] == whole


def test_more_words_are_looked_up_in_a_transaction(store: Store) -> None:
    """What it has changed itself stays as the caller's state has it."""
    learn(store, entry(1), vocabulary=3)
    with store.learning() as learning:
        state = learning.state({"fields": {GREEN: 1}, "other": {}})
        write(learning, entry(2, "ham"), 0)
        state.counts["fields"].add("ham", {GREEN: 8})
        learning.look_up(state, {"fields": [b"number:1", b"unknown"], "other": [b"a"]})
        assert state.counts["fields"].words == {"ham": {GREEN: 8}, "spam": {GREEN: 8, b"number:1": 8}}
        assert state.counts["other"] == Counts()
    assert store.state({"fields": [GREEN]}).counts["fields"].words == {"ham": {GREEN: 8}, "spam": {GREEN: 8}}


def test_a_message_of_many_tokens_is_looked_up_whole(store: Store) -> None:
    tokens = {b"word%d" % number: 1 for number in range(3 * TOGETHER + 1)}
    with store.learning() as learning:
        learning.append(Entry("ham", {"fields": 8}, STEP, {"fields": tokens}, NOON, b"0" * 16, "cli", ""))
        learning.change("fields", "ham", dict.fromkeys(tokens, 8), 1, Growth(len(tokens)))
    assert store.state({"fields": tokens}).counts["fields"] == store.load(["fields"]).counts["fields"]
    assert store.load(["fields"]).counts["fields"].kept == spelled(ham=dict.fromkeys(tokens, 8))


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(b"a\x00b", id="nul"),
        pytest.param("\N{PILE OF POO}".encode(), id="four-bytes"),
        pytest.param(b"'; DROP TABLE words; --", id="quotes"),
        pytest.param(b"A", id="upper-case-is-another-word"),
        pytest.param(b"a ", id="trailing-space-is-another-word"),
        pytest.param(b"", id="empty"),
        pytest.param(b"7", id="digits-stay-text"),
    ],
)
def test_any_token_keeps_its_bytes(store: Store, token: bytes) -> None:
    tokens = {"fields": {token: 1, b"a": 1}}
    with store.learning() as learning:
        learning.append(Entry("ham", {"fields": 8}, STEP, tokens, NOON, b"0" * 16, "cli", ""))
        learning.change("fields", "ham", {token: 8, b"a": 16}, 1, Growth(2))
    expected = {token: 8, b"a": 16}
    assert store.load(["fields"]).counts["fields"].kept == spelled(ham=expected)
    assert store.state(tokens).counts["fields"].words["ham"] == expected
    assert store.entries_after(0)[0].tokens == tokens


def test_voices_do_not_meet(store: Store) -> None:
    with store.learning() as learning:
        learning.append(entry(1))
        learning.change("fields", "spam", {b"a": 8}, 1, Growth(1))
        learning.change("other", "spam", {b"a": 1}, 1, Growth(1))
    counts = store.load(["fields", "other"]).counts
    assert counts["fields"].kept == spelled(spam={b"a": 8})
    assert counts["other"].kept == spelled(spam={b"a": 1})


def _break_off(store: Store, error: type[BaseException]) -> None:
    with store.learning() as learning:
        write(learning, entry(2), 1)
        learning.calibrate(Calibration().plus(STEP))
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, CountError])
def test_a_learning_that_breaks_off_leaves_nothing(store: Store, error: type[BaseException]) -> None:
    learn(store, entry(1), vocabulary=3)
    before = shown(store)
    with pytest.raises(error):
        _break_off(store, error)
    assert shown(store) == before
    learn(store, entry(3), vocabulary=1)
    assert len(store.learnings()) == 2


def test_a_learning_without_changes_leaves_nothing(store: Store) -> None:
    before = shown(store)
    with store.learning():
        pass
    assert shown(store) == before


def _take_away(store: Store, label: Label, deltas: dict[bytes, int], messages: int) -> None:
    with store.learning() as learning:
        learning.append(entry(2))
        learning.change("fields", "spam", {b"new": 8}, 1, Growth(1))
        learning.change("fields", label, deltas, messages, Growth(0))


@pytest.mark.parametrize(
    ("label", "deltas", "messages"),
    [
        pytest.param("spam", {b"a": -9}, -1, id="more-than-there-is"),
        pytest.param("spam", {b"a": -8, b"unknown": -1}, -1, id="unknown-word"),
        pytest.param("ham", {b"a": -1}, 0, id="other-class"),
        pytest.param("spam", {b"a": -8}, -3, id="too-many-messages"),
        pytest.param("ham", {}, -1, id="no-message-of-this-class"),
    ],
)
def test_taking_away_too_much_changes_nothing(
    store: Store, label: Label, deltas: dict[bytes, int], messages: int
) -> None:
    learn(store, entry(1), vocabulary=3)
    before = shown(store)
    with pytest.raises(CountError):
        _take_away(store, label, deltas, messages)
    assert shown(store) == before


def test_a_learning_sees_what_it_has_written_itself(store: Store) -> None:
    (one,) = learn(store, entry(1), vocabulary=3)
    with store.learning() as learning:
        assert learning.active(one.digest) == one
        assert learning.active(b"never seen......") is None
        assert learning.entries_after(0) == [one]
        two = write(learning, entry(2, "ham"), 1)
        assert learning.active(two.digest) == two
        write(learning, entry(1, undoes=one.id))
        assert learning.active(one.digest) is None
        assert learning.state({"fields": {b"a": 1}}).counts["fields"].words["ham"] == {b"a": 8}
    assert store.learnings() == [replace(two, tokens={})]


def test_what_is_undone_leaves_the_ledger_and_no_counts(store: Store) -> None:
    (one,) = learn(store, entry(1), vocabulary=3)
    (undoing,) = learn(store, entry(1, undoes=one.id), vocabulary=-3)
    state = store.load(["fields"])
    assert (state.counts["fields"], state.learnt, state.last) == (Counts(), {"ham": 0, "spam": 0}, undoing.id)
    assert store.learnings() == []
    assert store.entries_after(0) == [one, undoing]
    assert store.entries_after(one.id) == [undoing]
    assert undoing.undoes == one.id
    assert store.entries_after(one.id)[0].tokens == one.tokens


def test_a_message_may_be_learnt_again_after_it_was_undone(store: Store) -> None:
    (one,) = learn(store, entry(1), vocabulary=3)
    learn(store, entry(1, undoes=one.id), vocabulary=-3)
    (again,) = learn(store, entry(1, "ham"), vocabulary=3)
    assert [found.id for found in store.learnings()] == [again.id]
    with store.learning() as learning:
        assert learning.active(again.digest) == again


def test_the_learnings_of_many_messages_are_found_at_once(store: Store) -> None:
    one, two, three = (*learn(store, entry(1)), *learn(store, entry(2)), *learn(store, entry(3)))
    learn(store, entry(2, undoes=two.id))
    with store.learning() as learning:
        assert learning.learnt([one.digest, two.digest, b"unknown digest.."]) == {one.digest: one}
        assert learning.learnt([three.digest, one.digest]) == {one.digest: one, three.digest: three}
        assert learning.learnt([]) == {}


def test_the_learnings_of_a_moment_are_those_that_count(store: Store) -> None:
    (one,) = learn(store, entry(1))
    with store.learning() as learning:
        two = write(learning, replace(entry(2), at=one.at, by="bob"), 3)
        assert learning.learnt_at(one.at) == [one, two]
        assert learning.learnt_at(one.at + timedelta(microseconds=1)) == []
    learn(store, entry(1, undoes=one.id))
    with store.learning() as learning:
        assert learning.learnt_at(one.at) == [two]
    assert store.learnt_at(one.at) == [two]


def test_to_undo_and_learn_in_one_learning_counts_only_the_second(store: Store) -> None:
    (one,) = learn(store, entry(1), vocabulary=3)
    with store.learning() as learning:
        write(learning, entry(1, undoes=one.id), -3)
        two = write(learning, entry(1, "ham"), 3)
        assert learning.active(two.digest) == two
    assert store.load(["fields"]).counts["fields"] == counted(two)


def test_learnings_are_those_since_a_moment_without_their_tokens(store: Store) -> None:
    old, new = learn(store, entry(1, at=NOON - timedelta(days=2)), entry(2, at=NOON))
    assert [found.id for found in store.learnings()] == [old.id, new.id]
    assert [found.id for found in store.learnings(NOON)] == [new.id]
    assert store.learnings(NOON + timedelta(seconds=1)) == []
    assert store.learnings()[0].tokens == {}
    assert (store.learnings()[0].added, store.learnings()[0].calibrated) == ({"fields": 8}, STEP)


def test_a_long_ledger_is_read_in_pieces(store: Store) -> None:
    with store.learning() as learning:
        for number in range(ENTRIES + 3):
            learning.append(entry(number))
    first = store.entries_after(0)
    assert len(first) == ENTRIES
    rest = store.entries_after(first[-1].id)
    assert [found.digest for found in (*first, *rest)] == [b"%016d" % number for number in range(ENTRIES + 3)]
    assert store.entries_after(rest[-1].id) == []


def test_moments_come_back_in_utc_to_the_microsecond(store: Store) -> None:
    east = datetime(2026, 3, 1, 1, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    learn(store, entry(1, at=east))
    store.write_journal([journal_entry(id="1", at=east)])
    for moment in (store.learnings()[0].at, store.journal(east, east + timedelta(seconds=1))[0].at):
        assert moment == east
    assert store.journal(east - timedelta(hours=2), east) == []


def test_the_calibration_is_kept(store: Store) -> None:
    state = Calibration(slope=2**70, offset=-(2**41), slope_energy=2**65 + 1, offset_energy=3)
    with store.learning() as learning:
        learning.append(entry(1))
        learning.calibrate(state)
    assert store.load([]).calibration == state
    with store.learning() as learning:
        assert learning.state({}).calibration == state


@pytest.mark.parametrize("value", ["text", 7, 0.5, [1, 2], {"a": {"b": [None, True]}}, False, ""])
def test_a_setting_is_kept_and_can_be_overwritten(store: Store, value: object) -> None:
    store.put_setting("name", "old")
    store.put_setting("name", value)
    assert store.get_setting("name") == value
    assert store.get_setting("other") is None


def test_a_state_that_was_handed_out_is_not_the_stores_own(store: Store) -> None:
    learn(store, entry(1), vocabulary=3)
    before = shown(store)
    for state in (store.load(["fields"]), store.state({"fields": {b"a": 1}})):
        state.counts["fields"].add("ham", {b"a": 100})
        state.learnt["ham"] += 1
    assert shown(store) == before


@pytest.mark.parametrize("url", ["postgres:x", "", "/var/x.db", "SQLITE:///x"])
def test_an_unknown_kind_of_store_is_refused_with_the_kinds_there_are(url: str) -> None:
    with pytest.raises(StoreError, match=r"unknown kind of store .*known: sqlite"):
        open_store(url)
