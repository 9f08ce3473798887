"""Every row of LIKELIHOODS as the filter of a relay and of commands, on every store."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.model import State
from spamfilter.bayes.voices import Voice, Voices
from spamfilter.config.likelihood_settings import Learn
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.message import parse
from spamfilter.stores import Store
from spamfilter.stores.migration import migrate
from tests.bayes.likelihoods.drawn import Bag, every
from tests.support.made import follow, mail
from tests.support.memory_store import KINDS, open_store, stored

Opened = Callable[[], Store]
BAGS: list[tuple[Label, Bag]] = [
    ("spam", {b"^from": 1, b"cheap": 3, b"pills": 1}),
    ("ham", {b"^from": 1, b"lunch": 1, b"cheap": 1}),
    ("spam", {b"^from": 1, b"pills": 2, b"now": 6}),
    ("ham", {b"lunch": 2, b"friend": 1, "grün".encode(): 1}),
    ("spam", {b"cheap": 3, b"now": 1, b"new": 1}),
    ("ham", {}),
]
"""Messages of words; read as attributes they have values."""
UNSEEN = Reading(b"unseen..........", {"seen": {b"cheap": 3, b"lunch": 1, b"never": 1}})


def messages() -> list[tuple[Label, Reading]]:
    return [(label, Reading(b"%016d" % number, {"seen": bag})) for number, (label, bag) in enumerate(BAGS)]


def voice(name: str) -> Voices:
    return (Voice("seen", Gaussian(least=1) if name == Gaussian.name else LIKELIHOODS[name]()),)


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with stored(request.param, tmp_path) as again:
        yield again


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What the tables of counts hold, but for the moment of the last touch, and zeros that nothing refers to."""
    queries = {
        "words": "SELECT voice, word, ham, spam FROM words",
        "classes": "SELECT * FROM classes WHERE messages OR words",
        "vocabularies": "SELECT * FROM vocabularies WHERE words",
        "tallies": "SELECT * FROM tallies",
    }
    with closing(sqlite3.connect(path)) as connection:
        return {table: sorted(connection.execute(query).fetchall()) for table, query in queries.items()}


def held(store: Store) -> State:
    """All that the store keeps; equality of counts passes over tallies that one side lacks, so they are counted."""
    state = store.load(["seen"])
    for counts in state.counts.values():
        counts.tally()
    return state


@every
def test_what_one_filter_learns_all_others_judge_by(name: str, opened: Opened) -> None:
    relay, command = Filter(opened(), voice(name)), Filter(opened(), voice(name), whole=False)
    assert relay.score(UNSEEN).log_odds == 0
    for number, (label, reading) in enumerate(messages()):
        change = (relay, command)[number % 2].learn(reading, label, "cli")
        follow(relay)
        fresh = Filter(opened(), voice(name))
        for seen in (UNSEEN, *(reading for _, reading in messages())):
            assert relay.score(seen) == command.score(seen) == fresh.score(seen)
            assert relay.explained(seen) == command.explained(seen) == fresh.explained(seen)
        assert change.after == relay.score(reading)
        for filter in (relay, command, fresh):
            assert filter.verify() == []
    assert relay.score(UNSEEN).log_odds != 0


@every
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
def test_what_is_forgotten_leaves_the_store_as_it_was(name: str, whole: bool, opened: Opened, tmp_path: Path) -> None:
    filter = Filter(opened(), voice(name), whole)
    *first, last = messages()
    path = tmp_path / "store.db"
    befores = []
    for label, reading in first:
        befores.append((held(opened()), rows(path) if path.exists() else {}, filter.score(UNSEEN)))
        filter.learn(reading, label, "cli")
    filter.learn(last[1], "spam", "cli")
    filter.learn(last[1], "ham", "cli")
    filter.forget(last[1], "cli")
    for before, tables, score in reversed(befores):
        _, reading = first.pop()
        filter.forget(reading, "cli")
        after = held(opened())
        assert (after.counts, after.learnt) == (before.counts, before.learnt)
        assert after.calibration == before.calibration
        assert after.counts["seen"].tallies == before.counts["seen"].tallies
        assert (rows(path) if path.exists() else {}) == tables
        assert filter.score(UNSEEN) == score
        assert filter.verify() == []


@every
def test_it_is_told_apart_by_real_mail(name: str, opened: Opened) -> None:
    voices = Learn.model_validate({"likelihood": name, "gaussian": {"least": 1}}).chosen()
    relay, command = Filter(opened(), voices), Filter(opened(), voices, whole=False)

    def reading(kind: str, number: int) -> Reading:
        text = "CHEAP PILLS 100% http://x.example http://y.example " * (3 + number)
        if kind == "ham":
            text = f"see you at lunch, dear friend number {number}, it is the usual place"
        return relay.read(parse(mail(f"{'BUY' if kind == 'spam' else 'about'} {number}", text, f"{kind}{number}")))

    for number in range(6):
        relay.learn(reading("spam", number), "spam", "cli")
        follow(relay)
        command.learn(reading("ham", number), "ham", "cli")
    follow(relay)
    for number in (7, 8):
        assert relay.score(reading("spam", number)).log_odds > 0 > relay.score(reading("ham", number)).log_odds
        assert relay.score(reading("ham", number)) == command.score(reading("ham", number))
    assert relay.verify() == command.verify() == []


@every
def test_a_rebuilt_state_is_the_kept_one(name: str, opened: Opened) -> None:
    filter = Filter(opened(), voice(name))
    for label, reading in messages():
        filter.learn(reading, label, "cli")
    filter.forget(messages()[1][1], "cli")
    rebuilt, kept = filter.rebuilt(filter.last), filter.loaded()
    assert rebuilt == kept
    assert rebuilt.counts["seen"].tallies == kept.counts["seen"].tallies
    assert (rebuilt.counts["seen"].tallies is not None) is LIKELIHOODS[name].needs_tallies


@pytest.mark.parametrize("damage", ["UPDATE tallies SET words = words + 1", "DELETE FROM tallies WHERE count = 1"])
def test_damaged_tallies_are_found(damage: str, tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    filter = Filter(store, voice("bernoulli"), whole=False)
    for label, reading in messages():
        filter.learn(reading, label, "cli")
    assert filter.verify() == []
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(damage)
    assert ["words of voice seen are not the sum" in sentence for sentence in filter.verify()] == [True]
    store.close()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
def test_a_database_that_went_back_to_a_schema_without_tallies_and_forth_judges_as_before_or_is_found_damaged(
    whole: bool, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url)
    filter = Filter(store, voice("bernoulli"), whole)
    for label, reading in messages():
        filter.learn(reading, label, "cli")
    before = filter.score(UNSEEN)
    store.close()
    migrate(url, "0001")
    migrate(url)
    store = open_store(url)
    filter = Filter(store, voice("bernoulli"), whole)
    assert filter.verify() != [] or filter.score(UNSEEN) == before
    store.close()
