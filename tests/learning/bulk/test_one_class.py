"""Runs of bulk training that have one class each: what earlier runs have learnt of the other one is gone over again."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from spamfilter.bayes.labels import BULK, Label
from spamfilter.bayes.verdict import Policy
from spamfilter.config.likelihood_settings import Learn
from spamfilter.config.sections import Feedback
from spamfilter.learning.bulk import earlier_runs
from spamfilter.learning.bulk import training as bulk_training
from spamfilter.learning.bulk.labelled_mail import find_indexed
from spamfilter.learning.bulk.training import STEPS, Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_lookup import by_mail
from spamfilter.learning.marks import Author, mark
from spamfilter.learning.retraining import retrain
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import Store, open_store
from tests.support.real import corpus

VOICES = Learn().chosen()
TRAINED, JUDGED, FEW = 600, 300, 200
ROOT = Author("root", "cli", master=True)
Mails = list[tuple[Label, Mail]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / 'store.db'}")) as opened:
        yield opened


@pytest.fixture(scope="module")
def mails() -> Mails:
    return list(find_indexed(corpus("spamassassin") / "index.interleaved"))[: TRAINED + JUDGED]


def of(label: Label, mails: Mails, first: int = TRAINED) -> Mails:
    return [item for item in mails[:first] if item[0] == label]


def run(store: Store, mails: Mails) -> Outcome:
    outcome, told = Outcome(), list[int]()
    train(Filter(store, VOICES), mails, "ann", told.append, outcome)
    assert sum(told) == STEPS * len(mails)
    return outcome


def verdicts(store: Store, mails: Mails) -> Counter[tuple[Label, str]]:
    """How many of the mails that were not learnt are called what."""
    filter = Filter(store, VOICES)
    assert filter.verify() == []
    return Counter(
        (label, Policy().classify(filter.score(filter.read(parse(item.read()))), filter.learnt))
        for label, item in mails[TRAINED:]
    )


@pytest.mark.parametrize(("first", "second"), [("ham", "spam"), ("spam", "ham")])
def test_two_runs_of_a_class_each_judge_as_well_as_one_of_both(
    first: Label, second: Label, store: Store, mails: Mails
) -> None:
    run(store, of(first, mails))
    outcome = run(store, of(second, mails))
    assert (outcome.learnt, outcome.known) == ({first: 0, second: len(of(second, mails))}, 0)
    found = verdicts(store, mails)
    assert found["ham", "spam"] == 0
    assert found["ham", "ham"] >= 0.95 * sum(label == "ham" for label, _ in mails[TRAINED:])
    assert found["spam", "spam"] >= 0.85 * sum(label == "spam" for label, _ in mails[TRAINED:])


def test_mail_that_a_person_has_confirmed_is_gone_over_again(store: Store, mails: Mails) -> None:
    hams, spams = of("ham", mails), of("spam", mails)
    run(store, hams)
    filter = Filter(store, VOICES)
    for _, item in hams:
        assert mark(filter, by_mail(filter, "", item.read()), "ham", ROOT, Feedback()).changed
    assert {entry.by for entry in store.learnings()} == {"root"}
    outcome = run(store, spams)
    assert outcome.went_over["ham"] >= len(spams)
    assert verdicts(store, mails)["ham", "spam"] == 0
    assert {entry.by for entry in store.learnings() if entry.label == "ham"} == {"root"}


def test_mail_that_is_named_again_is_gone_over_again(store: Store, mails: Mails) -> None:
    hams, spams = of("ham", mails)[:30], of("spam", mails)
    with patch.object(earlier_runs, "FEWEST", 1):
        assert run(store, hams + spams[:5]).went_over == {"ham": 0, "spam": 0}
        outcome = run(store, hams + spams[:50])
    assert (outcome.learnt["spam"], outcome.went_over) == (45, {"ham": 30, "spam": 5})


def test_mail_that_was_marked_otherwise_is_not_gone_over_again(store: Store, mails: Mails) -> None:
    hams = of("ham", mails)[:20]
    run(store, hams)
    filter = Filter(store, VOICES)
    for _, item in hams[:5]:
        mark(filter, by_mail(filter, "", item.read()), "spam", ROOT, Feedback())
    filter.learn(filter.read(parse(of("ham", mails)[20][1].read())), "ham", "cli", "ann")
    assert run(store, of("spam", mails)[:30]).went_over == {"ham": 15, "spam": 0}


def test_marks_of_one_class_after_the_other_are_put_right_by_retraining(store: Store, mails: Mails) -> None:
    filter = Filter(store, VOICES)
    with filter.training() as training:
        for label, item in (*of("ham", mails)[:150], *of("spam", mails)[:150]):
            training.learn(filter.read(parse(item.read())), label, "cli", "ann")
    assert verdicts(store, mails)["ham", "spam"] > 20
    retrain(store, VOICES, {}, lambda entries: None)
    assert verdicts(store, mails)["ham", "spam"] == 0


def test_a_run_that_learns_nothing_new_changes_nothing(store: Store, mails: Mails) -> None:
    spams = of("spam", mails, FEW)
    run(store, of("ham", mails, FEW))
    run(store, spams)
    last = store.state({}).last
    outcome = run(store, spams)
    assert (outcome.known, outcome.changes, outcome.reinforced) == (len(spams), 0, 0)
    assert store.state({}).last == last


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    tmp_path: Path, mails: Mails, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(stop: int) -> tuple[object, ...]:
        told = [0]

        def progress(count: int) -> None:
            told[0] += count
            if told[0] >= stop > 0:
                raise KeyboardInterrupt

        with closing(open_store(f"sqlite:///{tmp_path / f'{stop}.db'}")) as store:
            run(store, of("ham", mails)[:200])
            spam = of("spam", mails)[:100]
            if stop:
                with pytest.raises(KeyboardInterrupt):
                    train(Filter(store, VOICES), spam, "ann", progress, Outcome())
            run(store, spam)
            found = store.load(voice.name for voice in VOICES)
            return found.counts, found.learnt, found.calibration

    monkeypatch.setattr(bulk_training, "TOGETHER", 17)
    undisturbed = state(0)
    for stop in (20, 90, 250):
        assert state(stop) == undisturbed, stop


def test_what_is_gone_over_again_is_still_one_learning_of_its_time(store: Store, mails: Mails) -> None:
    run(store, of("ham", mails, FEW))
    before = {entry.digest: entry for entry in store.learnings()}
    now = datetime.now(UTC)
    run(store, of("spam", mails, FEW))
    after = {entry.digest: entry for entry in store.learnings()}
    assert any(after[digest].id != entry.id for digest, entry in before.items())
    assert all((after[digest].at, after[digest].label) == (entry.at, entry.label) for digest, entry in before.items())
    assert sum(entry.at >= now for entry in after.values()) == len(of("spam", mails, FEW))
    assert Filter(store, VOICES).learnt == {label: len(of(label, mails, FEW)) for label in ("ham", "spam")}


def test_a_mail_that_was_learnt_as_ham_before_can_be_named_as_spam(store: Store, mails: Mails) -> None:
    run(store, of("ham", mails, FEW))
    wrong = of("ham", mails, FEW)[-1]
    outcome = run(store, [*of("spam", mails, FEW), ("spam", wrong[1])])
    assert (outcome.relabelled, outcome.problems) == (1, [])
    assert Filter(store, VOICES).verify() == []
    assert Filter(store, VOICES).learnt["spam"] == len(of("spam", mails, FEW)) + 1


def test_marks_of_people_are_left_as_they_are(store: Store, mails: Mails) -> None:
    filter = Filter(store, VOICES)
    for label, item in of("ham", mails)[:30]:
        filter.learn(filter.read(parse(item.read())), label, "imap", "bob")
    marks = store.learnings()
    run(store, of("spam", mails)[:30])
    assert [entry for entry in store.learnings() if entry.source != BULK] == marks
