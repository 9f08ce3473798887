"""The tallies of a store are those of its words, whoever learns and after any rebuilding."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.likelihoods.bernoulli import Bernoulli
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import Voice, Voices
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.learning.transaction import Reading
from tests.stores.made import GREEN
from tests.support.made import VOICE, reading, some
from tests.support.memory_store import KINDS, stored

ABSENT: Voices = (Voice("fields", Bernoulli()), Voice("body", Soft()))
MESSAGES = [
    Reading(b"%016d" % number, {"fields": dict.fromkeys(words, 1), "body": {b"x": 1}})
    for number, words in enumerate([[b"a", b"b"], [b"b", b"c", GREEN], [b"a", b"c"], [], [b"a", b"b", b"c", b"d"]])
]
STEPS = st.lists(
    st.tuples(st.sampled_from(["ham", "spam", "forget", "retrain"]), st.integers(0, len(MESSAGES) - 1), st.booleans()),
    max_size=16,
)


def tables(path: Path) -> tuple[dict[tuple[str, str, int], int], dict[tuple[str, str, int], int]]:
    """The tallies of the store, and the same counted from its words."""
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT voice, class, count, words FROM tallies").fetchall()
        words = connection.execute("SELECT voice, ham, spam FROM words WHERE voice = 'fields'").fetchall()
    found: Counter[tuple[str, str, int]] = Counter()
    for voice, ham, spam in words:
        found.update((voice, label, count) for label, count in (("ham", ham), ("spam", spam)) if count)
    return {(voice, label, count): number for voice, label, count, number in kept}, dict(found)


@some(40)
@given(STEPS)
def test_tallies_are_those_of_the_words_whoever_learns_and_after_any_rebuilding(
    steps: list[tuple[str, int, bool]],
) -> None:
    with stored("sqlite") as again, stored("memory") as reference:
        path = Path(again().where)
        whole, part = Filter(again(), ABSENT), Filter(again(), ABSENT, whole=False)
        straight = Filter(reference(), ABSENT)
        for what, number, by_whole in steps:
            filter = whole if by_whole else part
            if what == "retrain":
                retrain(filter.store, ABSENT, {}, lambda count: None)
                retrain(straight.store, ABSENT, {}, lambda count: None)
            for one in (filter, straight):
                if what == "forget":
                    one.forget(MESSAGES[number], "cli")
                elif what in LABELS:
                    one.learn(MESSAGES[number], "spam" if what == "spam" else "ham", "cli")
            kept, counted_anew = tables(path)
            assert kept == counted_anew
            assert part.store.load(["fields"]).counts["fields"].tallies in (
                straight.store.load(["fields"]).counts["fields"].tallies, None,
            )  # fmt: skip
        assert Filter(again(), ABSENT).verify() == []


def test_a_store_of_one_voice_is_rebuilt_to_another_voice_and_back() -> None:
    for kind in KINDS:
        with stored(kind) as again:
            filter = Filter(again(), VOICE)
            for number in range(6):
                filter.learn(reading(f"m{number}", "a", f"w{number % 3}"), LABELS[number % 2], "cli")
            before = again().load(["fields"])
            retrain(again(), (Voice("fields", Bernoulli()),), {}, lambda count: None)
            assert any((again().load(["fields"]).counts["fields"].tallies or {}).values())
            retrain(again(), VOICE, {}, lambda count: None)
            after = again().load(["fields"])
            assert (after.counts, after.learnt, after.calibration) == (before.counts, before.learnt, before.calibration)
            assert not any((after.counts["fields"].tallies or {}).values())
