"""Bulk training: a mail is one learning however often it is met, and an interruption costs nothing."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import view
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import InputError, StoreBusy
from spamfilter.learning.bulk import earlier_runs
from spamfilter.learning.bulk import training as bulk_training
from spamfilter.learning.bulk.earlier_runs import UNFINISHED, unfinished
from spamfilter.learning.bulk.labelled_mail import interleaved
from spamfilter.learning.bulk.reading_ahead import processes_here
from spamfilter.learning.bulk.rounds import ROUNDS
from spamfilter.learning.bulk.training import STEPS, Outcome, train
from spamfilter.learning.filter import Filter
from spamfilter.learning.retraining import retrain
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import Learning, Store
from spamfilter.system.process import ended_tidily
from tests.support.made import VOICE, mail
from tests.support.memory_store import open_store

Mails = list[tuple[Label, Mail]]


BATCH = 32
"""Mails of one transaction in these tests."""


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_training, "TOGETHER", BATCH)


def labelled(count: int) -> Mails:
    def some(word: str) -> list[Mail]:
        sent = [
            mail(f"{word} {number}", f"{word} text {number % 7}", f"{word}{number}") for number in range(count // 2)
        ]
        return [Mail(f"{word}{number}", lambda number=number: sent[number]) for number in range(count // 2)]  # type: ignore[misc]

    return interleaved(some("cheap"), some("lunch"))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[Store]:
    store = open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db")
    yield store
    store.close()


def run(store: Store, mails: Mails, progress: object = None) -> Outcome:
    outcome = Outcome()
    train(Filter(store, VOICE), mails, "ann", progress or (lambda count: None), outcome)  # type: ignore[arg-type]
    return outcome


def straight(mails: Mails) -> object:
    """What the counts are after an undisturbed training."""
    store = open_store("memory:")
    run(store, mails)
    state = store.load(["fields"])
    return state.counts, state.learnt, state.calibration


@cache
def undisturbed() -> object:
    return straight(labelled(2 * BATCH))


def test_equal_texts_count_as_often_as_they_come_where_asked(store: Store) -> None:
    same = mail("yes", "yes please", "")
    mails: Mails = [("ham", Mail(str(number), lambda: same)) for number in range(3)]
    mails += [("spam", Mail("other", lambda: same))]
    filter = Filter(store, VOICE)
    for expected in ({"ham": 3, "spam": 1}, {"ham": 0, "spam": 0}):  # the same run again learns nothing
        outcome = Outcome()
        train(filter, mails, "ann", lambda count: None, outcome, repeats=True)
        assert (outcome.learnt, outcome.problems, filter.learnt) == (expected, [], {"ham": 3, "spam": 1})
    retrain(store, VOICE, {}, lambda count: None)
    assert Filter(store, VOICE).learnt == {"ham": 3, "spam": 1}


@pytest.mark.parametrize("at_hand", [True, False])
def test_all_mails_are_learnt_in_order_and_told_as_progress(
    store: Store, at_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_hand:
        monkeypatch.setattr(bulk_training, "KEPT", 0)
    mails = labelled(2 * BATCH + 10)
    steps: list[int] = []
    outcome = run(store, mails, steps.append)
    assert (outcome.learnt, outcome.known, outcome.relabelled) == ({"ham": BATCH + 5, "spam": BATCH + 5}, 0, 0)
    assert steps[:3] == [BATCH, BATCH, 10]
    assert steps[: 3 * ROUNDS] == [BATCH, BATCH, 10] * ROUNDS
    assert sum(steps) == STEPS * len(mails)
    first = store.entries_after(0)[: len(mails)]
    assert [entry.label for entry in first] == [label for label, _ in mails]
    assert {(entry.source, entry.by) for entry in store.entries_after(0)} == {("train", "ann")}
    assert Filter(store, VOICE).verify() == []


@pytest.mark.parametrize("name", [name for name, row in LIKELIHOODS.items() if not row.reinforces()])
def test_what_learns_in_one_round_has_learnt_as_mail_by_mail(name: str, store: Store) -> None:
    voices, mails = Learn.model_validate({"likelihood": name, "gaussian": {"least": 1}}).chosen(), labelled(BATCH + 10)
    train(Filter(store, voices), mails, "ann", lambda count: None, Outcome())
    one_by_one = Filter(open_store("memory:"), voices)
    for label, item in mails:
        one_by_one.learn(one_by_one.read(parse(item.read())), label, "train")
    found, wanted = (made.store.load(voice.name for voice in voices) for made in (Filter(store, voices), one_by_one))
    assert (found.counts, found.learnt, found.calibration) == (wanted.counts, wanted.learnt, wanted.calibration)
    assert Filter(store, voices).verify() == []


def test_how_it_is_cut_into_transactions_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    mails = labelled(BATCH + 10)
    whole = straight(mails)
    monkeypatch.setattr(bulk_training, "TOGETHER", 7)
    assert straight(mails) == whole


def test_how_many_mails_are_at_hand_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    mails = labelled(60)
    whole = straight(mails)
    for room in (0, 30 * 8):
        monkeypatch.setattr(bulk_training, "KEPT", room)
        assert straight(mails) == whole


def test_later_rounds_add_to_what_is_judged_badly_and_stay_within_the_bound(store: Store) -> None:
    mails = labelled(60)
    outcome = run(store, mails)
    assert outcome.reinforced > 0
    amounts = [entry.added["fields"] for entry in store.learnings()]
    assert len(amounts) == 60
    assert max(amounts) > 8
    assert max(amounts) <= Soft.most
    assert store.load([]).learnt == {"ham": 30, "spam": 30}
    assert store.load([]).last == 60 + 2 * outcome.reinforced


def test_a_run_that_was_finished_changes_nothing_the_next_time(store: Store) -> None:
    mails = labelled(20)
    run(store, mails)
    before, steps = store.load(["fields"]), []  # type: ignore[var-annotated]
    assert run(store, mails, steps.append) == Outcome(known=20)
    assert store.load(["fields"]) == before
    assert sum(steps) == 20 * STEPS


@pytest.mark.parametrize("after", [0, BATCH, 3 * BATCH, 10 * BATCH])
def test_a_run_that_was_finished_changes_nothing_although_the_next_was_stopped(store: Store, after: int) -> None:
    mails = labelled(2 * BATCH)
    run(store, mails)
    before, last = store.load(["fields"]), store.load([]).last
    assert stopped(store, mails, mails, after) == Outcome(known=2 * BATCH)
    assert (store.load(["fields"]), store.load([]).last) == (before, last)
    assert store.get_setting(UNFINISHED) == {}


def test_a_users_mark_is_left_as_it_is(store: Store) -> None:
    mails = labelled(30)
    filter = Filter(store, VOICE)
    marked = filter.read(parse(mails[0][1].read()))
    filter.learn(marked, mails[0][0], "cli", "bob")
    assert run(store, mails).known == 1
    (mine,) = [entry for entry in store.learnings() if entry.source == "cli"]
    assert (mine.id, mine.by, mine.added) == (1, "bob", {"fields": 8})


def test_a_mail_that_was_learnt_in_several_rounds_is_forgotten_without_a_trace() -> None:
    mails = labelled(30)
    store = open_store("memory:")
    run(store, mails)
    filter = Filter(store, VOICE)
    for _, item in mails:
        filter.forget(filter.read(parse(item.read())), "cli")
    state = store.load(["fields"])
    assert (state.counts["fields"], state.calibration) == (Counts(), Calibration())


def test_an_interrupted_training_goes_on_to_the_same_counts(store: Store) -> None:
    mails = labelled(3 * BATCH)
    done: list[int] = []

    def interrupt(count: int) -> None:
        done.append(count)
        if len(done) == 2:
            raise KeyboardInterrupt

    outcome = Outcome()
    with pytest.raises(KeyboardInterrupt):
        train(Filter(store, VOICE), mails, "ann", interrupt, outcome)
    assert outcome == Outcome(learnt={"ham": BATCH, "spam": BATCH})
    assert store.load([]).last == 2 * BATCH
    again = run(store, mails)
    assert (again.learnt, again.known) == ({"ham": BATCH // 2, "spam": BATCH // 2}, 2 * BATCH)
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == straight(mails)


@pytest.mark.parametrize(("sent", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupt_at_the_end_of_a_transaction_is_of_what_is_written(
    sent: signal.Signals, raised: type[BaseException], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = store.learning

    @contextmanager
    def interrupted() -> Iterator[Learning]:
        with learning() as made:
            yield made
        signal.raise_signal(sent)

    monkeypatch.setattr(store, "learning", interrupted)
    outcome = Outcome()
    with pytest.raises(raised), ended_tidily():
        train(Filter(store, VOICE), labelled(BATCH), "ann", lambda count: None, outcome)
    assert sum(outcome.learnt.values()) == store.load([]).last == BATCH


def test_a_training_interrupted_in_a_later_round_has_lost_nothing(store: Store) -> None:
    mails = labelled(2 * BATCH)
    again = stopped(store, mails, mails, (ROUNDS - 1) * len(mails), last=len(mails))
    assert (again.known, again.reinforced > 0) == (len(mails), True)
    assert run(store, mails) == Outcome(known=len(mails))
    assert max(entry.added["fields"] for entry in store.learnings()) <= Soft.most
    assert Filter(store, VOICE).verify() == []


def test_what_later_rounds_decide_is_known_to_who_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of it is written; to decide anew with that in the counts would not come to the same."""
    monkeypatch.setattr(bulk_training, "TOGETHER", 5)
    mails = labelled(2 * BATCH)
    expected = straight(mails)
    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop_after(ROUNDS * len(mails)))
    assert store.load([]).last == len(mails) + 2 * 5
    monkeypatch.setattr(bulk_training, "later_rounds", None)
    again = run(store, mails)
    assert (again.known, again.reinforced > 0) == (len(mails), True)
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == expected
    assert run(store, mails) == Outcome(known=len(mails))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_what_was_decided_before_the_counts_were_rebuilt_is_decided_anew(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_training, "TOGETHER", 5)
    mails = labelled(2 * BATCH)
    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop_after(ROUNDS * len(mails)))
    voices = Learn.model_validate({"likelihood": name, "gaussian": {"least": 1}}).chosen()
    content = {Filter(store, VOICE).read(parse(item.read())).digest: item.read() for _, item in mails}
    again = {digest: lambda mail=mail: view(voices, parse(mail)) for digest, mail in content.items()}
    retrain(store, voices, again, lambda count: None)
    assert [run.decided for run in unfinished(store).values()] == [None]
    train(Filter(store, voices), mails, "ann", lambda count: None, Outcome())
    assert store.get_setting(UNFINISHED) == {}
    assert Filter(store, voices).verify() == []


@pytest.mark.parametrize("name", ["bernoulli", "eddc", "multinomial"])
def test_what_was_decided_for_another_likelihood_adds_nothing(name: str) -> None:
    store = open_store("memory:")
    voices = Learn.model_validate({"likelihood": name}).chosen()
    filter = Filter(store, voices)
    filter.learn(filter.read(parse(labelled(2)[0][1].read())), "spam", "train")
    with filter.training() as transaction:
        (entry,) = store.entries_after(0)
        assert not transaction.reinforce(entry, {"fields": 16})
    assert (store.load([]).last, filter.verify()) == (1, [])


@pytest.mark.parametrize("places", [True, False])
def test_a_run_that_an_older_version_has_left_is_finished(store: Store, places: bool) -> None:
    """It remembered places in the rounds, or names only."""
    mails = labelled(BATCH)
    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop_after(BATCH))
    kept = store.get_setting(UNFINISHED)
    assert isinstance(kept, dict)
    store.put_setting(UNFINISHED, {name: [2, 1, 0] for name in kept} if places else [*kept])
    assert run(store, mails).reinforced > 0
    assert store.get_setting(UNFINISHED) == {}


@pytest.mark.parametrize("rebuilt", [False, True])
def test_what_others_learn_while_mails_are_read_is_known_to_the_next_transaction(
    store: Store, rebuilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if they had learnt it before."""
    monkeypatch.setattr(bulk_training, "TOGETHER", 3 * BATCH)
    mails, read, expected = labelled(3 * BATCH), [0], open_store("memory:")

    def mark(store: Store, label: Label, content: bytes) -> None:
        other = Filter(store, VOICE)
        other.learn(other.read(parse(content)), label, "cli", "bob")

    def marking(item: Mail) -> bytes:
        read[0] += 1
        if read[0] == 2 * BATCH + 5:
            if rebuilt:
                retrain(store, VOICE, {}, lambda count: None)
            mark(store, mails[7][0], mails[7][1].read())
        return item.read()

    for each in (expected, store):
        mark(each, "ham", mail("cheap", "a cheap text", "marked"))
    mark(expected, mails[7][0], mails[7][1].read())
    run(expected, mails)
    run(store, [(label, Mail(item.name, lambda item=item: marking(item))) for label, item in mails])  # type: ignore[misc]
    assert [entry.by for entry in store.learnings()][:3] == ["bob", "bob", "ann"]
    found, wanted = store.load(["fields"]), expected.load(["fields"])
    assert (found.counts, found.learnt, found.calibration) == (wanted.counts, wanted.learnt, wanted.calibration)
    assert Filter(store, VOICE).verify() == []


def test_what_others_have_learnt_since_a_training_began_is_no_new_mail(store: Store) -> None:
    """Although there was nothing learnt when it began."""
    mails = labelled(4 * BATCH)
    late, told = mails[-3], [0]

    def mark(count: int) -> None:
        told[0] += 1
        if told[0] == 1:
            other = Filter(store, VOICE)
            other.learn(other.read(parse(late[1].read())), late[0], "cli", "bob")

    outcome = run(store, mails, mark)
    assert (sum(outcome.learnt.values()), outcome.known) == (len(mails) - 1, 1)
    assert [entry.by for entry in store.learnings()].count("bob") == 1
    assert store.load([]).learnt == {"ham": 2 * BATCH, "spam": 2 * BATCH}
    assert Filter(store, VOICE).verify() == []


def test_what_cannot_be_decided_is_learnt_all_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError

    mails = labelled(2 * BATCH)
    with monkeypatch.context() as patch:
        patch.setattr(Filter, "copied", fail)
        with pytest.raises(MemoryError):
            run(store, mails)
    assert store.load([]).learnt == {"ham": BATCH, "spam": BATCH}
    run(store, mails)
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == straight(mails)


def test_a_mail_that_was_forgotten_after_all_was_decided_is_learnt_anew(store: Store) -> None:
    """Once a run that was stopped goes on."""
    mails = labelled(2 * BATCH)
    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop_after(ROUNDS * len(mails)))
    filter = Filter(store, VOICE)
    for _, item in mails:
        filter.forget(filter.read(parse(item.read())), "cli")
    assert run(store, mails).learnt == {"ham": BATCH, "spam": BATCH}
    assert store.load([]).learnt == {"ham": BATCH, "spam": BATCH}
    assert Filter(store, VOICE).verify() == []


def test_a_filter_whose_training_broke_off_knows_what_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise StoreBusy

    filter = Filter(store, VOICE)
    monkeypatch.setattr(earlier_runs, "begin", fail)  # after all mails of the transaction
    with pytest.raises(StoreBusy):
        train(filter, labelled(BATCH), "ann", lambda count: None, Outcome())
    assert filter.learnt == {"ham": 0, "spam": 0}
    assert filter.vocabulary == 0


def test_a_mark_that_comes_before_what_was_decided_is_written_is_left_as_it_is(store: Store) -> None:
    mails, told = labelled(2 * BATCH), [0]
    other = Filter(store, VOICE)

    def mark(count: int) -> None:
        told[0] += count
        if told[0] == ROUNDS * len(mails):
            for label, item in mails:
                other.learn(other.read(parse(item.read())), "ham" if label == "spam" else "spam", "cli", "bob")

    assert run(store, mails, mark).reinforced == 0
    assert {(entry.by, entry.source) for entry in store.learnings()} == {("bob", "cli")}
    assert store.load([]).learnt == {"ham": BATCH, "spam": BATCH}
    assert Filter(store, VOICE).verify() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreBusy])
def test_a_training_broken_off_within_a_batch_leaves_that_batch_out(
    store: Store, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = labelled(3 * BATCH)

    def fail() -> bytes:
        raise error

    outcome = Outcome()
    broken = list(mails)
    broken[BATCH + 5] = (mails[BATCH + 5][0], Mail("broken", fail))
    with pytest.raises(error):
        train(Filter(store, VOICE), broken, "ann", lambda count: None, outcome)
    assert sum(outcome.learnt.values()) == BATCH == store.load([]).last
    run(store, mails)
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == straight(mails)


def test_a_mail_that_is_there_twice_counts_once(store: Store) -> None:
    mails = labelled(10)
    outcome = run(store, [*mails, *mails[:4]])
    assert (sum(outcome.learnt.values()), outcome.known) == (10, 4)
    assert run(store, mails) == Outcome(known=10)
    assert store.load([]).learnt == {"ham": 5, "spam": 5}
    assert Filter(store, VOICE).verify() == []


def test_a_mail_of_the_other_label_is_relabelled(store: Store) -> None:
    mails = labelled(10)
    run(store, mails)
    turned: Mails = [("ham" if label == "spam" else "spam", mail) for label, mail in mails]
    outcome = run(store, turned)
    assert (outcome.relabelled, outcome.known, sum(outcome.learnt.values())) == (10, 0, 0)
    assert {entry.label: entry.digest for entry in store.learnings()}.keys() == {"ham", "spam"}
    assert Filter(store, VOICE).verify() == []
    assert store.load([]).learnt == {"ham": 5, "spam": 5}


def test_what_cannot_be_read_is_passed_over_and_named(store: Store) -> None:
    def gone() -> bytes:
        raise InputError("x.eml: No such file or directory")

    mails = labelled(4)
    outcome = run(store, [mails[0], ("spam", Mail("x.eml", gone)), *mails[1:]])
    assert outcome.problems == ["x.eml: No such file or directory"]
    assert sum(outcome.learnt.values()) == 4


def test_nothing_to_learn_is_no_fault(store: Store) -> None:
    assert run(store, []) == Outcome()


def moved(mails: Mails) -> Mails:
    """The same mails after a mail program has looked at them: other folder, other flags."""
    return [(label, Mail(f"/elsewhere/cur/{item.name}:2,S", item.read)) for label, item in mails]


def test_a_run_goes_on_although_the_files_were_moved_and_flagged_meanwhile(store: Store) -> None:
    mails = labelled(2 * BATCH)
    again = stopped(store, mails, moved(mails), len(mails))  # in the second round
    assert (again.known, again.reinforced > 0) == (len(mails), True)
    assert store.get_setting(UNFINISHED) == {}
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == straight(mails)
    assert run(store, mails) == Outcome(known=len(mails))


@pytest.mark.parametrize("kept", [bulk_training.KEPT, 0])
@pytest.mark.parametrize("locked", [0.0, bulk_training.LOCKED])
@pytest.mark.parametrize("after", [1, BATCH, 3 * BATCH, 5 * BATCH, 9 * BATCH, 10 * BATCH, 11 * BATCH])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    store: Store, after: int, locked: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_training, "LOCKED", locked)
    monkeypatch.setattr(bulk_training, "KEPT", kept)
    mails = labelled(2 * BATCH)
    stopped(store, mails, mails, after)
    state = store.load(["fields"])
    assert (state.counts, state.learnt, state.calibration) == undisturbed()
    assert Filter(store, VOICE).verify() == []


def stop_after(count: int) -> Callable[[int], None]:
    """What is told of progress: it stops the run once that is more."""
    done = [0]

    def stop(some: int) -> None:
        done[0] += some
        if done[0] > count:
            raise KeyboardInterrupt

    return stop


def stopped(store: Store, mails: Mails, again: Mails, after: int, last: int | None = None) -> Outcome:
    """Stop a run once so many steps are done, and run it again, with what may be the same mails elsewhere.

    last: the number of ledger entries in between.
    """
    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop_after(after))
    assert last is None or store.load([]).last == last
    return run(store, again)


def test_another_run_does_not_end_one_that_was_stopped(store: Store) -> None:
    mails = labelled(2 * BATCH)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store, mails, stop)
    run(store, [("ham", Mail("other", lambda: mail("other", "words", "other")))])
    assert len(store.get_setting(UNFINISHED)) == 1  # type: ignore[arg-type]
    run(store, mails)
    assert store.get_setting(UNFINISHED) == {}


def test_a_mail_given_under_both_labels_is_learnt_once_and_named(store: Store) -> None:
    item = Mail("twice", lambda: mail("twice", "the same", "twice"))
    mails: Mails = [("ham", item), ("spam", item)]
    outcome = run(store, mails)
    assert (outcome.learnt, outcome.relabelled) == ({"ham": 1, "spam": 0}, 0)
    assert outcome.problems == ["twice: passed over as spam, the same mail was given as ham before"]
    entries = len(store.entries_after(0))
    run(store, mails)
    assert len(store.entries_after(0)) == entries


@pytest.mark.parametrize("kept", [bulk_training.KEPT, 30 * 8, 0])
def test_each_mail_is_read_once(store: Store, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later rounds look at tokens in memory, or at those of the ledger."""
    reads: Counter[str] = Counter()

    def counted(item: Mail) -> Mail:
        def read() -> bytes:
            reads[item.name] += 1
            return item.read()

        return Mail(item.name, read)

    monkeypatch.setattr(bulk_training, "KEPT", kept)
    assert run(store, [(label, counted(item)) for label, item in labelled(60)]).reinforced > 0
    assert set(reads.values()) == {1}


@pytest.mark.parametrize(("cores", "expected"), [(1, 0), (2, 2), (3, 3), (64, 3)])
def test_so_many_processes_read_ahead(cores: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert processes_here() == expected
