"""Contenders: the filter in an evaluation is the relay's, and the one rule is the best single word."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes import model
from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.model import State
from spamfilter.bayes.voices import Voice, Voices, VoiceTokens, view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.evaluation.contenders import ONE_RULE, Contender, Examples, Learner, OneRule
from spamfilter.learning.bulk.labelled_mail import interleaved, mixed
from spamfilter.learning.bulk.rounds import ROUNDS, Message, later_rounds, no_amounts, note
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from tests.support.made import VOICE, mail, some
from tests.support.memory_store import open_store

DEFAULT = Learn().chosen()
CHOICES: dict[str, Voices] = {
    "default": DEFAULT,
    "attributes-beside-it": (*DEFAULT, Voice("attributes", Gaussian(least=1), 0.2)),
    **{name: Learn.model_validate({"likelihood": name, "gaussian": {"least": 1}}).chosen() for name in LIKELIHOODS},
}
every = pytest.mark.parametrize("name", CHOICES)

WORDS = [b"a", b"b", b"c", b"^d", b"^e", "grün".encode()]
BAG = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 4), max_size=5)
NAMES = sorted({voice.name for voices in CHOICES.values() for voice in voices})
TOKENS = st.fixed_dictionaries(dict.fromkeys(NAMES, BAG)) | st.fixed_dictionaries({"fields": BAG, "body": BAG})
"""All voices see something, or some see nothing at all."""
LABELLED = st.lists(st.tuples(TOKENS, st.sampled_from(LABELS)), max_size=12)
SETS = st.lists(st.tuples(st.sets(st.sampled_from(WORDS), max_size=4), st.sampled_from(LABELS)), max_size=14)

Labelled = list[tuple[VoiceTokens, Label]]
Bags = list[tuple[set[bytes], Label]]


def everything(state: State) -> tuple[dict[str, Counts], dict[Label, int], Calibration, list[object]]:
    """All that judging depends on; with the tallies, which equality of counts passes over where one side lacks them."""
    tallies: list[object] = [state.counts[name].tallies for name in sorted(state.counts)]
    return state.counts, dict(state.learnt), state.calibration, tallies


@every
@some(25)
@given(messages=LABELLED)
def test_a_learner_scores_and_learns_message_by_message_as_the_filter_does(name: str, messages: Labelled) -> None:
    voices = CHOICES[name]
    learner, filter = Learner(name, voices), Filter(open_store("memory:"), voices)
    for number, (tokens, label) in enumerate(messages):
        reading = Reading(b"%016d" % number, tokens)
        assert learner.score(tokens) == filter.score(reading)
        learner.learn(tokens, label)
        filter.learn(reading, label, "cli")
    assert everything(learner.state) == everything(filter._all())


@every
def test_a_learner_that_has_not_judged_a_message_learns_it_all_the_same(name: str) -> None:
    voices = CHOICES[name]
    asked, silent = Learner(name, voices), Learner(name, voices)
    for number, (label, item) in enumerate(labelled(8)):
        tokens = view(voices, parse(item.read()))
        asked.score(tokens)
        if number % 3 == 0:
            asked.score(view(voices, parse(mail("another", "one"))))  # the score that is kept is not this message's
        asked.learn(tokens, label)
        silent.learn(tokens, label)
    assert everything(asked.state) == everything(silent.state)


@every
def test_a_learner_that_learns_the_same_words_again_looks_at_them_anew(name: str) -> None:
    voices = CHOICES[name]
    tokens = view(voices, parse(mail()))
    learner, filter = Learner(name, voices), Filter(open_store("memory:"), voices)
    learner.score(tokens)
    for number, label in enumerate(("spam", "spam", "ham", "ham")):
        learner.learn(tokens, label)  # type: ignore[arg-type]  # labels are literals
        filter.learn(Reading(b"%016d" % number, tokens), label, "cli")  # type: ignore[arg-type]  # as above
    assert everything(learner.state) == everything(filter._all())


def labelled(count: int) -> list[tuple[Label, Mail]]:
    """Mails of two kinds that share words; every ninth has the wrong label, so that later rounds find work."""

    def pile(word: str) -> list[Mail]:
        sent = [
            mail(f"{word} {number}", f"{word} text {number % 7} of all {'x' * (number % 5)}", f"{word}{number}")
            for number in range(count // 2)
        ]
        return [Mail(f"{word}{at}", lambda content=content: content) for at, content in enumerate(sent)]  # type: ignore[misc]

    mails = interleaved(pile("cheap"), pile("lunch"))
    return [(OTHER[label] if at % 9 == 4 else label, item) for at, (label, item) in enumerate(mails)]


@every
def test_a_learner_trains_on_a_pile_of_mail_as_the_command_does(name: str) -> None:
    voices, mails = CHOICES[name], mixed(labelled(80), lambda item: item[0])
    learner, filter, outcome = Learner(name, voices), Filter(open_store("memory:"), voices), Outcome()
    read: list[int] = []

    def examples() -> Examples:
        for label, item in mails:
            read.append(1)
            yield view(voices, parse(item.read())), label

    learner.train(examples, ROUNDS)
    train(filter, mails, "ann", lambda count: None, outcome)
    assert everything(learner.state) == everything(filter._all())
    if name in ("default", "soft"):
        assert outcome.reinforced > 0
        assert len(read) > 2 * len(mails)


def test_a_learner_trained_in_one_round_has_learnt_each_message_once() -> None:
    trained, taught = Learner("soft", VOICE), Learner("soft", VOICE)
    messages: Labelled = [(bag("a", "b"), "spam"), (bag("b", "c"), "ham"), (bag("a"), "ham")]
    trained.train(lambda: messages, 1)
    for tokens, label in messages:
        taught.learn(tokens, label)
    assert everything(trained.state) == everything(taught.state)


@every
@some(25)
@given(messages=LABELLED, data=st.data())
def test_what_was_taught_can_be_taken_away_in_any_order_without_a_trace(
    name: str, messages: Labelled, data: st.DataObject
) -> None:
    voices = CHOICES[name]
    state, straight = model.empty(voices), model.empty(voices)
    kept = data.draw(st.integers(0, len(messages)))
    lessons = []
    for at, (tokens, label) in enumerate(messages):
        lesson = model.taught(voices, tokens, label, state, model.score(voices, tokens, state))
        if at < kept:
            model.apply(voices, lesson, straight)
        else:
            lessons.append(lesson)
    for lesson in data.draw(st.permutations(lessons)):
        model.apply(voices, lesson, state, -1)
    assert everything(state) == everything(straight)


@every
def test_a_lesson_that_was_reinforced_is_taken_away_whole(name: str) -> None:
    voices, state, amounts = CHOICES[name], model.empty(CHOICES[name]), no_amounts(CHOICES[name])
    lessons, messages = [], []
    for number, (label, item) in enumerate(labelled(20)):
        tokens = view(voices, parse(item.read()))
        lessons.append(model.taught(voices, tokens, label, state, model.score(voices, tokens, state)))
        messages.append(Message(number, label, tokens))
        note(amounts, number, lessons[-1].added)
    later_rounds(voices, state.counts, lambda: messages, amounts, ROUNDS)
    for number, lesson in enumerate(lessons):
        more = {voice: added[number] for voice, added in amounts.items() if number in added}
        model.apply(voices, replace(lesson, added={**lesson.added, **more}), state, -1)
    assert everything(state) == everything(model.empty(voices))


# The one rule


def bag(*words: str) -> VoiceTokens:
    return {"fields": {word.encode(): 1 for word in words}}


def best(messages: Bags) -> list[bytes]:
    """The words that make the fewest errors when they judge these messages alone, tried one by one."""
    words = sorted({word for words, _ in messages for word in words})
    errors = {
        (word, says): sum((says if word in words else OTHER[says]) != label for words, label in messages)
        for word in words
        for says in LABELS
    }
    least = min(errors.values(), default=0)
    return [word for word in words if least in (errors[word, "ham"], errors[word, "spam"])]


def succession(messages: Bags, word: bytes | None, present: bool) -> float:
    """Laplace's log-odds of spam among the messages that have this word, or lack it."""
    alike = [label for words, label in messages if (word in words) == present]
    return math.log((1 + alike.count("spam")) / (1 + alike.count("ham")))


def judges(rule: OneRule, messages: Bags) -> list[bytes]:
    """The words by which this rule may be judging."""
    probes: list[set[bytes]] = [set(), *({word} for word in WORDS), *(words for words, _ in messages)]
    said = [rule.score({"fields": dict.fromkeys(probe, 1)}).log_odds for probe in probes]
    words = sorted({word for words, _ in messages for word in words})
    return [
        word for word in words if said == [pytest.approx(succession(messages, word, word in probe)) for probe in probes]
    ]


@some(300)
@given(messages=SETS)
def test_the_one_rule_is_a_word_with_the_fewest_errors_of_all_after_every_message(messages: Bags) -> None:
    rule = OneRule()
    for at, (words, label) in enumerate(messages):
        rule.learn({"fields": dict.fromkeys(words, 2)}, label)
        learnt = messages[: at + 1]
        if any(words for words, _ in learnt):
            assert set(judges(rule, learnt)) & set(best(learnt))
        else:
            assert rule.score(bag("a")).log_odds == pytest.approx(succession(learnt, None, False))


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        pytest.param([({b"a"}, "spam"), ({b"b"}, "ham"), ({b"b", b"a"}, "spam")], b"a", id="speaks-for-spam"),
        pytest.param(
            [({b"a"}, "spam"), ({b"b"}, "ham"), ({b"a"}, "ham"), ({b"b"}, "ham"), (set(), "spam")], b"b", id="for-ham"
        ),
        pytest.param([({b"a"}, "spam"), *[({b"b"}, "ham")] * 2, *[(set(), "ham")] * 8], b"a", id="of-the-rarer-class"),
        pytest.param(
            [({b"b"}, "spam"), *[({b"a"}, "ham")] * 2, *[(set(), "spam")] * 8], b"a", id="of-the-rarer-class-ham"
        ),
        pytest.param(
            [*[({b"a"}, "spam")] * 3, ({b"b"}, "ham"), *[({b"a", b"b"}, "ham")] * 3, *[({b"b"}, "spam")]],
            b"b",
            id="overtaken",
        ),
    ],
)
def test_the_one_rule_of_small_cases(messages: Bags, word: bytes) -> None:
    rule = OneRule()
    for words, label in messages:
        rule.learn({"fields": dict.fromkeys(words, 1)}, label)
    assert best(messages) == [word]
    assert judges(rule, messages) == [word]


@pytest.mark.parametrize("noise", [3, 5, 7], ids=lambda every: f"each-{every}th-label-wrong")
def test_the_one_rule_is_found_among_wrong_labels(noise: int) -> None:
    rule = OneRule()
    for number in range(60):
        label: Label = "spam" if number % 2 else "ham"
        words = [f"number{number}", "all", f"of{number % 4 < 3}", *(["pills"] if label == "spam" else [])]
        rule.learn(bag(*words), OTHER[label] if number % noise == 0 else label)
    assert rule.score(bag("pills")).log_odds > 0 > rule.score(bag("all", "ofTrue", "number1")).log_odds
    assert rule.score(bag("pills")).posterior == pytest.approx(1 / (1 + math.exp(-rule.score(bag("pills")).log_odds)))


def test_the_one_rule_trained_on_a_pile_counts_each_message_once() -> None:
    trained, taught = OneRule(), OneRule()
    messages: Labelled = [(bag("a"), "spam"), (bag("b"), "ham"), (bag("a", "b"), "ham"), (bag("a"), "spam")]
    trained.train(lambda: messages, 5)
    for tokens, label in messages:
        taught.learn(tokens, label)
    assert [trained.score(bag(word)) for word in "abc"] == [taught.score(bag(word)) for word in "abc"]


def test_the_one_rule_sees_the_words_of_fields_alone() -> None:
    rule = OneRule()
    rule.learn({"fields": {b"a": 1}, "body": {b"b": 1}}, "spam")
    rule.learn({"fields": {b"c": 1}, "body": {}}, "ham")
    score = rule.score({"fields": {b"a": 1, b"new": 1}, "body": {b"c": 1}})
    assert score.log_odds == pytest.approx(math.log(2))
    assert score.known == 0.5
    assert rule.score({"body": {b"a": 1}}).log_odds == pytest.approx(-math.log(2))


def test_contenders_have_names_and_know_nothing_at_first() -> None:
    contenders: Sequence[Contender] = [Learner("mine", DEFAULT), OneRule()]
    assert [contender.name for contender in contenders] == ["mine", ONE_RULE]
    for contender in contenders:
        score = contender.score(view(DEFAULT, parse(mail())))
        assert (score.log_odds, score.posterior) == (0.0, 0.5)
