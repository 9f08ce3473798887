"""Protocols: the order of judging and learning, recorded by a contender."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.voices import VoiceTokens
from spamfilter.evaluation.contenders import Contender, Examples, Learner, OneRule
from spamfilter.evaluation.protocols import PROTOCOLS, SIZES, Example, Feedback, Run, Trial, steps
from tests.support.made import VOICE, some

Posterior = Callable[[int], float]
FEEDBACKS = get_args(Feedback)
SPLITS = ("time", "random", "alternate")


@dataclass
class Recorder:
    """A contender that learns nothing: events are ('judged', number) and ('learnt', number), in their order."""

    name: str = "recorder"
    posterior: Posterior = lambda number: 0.5
    events: list[tuple[str, int]] = field(default_factory=list)
    labels: list[tuple[int, Label]] = field(default_factory=list)

    def score(self, tokens: VoiceTokens) -> Score:
        number = number_of(tokens)
        self.events.append(("judged", number))
        return Score(float(number), self.posterior(number))

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        self.events.append(("learnt", number_of(tokens)))
        self.labels.append((number_of(tokens), label))

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        for _ in range(rounds):
            for tokens, label in examples():
                self.learn(tokens, label)

    def numbers(self, event: str) -> list[int]:
        return [number for what, number in self.events if what == event]


def number_of(tokens: VoiceTokens) -> int:
    (word,) = tokens["fields"]
    return int(word)


@dataclass
class Ring:
    """Makes recorders of these names, and keeps them all, a list for each time it was asked."""

    names: Sequence[str] = ("recorder",)
    posterior: Posterior = lambda number: 0.5
    entered: list[list[Recorder]] = field(default_factory=list)

    def __call__(self) -> Sequence[Contender]:
        self.entered.append([Recorder(name, self.posterior) for name in self.names])
        return self.entered[-1]


def example(number: int, label: Label) -> Example:
    return Example(f"m{number}", label, lambda: {"fields": {b"%d" % number: 1}})


def examples(count: int, spam_each: int = 3) -> list[Example]:
    """Numbered messages; each third is spam, or as it is said."""
    return [example(number, "spam" if number % spam_each == 0 else "ham") for number in range(count)]


def numbers(run: Run) -> list[int]:
    return [int(example.name[1:]) for example in run.examples]


def run(
    protocol: str, messages: Sequence[Example], ring: Ring, progress: list[int] | None = None, **varied: Any
) -> list[Run]:
    return PROTOCOLS[protocol](messages, ring, Trial(**varied), (progress if progress is not None else []).append)


WAYS = [
    *(
        pytest.param("prequential", {"feedback": feedback, "delay": 3, "train_first": 4, "day": 9}, id=feedback)
        for feedback in FEEDBACKS
    ),
    *(pytest.param("trained-once", {"split": split}, id=f"trained-once-{split}") for split in SPLITS),
    *(pytest.param("learning-curve", {"split": split}, id=f"learning-curve-{split}") for split in SPLITS),
    pytest.param("cross-validation", {"folds": 4}, id="cross-validation"),
]
"""Every protocol with everything that changes its course."""
every_way = pytest.mark.parametrize(("protocol", "varied"), WAYS)


def test_every_protocol_is_tried_here() -> None:
    assert {str(way.values[0]) for way in WAYS} == set(PROTOCOLS)


@every_way
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_no_message_is_judged_by_a_contender_that_has_learnt_it(
    protocol: str, varied: dict[str, Any], noise: float
) -> None:
    ring = Ring(("one", "two"), lambda number: 0.1 * (number % 10))
    run(protocol, examples(41), ring, noise=noise, share=0.5, **varied)
    judged = 0
    for recorder in (recorder for recorders in ring.entered for recorder in recorders):
        learnt: set[int] = set()
        for event, number in recorder.events:
            if event == "learnt":
                learnt.add(number)
            else:
                assert number not in learnt
                judged += 1
        assert learnt or protocol == "learning-curve"
    assert judged >= 40


@every_way
def test_a_run_holds_the_scores_of_one_contender_beside_what_they_were_given_for(
    protocol: str, varied: dict[str, Any]
) -> None:
    messages = examples(20)
    ring = Ring(("one", "two"), lambda number: number / 100)
    for found in run(protocol, messages, ring, noise=0.3, **varied):
        assert found.contender in ("one", "two")
        assert found.labels == [messages[number].label for number in numbers(found)]
        assert found.log_odds == numbers(found)
        assert found.posteriors == [number / 100 for number in numbers(found)]
        assert found.seconds >= 0
    assert {recorder.name for recorders in ring.entered for recorder in recorders} == {"one", "two"}


# Judged, then learnt


def test_with_full_feedback_each_message_is_learnt_right_after_it_was_judged() -> None:
    ring = Ring()
    (found,) = run("prequential", examples(5), ring)
    assert ring.entered[0][0].events == [(what, number) for number in range(5) for what in ("judged", "learnt")]
    assert (numbers(found), found.taught, found.part) == ([0, 1, 2, 3, 4], 5, "")
    assert ring.entered[0][0].labels == [(number, "ham" if number % 3 else "spam") for number in range(5)]


@pytest.mark.parametrize("delay", [1, 2, 7, 19, 20, 500])
def test_delayed_labels_come_when_exactly_so_many_messages_more_were_judged(delay: int) -> None:
    ring = Ring(("one", "two"))
    runs = run("prequential", examples(20), ring, feedback="delayed", delay=delay)
    expected: list[tuple[str, int]] = []
    for number in range(20):
        expected.append(("judged", number))
        if number >= delay:
            expected.append(("learnt", number - delay))
    assert [recorder.events for recorder in ring.entered[0]] == [expected, expected]
    assert [found.taught for found in runs] == [max(0, 20 - delay)] * 2


def test_partial_feedback_teaches_about_its_share_and_every_contender_the_same() -> None:
    ring, other = Ring(("one", "two", "three")), Ring()
    runs = run("prequential", examples(3000), ring, feedback="partial", share=0.2, seed=5)
    taught = [recorder.numbers("learnt") for recorder in ring.entered[0]]
    assert taught[0] == taught[1] == taught[2]
    assert 600 - 110 < len(taught[0]) < 600 + 110  # five standard deviations of 22
    assert [found.taught for found in runs] == [len(taught[0])] * 3
    run("prequential", examples(3000), other, feedback="partial", share=0.2, seed=6)
    assert other.entered[0][0].numbers("learnt") != taught[0]


@pytest.mark.parametrize(("share", "taught"), [(0.0, 0), (1.0, 50)])
def test_partial_feedback_of_nothing_and_of_everything(share: float, taught: int) -> None:
    assert run("prequential", examples(50), Ring(), feedback="partial", share=share)[0].taught == taught


@pytest.mark.parametrize(
    ("posterior", "label", "learnt"),
    [
        pytest.param(0.0, "ham", False, id="ham-seen"),
        pytest.param(0.39, "ham", False, id="ham-just-seen"),
        pytest.param(0.4, "ham", True, id="ham-unsure"),
        pytest.param(0.79, "ham", True, id="ham-still-unsure"),
        pytest.param(0.8, "ham", True, id="ham-lost"),
        pytest.param(0.39, "spam", True, id="spam-missed"),
        pytest.param(0.4, "spam", True, id="spam-unsure"),
        pytest.param(0.79, "spam", True, id="spam-still-unsure"),
        pytest.param(0.8, "spam", False, id="spam-seen"),
        pytest.param(1.0, "spam", False, id="spam-surely-seen"),
    ],
)
def test_errors_and_unsure_ones_are_what_a_user_would_speak_of(posterior: float, label: Label, learnt: bool) -> None:
    ring = Ring(posterior=lambda number: posterior)
    run("prequential", [example(0, label)], ring, feedback="errors-and-unsure", unsure=0.4, spam=0.8)
    assert ring.entered[0][0].numbers("learnt") == ([0] if learnt else [])


def test_each_contender_is_asked_about_its_own_errors() -> None:
    made = [Recorder("timid", lambda number: 0.0), Recorder("bold", lambda number: 1.0)]
    runs = PROTOCOLS["prequential"](examples(9), lambda: made, Trial(feedback="errors-and-unsure"), lambda count: None)
    assert made[0].numbers("learnt") == [0, 3, 6]
    assert made[1].numbers("learnt") == [1, 2, 4, 5, 7, 8]
    assert [found.taught for found in runs] == [3, 6]


# A small user


def test_a_small_user_trains_on_the_first_of_each_class_and_the_stream_begins_behind_them() -> None:
    ring = Ring()
    (found,) = run("prequential", examples(30), ring, feedback="small-user", train_first=3, a_day=0, day=10, rounds=2)
    (recorder,) = ring.entered[0]
    # Spam are 0, 3, 6; ham 1, 2, 4; what comes between is passed over.
    assert sorted(set(recorder.numbers("learnt"))) == [0, 1, 2, 3, 4, 6]
    assert numbers(found) == list(range(7, 30))
    assert found.days == [(10, 0), (10, 0), (3, 0)]


def test_a_small_user_marks_lost_ham_first_then_missed_spam_then_unsure_mail_and_no_more_than_a_day_allows() -> None:
    says = {10: 0.6, 11: 0.95, 12: 0.1, 13: 0.95, 14: 0.6, 15: 0.95, 16: 0.1}  # 12 and 15 are spam
    stream = [*examples(4), *(example(number, "spam" if number % 3 == 0 else "ham") for number in says)]

    def marked(a_day: int) -> set[int]:
        ring = Ring(posterior=lambda number: says.get(number, 0.1))
        (found,) = run("prequential", stream, ring, feedback="small-user", train_first=2, a_day=a_day, day=50)
        assert found.days == [(7, min(a_day, 5))]
        return {number for number in ring.entered[0][0].numbers("learnt") if number >= 10}

    assert [marked(most) for most in (1, 2, 3, 4, 9)] == [
        {11}, {11, 13}, {11, 13, 12}, {11, 13, 12, 10}, {11, 13, 12, 10, 14},
    ]  # fmt: skip


def test_marks_of_a_small_user_come_in_the_evening_in_the_order_of_the_mail() -> None:
    ring = Ring(posterior=lambda number: 0.6)
    run("prequential", examples(20), ring, feedback="small-user", train_first=1, a_day=2, day=9)
    (recorder,) = ring.entered[0]
    assert [event for event in recorder.events if event[1] >= 2] == [
        *(("judged", number) for number in range(2, 11)), ("learnt", 2), ("learnt", 3),
        *(("judged", number) for number in range(11, 20)), ("learnt", 11), ("learnt", 12),
    ]  # fmt: skip


# Wrong labels


@pytest.mark.parametrize(
    ("protocol", "varied"),
    [
        pytest.param("prequential", {}, id="full"),
        pytest.param("prequential", {"feedback": "delayed", "delay": 5}, id="delayed"),
        pytest.param("trained-once", {"rounds": 2}, id="trained-once"),
        pytest.param("cross-validation", {"folds": 2}, id="cross-validation"),
    ],
)
def test_noise_turns_its_share_of_the_labels_that_are_taught_and_of_none_that_are_measured(
    protocol: str, varied: dict[str, Any]
) -> None:
    messages, ring = examples(2000), Ring(("one", "two"))
    runs = run(protocol, messages, ring, noise=0.2, **varied)
    for one, two in ring.entered:
        assert one.labels == two.labels
        turned = {number for number, label in one.labels if label == OTHER[messages[number].label]}
        taught = {number for number, _ in one.labels}
        # Five standard deviations of the share.
        assert abs(len(turned) / len(taught) - 0.2) < 5 * (0.16 / len(taught)) ** 0.5
        assert all((number in turned) == (label != messages[number].label) for number, label in one.labels)
    for found in runs:
        assert found.labels == [messages[number].label for number in numbers(found)]


def test_without_noise_all_labels_are_right_and_the_seed_chooses_the_wrong_ones() -> None:
    def turned(**varied: Any) -> list[int]:
        ring, messages = Ring(), examples(300)
        run("prequential", messages, ring, **varied)
        return [number for number, label in ring.entered[0][0].labels if label != messages[number].label]

    assert turned() == []
    assert turned(noise=0.1) == turned(noise=0.1)
    assert turned(noise=0.1) != turned(noise=0.1, seed=2)


def test_errors_and_unsure_ones_are_told_by_the_true_label_and_taught_with_the_wrong_one() -> None:
    ring = Ring(posterior=lambda number: 0.0)
    run("prequential", examples(30), ring, feedback="errors-and-unsure", noise=0.5, seed=3)
    (recorder,) = ring.entered[0]
    assert recorder.numbers("learnt") == list(range(0, 30, 3))
    assert {label for _, label in recorder.labels} == set(LABELS)


# Trained, then judged


@pytest.mark.parametrize(
    ("varied", "trained"),
    [
        pytest.param({}, [0, 1, 2, 3, 4], id="time"),
        pytest.param({"split": "alternate"}, [0, 2, 4, 6, 8], id="alternate"),
    ],
)
def test_training_once_learns_a_part_and_judges_the_rest(varied: dict[str, Any], trained: list[int]) -> None:
    ring = Ring(("one", "two"))
    runs = run("trained-once", examples(10), ring, rounds=2, **varied)
    judged = [number for number in range(10) if number not in trained]
    assert len(ring.entered) == 1
    for recorder, found in zip(ring.entered[0], runs, strict=True):
        assert [event for event, _ in recorder.events] == ["learnt"] * 2 * len(trained) + ["judged"] * len(judged)
        once, again = recorder.numbers("learnt")[: len(trained)], recorder.numbers("learnt")[len(trained) :]
        assert once == again
        assert sorted(once) == trained
        assert (recorder.numbers("judged"), numbers(found)) == (judged, judged)
        assert (found.taught, found.part) == (len(trained), "")


@pytest.mark.parametrize("protocol", ["trained-once", "learning-curve", "cross-validation"])
def test_mail_is_trained_with_its_classes_evenly_mixed_each_in_its_order(protocol: str) -> None:
    piles = [example(number, "ham" if number < 20 else "spam") for number in range(80)]
    ring = Ring()
    run(protocol, sorted(piles, key=lambda item: int(item.name[1:]) % 40), ring, rounds=1, folds=4)
    for (recorder,) in ring.entered:
        learnt = recorder.numbers("learnt")
        spam = [number >= 20 for number in learnt]
        for end in range(1, len(learnt) + 1):
            assert abs(sum(spam[:end]) - end * sum(spam) / len(spam)) <= 1
        for label in (True, False):
            places = [number % 40 for number in learnt if (number >= 20) == label]
            assert places == sorted(places)


def test_a_random_split_is_one_that_its_seed_repeats() -> None:
    def parts(seed: int) -> tuple[list[int], list[int]]:
        ring = Ring()
        run("trained-once", examples(40), ring, split="random", seed=seed, rounds=1)
        return ring.entered[0][0].numbers("learnt"), ring.entered[0][0].numbers("judged")

    learnt, judged = parts(1)
    assert (len(learnt), sorted(learnt + judged)) == (20, list(range(40)))
    assert learnt != list(range(20))
    assert parts(1) == (learnt, judged)
    assert parts(2) != (learnt, judged)


@some(50)
@given(st.lists(st.sampled_from(LABELS), min_size=2, max_size=40), st.integers(2, 12), st.integers(0, 5))
def test_folds_part_all_messages_with_the_classes_even(labels: list[Label], folds: int, seed: int) -> None:
    messages = [example(number, label) for number, label in enumerate(labels)]
    ring = Ring(("one", "two"))
    runs = run("cross-validation", messages, ring, folds=folds, seed=seed, rounds=1)
    parts = [set(one.numbers("judged")) for one, _ in ring.entered]
    assert len(parts) == folds
    assert sorted(number for part in parts for number in part) == list(range(len(messages)))
    for (one, two), part in zip(ring.entered, parts, strict=True):
        assert sorted(one.numbers("learnt")) == [number for number in range(len(messages)) if number not in part]
        assert one.events == two.events
    for label in LABELS:
        sizes = [sum(labels[number] == label for number in part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
    assert [(found.contender, found.taught) for found in runs] == [
        (name, (folds - 1) * len(messages)) for name in ("one", "two")
    ]
    assert all(sorted(numbers(found)) == list(range(len(messages))) for found in runs)


def test_folds_are_drawn_by_chance_that_can_be_repeated() -> None:
    def first(seed: int) -> list[int]:
        ring = Ring()
        run("cross-validation", examples(60), ring, folds=3, seed=seed, rounds=1)
        return ring.entered[0][0].numbers("judged")

    assert first(1) == first(1)
    assert first(1) != first(2)
    assert first(1) not in ([*range(20)], [*range(0, 60, 3)])


def test_a_learning_curve_trains_on_more_and_more_of_a_half_and_judges_the_other() -> None:
    ring = Ring(("one", "two"))
    runs = run("learning-curve", examples(40), ring, rounds=2)
    assert [found.contender for found in runs] == ["one", "two"] * len(SIZES)
    assert [found.part for found in runs[::2]] == [str(size) for size in range(2, 21, 2)]
    assert [found.taught for found in runs[1::2]] == list(range(2, 21, 2))
    assert all(numbers(found) == list(range(20, 40)) for found in runs)
    assert len(ring.entered) == len(SIZES)
    for size, recorders in zip(range(2, 21, 2), ring.entered, strict=True):
        for recorder in recorders:
            assert sorted(recorder.numbers("learnt")) == sorted([*range(size)] * 2)


def test_a_learning_curve_of_few_messages_has_each_size_once() -> None:
    ring, seen = Ring(("one", "two")), list[int]()
    runs = run("learning-curve", examples(11), ring, seen, rounds=2)
    assert [found.part for found in runs[::2]] == ["1", "2", "3", "4", "5", "6"]
    assert len(ring.entered) == 6
    assert sum(seen) == steps("learning-curve", 11, 2, Trial(rounds=2))


# Progress


class Impatient(Recorder):
    """Stops in the middle of its second round."""

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        for _ in range(min(rounds, 2)):
            for tokens, label in examples():
                self.learn(tokens, label)
                if len(self.labels) == 7:
                    return


ENTRANTS: dict[str, Callable[[], Contender]] = {
    "recorder": Recorder,
    "impatient": Impatient,
    "learner": lambda: Learner("soft", VOICE),
    "one-rule": OneRule,
}


@every_way
@pytest.mark.parametrize("messages", [8, 21, 30])
@pytest.mark.parametrize("names", [[name] for name in ENTRANTS] + [list(ENTRANTS)], ids="-".join)
def test_progress_is_told_as_many_steps_as_were_announced(
    protocol: str, varied: dict[str, Any], messages: int, names: list[str]
) -> None:
    told: list[int] = []
    trial = Trial(**varied)
    PROTOCOLS[protocol](examples(messages), lambda: [ENTRANTS[name]() for name in names], trial, told.append)
    assert sum(told) == steps(protocol, messages, len(names), trial)
    assert min(told) >= 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_rounds_and_splits_are_announced_too(protocol: str) -> None:
    for trial in (Trial(rounds=1), Trial(rounds=7, folds=3), Trial(split="random")):
        told: list[int] = []
        PROTOCOLS[protocol](examples(33), Ring(("one", "two")), trial, told.append)
        assert sum(told) == steps(protocol, 33, 2, trial)
