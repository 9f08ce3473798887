"""Evaluations of labelled mail, of a ledger and of a journal: the contenders, the messages, the files written."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.voices import VOICES, Voice, VoiceTokens, everybodys, view
from spamfilter.config.likelihood_settings import DEFAULT_VOICES, Learn
from spamfilter.errors import InputError
from spamfilter.evaluation.contenders import Learner, OneRule
from spamfilter.evaluation.error_rates import RATES, intervals, measure
from spamfilter.evaluation.protocols import Example, Run, Trial
from spamfilter.evaluation.runs import (
    by_arrival,
    entrants,
    evaluate,
    of_journal,
    of_ledger,
    of_mails,
    write_scores,
)
from spamfilter.learning.filter import Filter
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import Store
from tests.support.made import VOICE, journal_entry, mail, reading
from tests.support.memory_store import open_store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db")
    yield store
    store.close()


def kinds(name: str, learn: Learn | None = None) -> dict[str, tuple[str, float]]:
    """Voice -> its likelihood and weight, of the contender of this name."""
    voices, enter = entrants([name], learn or Learn())
    (contender,) = enter()
    assert isinstance(contender, Learner)
    assert contender.name == name
    assert contender.state.counts.keys() == {voice.name for voice in voices}
    return {voice.name: (voice.likelihood.name, voice.weight) for voice in voices}


# Who enters


def test_the_configured_contender_is_the_filter_of_the_configuration() -> None:
    assert kinds("configured") == {
        voice.name: (voice.likelihood.name, voice.weight) for voice in everybodys(Learn().chosen())
    }
    assert kinds("configured").keys() == set(DEFAULT_VOICES)
    mine = Learn.model_validate({"voices": ["body", "grams"], "grams": {"likelihood": "bernoulli", "weight": 2.0}})
    assert kinds("configured", mine) == {"body": ("soft", 0.54), "grams": ("bernoulli", 2.0)}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_likelihood_enters_alone_on_the_voice_that_it_is_for(name: str) -> None:
    expected = {"attributes" if name == "gaussian" else "fields": (name, 1.0)}
    assert kinds(name) == expected
    assert kinds(name, Learn(voices=["body", "grams"])) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("body=bernoulli", {"body": ("bernoulli", 1.0)}, id="one-has-no-weight"),
        pytest.param("fields=eddc,body=poisson", {"fields": ("eddc", 0.25), "body": ("poisson", 4.0)}, id="two"),
        pytest.param(
            "grams=soft,attributes=gaussian", {"grams": ("soft", 1.5), "attributes": ("gaussian", 0.1)}, id="numbers"
        ),
    ],
)
def test_likelihoods_enter_by_voice_with_the_weights_of_the_configuration(
    name: str, expected: dict[str, tuple[str, float]]
) -> None:
    weights = {"fields": 0.25, "body": 4.0, "grams": 1.5, "attributes": 0.1}
    assert kinds(name, Learn.model_validate({voice: {"weight": weights[voice]} for voice in weights})) == expected


def test_parameters_are_those_of_the_configuration() -> None:
    learn = Learn.model_validate({"soft": {"scale": 3.5}, "multinomial": {"smoothing": 0.25}})
    for name in ("soft", "fields=soft,body=soft", "multinomial"):
        for voice in entrants([name], learn)[0]:
            assert getattr(voice.likelihood, "scale" if "soft" in name else "smoothing") == (
                3.5 if "soft" in name else 0.25
            )


def test_several_contenders_are_read_the_voices_that_any_of_them_needs() -> None:
    voices, enter = entrants(["one_rule", "grams=soft", "gaussian", "configured"], Learn())
    assert {voice.name for voice in voices} == {*DEFAULT_VOICES, "grams", "attributes"}
    rule, *others = enter()
    assert isinstance(rule, OneRule)
    assert [contender.name for contender in (rule, *others)] == ["one_rule", "grams=soft", "gaussian", "configured"]
    assert [voice.name for voice in entrants(["one_rule"], Learn())[0]] == ["fields"]


def test_contenders_enter_anew_each_time_with_nothing_learnt() -> None:
    voices, enter = entrants(["soft"], Learn())
    first = enter()[0]
    tokens = view(voices, parse(mail()))
    first.learn(tokens, "spam")
    assert first.score(tokens).log_odds > 0
    assert enter()[0].score(tokens).log_odds == 0


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sfot",
        "fields",
        "fields=",
        "=soft",
        "fields=sfot",
        "filds=soft",
        "fields=soft,",
        "fields:soft",
        "Soft",
        "fields=soft,fields=eddc",
    ],
)
def test_a_contender_that_is_none_is_named_beside_the_choices(name: str) -> None:
    with pytest.raises(InputError) as raised:
        entrants([name], Learn())
    sentence = str(raised.value)
    assert sentence.startswith(f"{name!r}: not a contender; ")
    assert all(choice in sentence for choice in ("configured", "one_rule", *LIKELIHOODS, *VOICES))


@pytest.mark.parametrize("name", ["fields=gaussian", "fields=soft,body=gaussian", "attributes=soft"])
def test_the_gaussian_is_for_numbers_and_only_it_as_in_the_configuration(name: str) -> None:
    with pytest.raises(InputError, match="gaussian"):
        entrants([name], Learn())


# What is judged


def test_mails_are_examples_that_are_read_anew_each_time() -> None:
    reads: list[str] = []

    def read() -> bytes:
        reads.append("once")
        return mail()

    voices, _ = entrants(["body=soft,grams=soft"], Learn())
    (example,) = of_mails([("spam", Mail("x.eml", read))], voices)
    assert (example.name, example.label, reads) == ("x.eml", "spam", [])
    assert example.read() == example.read() == view(voices, parse(mail()))
    assert example.read().keys() == {"body", "grams"}
    assert len(reads) == 3


def test_each_of_many_mails_is_read_for_itself() -> None:
    sent = {f"m{number}": mail(f"subject{number}", name=f"m{number}") for number in range(3)}
    mails = [Mail(name, lambda content=content: content) for name, content in sent.items()]  # type: ignore[misc]
    examples = of_mails([("ham", item) for item in mails], VOICE)
    assert [example.read() for example in examples] == [view(VOICE, parse(content)) for content in sent.values()]


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is ten hours behind, and summer is no help."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XXX+10")
        time.tzset()
        yield
    time.tzset()


def dated(received: str = "", date: str = "") -> bytes:
    head = f"Received: from a.example by b.example; {received}\r\n" if received else ""
    head += f"Date: {date}\r\n" if date else ""
    return f"{head}Subject: x\r\n\r\ntext\r\n".encode()


def day(number: int, zone: str = "+0000") -> str:
    return f"{number} Mar 2026 12:00:00 {zone}"


def arrived(*mails: bytes) -> str:
    """The places of these mails in the order of their arrival."""
    named = [Mail(str(at), lambda content=content: content) for at, content in enumerate(mails)]  # type: ignore[misc]
    given = [(LABELS[at % 2], item) for at, item in enumerate(named)]
    found = by_arrival(given)
    assert sorted(found, key=lambda item: item[1].name) == given
    return "".join(item.name for _, item in found)


@pytest.mark.parametrize(
    ("mails", "order"),
    [
        pytest.param([dated(day(3)), dated(day(1)), dated(day(2))], "120", id="received"),
        pytest.param([dated("", day(3)), dated("", day(1)), dated("", day(2))], "120", id="date-where-none-received"),
        pytest.param([dated(day(2), day(1)), dated(day(1), day(9))], "10", id="forged-dates-do-not-count"),
        pytest.param([dated("some day", day(2)), dated(day(1))], "10", id="received-without-a-date"),
        pytest.param([dated(day(2)), dated("", day(1)), dated(day(3))], "102", id="mixed"),
        pytest.param([dated(day(2)), dated(), dated(day(1)), dated(day(3))], "2013", id="undated-after-the-one-before"),
        pytest.param([dated(), dated(day(1)), dated()], "012", id="undated-at-the-beginning"),
        pytest.param([dated(day(1)), dated("", "not a date"), dated(day(1))], "012", id="date-that-is-none"),
        pytest.param([dated(day(1)), dated(day(1)), dated(day(1))], "012", id="equal-dates-stay-as-they-are"),
        pytest.param([dated(day(1, "-0500")), dated(day(1, "+0200"))], "10", id="zones"),
        pytest.param(
            [dated(day(1, "-0000")), dated(day(1, "+0200")), dated(day(1, "-0200"))], "102", id="zone-unknown"
        ),
        pytest.param([dated(day(9)), dated("1 Mar 9999999 12:00:00 +0000"), dated(day(8))], "201", id="far-off"),
        pytest.param([], "", id="none"),
    ],
)
@pytest.mark.usefixtures("far_from_greenwich")
def test_mail_is_put_in_the_order_of_its_arrival(mails: list[bytes], order: str) -> None:
    assert arrived(*mails) == order


def test_the_server_nearest_to_the_user_is_believed() -> None:
    def hops(*days: int) -> bytes:
        return b"".join(dated(day(number)).partition(b"Subject")[0] for number in days) + b"Subject: x\r\n\r\ntext\r\n"

    assert arrived(hops(5, 1), hops(4, 9)) == "10"


# The ledger


def test_the_ledger_gives_what_is_learnt_and_not_taken_back_in_its_order(store: Store) -> None:
    filter = Filter(store, VOICE)
    filter.learn(reading("first", "a"), "spam", "cli")
    filter.learn(reading("second", "b"), "ham", "cli")
    filter.learn(reading("third", "c"), "spam", "cli")
    filter.learn(reading("first", "a"), "ham", "cli")  # corrected, and so the last
    filter.forget(reading("second"), "cli")
    store.write_journal([journal_entry(id="J", digest=reading("third").digest)])
    assert [example.name for example in of_ledger(store, VOICE)] == ["J", "#5"]
    store.remove_journal("J")
    found = of_ledger(store, VOICE)
    assert [(example.name, example.label) for example in found] == [("#3", "spam"), ("#5", "ham")]
    assert [example.read()["fields"] for example in found] == [{b"c": 1}, {b"a": 1}]


def test_a_long_ledger_is_read_whole(store: Store) -> None:
    filter = Filter(store, VOICE)
    with filter.training() as training:
        for number in range(1005):
            training.learn(reading(f"{number:05}", f"w{number}"), LABELS[number % 2], "train")
    assert [example.read()["fields"] for example in of_ledger(store, VOICE)] == [
        {b"w%d" % number: 1} for number in range(1005)
    ]


def test_a_voice_that_the_ledger_has_no_tokens_of_is_named(store: Store) -> None:
    Filter(store, VOICE).learn(reading("first", "a"), "spam", "cli")
    with pytest.raises(InputError, match=r": the ledger has no tokens of body, grams; evaluate mail$"):
        of_ledger(store, entrants(["fields=soft,body=soft,grams=soft"], Learn())[0])


def test_a_ledger_with_nothing_in_it_gives_nothing(store: Store) -> None:
    assert of_ledger(store, VOICE) == []


# The journal

LATER = timedelta(hours=1)


def passed(store: Store, name: str, at: datetime, score: float, **changes: Any) -> None:
    store.write_journal([
        journal_entry(digest=reading(name).digest, at=at, score=score, log_odds=10 * score - 5, **changes)
    ])  # fmt: skip


def marked(store: Store, name: str, label: Label, at: datetime) -> None:
    Filter(store, VOICE).learn(reading(name, name), label, "cli", at=at)


def test_the_journal_gives_the_verdicts_on_mail_that_was_labelled_since(store: Store) -> None:
    now = datetime.now(UTC) - timedelta(days=1)
    passed(store, "lost", now, 0.95, judge_us=400)
    passed(store, "junk", now, 0.75, judge_us=600)
    passed(store, "never marked", now, 0.5)
    passed(store, "known", now + 2 * LATER, 0.99)  # judged after it was learnt
    passed(store, "undone", now, 0.25)
    for name, label in (("lost", "ham"), ("junk", "spam"), ("known", "spam"), ("undone", "ham"), ("not seen", "ham")):
        marked(store, name, label, now + LATER)  # type: ignore[arg-type]  # labels are literals
    Filter(store, VOICE).forget(reading("undone"), "cli")
    run = of_journal(store)
    assert run is not None
    assert sorted(zip(run.labels, run.posteriors, run.log_odds, strict=True)) == [
        ("ham", 0.95, 4.5), ("spam", 0.75, 2.5),
    ]  # fmt: skip
    assert run.contender == "journal"
    assert run.seconds == 0  # the journal has times by the clock, and with parsing
    assert {store.find_journal(example.name).digest for example in run.examples} == {  # type: ignore[union-attr]
        reading("lost").digest, reading("junk").digest,
    }  # fmt: skip


@pytest.mark.parametrize("labels", [[], ["ham"], ["spam", "spam"]], ids=["none", "ham", "spam"])
def test_the_journal_gives_nothing_without_both_classes(store: Store, labels: list[Label]) -> None:
    now = datetime.now(UTC) - timedelta(days=1)
    for number, label in enumerate(labels):
        passed(store, f"m{number}", now, 0.5)
        marked(store, f"m{number}", label, now + LATER)
    passed(store, "known", now + 2 * LATER, 0.9)
    marked(store, "known", "ham" if "spam" in labels else "spam", now + LATER)
    assert of_journal(store) is None


def test_many_labelled_verdicts_are_all_found(store: Store) -> None:
    now = datetime.now(UTC) - timedelta(days=1)
    store.write_journal([journal_entry(digest=reading(f"{number:05}").digest, at=now) for number in range(1203)])
    with Filter(store, VOICE).training() as training:
        for number in range(1203):
            training.learn(reading(f"{number:05}", "a"), LABELS[number % 2], "cli", at=now + LATER)
    run = of_journal(store)
    assert run is not None
    assert len(run.examples) == 1203


# To figures


def stream(labels: str) -> list[Example]:
    """Messages whose words tell their class: h and s; where the letter is large, the label is the other one."""

    def tokens(letter: str) -> VoiceTokens:
        return {"fields": {b"lunch" if letter in "hS" else b"pills": 1, b"all": 1}}

    return [
        Example(f"{letter}{at}", "ham" if letter in "hH" else "spam", lambda letter=letter: tokens(letter))  # type: ignore[misc]
        for at, letter in enumerate(labels)
    ]


def test_every_contender_is_measured_by_its_run() -> None:
    examples = stream("hshshshshshs")
    found = evaluate(examples, entrants(["soft", "one_rule"], Learn())[1], resamples=20)
    assert [(item.likelihood, item.protocol) for item in found] == [
        ("soft", "prequential"),
        ("one_rule", "prequential"),
    ]
    for item in found:
        run = item.run
        assert run.examples == examples
        assert item.metrics == measure(run.log_odds, run.posteriors, run.labels)
        assert item.intervals == intervals(run.log_odds, run.posteriors, run.labels, 20)
        assert item.microseconds == pytest.approx(1e6 * run.seconds / 12)
    assert evaluate(examples, entrants(["soft"], Learn())[1], resamples=0)[0].intervals == {}
    assert set(found[0].intervals) == set(RATES)


def test_messages_whose_label_is_contradicted_are_named_the_surest_first() -> None:
    examples = stream("hshshshshHhshSh")
    (found,) = evaluate(examples, entrants(["multinomial"], Learn())[1], resamples=0)
    assert {("H9", "ham"), ("S13", "spam")} <= {(name, label) for name, label, _ in found.suspects[:3]}
    for name, _, posterior in found.suspects:
        at = [example.name for example in examples].index(name)
        assert posterior == found.run.posteriors[at]


@pytest.mark.parametrize(
    ("labels", "protocol", "missing"),
    [
        pytest.param("", "prequential", "no ham among 0 messages", id="none"),
        pytest.param("hhhh", "prequential", "no spam among 4 messages", id="ham"),
        pytest.param("ssss", "cross-validation", "no ham among 4 messages", id="spam"),
        pytest.param("hshshhhh", "trained-once", "no spam among 4 messages", id="half-that-is-judged"),
        pytest.param("hshsssss", "learning-curve", "no ham among 4 messages", id="half-of-a-curve"),
    ],
)
def test_a_stream_without_both_classes_is_not_measured(labels: str, protocol: str, missing: str) -> None:
    with pytest.raises(InputError, match=missing):
        evaluate(stream(labels), entrants(["soft"], Learn())[1], protocol, Trial(folds=2))


# Scores on paper


def test_scores_are_written_a_line_for_each_message_in_their_order(tmp_path: Path) -> None:
    run = Run(
        "x",
        examples=stream("hshs"),
        log_odds=[-1.5, 2.0, 1 / 3, -1e-9],
        posteriors=[0.1, 0.9, 0.5, 0.49],
        classes=["ham", "spam", "unsure", "ham"],
        known=[0.0, 1.0, 1 / 3, 0.5],
    )
    write_scores(tmp_path / "scores", run)
    assert (tmp_path / "scores").read_text().splitlines() == [
        "ham\t-1.500000\t0.100000\tham\t0.000",
        "spam\t2.000000\t0.900000\tspam\t1.000",
        "ham\t0.333333\t0.500000\tunsure\t0.333",
        "spam\t-0.000000\t0.490000\tham\t0.500",
    ]


@pytest.mark.parametrize(("name", "reason"), [("none/x", "No such file"), (".", "Is a directory")])
def test_scores_that_cannot_be_written_are_one_sentence(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"{name}: {reason}"):
        write_scores(tmp_path / name, Run("x"))


def test_a_reading_of_a_mark_is_what_its_message_was() -> None:
    store = open_store("memory:")
    voices = (*VOICE, Voice("body", LIKELIHOODS["soft"]()))
    filter = Filter(store, voices)
    message = filter.read(parse(mail()))
    filter.learn(message, "ham", "cli")
    (example,) = of_ledger(store, voices)
    assert example.read() == message.tokens
