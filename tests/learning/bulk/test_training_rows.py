"""However a bulk training is run, the database has the same rows: processes, batches, helpers, stops."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.bayes import counts, token_codec
from spamfilter.bayes import tokens as features
from spamfilter.bayes.labels import OTHER, Label
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import InputError
from spamfilter.learning.bulk import reading_ahead
from spamfilter.learning.bulk import training as bulk_training
from spamfilter.learning.bulk.labelled_mail import interleaved
from spamfilter.learning.bulk.rounds import ROUNDS
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import open_store
from tests.support.made import mail
from tests.support.without_helpers import without_helpers

Mails = list[tuple[Label, Mail]]
Setting = Callable[[pytest.MonkeyPatch], None]
VOICES = Learn().chosen()
COUNT = 60


def again(content: bytes) -> bytes:
    """The same mail as it came by another way: other tokens, and the same digest."""
    return b"Received: from elsewhere.example.org by another.example.net\r\n" + content


def mails() -> Mails:
    """Of two kinds; every ninth has the wrong label, some come twice, and one cannot be read."""

    def gone() -> bytes:
        raise InputError("gone.eml: No such file or directory")

    def pile(word: str) -> list[Mail]:
        texts = (
            f"{word} text {at % 7} of all\r\n" + "both have these words\r\n" * (at % 3) for at in range(COUNT // 2)
        )
        sent = [mail(f"{word} {at}", text, f"{word}{at}") for at, text in enumerate(texts)]
        return [Mail(f"{word}{at}", lambda content=content: content) for at, content in enumerate(sent)]  # type: ignore[misc]

    found = interleaved(pile("cheap"), pile("lunch"))
    found = [(OTHER[label] if at % 9 == 4 else label, item) for at, (label, item) in enumerate(found)]
    copies = [
        (label, Mail(f"copy {item.name}", lambda item=item: again(item.read())))  # type: ignore[misc]
        for label, item in found[::20]
    ]
    return [*found[:50], *copies, ("spam", Mail("gone.eml", gone)), *found[50:]]


def rows(database: Path) -> dict[str, list[str]]:
    """All rows of all tables, but for the moments of the ledger."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(map(repr, _of_table(connection, name))) for name in tables}


def _of_table(connection: sqlite3.Connection, name: str) -> list[list[object]]:
    found = connection.execute(f"SELECT * FROM {name}")
    names = [column for column, *_ in found.description]
    return [[_comparable(*item) for item in zip(names, row, strict=True)] for row in found]


def _comparable(column: str, value: object) -> object:
    """Python finds the tokens of a mail in another order than the compiled helper."""
    if column == "tokens" and isinstance(value, bytes):
        return {voice: sorted(tokens.items()) for voice, tokens in token_codec.unpack(value).items()}
    return None if column == "at" else value


def trained(database: Path, processes: int = 0, stop: int = 0) -> Outcome:
    """Train a new database; stop: break off after so many steps, and go on."""
    outcome = Outcome()
    told = [0]

    def progress(count: int) -> None:
        told[0] += count
        if 0 < stop <= told[0]:
            told[0] = -(10**9)
            raise KeyboardInterrupt

    with closing(open_store(f"sqlite:///{database}")) as store:
        if stop:
            with pytest.raises(KeyboardInterrupt):
                train(Filter(store, VOICES), mails(), "ann", progress, Outcome(), processes)
        train(Filter(store, VOICES), mails(), "ann", progress, outcome, processes)
    return outcome


@pytest.fixture(autouse=True)
def _few_are_enough_for_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "FEWEST", 10)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """As one process makes them that keeps no tokens in memory."""
    with pytest.MonkeyPatch.context() as patch:
        without_helpers(patch)
        patch.setattr(bulk_training, "KEPT", 0)
        database = tmp_path_factory.mktemp("expected") / "store.db"
        outcome = trained(database)
    assert outcome.reinforced > 10
    assert outcome.known == COUNT / 20
    assert outcome.problems == ["gone.eml: No such file or directory"]
    return rows(database)


def small_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk_training, "TOGETHER", 7)


def hurried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk_training, "TOGETHER", 7)
    patch.setattr(bulk_training, "LOCKED", 0.0)


def few_words(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk_training, "TOGETHER", 7)
    patch.setattr(bulk_training, "WORDS", 500)


def half_at_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk_training, "TOGETHER", 7)
    patch.setattr(bulk_training, "KEPT", 1000)


def none_at_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bulk_training, "KEPT", 0)


def as_it_is(patch: pytest.MonkeyPatch) -> None:
    pass


SETTINGS = [as_it_is, without_helpers, small_transactions, hurried, few_words, half_at_hand, none_at_hand]


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_rows_are_the_same(
    setting: Setting, processes: int, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting(monkeypatch)
    outcome = trained(tmp_path / "store.db", processes)
    assert outcome.problems == ["gone.eml: No such file or directory"]
    assert rows(tmp_path / "store.db") == expected


@pytest.mark.parametrize("stop", [7, COUNT, COUNT + 20, 3 * COUNT])
@pytest.mark.parametrize("setting", [small_transactions, hurried, half_at_hand])
def test_the_rows_are_the_same_after_a_stop(
    setting: Setting, stop: int, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting(monkeypatch)
    trained(tmp_path / "store.db", 1, stop)
    assert rows(tmp_path / "store.db") == expected


def test_copies_that_came_another_way_have_other_tokens_and_the_same_digest() -> None:
    content = mails()[0][1].read()
    one, other = parse(content), parse(again(content))
    assert one.digest() == other.digest()
    assert counts.Counts().add("spam", features.tokenize(one, ("header",))) != counts.Counts().add(
        "spam", features.tokenize(other, ("header",))
    )


def test_what_others_learn_meanwhile_is_heeded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark between two transactions changes counts, and learnings that this run has at hand.

    There are marks in the first round and while is written what later ones have decided, of which nobody else hears.
    """
    found, all_mails = [], len(mails())
    for kept in (0, 10**6):
        monkeypatch.setattr(bulk_training, "TOGETHER", 6)
        monkeypatch.setattr(bulk_training, "KEPT", kept)
        database = tmp_path / f"{kept}.db"
        with (
            closing(open_store(f"sqlite:///{database}")) as store,
            closing(open_store(f"sqlite:///{database}")) as same,
        ):
            other = Filter(same, VOICES)
            told, marks = [0], [0, 0]

            def progress(count: int, other: Filter = other, told: list[int] = told, marks: list[int] = marks) -> None:
                told[0] += count
                if told[0] <= all_mails or told[0] >= ROUNDS * all_mails:
                    marks[told[0] > all_mails] += 1
                    label, item = mails()[5 * sum(marks) % COUNT]
                    other.learn(other.read(parse(item.read())), OTHER[label], "cli", "bob")

            train(Filter(store, VOICES), mails(), "ann", progress, Outcome())
            assert min(marks) > 2
            assert Filter(store, VOICES).verify() == []
        found.append(rows(database))
    assert found[0] == found[1]
    assert any("'cli'" in row for row in found[0]["ledger"])
