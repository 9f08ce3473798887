"""Counts rebuilt from the ledger: exact, undoable, complete whatever happens meanwhile, or not at all."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from spamfilter.bayes.calibration import Calibration
from spamfilter.bayes.counts import Counts
from spamfilter.bayes.labels import BULK, LABELS, OTHER, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.model import State, empty, score, taught
from spamfilter.bayes.voices import Voice, Voices, VoiceTokens, view
from spamfilter.errors import InputError, StoreBusy, StoreError
from spamfilter.evaluation.contenders import Learner
from spamfilter.learning import retraining
from spamfilter.learning.bulk.labelled_mail import interleaved, mixed
from spamfilter.learning.bulk.rounds import ROUNDS, Message, later_rounds, no_amounts, note
from spamfilter.learning.bulk.training import Outcome, train
from spamfilter.learning.filter import RULES, Filter, rules
from spamfilter.learning.retraining import Rebuilt, retrain
from spamfilter.learning.transaction import Reading
from spamfilter.mail import tagging
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse
from spamfilter.stores import Entry, Learning, Rewriting, Store
from spamfilter.stores.sql import queries
from spamfilter.system.ids import new_id
from tests.project.test_docs import documented
from tests.support import memory_store
from tests.support.made import VOICE, follow, mail, reading
from tests.support.memory_store import KINDS, open_store, stored
from tests.support.shell import Shell

Opened = Callable[[], Store]
Mails = list[tuple[Label, Mail]]

REAL_KINDS = [kind for kind in KINDS if kind != "memory"]
WORDY = [name for name, row in LIKELIHOODS.items() if row is not Gaussian]
every = pytest.mark.parametrize(
    ("name", "opened"),
    [*((name, "sqlite") for name in WORDY), *(("soft", kind) for kind in KINDS if kind != "sqlite")],
    indirect=["opened"],
)
"""Every likelihood on one store, and one on every store: neither knows the other."""
each_whole = pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
GRAMS: Voices = (*VOICE, Voice("grams", LIKELIHOODS["soft"](), 0.5))


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    with stored(request.param, tmp_path) as again:
        yield again


def voice(name: str) -> Voices:
    return (Voice("fields", LIKELIHOODS[name]()),)


def labelled(count: int) -> Mails:
    """Mails of two kinds; every ninth has the wrong label, so that later rounds find work."""

    def pile(word: str) -> list[Mail]:
        sent = [mail(f"{word} {at}", f"{word} text {at % 7} of all", f"{word}{at}") for at in range(count // 2)]
        return [Mail(f"{word}{at}", lambda content=content: content) for at, content in enumerate(sent)]  # type: ignore[misc]

    mails = interleaved(pile("cheap"), pile("lunch"))
    return [(OTHER[label] if at % 9 == 4 else label, item) for at, (label, item) in enumerate(mails)]


MARKED = [
    (reading("one", "cheap", "a"), "spam"),
    (reading("two", "lunch", "b"), "ham"),
    (reading("three", "lunch", "cheap"), "spam"),
    (reading("four", "a", "b"), "ham"),
]


BULKY = 20


def used(store: Store, bulk: int = BULKY) -> Filter:
    """A store with a life behind it: marks, one corrected, one taken back, and sorted mail learnt in rounds."""
    filter = Filter(store, VOICE)
    for message, label in MARKED:
        filter.learn(message, label, "cli", "ann")  # type: ignore[arg-type]  # labels are literals
    filter.learn(MARKED[2][0], "ham", "address", "bob")
    filter.forget(MARKED[3][0], "cli", "cid")
    if bulk:
        outcome = Outcome()
        train(filter, labelled(bulk), "dan", lambda count: None, outcome)
        assert outcome.reinforced > 0
    return filter


def run(store: Store, voices: Voices, mails: Mapping[bytes, Callable[[], VoiceTokens]] | None = None) -> Rebuilt:
    return retrain(store, voices, mails or {}, lambda count: None)


def everything(state: State) -> tuple[dict[str, Counts], dict[Label, int], Calibration, list[object]]:
    """All that judging depends on; the tallies apart, since equality of counts passes over those that one lacks."""
    tallies: list[object] = [state.counts[name].tallies or None for name in sorted(state.counts)]
    return state.counts, state.learnt, state.calibration, tallies


def learnt_anew(entries: list[Entry], voices: Voices) -> State:
    """What one holds that learns these entries, ham and spam evenly mixed, and then sorted mail in further rounds."""
    state, amounts = empty(voices), no_amounts(voices)
    seen = {parse(item.read()).digest(): view(voices, parse(item.read())) for _, item in labelled(100)}
    for entry in evenly(entries):
        tokens = seen[entry.digest] if entry.source == BULK else entry.tokens
        note(amounts, entry.id, taught(voices, tokens, entry.message_label, state, score(voices, tokens, state)).added)
    sorted_mail = [
        Message(entry.id, entry.message_label, seen[entry.digest]) for entry in entries if entry.source == BULK
    ]
    later_rounds(voices, state.counts, lambda: sorted_mail, amounts, ROUNDS)
    return state


def evenly(entries: list[Entry]) -> list[Entry]:
    """Both classes evenly mixed."""
    return mixed(entries, lambda entry: entry.message_label)


def active(store: Store) -> list[Entry]:
    """The learnings that count, with their tokens."""
    ids = {entry.id for entry in store.learnings()}
    found, last = [], 0
    while entries := store.entries_after(last):
        found += [entry for entry in entries if entry.id in ids]
        last = entries[-1].id
    return found


# As if it had always been so


@every
def test_the_counts_are_those_of_a_new_filter_that_learns_the_same_messages(name: str, opened: Opened) -> None:
    store = opened()
    used(store)
    done = run(store, voice(name))
    filter = Filter(opened(), voice(name))
    assert filter.verify() == Filter(opened(), voice(name), whole=False).verify() == []
    assert everything(filter.loaded()) == everything(learnt_anew(active(store), voice(name)))
    assert done == Rebuilt(messages=3 + BULKY)
    assert store.get_setting(RULES) == rules(voice(name))


def test_several_voices_are_rebuilt_each_by_its_own_rule(opened: Opened) -> None:
    before: Voices = (*VOICE, Voice("body", LIKELIHOODS["soft"]()), Voice("phrases", LIKELIHOODS["eddc"]()))
    after: Voices = (Voice("body", LIKELIHOODS["bernoulli"]()), Voice("phrases", LIKELIHOODS["poisson"](), 0.1))
    store = opened()
    train(Filter(store, before), labelled(40), "dan", lambda count: None, Outcome())
    run(store, after)
    filter = Filter(opened(), after)
    assert filter.verify() == []
    assert everything(filter.loaded()) == everything(learnt_anew(active(store), after))
    assert opened().load(["fields"]).counts["fields"] == Counts()


@every
@each_whole
def test_what_was_rebuilt_is_taken_back_without_a_trace(name: str, whole: bool, opened: Opened) -> None:
    store = opened()
    used(store)
    run(store, voice(name))
    filter = Filter(opened(), voice(name), whole)
    for entry in active(store):
        assert filter.forget(Reading(entry.digest, {}), "cli").was == entry.label
    state = opened().load(["fields"])
    assert (state.counts["fields"], state.calibration) == (Counts(), Calibration())
    assert state.learnt == {"ham": 0, "spam": 0}
    assert filter.verify() == []


@every
@each_whole
def test_a_repeat_is_still_one_and_a_correction_leaves_what_the_right_label_would_have(
    name: str, whole: bool, opened: Opened
) -> None:
    store = opened()
    used(store, bulk=0)
    run(store, voice(name))
    filter = Filter(opened(), voice(name), whole)
    before = everything(filter.loaded())
    for entry in active(store):
        assert not filter.learn(Reading(entry.digest, {}), entry.message_label, "cli").changed
    assert everything(filter.loaded()) == before
    *others, last = evenly(active(store))
    change = filter.learn(Reading(last.digest, {}), OTHER[last.message_label], "cli")
    assert (change.was, change.changed) == (last.label, True)
    assert filter.verify() == []
    learner = Learner("anew", voice(name))
    for entry in (*others, replace(last, label=OTHER[last.message_label])):
        learner.learn(entry.tokens, entry.message_label)
    assert everything(filter.loaded()) == everything(learner.state)


def test_pairs_that_took_each_other_back_add_nothing_and_keep_their_tokens(opened: Opened) -> None:
    store = opened()
    used(store)
    before = {entry.id: entry for entry in store.entries_after(0)}
    counting = {entry.id for entry in store.learnings()}
    run(store, voice("multinomial"))
    for entry in opened().entries_after(0):
        if entry.id in counting:
            assert entry.added == {"fields": 1}
        else:
            assert (entry.added, entry.calibrated) == ({}, (0, 0, 0, 0))
        assert entry.tokens == before[entry.id].tokens
    assert len(before) > len(counting) + 2 * 2


def test_who_learnt_what_and_when_and_why_stays(opened: Opened) -> None:
    def facts(store: Store) -> list[tuple[object, ...]]:
        names = ("id", "at", "digest", "label", "source", "by", "undoes")
        return [tuple(getattr(entry, name) for name in names) for entry in store.entries_after(0)]

    store = opened()
    used(store)
    before = facts(store)
    run(store, voice("bernoulli"))
    assert facts(opened()) == before
    assert {row[5] for row in before} == {"ann", "bob", "cid", "dan"}


def test_to_rebuild_again_or_there_and_back_changes_nothing(opened: Opened) -> None:
    store = opened()
    used(store)
    run(store, VOICE)
    before = everything(Filter(opened(), VOICE).loaded()), store.entries_after(0)
    run(store, VOICE)
    assert (everything(Filter(opened(), VOICE).loaded()), store.entries_after(0)) == before
    run(store, voice("bernoulli"))
    run(store, VOICE)
    assert (everything(Filter(opened(), VOICE).loaded()), store.entries_after(0)) == before


def test_a_ledger_of_marks_alone_is_rebuilt_by_the_same_rules_to_the_same_counts(opened: Opened) -> None:
    store = opened()
    filter = Filter(store, VOICE)
    for message, label in MARKED:
        filter.learn(message, label, "cli", "ann")  # type: ignore[arg-type]  # labels are literals
    before = everything(filter.loaded())
    run(store, VOICE)
    assert everything(Filter(opened(), VOICE).loaded()) == before


def test_a_ledger_that_is_read_in_pieces_is_rebuilt_whole(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "ENTRIES", 7)
    monkeypatch.setattr(queries, "ENTRIES", 7)
    store = opened()
    used(store)
    run(store, VOICE)
    filter = Filter(opened(), VOICE)
    assert filter.verify() == []
    assert everything(filter.loaded()) == everything(learnt_anew(active(store), VOICE))


def test_numbers_of_learnt_messages_that_are_wrong_are_put_right(opened: Opened) -> None:
    """As those of a database of the first schema, which had none."""
    store = opened()
    used(store)
    right = dict(Filter(store, VOICE).learnt)
    store.put_setting("learnt", dict.fromkeys(LABELS, -7))
    run(store, VOICE)
    filter = Filter(opened(), VOICE)
    assert (filter.learnt, filter.verify()) == (right, [])
    filter.learn(reading("one more"), "ham", "cli")
    assert (Filter(opened(), VOICE).learnt, filter.verify()) == ({**right, "ham": right["ham"] + 1}, [])


def test_an_empty_store_is_rebuilt_for_other_rules(opened: Opened) -> None:
    Filter(opened(), VOICE)
    assert run(opened(), voice("bernoulli")) == Rebuilt()
    filter = Filter(opened(), voice("bernoulli"))
    filter.learn(MARKED[0][0], "spam", "cli")
    assert filter.verify() == []


@pytest.mark.parametrize("name", ["soft", "bernoulli"])
def test_progress_is_told_of_every_entry_as_often_as_was_announced(name: str, opened: Opened) -> None:
    store = opened()
    used(store)
    told: list[int] = []
    retrain(store, voice(name), {}, told.append)
    assert sum(told) == ROUNDS * len(store.entries_after(0))


# Learnt meanwhile


@dataclass
class Busy:
    """A store during whose work others learn: `meanwhile` is called once, before the transaction, or where told."""

    store: Store
    meanwhile: Callable[[], object]
    when: str
    done: list[str] = field(default_factory=list)

    def _now(self, when: str) -> None:
        if when == self.when and not self.done:
            self.done.append(when)
            self.meanwhile()

    @contextmanager
    def learning(self) -> Iterator[Learning]:
        self.transactions = getattr(self, "transactions", 0) + 1
        if self.transactions == 2:  # the first is only a look
            self._now("before the transaction")
        with self.store.learning() as learning:
            yield learning

    def learnings(self, since: Any = None, source: Any = None) -> list[Entry]:
        found = self.store.learnings(since, source)
        self._now("after the list of what counts")
        return found

    def entries_after(self, last: int) -> list[Entry]:
        found = self.store.entries_after(last)
        if not found:
            self._now("at the end of the first round")
        return found

    def progress(self, count: int) -> None:
        self.told = getattr(self, "told", 0) + count
        if self.told == 3:
            self._now("in the first round")
        if self.told >= self.entries + 3:  # all at once where no voice learns in later rounds
            self._now("in the second round")

    def __post_init__(self) -> None:
        self.entries = len(self.store.entries_after(0))

    def write_beside(self, edition: int, state: State, some: Rewriting) -> None:
        self.store.write_beside(edition, state, some)
        self._now("when the new counts are written")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def retrain(self, voices: Voices) -> Rebuilt:
        return retrain(cast(Store, self), voices, {}, self.progress)


MOMENTS = (
    "after the list of what counts",
    "in the first round",
    "at the end of the first round",
    "in the second round",
    "when the new counts are written",
    "before the transaction",
)


def a_new_message(filter: Filter) -> None:
    filter.learn(reading("new", "cheap", "new"), "spam", "cli", "eve")


def a_correction(filter: Filter) -> None:
    filter.learn(MARKED[0][0], "ham", "cli", "eve")


def a_correction_of_sorted_mail(filter: Filter) -> None:
    label, item = labelled(BULKY)[0]
    filter.learn(filter.read(parse(item.read())), OTHER[label], "cli", "eve")


def a_withdrawal(filter: Filter) -> None:
    filter.forget(MARKED[1][0], "cli", "eve")


def one_learnt_and_taken_back(filter: Filter) -> None:
    filter.learn(reading("new", "cheap"), "spam", "cli")
    filter.forget(reading("new"), "cli")


def one_learnt_again(filter: Filter) -> None:
    filter.learn(MARKED[3][0], "spam", "cli")


def sorted_mail(filter: Filter) -> None:
    train(Filter(filter.store, filter.voices), labelled(BULKY + 10)[BULKY:], "eve", lambda count: None, Outcome())


Deed = Callable[[Filter], None]
DEEDS: list[Deed] = [
    a_new_message, a_correction, a_correction_of_sorted_mail, a_withdrawal, one_learnt_and_taken_back,
    one_learnt_again, sorted_mail,
]  # fmt: skip


@pytest.mark.parametrize(
    ("deed", "opened"),
    [*product(DEEDS, REAL_KINDS), (a_correction, "memory")],
    indirect=["opened"],
)
@pytest.mark.parametrize("when", [*MOMENTS, "when the new counts are written, and more is"])
def test_what_others_learn_while_it_runs_is_in_the_new_counts(
    when: str, deed: Deed, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    if when not in MOMENTS:
        monkeypatch.setattr(retraining, "FEW", 0)
        when = "when the new counts are written"
    used(opened())
    other = Filter(opened(), VOICE, whole=False)
    busy = Busy(opened(), lambda: deed(other), when)
    done = busy.retrain(voice("multinomial"))
    assert busy.done == [when]
    filter = Filter(opened(), voice("multinomial"))
    assert filter.verify() == []
    expected = learnt_anew(active(opened()), voice("multinomial"))
    assert everything(filter.loaded())[:2] == everything(expected)[:2]
    assert done.messages == sum(expected.learnt.values())
    assert all(entry.added == {"fields": 1} for entry in opened().learnings())


@pytest.mark.parametrize(
    ("deed", "opened"),
    [
        *product([a_new_message, a_withdrawal, a_correction_of_sorted_mail], REAL_KINDS),
        (a_correction_of_sorted_mail, "memory"),
    ],
    indirect=["opened"],
)
@pytest.mark.parametrize("when", MOMENTS)
def test_what_others_learn_while_rounds_go_on_is_in_the_new_counts(when: str, deed: Deed, opened: Opened) -> None:
    used(opened())
    other = Filter(opened(), VOICE, whole=False)
    busy = Busy(opened(), lambda: deed(other), when)
    done = busy.retrain(VOICE)
    assert busy.done == [when]
    filter = Filter(opened(), VOICE)
    assert filter.verify() == []
    assert done.messages == len(opened().learnings()) == sum(filter.learnt.values())
    for entry in active(opened()):
        filter.forget(Reading(entry.digest, {}), "cli")
    state = opened().load(["fields"])
    assert (state.counts["fields"], state.calibration) == (Counts(), Calibration())


# All or nothing


def snapshot(store: Store) -> tuple[object, ...]:
    state = store.load(["fields", "grams"])
    tallies = [state.counts[name].tallies or None for name in ("fields", "grams")]
    return state, tallies, store.entries_after(0), store.learnings(), store.get_setting(RULES)


def test_a_mail_that_cannot_be_read_is_a_problem_and_the_ledger_serves(opened: Opened) -> None:
    store = opened()
    used(store)

    def gone() -> VoiceTokens:
        raise InputError("gone.eml: No such file")

    done = run(store, GRAMS, {MARKED[1][0].digest: gone})
    assert (done.reread, done.problems) == (0, ["gone.eml: No such file"])
    assert Filter(store, GRAMS).verify() == []


def test_a_mail_is_read_once_and_what_the_ledger_knows_stays(opened: Opened) -> None:
    store = opened()
    used(store)
    digest, looks = MARKED[1][0].digest, list[int]()

    def read() -> VoiceTokens:
        looks.append(1)
        return {"fields": {b"other": 1}, "grams": {b"abcde": 1}}

    def tokens() -> VoiceTokens:
        return next(entry.tokens for entry in reversed(store.entries_after(0)) if entry.digest == digest)

    before = tokens()["fields"]
    assert run(store, GRAMS, {digest: read}).reread == len(looks) == 1
    assert tokens() == {"fields": before, "grams": {b"abcde": 1}}
    assert run(store, GRAMS, {digest: read}).reread == 0


def test_counts_that_others_rebuild_meanwhile_are_not_rebuilt_twice(opened: Opened) -> None:
    used(opened())
    busy = Busy(opened(), lambda: run(opened(), voice("bernoulli")), "in the first round")
    with pytest.raises(StoreBusy, match="has begun to rebuild"):
        busy.retrain(voice("multinomial"))
    assert Filter(opened(), voice("bernoulli")).verify() == []


def test_counts_that_are_rebuilt_while_they_are_verified_are_not_called_wrong(opened: Opened) -> None:
    used(opened())
    filter = Filter(opened(), VOICE)
    load = filter.store.load

    def and_then_rebuilt(voices: Iterable[str]) -> State:
        loaded = load(voices)
        run(opened(), VOICE)
        return loaded

    filter.store.load = and_then_rebuilt  # type: ignore[method-assign]
    with pytest.raises(StoreBusy, match="its counts were rebuilt, or another filter's imported; try again"):
        filter.verify()
    filter.store.load = load  # type: ignore[method-assign]
    assert filter.verify() == []


def test_old_counts_that_cannot_be_deleted_are_a_problem_and_the_new_ones_judge(opened: Opened) -> None:
    used(opened())

    class Full(Busy):
        def sweep_editions(self) -> None:
            raise StoreError("disk is full")

    done = Full(opened(), lambda: None, "").retrain(voice("multinomial"))
    assert done.problems == ["disk is full; the new counts judge, and the next retrain deletes the old ones"]
    assert Filter(opened(), voice("multinomial")).verify() == []


def test_a_database_that_another_one_replaces_meanwhile_is_not_rebuilt(opened: Opened) -> None:
    used(opened())
    store = opened()
    busy = Busy(store, lambda: setattr(store, "generation", store.generation + 1), "when the new counts are written")
    with pytest.raises(StoreBusy, match="its counts were rebuilt, or another"):
        busy.retrain(voice("multinomial"))
    assert Filter(opened(), VOICE).verify() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()], ids=repr)
@pytest.mark.parametrize("look", [1], ids=["when-it-is-learnt"])
def test_a_rebuilding_that_breaks_off_leaves_everything_as_it_was(
    look: int, error: BaseException, opened: Opened
) -> None:
    store = opened()
    used(store)
    before = snapshot(store)
    looks: list[int] = []

    def broken() -> VoiceTokens:
        looks.append(1)
        if len(looks) == look:
            raise error
        return {"fields": {b"a": 1}, "grams": {b"a": 1}}

    with pytest.raises(type(error)):
        run(store, GRAMS, {MARKED[1][0].digest: broken})
    assert len(looks) == look
    assert snapshot(store) == before
    assert snapshot(opened()) == before
    filter = Filter(opened(), VOICE)
    filter.learn(reading("new", "a"), "ham", "cli")
    assert filter.verify() == []


def test_an_interruption_leaves_everything_as_it_was(opened: Opened) -> None:
    store = opened()
    used(store)
    before = snapshot(store)
    steps: list[int] = []

    def interrupt(count: int) -> None:
        steps.append(count)
        if len(steps) == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrain(store, voice("soft"), {}, interrupt)
    assert snapshot(opened()) == before


# Other processes


def fresh(filter: Filter) -> None:
    """Nothing was done with it."""


def has_judged(filter: Filter) -> None:
    filter.score(MARKED[0][0])


def has_learnt(filter: Filter) -> None:
    filter.learn(reading("earlier", "a"), "ham", "cli")


def has_followed(filter: Filter) -> None:
    follow(filter)


PASTS: list[Deed] = [fresh, has_judged, has_learnt, has_followed]
each_past = pytest.mark.parametrize("past", PASTS)


@each_past
@each_whole
@pytest.mark.parametrize("mark", [a_new_message, a_withdrawal])
def test_a_mark_by_the_old_rules_is_refused_and_changes_nothing(
    mark: Deed, past: Deed, whole: bool, tmp_path: Path
) -> None:
    with both(tmp_path) as (here, there):
        used(here, bulk=0)
        old = Filter(there, VOICE, whole)
        past(old)
        run(here, voice("bernoulli"))
        before = snapshot(here)
        with pytest.raises(StoreError, match=r"was learnt with .*run `spamfilter retrain`"):
            mark(old)
        assert snapshot(here) == before
        assert Filter(here, voice("bernoulli")).verify() == []


@each_past
@each_whole
def test_a_filter_of_the_same_rules_goes_on_with_the_new_counts(past: Deed, whole: bool, tmp_path: Path) -> None:
    with both(tmp_path) as (here, there):
        used(here)
        other = Filter(there, VOICE, whole)
        past(other)
        run(here, VOICE)
        change = other.learn(reading("new", "cheap", "lunch"), "spam", "cli")
        assert change.after == Filter(here, VOICE).score(reading("new", "cheap", "lunch"))
        assert other.verify() == Filter(here, VOICE).verify() == []


@contextmanager
def both(folder: Path) -> Iterator[tuple[Store, Store]]:
    """Two processes' stores on one file."""
    here, there = (open_store(f"sqlite:///{folder}/store.db") for _ in range(2))
    try:
        yield here, there
    finally:
        here.close()
        there.close()


# Mail that is still there


def reread(mails: Mails, voices: Voices) -> dict[bytes, Callable[[], VoiceTokens]]:
    def tokens(item: Mail) -> VoiceTokens:
        return view(voices, parse(item.read()))

    return {parse(item.read()).digest(): lambda item=item: tokens(item) for _, item in mails}  # type: ignore[misc]


def test_a_new_voice_learns_from_mail_that_is_read_again_and_the_ledger_keeps_what_it_saw(opened: Opened) -> None:
    mails, store = labelled(40), opened()
    train(Filter(store, VOICE), mails, "dan", lambda count: None, Outcome())
    assert run(store, GRAMS, reread(mails, GRAMS)) == Rebuilt(messages=40, reread=40)
    filter = Filter(opened(), GRAMS)
    assert filter.verify() == []
    assert opened().load(["grams"]).counts["grams"].vocabulary > 100
    assert everything(filter.loaded()) == everything(learnt_anew(active(store), GRAMS))
    by_digest = {parse(item.read()).digest(): view(GRAMS, parse(item.read())) for _, item in mails}
    assert all(entry.tokens == by_digest[entry.digest] for entry in active(store))
    for entry in active(store):
        filter.forget(Reading(entry.digest, {}), "cli")
    state = opened().load(["fields", "grams"])
    assert (state.counts, state.calibration) == ({"fields": Counts(), "grams": Counts()}, Calibration())


def test_a_new_voice_without_its_mail_is_silent_and_what_it_missed_is_counted(opened: Opened) -> None:
    mails, store = labelled(40), opened()
    train(Filter(store, VOICE), mails, "dan", lambda count: None, Outcome())
    assert run(store, GRAMS) == Rebuilt(messages=40, silent={"grams": 40})
    filter = Filter(opened(), GRAMS)
    assert filter.verify() == []
    assert filter.loaded().counts["grams"] == Counts()
    assert run(store, GRAMS, reread(mails[:15], GRAMS)) == Rebuilt(messages=40, reread=15, silent={"grams": 25})
    filter = Filter(opened(), GRAMS)
    assert filter.verify() == []
    assert filter.loaded().counts["grams"].vocabulary > 50
    # What was learnt of all mail before is not lost by having only some of it at hand.
    assert run(store, GRAMS) == Rebuilt(messages=40, silent={"grams": 25})


def test_mail_that_was_never_learnt_or_was_taken_back_is_not_read_into_the_counts(opened: Opened) -> None:
    mails, store = labelled(20), opened()
    filter = Filter(store, VOICE)
    for label, item in mails[:5]:
        filter.learn(filter.read(parse(item.read())), label, "cli")
    filter.forget(filter.read(parse(mails[0][1].read())), "cli")
    assert run(store, GRAMS, reread(mails, GRAMS)) == Rebuilt(messages=4, reread=4)
    assert Filter(opened(), GRAMS).learnt == {label: sum(given == label for given, _ in mails[1:5]) for label in LABELS}


def test_numbers_are_learnt_from_mail_that_is_read_again(opened: Opened) -> None:
    voices: Voices = (Voice("attributes", Gaussian()),)
    mails, store = labelled(40), opened()
    train(Filter(store, VOICE), mails, "dan", lambda count: None, Outcome())
    assert run(store, voices, reread(mails, voices)) == Rebuilt(messages=40, reread=40)
    filter = Filter(opened(), voices)
    assert filter.verify() == []
    assert everything(filter.loaded()) == everything(learnt_anew(active(store), voices))


# The command


@pytest.fixture
def shell(shell: Shell, tmp_path: Path) -> Shell:
    for at, (label, item) in enumerate(labelled(10)):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{at}.eml").write_bytes(item.read())
    shell.done("train", "--spam", "spam", "--ham", "ham")
    return shell


def test_after_a_change_of_the_configuration_the_command_makes_marks_possible_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAMFILTER_LEARN__LIKELIHOOD", "bernoulli")
    assert "run `spamfilter retrain`" in shell.fails("mark-spam", stdin=mail())
    result = shell.run("retrain")
    assert (result.exit_code, result.stdout) == (0, "rebuilt from 10 messages; the mail files were not needed\n")
    assert "by nobody's mark; now recorded as your mark" in shell.done("mark-spam", shell.folder / "spam")
    assert "learnt as spam" in shell.done("mark-spam", stdin=mail())
    with shell.store() as store:
        assert Filter(store, voice("bernoulli")).verify() == []


def test_the_command_reads_folders_of_mail_and_names_voices_that_stay_silent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAMFILTER_LEARN__VOICES", '["fields", "grams"]')
    number = len(list((shell.folder / "ham").iterdir()))
    result = shell.run("retrain", "--mail", "spam")
    assert result.exit_code == 0
    assert result.stdout == (
        f"rebuilt from 10 messages; {10 - number} mail files were read again\n"
        f"voice grams has learnt nothing from {number} messages: name the folders of that mail with --mail\n"
    )
    done = json.loads(shell.run("retrain", "--mail", "spam", "--mail", "ham", "--json").stdout)
    assert done == {"messages": 10, "reread": number, "silent": {}, "problems": []}


def test_mail_that_the_relay_has_tagged_is_read_again_as_it_came(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    came = mail("cheap pills", name="tagged")
    tagged = tagging.mark(came, [("X-Spamfilter-Id", new_id())], "[JUNK]")
    monkeypatch.setenv("SPAMFILTER_VERDICT__SUBJECT_PREFIX", "[JUNK]")
    shell.done("mark-spam", shell.write("tagged/1.eml", b"".join(tagged)))
    monkeypatch.setenv("SPAMFILTER_LEARN__VOICES", '["fields", "grams"]')
    assert shell.run("retrain", "--mail", "tagged").exit_code == 0
    with shell.store() as store:
        learnt = store.active(parse(came).digest())
        assert learnt is not None
        assert learnt.tokens["grams"] == view(GRAMS, parse(came))["grams"]


def test_equal_mails_that_were_trained_as_often_as_they_come_are_found_as_often(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(3):
        shell.write(f"equal/{at}.eml", mail(name="equal"))
    shell.done("train", "--repeats", "count", "--spam", "equal")
    monkeypatch.setenv("SPAMFILTER_LEARN__VOICES", '["fields", "grams"]')
    done = json.loads(shell.run("retrain", "--json", "--mail", "spam", "--mail", "ham", "--mail", "equal").stdout)
    assert done == {"messages": 13, "reread": 13, "silent": {}, "problems": []}


def test_the_outcome_and_its_description_name_the_same() -> None:
    assert documented("retrain --json") == {item.name for item in fields(Rebuilt)}


def test_a_folder_that_is_none_is_one_line_and_changes_nothing(shell: Shell) -> None:
    before = [shell.rows(table) for table in ("words", "ledger", "settings")]
    assert "none: no such file or folder" in shell.fails("retrain", "--mail", "none")
    assert [shell.rows(table) for table in ("words", "ledger", "settings")] == before
