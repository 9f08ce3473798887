"""The contract of the ledger's searches by author and by word, tested on every store."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spamfilter.bayes.calibration import Calibration, Step
from spamfilter.learning.filter import Filter
from spamfilter.stores import Entry, Store
from tests.stores.made import entry, learn, write
from tests.support import memory_store as memory_module
from tests.support.made import NOON, VOICE, follow, journal_entry, reading

# By source and author


def of(entry: Entry, by: str, source: str = "cli", hours: float = 0) -> Entry:
    return replace(entry, by=by, source=source, at=NOON + timedelta(hours=hours))


def test_learnings_of_a_source_are_those_that_nobody_has_taken_back(store: Store) -> None:
    mine, theirs, undone = learn(
        store, of(entry(1), "bob", "web"), of(entry(2), "web", "cli", 1), of(entry(3), "ann", "web", 2)
    )
    last, _ = learn(store, of(entry(4, "ham"), "ann", "web", 3), of(entry(3, undoes=undone.id), "bob", "web", 4))
    assert [found.id for found in store.learnings(source="web")] == [mine.id, last.id]
    assert [found.id for found in store.learnings(source="cli")] == [theirs.id]
    assert [found.id for found in store.learnings(NOON + timedelta(hours=3), "web")] == [last.id]
    assert store.learnings(NOON + timedelta(hours=2), "cli") == []
    assert store.learnings(source="") == store.learnings(source="WEB") == []
    assert {entry.source for entry in store.learnings(source="web")} == {"web"}
    assert store.learnings(source="web")[0].tokens == {}


def test_the_marks_of_an_author_are_counted_and_not_what_takes_them_back(store: Store) -> None:
    (one,) = learn(store, of(entry(1), "ann"))
    learn(
        store, of(entry(1, undoes=one.id), "ann", hours=1), of(entry(2), "ann", hours=2), of(entry(3), "bob", hours=2)
    )
    assert store.marks_by("ann", NOON) == 2
    assert store.marks_by("ann", NOON + timedelta(seconds=1)) == 1
    assert store.marks_by("ann", NOON + timedelta(hours=2)) == 1
    assert store.marks_by("ann", NOON + timedelta(hours=3)) == 0
    assert store.marks_by("ann", NOON - timedelta(hours=23)) == 1
    assert store.marks_by("bob", NOON) == 1
    assert store.marks_by("", NOON) == 0


def test_surprises_are_learnings_as_spam_that_contradicted_the_verdict(store: Store) -> None:
    def step(error: float) -> Step:
        return Calibration().step(math.log((1 - error) / error), "spam", 0.5)

    errors = [0.05, 0.099, 0.101, 0.5, 0.999]
    learn(store, *(replace(of(entry(at), "ann", hours=at), calibrated=step(error)) for at, error in enumerate(errors)))
    learn(store, replace(of(entry(7, "ham"), "ann", hours=9), calibrated=step(0.9)))
    undone, _ = learn(store, replace(of(entry(8), "bob"), calibrated=step(0.9)), of(entry(9), "bob"))

    def hours(by: str, after: int = 0, most: int = 9) -> list[int]:
        found = store.surprises_by(by, NOON + timedelta(hours=after), most)
        assert all(one.tokens for one in found)
        return [(one.at - NOON) // timedelta(hours=1) for one in found]

    assert (hours("ann"), hours("ann", most=2), hours("ann", after=3)) == ([2, 3, 4], [2, 3], [3, 4])
    assert (hours("ann", after=5), hours("bob"), hours("")) == ([], [0], [])
    learn(store, of(replace(entry(8, undoes=undone.id), calibrated=undone.calibrated), "bob", hours=1))
    assert hours("bob") == []


def test_marks_on_mail_are_counted_by_recipient_and_by_domain_each_message_once(store: Store) -> None:
    anna = ["b@x.example", "Anna@Example.org"]
    mails: list[tuple[int, str, list[str]]] = [
        (1, "c@Evil.example", anna),
        (1, "d@evil.example", ["b@x.example"]),
        (1, "c@evil.example", anna),
        (2, "c@sub.evil.example", ["joanna@example.org", "anna@example.organic"]),
        (3, "c@notevil.example", ["grün@example.org"]),
        (4, "", anna),
        (5, "evil.example", []),
        (6, "c@evil.example", anna),
        (7, "c@evil_example", anna),
    ]
    store.write_journal([journal_entry(digest=entry(one).digest, sender=by, recipients=to) for one, by, to in mails])
    first, *_ = learn(store, *(of(entry(one), "ann", hours=one) for one in range(1, 6)), of(entry(7), "bob"))
    learn(store, of(entry(1, undoes=first.id), "ann", hours=7))
    assert store.marks_on_mail("ann", NOON, "anna@example.org", "evil.example") == (2, 2)
    assert store.marks_on_mail("ann", NOON, "grün@example.org", "") == (1, 1)
    assert store.marks_on_mail("ann", NOON + timedelta(hours=2), "ANNA@example.org", "evil.example") == (1, 1)
    assert store.marks_on_mail("bob", NOON, "anna@example.org", "evil.example") == (1, 0)
    assert store.marks_on_mail("eve", NOON, "anna@example.org", "evil.example") == (0, 0)


def test_the_times_of_each_source_are_those_of_its_earliest_and_latest_entries_whatever_the_order(store: Store) -> None:
    assert store.times_of_sources() == {}
    (one,) = learn(store, of(entry(1), "ann", "imap", 5))
    learn(
        store,
        of(entry(2), "ann", "imap", 3),
        of(entry(1, undoes=one.id), "bob", "cli", 4),
        of(entry(3), "bob", "cli", 1),
        of(entry(4), "", "train", 2),
    )
    times = {"imap": (3, 5), "cli": (1, 4), "train": (2, 2)}
    assert store.times_of_sources() == {
        source: (NOON + timedelta(hours=first), NOON + timedelta(hours=last)) for source, (first, last) in times.items()
    }


def test_what_a_source_has_taken_back_is_swept_and_nothing_that_counts(store: Store) -> None:
    old = learn(store, *(of(entry(number), "", "canary") for number in range(4)))
    other = learn(store, of(entry(10), "ann"), of(entry(11), "ann"))
    learn(
        store,
        of(entry(0, undoes=old[0].id), "", "canary", 1),
        of(entry(1, undoes=old[1].id), "", "canary", 2),
        of(entry(2, undoes=old[2].id), "ann", "cli", 1),
        of(entry(10, undoes=other[0].id), "", "canary", 1),
    )
    before, learnings, ledger = store.load(["fields"]), store.learnings(), store.entries_after(0)
    last = ledger[-1].id
    assert store.news(last - 1) == (ledger[-1:], last)
    swept = store.sweep("canary", NOON + timedelta(hours=2))
    if isinstance(store, memory_module.MemoryStore):
        assert (swept, store.entries_after(0)) == (0, ledger)
    else:
        assert swept == 2
        gone = {old[0].id, ledger[6].id}
        assert store.entries_after(0) == [entry for entry in ledger if entry.id not in gone]
    assert (store.load(["fields"]), store.learnings(), store.news(last)) == (before, learnings, ([], last))
    assert store.sweep("canary", NOON + timedelta(hours=2)) == 0
    assert store.sweep("unknown", NOON + timedelta(days=9)) == 0


def test_whoever_follows_the_ledger_misses_nothing_after_a_sweep(store: Store) -> None:
    follower, teacher = Filter(store, VOICE), Filter(store, VOICE, whole=False)
    teacher.learn(reading("a", "cheap"), "spam", "cli", at=NOON)
    teacher.learn(reading("b", "probe"), "spam", "canary", at=NOON)
    teacher.forget(reading("b"), "canary")
    follow(follower)
    store.sweep("canary", datetime.now(UTC) + timedelta(hours=1))
    teacher.learn(reading("c", "pills"), "spam", "cli")
    assert follow(follower) == 1
    assert follower.verify() == teacher.verify() == Filter(store, VOICE).verify() == []
    assert follower.score(reading("x", "pills")) == Filter(store, VOICE).score(reading("x", "pills"))


# By word


def test_the_learning_of_a_message_is_found_until_it_is_taken_back(store: Store) -> None:
    assert store.active(b"%016d" % 1) is None
    (one,) = learn(store, entry(1))
    learn(store, entry(2))
    assert store.active(one.digest) == one
    learn(store, entry(1, undoes=one.id))
    assert store.active(one.digest) is None
    (again,) = learn(store, entry(1, "ham"))
    assert store.active(one.digest) == again


def holding(number: int, added: int = 8, voice: str = "fields", *words: bytes) -> Entry:
    tokens = {"fields": {b"always": 1}, "body": {b"always": 1}}
    tokens[voice].update(dict.fromkeys(words, 2))
    return replace(entry(number), tokens=tokens, added={"fields": added, "body": 8})


def test_learnings_that_hold_a_word_are_found_the_latest_first_and_a_few_at_a_time(store: Store) -> None:
    with store.learning() as learning:
        written = [
            learning.append(holding(number, 8, "fields", *([b"cheap"] if number % 3 == 0 else [])))
            for number in range(10)
        ]
        learning.append(replace(entry(9, undoes=written[9].id), tokens=written[9].tokens))
    ids = [entry.id for entry in written]
    found = store.holders({"fields": {b"cheap", b"other"}}, ids[-1] + 2, 4)
    assert ([entry.id for entry in found.entries], found.looked_at, found.last) == ([ids[6]], 4, ids[5])
    assert found.entries[0] == written[6]
    found = store.holders({"fields": {b"cheap"}}, found.last, 4)
    assert ([entry.id for entry in found.entries], found.looked_at, found.last) == ([ids[3]], 4, ids[1])
    found = store.holders({"fields": {b"cheap"}}, found.last, 4)
    assert ([entry.id for entry in found.entries], found.looked_at, found.last) == ([ids[0]], 1, 0)
    assert store.holders({"fields": {b"always"}}, ids[-1] + 2, 9).last == 0  # as many as there are, exactly
    nothing = store.holders({"fields": {b"always"}}, ids[0], 4)
    assert (nothing.entries, nothing.looked_at, nothing.last) == ([], 0, 0)


def test_a_word_is_held_by_the_voice_that_has_learnt_it(store: Store) -> None:
    with store.learning() as learning:
        one = learning.append(holding(1, 8, "fields", b"cheap"))
        learning.append(holding(2, 8, "body", b"cheap"))
        learning.append(holding(3, 0, "fields", b"cheap"))
    assert [entry.id for entry in store.holders({"fields": {b"cheap"}}, 99, 9).entries] == [one.id]
    assert len(store.holders({"fields": {b"cheap"}, "body": {b"cheap"}}, 99, 9).entries) == 2
    assert store.holders({"other": {b"cheap"}, "body": {b"x"}}, 99, 9).entries == []
    assert store.holders({}, 99, 9).entries == []


TRICKY = ['a"b', "a\\b", 'a"b\\', "\x00", "", "\N{PILE OF POO}", "gr\u00fcn", '":', "1", "{", "\u2028", "a b"]


@pytest.mark.parametrize("word", TRICKY)
def test_any_word_is_found_and_none_that_only_looks_like_it(store: Store, word: str) -> None:
    alike = (f'x"{word}', f"{word}x", f"x{word}", f'"{word}":', f"{word}\\", word.upper() + "x", f"\\{word}")
    with store.learning() as learning:
        one = learning.append(holding(1, 8, "fields", word.encode()))
        learning.append(holding(2, 8, "fields", *(other.encode() for other in alike)))
    assert [entry.id for entry in store.holders({"fields": {word.encode()}}, 99, 9).entries] == [one.id]


def test_an_author_has_the_last_word_where_nothing_follows_it(store: Store) -> None:
    mine, theirs, taken = learn(store, of(entry(1), "ann"), of(entry(2), "bob"), of(entry(3), "bob", hours=1))
    back, gone = learn(store, of(entry(3, undoes=taken.id), "ann", hours=2), of(entry(2, undoes=theirs.id), "bob"))
    (overruled,) = learn(store, of(entry(4), "ann", hours=3))
    learn(store, of(entry(4, undoes=overruled.id), "root", hours=4))
    assert [found.id for found in store.last_entries_by("ann")] == [mine.id, back.id]
    assert [found.id for found in store.last_entries_by("bob")] == [gone.id]
    assert [found.id for found in store.last_entries_by("ann", NOON + timedelta(hours=2))] == [back.id]
    assert store.last_entries_by("") == store.last_entries_by("ANN") == []
    assert {bool(found.tokens) for found in store.last_entries_by("ann")} == {False}


def test_a_history_is_all_that_was_ever_said_of_a_message_in_its_order(store: Store) -> None:
    one, two = learn(store, of(entry(1), "ann"), of(entry(2), "bob"))
    (undoing,) = learn(store, of(entry(1, undoes=one.id), "bob"))
    (again,) = learn(store, of(entry(1, "ham"), "bob"))
    unknown = b"x" * 16
    found = store.histories([one.digest, two.digest, unknown])
    assert [entry.id for entry in found[one.digest]] == [one.id, undoing.id, again.id]
    assert ([entry.id for entry in found[two.digest]], found[unknown]) == ([two.id], [])
    assert found[one.digest][0] == replace(one, tokens={})
    with store.learning() as learning:
        assert [entry.id for entry in learning.history(one.digest)] == [one.id, undoing.id, again.id]
        assert [learning.history(one.digest)[at].tokens for at in (0, 2)] == [one.tokens, again.tokens]
        assert learning.history(unknown) == []


def test_an_entry_may_have_the_tokens_of_another(store: Store) -> None:
    with store.learning() as learning:
        first = write(learning, entry(1))
        write(learning, replace(entry(1), undoes=first.id), messages=1)
        second = learning.append(replace(entry(1), tokens={}), like=first.id)
        assert learning.active(second.digest) == replace(entry(1), id=second.id)
    assert [one.tokens for one in store.entries_after(0)] == [entry(1).tokens] * 3


def test_ids_go_on_after_entries_that_were_deleted(store: Store) -> None:
    first = learn(store, entry(1), entry(2))[-1]
    with store.learning() as learning:
        write(learning, replace(entry(2), undoes=first.id, source="cli"), messages=1)
    store.sweep("cli", NOON + timedelta(days=1))
    assert [one.id for one in learn(store, entry(3))] == [4]
    assert store.load([]).last == 4
