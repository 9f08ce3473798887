"""The filter: learning is exact, repeatable and undoable, on every store and for every process that follows."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.count_table import SpelledTable
from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods.multinomial import Multinomial
from spamfilter.bayes.likelihoods.poisson import Poisson
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.model import State
from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Voice, Voices, everybodys
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import StoreError
from spamfilter.learning.filter import Filter, rules, rules_text, usable
from spamfilter.learning.transaction import Change, Reading
from spamfilter.mail.message import parse
from spamfilter.stores import Store
from tests.support.made import VOICE, follow, mail, reading, some, spelled
from tests.support.memory_store import KINDS, stored

FIELDS = (Voice("fields", Soft()),)
TWO: Voices = (Voice("fields", Soft()), Voice("bag", Multinomial(), 0.3))
MESSAGES = [
    reading("m0", "a", "b"),
    reading("m1", "b", "c", "d"),
    reading("m2", "a", "d", "e", "f"),
    reading("m3", "f"),
    reading("m4"),
    Reading(b"both voices.....", {"fields": {b"a": 1, b"g": 1}, "bag": {b"a": 3, b"h": 1}}),
]
MARK = st.sampled_from(["ham", "spam", "forget"])
STEP = st.tuples(MARK, st.integers(0, len(MESSAGES) - 1), st.integers(0, 2))
Steps = list[tuple[str, int, int]]


def act(filter: Filter, what: str, message: Reading) -> Change:
    if what == "forget":
        return filter.forget(message, "cli")
    return filter.learn(message, "spam" if what == "spam" else "ham", "cli")


def learnt(store: Store) -> tuple[dict[str, Counts], dict[Label, int], Calibration]:
    """All that judging depends on."""
    state = store.load(["fields", "bag"])
    return state.counts, state.learnt, state.calibration


def everything(state: State) -> tuple[dict[str, Counts], dict[Label, int], Calibration, int]:
    return state.counts, state.learnt, state.calibration, state.last


@pytest.mark.parametrize("kind", KINDS)
@some(25)
@given(st.lists(STEP, max_size=14))
def test_after_any_marks_the_words_are_the_sum_of_the_ledger(kind: str, steps: Steps) -> None:
    with stored(kind) as again:
        filters = [Filter(again(), TWO), Filter(again(), TWO, whole=False), Filter(again(), TWO)]
        labels: dict[int, str] = {}
        for what, number, which in steps:
            change = act(filters[which], what, MESSAGES[number])
            was = labels.pop(number, None)
            if what != "forget":
                labels[number] = what
            assert (change.was, change.changed) == (was, was != labels.get(number))
            assert filters[which].verify() == []
            assert filters[which].learnt == {label: list(labels.values()).count(label) for label in LABELS}
        store = again()
        assert {entry.digest: entry.label for entry in store.learnings()} == {
            MESSAGES[number].digest: label for number, label in labels.items()
        }
        for filter in filters:
            if filter._whole:
                follow(filter)
                assert everything(filter._all()) == everything(store.load(["fields", "bag"]))
            for message in MESSAGES:
                assert filter.score(message) == filters[0].score(message)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
@some(20)
@given(st.lists(STEP, max_size=8))
def test_marks_in_one_transaction_are_as_one_after_the_other(kind: str, whole: bool, steps: Steps) -> None:
    with stored(kind) as again, stored(kind) as apart:
        filter, alone = Filter(again(), TWO, whole=whole), Filter(apart(), TWO)
        with filter.training() as training:
            for what, number, _ in steps:
                expected = act(alone, what, MESSAGES[number])
                if what == "forget":
                    assert training.forget(MESSAGES[number], "cli") == expected
                else:
                    assert training.learn(MESSAGES[number], "spam" if what == "spam" else "ham", "cli") == expected
        assert learnt(again()) == learnt(apart())
        assert filter.verify() == []


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
@some(20)
@given(st.lists(STEP, max_size=8), st.integers(0, len(MESSAGES) - 1), st.sampled_from(LABELS))
def test_a_mark_that_is_corrected_leaves_what_the_right_mark_alone_would_have(
    kind: str, whole: bool, steps: Steps, number: int, right: Label
) -> None:
    before = [step for step in steps if step[1] != number]
    wrong = "ham" if right == "spam" else "spam"
    with stored(kind) as one, stored("memory") as two:
        corrected, straight = Filter(one(), TWO, whole), Filter(two(), TWO)
        for what, message, _ in before:
            act(corrected, what, MESSAGES[message])
            act(straight, what, MESSAGES[message])
        act(corrected, wrong, MESSAGES[number])
        act(corrected, right, MESSAGES[number])
        act(straight, right, MESSAGES[number])
        assert learnt(one()) == learnt(two())


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
@some(20)
@given(st.lists(STEP, max_size=8), st.integers(0, len(MESSAGES) - 1), st.sampled_from(LABELS))
def test_what_is_forgotten_leaves_no_trace(kind: str, whole: bool, steps: Steps, number: int, label: Label) -> None:
    with stored(kind) as again:
        filter = Filter(again(), TWO, whole)
        for what, message, _ in steps:
            act(filter, what, MESSAGES[message])
        act(filter, "forget", MESSAGES[number])
        before = learnt(again())
        score = filter.score(MESSAGES[number])
        act(filter, label, MESSAGES[number])
        change = act(filter, "forget", MESSAGES[number])
        assert learnt(again()) == before
        assert (change.was, change.after) == (label, score)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["spam", "ham", "forget"])
def test_a_repeat_succeeds_and_changes_nothing(kind: str, whole: bool, what: str) -> None:
    with stored(kind) as again:
        filter = Filter(again(), VOICE, whole)
        act(filter, "spam", MESSAGES[1])
        act(filter, what, MESSAGES[0])
        before = everything(again().load(["fields"]))
        change = act(filter, what, MESSAGES[0])
        assert not change.changed
        assert change.before == change.after == filter.score(MESSAGES[0])
        assert everything(again().load(["fields"])) == before


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
def test_a_change_tells_the_scores_before_and_after(whole: bool) -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE, whole)
        change = filter.learn(MESSAGES[0], "spam", "cli", by="ann")
        assert (change.before.log_odds, change.before.posterior) == (0.0, 0.5)
        assert change.after == filter.score(MESSAGES[0])
        assert change.after.posterior > 0.5
        (entry,) = again().learnings()
        assert (entry.source, entry.by, entry.added) == ("cli", "ann", {"fields": 8})


def test_a_mark_speaks_about_the_mail_as_it_was_learnt() -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE)
        filter.learn(reading("m", "as", "judged"), "spam", "address")
        altered = reading("m", "as", "delivered", "with", "footer")
        filter.learn(altered, "ham", "cli")
        assert again().load(["fields"]).counts["fields"].kept == spelled(ham={b"as": 8, b"judged": 8})
        filter.forget(altered, "cli")
        assert again().load(["fields"]).counts["fields"] == Counts()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
def test_several_learnings_are_one_transaction(kind: str, whole: bool) -> None:
    with stored(kind) as again:
        filter = Filter(again(), TWO, whole)
        with filter.training() as training:
            training.learn(MESSAGES[0], "spam", "train")
            training.learn(MESSAGES[1], "ham", "train")
            training.learn(MESSAGES[0], "ham", "train")
            assert training.learn(MESSAGES[1], "ham", "train").changed is False
            training.forget(MESSAGES[1], "train")
        assert filter.verify() == []
        assert [entry.label for entry in again().learnings()] == ["ham"]


def _break_off(filter: Filter, error: type[BaseException]) -> None:
    with filter.training() as training:
        training.learn(MESSAGES[1], "ham", "train")
        if filter._whole:
            training.learn(MESSAGES[0], "ham", "train")
        raise error


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_training_that_breaks_off_is_forgotten_by_store_and_filter(
    kind: str, whole: bool, error: type[BaseException]
) -> None:
    with stored(kind) as again:
        filter = Filter(again(), VOICE, whole)
        act(filter, "spam", MESSAGES[0])
        before, score = learnt(again()), filter.score(MESSAGES[1])
        with pytest.raises(error):
            _break_off(filter, error)
        assert learnt(again()) == before
        assert filter.score(MESSAGES[1]) == score
        assert filter.learnt == {"ham": 0, "spam": 1}
        act(filter, "ham", MESSAGES[1])
        assert filter.verify() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_follower_sees_what_others_learn_and_undo(kind: str) -> None:
    with stored(kind) as again:
        follower, command = Filter(again(), VOICE), Filter(again(), VOICE, whole=False)
        assert follower.learnt == {"ham": 0, "spam": 0}
        for what, entries in (("spam", 1), ("ham", 2), ("forget", 1)):
            change = act(command, what, MESSAGES[0])
            assert follower.score(MESSAGES[0]) == change.before
            assert follow(follower) == entries
            assert follower.score(MESSAGES[0]) == change.after
        assert follow(follower) == 0
        assert follower.last == 4


def test_entries_read_elsewhere_are_taken_in_once() -> None:
    with stored("memory") as again:
        follower, command = Filter(again(), VOICE), Filter(again(), VOICE)
        assert follower.last == 0
        act(command, "spam", MESSAGES[0])
        act(command, "ham", MESSAGES[1])
        entries = again().entries_after(0)
        assert follower.take_in(entries[:1]) == 1
        assert follower.take_in(entries) == 1
        assert follower.take_in(entries) == 0
        assert everything(follower._all()) == everything(command._all())


def test_a_filter_that_learns_takes_in_first_what_others_learnt() -> None:
    with stored("sqlite") as again:
        one, two = Filter(again(), VOICE), Filter(again(), VOICE)
        assert (one.last, two.last) == (0, 0)
        act(one, "spam", MESSAGES[0])
        change = act(two, "spam", MESSAGES[0])
        assert not change.changed
        assert two.last == 1


def test_counts_forgotten_in_memory_are_loaded_anew() -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE)
        act(filter, "spam", MESSAGES[0])
        score = filter.score(MESSAGES[0])
        filter._all().counts["fields"].kept = SpelledTable()
        assert filter.score(MESSAGES[0]) != score
        filter.adopt(filter.loaded())
        assert filter.score(MESSAGES[0]) == score


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((Voice("fields", Multinomial()),), id="likelihood"),
        pytest.param((Voice("body", Soft()),), id="voice"),
        pytest.param(TWO, id="more-voices"),
    ],
)
def test_counts_made_by_other_rules_are_refused(other: Voices) -> None:
    with stored("memory") as again:
        Filter(again(), VOICE).learn(MESSAGES[0], "spam", "cli")
        with pytest.raises(StoreError, match=r"was learnt with .*change \[learn\] back"):
            Filter(again(), other)


def test_rules_by_which_nothing_was_learnt_bind_nobody() -> None:
    with stored("memory") as again:
        Filter(again(), VOICE)
        Filter(again(), TWO).learn(MESSAGES[0], "spam", "cli")
        with pytest.raises(StoreError, match="was learnt with"):
            Filter(again(), VOICE)


def test_other_parameters_are_the_same_rules() -> None:
    with stored("memory") as again:
        Filter(again(), VOICE)
        Filter(again(), (Voice("fields", Soft(scale=2.0), 0.5),))


def test_damage_is_told_by_name() -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE)
        act(filter, "spam", MESSAGES[0])
        with again().learning() as learning:
            learning.change("fields", "ham", {b"a": 1}, 0, Growth(0))
            learning.calibrate(Calibration(slope=1))
        words, calibration = filter.verify()
        assert "the words of voice fields are not the sum of the ledger" in words
        assert "the calibration or the totals are not the sum of the ledger" in calibration


def test_to_verify_while_another_process_learns_finds_no_damage() -> None:
    with stored("sqlite") as again:
        filter, other = Filter(again(), VOICE), Filter(again(), VOICE)
        act(filter, "spam", MESSAGES[0])
        store = filter.store
        load = store.load

        def load_while_another_learns(voices: Iterator[str]) -> State:
            state = load(voices)
            act(other, "ham", MESSAGES[1])
            return state

        store.load = load_while_another_learns  # type: ignore[assignment,method-assign]  # the moment between two reads
        assert filter.verify() == []


def test_a_mail_that_was_learnt_is_recognised_after_transit() -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE)
        filter.learn(filter.read(parse(mail())), "spam", "cli")
        back = b"Received: from x\n" + mail(subject="[SPAM] hello").replace(b"\r\n", b"\n")
        assert filter.learn(filter.read(parse(back)), "spam", "cli").changed is False


def test_evidence_is_the_loudest_tokens() -> None:
    with stored("memory") as again:
        filter = Filter(again(), VOICE)
        act(filter, "spam", MESSAGES[0])
        act(filter, "spam", MESSAGES[1])
        score, (loudest, *others) = filter.explained(MESSAGES[1])
        assert (loudest.token, len(others)) == ("b", 2)
        assert filter.explained(MESSAGES[1], 1) == (score, [loudest])
        assert filter.explained(MESSAGES[1], 0) == (score, [])
        assert score == filter.score(MESSAGES[1])


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param(rules(FIELDS), True, id="the-same"),
        pytest.param({**rules(FIELDS), "tokenizer": TOKENIZER - 1}, True, id="an-older-tokenizer"),
        pytest.param({**rules(FIELDS), "tokenizer": TOKENIZER + 1}, False, id="a-newer-tokenizer"),
        pytest.param({"tokenizer": TOKENIZER, "voices": {"fields": "poisson"}}, False, id="another-likelihood"),
        pytest.param({"tokenizer": TOKENIZER, "voices": {"body": "soft"}}, False, id="another-voice"),
        pytest.param({"tokenizer": TOKENIZER}, False, id="no-voices"),
        pytest.param({**rules(FIELDS), "revisions": {"soft": 0}}, True, id="another-formula"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_counts_are_for_the_voices_that_made_them(kept: object, expected: bool) -> None:
    assert usable(kept, FIELDS) == expected


def test_a_revised_formula_is_another_rule_that_says_so() -> None:
    poisson = (Voice("fields", Poisson()),)
    before = {"tokenizer": TOKENIZER, "voices": {"fields": "poisson"}}
    assert before != rules(poisson)
    assert usable(before, poisson)
    assert rules_text(before) == f'fields by "poisson" (tokenizer {TOKENIZER})'
    assert rules_text(rules(poisson)) == f'fields by "poisson", revision 2 (tokenizer {TOKENIZER})'


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param({"fields": "poisson"}, [("fields", "poisson", 1.0)], id="one"),
        pytest.param(
            {"fields": "soft", "body": "poisson"}, [("fields", "soft", 0.54), ("body", "poisson", 0.54)], id="two"
        ),
        pytest.param({"fields": "of-a-newer-version"}, None, id="unknown-likelihood"),
        pytest.param({"sound": "soft"}, None, id="unknown-voice"),
        pytest.param({"fields": "gaussian"}, None, id="words-by-numbers"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_voices_of_the_counts_have_the_parameters_of_the_configuration(
    kinds: dict[str, str], expected: list[tuple[str, str, float]] | None
) -> None:
    """Rules that this version cannot follow leave the voices of the configuration."""
    learn = Learn.model_validate({"poisson": {}})
    voices = learn.as_learnt({"tokenizer": 1, "voices": kinds})
    if expected is None:
        assert voices == learn.chosen()
    else:
        assert [(voice.name, voice.likelihood.name, voice.weight) for voice in everybodys(voices)] == expected
