"""Provenance and counterfactuals, compared with the ledger and with real changes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.bayes.likelihoods import LIKELIHOODS
from spamfilter.bayes.likelihoods.gaussian import Gaussian
from spamfilter.bayes.model import Score, State
from spamfilter.bayes.tokens import Token
from spamfilter.bayes.verdict import Policy
from spamfilter.bayes.voices import Evidence, Voice, Voices
from spamfilter.learning import provenance
from spamfilter.learning.counterfactuals import Counterfactuals
from spamfilter.learning.filter import Filter
from spamfilter.learning.provenance import Provenance, shown
from spamfilter.learning.transaction import Reading
from spamfilter.stores import Entry, Store
from spamfilter.stores.store import Holders
from tests.bayes.likelihoods.drawn import every
from tests.support.made import NOON, VOICE, journal_entry, reading
from tests.support.memory_store import MemoryStore, open_store

POLICY = Policy(spam=0.6, unsure=0.4)
ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"
PILES: dict[Label, str] = {"spam": "cheap pills offer money", "ham": "lunch friend meeting garden"}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db")
    yield store
    store.close()


def voices(name: str) -> Voices:
    return (Voice("seen", Gaussian(least=1) if name == Gaussian.name else LIKELIHOODS[name]()),)


def seen(name: str, *words: str) -> Reading:
    """A message of these words, for the voice of `voices`; spam has more of each."""
    number = sum(name.encode())
    times = {word: 1 + (number + 3 * len(word)) % 7 + 4 * name.startswith("spam") for word in words}
    return Reading(name.encode().ljust(16, b"."), {"seen": {word.encode(): n for word, n in times.items()}})


def mails(label: Label, count: int) -> list[Reading]:
    """Mails of one kind; each lacks one word of it, and has one that is its own."""
    words = PILES[label].split()
    return [
        seen(
            f"{label}{number}",
            *(word for word in words if word != words[number % 4]),
            f"{label}{number}",
            "the",
            "size",
        )
        for number in range(count)
    ]


def taught(store: Store, name: str, count: int = 5) -> Filter:
    """A filter that has learnt, been corrected, and forgotten."""
    filter = Filter(store, voices(name), whole=False)
    for spam, ham in zip(mails("spam", count), mails("ham", count), strict=True):
        filter.learn(spam, "spam", "cli", "ann")
        filter.learn(ham, "ham", "imap", "bob")
    filter.learn(mails("spam", 2)[1], "ham", "cli", "bob")
    filter.learn(mails("spam", 2)[1], "spam", "cli", "ann")
    filter.forget(mails("ham", 2)[1], "cli", "bob")
    return filter


UNSEEN = (
    seen("spam-unseen", "cheap", "pills", "money", "the", "size", "never"),
    seen("mixed", "cheap", "lunch", "the", "size", "friend", "spam2"),
    seen("mine", "lunch", "friend", "garden", "the", "meeting"),
    mails("spam", 3)[2],
    mails("ham", 5)[4],
)


def explained(filter: Filter, reading: Reading, policy: Policy = POLICY) -> tuple[Score, list[Evidence], Provenance]:
    score, evidence = filter.explained(reading)
    return score, evidence, provenance.provenance(filter, policy, reading, score, evidence)


def gave(voices: Voices, entry: Entry, item: Evidence) -> bool:
    """Whether a learning has added to the counts of a token."""
    (voice,) = (voice for voice in voices if voice.name == item.voice)
    amount = entry.added.get(item.voice, 0)
    return bool(amount) and item.token.encode() in voice.likelihood.deltas(entry.tokens[item.voice], amount)


def everything(store: Store) -> tuple[State, list[Entry], object]:
    return store.load(["seen"]), store.entries_after(0), store.get_setting("rules")


# The learnings of a token


@every
@pytest.mark.parametrize("chunk", [1, 3, 500])
def test_each_token_names_the_latest_learnings_that_gave_its_counts(
    name: str, chunk: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "CHUNK", chunk)
    filter = taught(store, name)
    active = {entry.id for entry in store.learnings()}
    ledger = [entry for entry in reversed(store.entries_after(0)) if entry.id in active]
    for judged in UNSEEN:
        _, evidence, found = explained(filter, judged)
        assert shown(evidence)
        for item, trace in zip(shown(evidence), found.traces, strict=True):
            ids = [entry.id for entry in ledger if gave(filter.voices, entry, item)]
            assert (list(trace.trainings), trace.more) == (ids[:3], len(ids) > 3)
        named = {id for trace in found.traces for id in trace.trainings} | {item.training for item in found.forgotten}
        assert [origin.training for origin in found.origins] == sorted(named, reverse=True)
        assert not found.cut_short


def test_an_origin_tells_who_taught_it_and_what_the_journal_knows(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    one, two = reading("one", "cheap"), reading("two", "cheap", "pills")
    filter.learn(one, "spam", "imap", "ann", NOON)
    filter.learn(two, "spam", "address", "", NOON + timedelta(days=1))
    store.write_journal([journal_entry(id=ID, digest=one.digest, subject="Cheap"), journal_entry(id="02")])
    _, _, found = explained(filter, one)
    latest, first = found.origins
    assert (first.at, first.label, first.source, first.by) == (NOON, "spam", "imap", "ann")
    assert (first.id, first.subject) == (ID, "Cheap")
    assert (latest.at, latest.label, latest.source, latest.by) == (NOON + timedelta(days=1), "spam", "address", "")
    assert (latest.id, latest.subject) == ("", "")


class Counting(MemoryStore):
    """Notes how many learnings were looked at."""

    looked_at = 0

    def holders(self, words: Mapping[str, Iterable[Token]], before: int, limit: int) -> Holders:
        found = super().holders({voice: set(some) for voice, some in words.items()}, before, limit)
        self.looked_at += found.looked_at
        return found


def many(store: Store, count: int = 40) -> Filter:
    filter = Filter(store, voices("multinomial"), whole=False)
    for number in range(count):
        filter.learn(seen(f"{number}", "rare" if number == 0 else "common", f"own{number}"), "spam", "cli")
    return filter


def test_the_ledger_is_read_no_farther_than_the_counts_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHUNK", 5)
    store = Counting()
    filter = many(store)
    assert explained(filter, seen("x", "common"))[2].looked_at == 5  # three at once
    assert explained(filter, seen("x", "own37"))[2].looked_at == 5  # the only one
    assert explained(filter, seen("x", "own20"))[2].looked_at == 20
    assert explained(filter, seen("x", "never"))[2].looked_at == 0
    assert store.looked_at == 30
    _, _, found = explained(filter, seen("x", "rare"))
    assert (found.looked_at, found.cut_short, found.traces[0].trainings) == (40, False, (1,))


def test_the_search_is_bounded_and_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHUNK", 4)
    monkeypatch.setattr(provenance, "LOOKED_AT", 10)
    filter = many(store)
    _, _, found = explained(filter, seen("x", "rare", "common"))
    assert (found.looked_at, found.cut_short) == (10, True)
    traces = {tuple(trace.trainings): trace.more for trace in found.traces}
    assert traces == {(): True, (40, 39, 38): True}


def test_only_so_many_tokens_are_looked_for_as_are_shown(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    long = reading("long", *(f"word{number}" for number in range(60)))
    filter.learn(long, "spam", "cli")
    _, evidence, found = explained(filter, long)
    assert len(evidence) == 60
    assert len(found.traces) == provenance.SHOWN


# What would change it


@every
@pytest.mark.parametrize("label", LABELS)
def test_a_mark_would_do_what_it_then_does(name: str, label: Label, store: Store) -> None:
    filter = taught(store, name)
    for judged in UNSEEN:
        _, _, found = explained(filter, judged)
        before = everything(store)
        change = filter.learn(judged, label, "cli")
        assert found.marked[label].posterior == change.after.posterior
        assert found.marked[label].class_ == POLICY.classify(change.after, filter.learnt)
        assert found.learnt == change.was
        if not change.changed:
            assert everything(store) == before


@pytest.mark.parametrize("label", LABELS)
def test_a_mark_speaks_of_a_message_as_it_was_learnt(label: Label, store: Store) -> None:
    filter = taught(store, "soft")
    (learnt, *_) = mails("spam", 1)
    altered = Reading(learnt.digest, {"seen": {b"cheap": 1, b"footer": 1, b"lunch": 1}})
    _, _, found = explained(filter, altered)
    assert found.learnt == "spam"
    assert found.marked[label].posterior == filter.learn(altered, label, "cli").after.posterior


@every
def test_what_would_be_without_a_learning_is_what_forgetting_it_does(name: str, store: Store) -> None:
    filter = taught(store, name)
    tried = 0
    for judged in UNSEEN:
        _, _, found = explained(filter, judged)
        for item in found.forgotten:
            other = taught(open_store("memory:"), name)
            (entry,) = (entry for entry in other.store.entries_after(0) if entry.id == item.training)
            assert item.itself is (entry.digest == judged.digest)
            assert other.forget(Reading(entry.digest, {}), "cli").changed
            after = other.score(judged)
            assert item.outcome.posterior == after.posterior
            assert item.outcome.class_ == POLICY.classify(after, other.learnt)
            tried += 1
    assert tried


@pytest.mark.parametrize("label", LABELS)
def test_the_copy_that_was_learnt_as_the_other_class_is_named_first(label: Label, store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    for number in range(20):
        filter.learn(reading(f"{number}", "the", f"word{number}"), LABELS[number % 2], "train")
    words = [f"news{number}" for number in range(30)]
    filter.learn(reading("copy", *words, "footer"), label, "cli", "bob")
    copy = filter.last
    for number in range(20):
        filter.learn(reading(f"later{number}", "the", f"new{number}"), LABELS[number % 2], "train")
    score, _, found = explained(filter, reading("judged", *words))
    assert (score.posterior > 0.5) is (label == "spam")
    (blamed,) = found.forgotten
    assert (blamed.training, blamed.itself, blamed.tokens) == (copy, False, provenance.SHOWN)
    assert abs(blamed.outcome.posterior - 0.5) < abs(score.posterior - 0.5)


def test_the_message_itself_is_named_before_its_copies(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    words = [f"news{number}" for number in range(30)]
    for name in "abcd":
        filter.learn(reading(name, *words), "spam", "cli")
    _, _, found = explained(filter, reading("b", *words))
    assert [item.itself for item in found.forgotten] == [True, False, False]
    assert len({item.training for item in found.forgotten}) == 3


def test_a_learning_of_a_few_of_the_tokens_is_not_named(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    for number in range(9):
        filter.learn(reading(f"{number}", f"word{number}"), "spam", "cli")
    _, _, found = explained(filter, reading("x", *(f"word{number}" for number in range(9))))
    assert len(found.traces) == 9
    assert found.forgotten == []


def test_a_learning_that_spoke_against_the_verdict_is_not_named(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    words = [f"news{number}" for number in range(30)]
    for name in "abc":
        filter.learn(reading(name, *words), "spam", "cli")
    filter.learn(reading("ham", *words), "ham", "cli")
    against = filter.last
    _, _, found = explained(filter, reading("x", *words))
    assert against in found.traces[0].trainings
    assert [item.training for item in found.forgotten] == [against - 1, against - 2, against - 3]


def without(reading: Reading, tokens: Iterable[str]) -> Reading:
    gone = {token.encode() for token in tokens}
    return Reading(
        reading.digest,
        {voice: {token: n for token, n in some.items() if token not in gone} for voice, some in reading.tokens.items()},
    )


@every
def test_without_the_named_tokens_the_class_is_another_and_without_one_less_it_is_not(name: str, store: Store) -> None:
    filter = taught(store, name, 8)
    flips = 0
    for judged in UNSEEN:
        for policy in (POLICY, Policy(spam=0.55, unsure=0.45), Policy(spam=0.9, unsure=0.5)):
            score, _, found = explained(filter, judged, policy)
            now = policy.classify(score, filter.learnt)
            for few in found.without:
                after = filter.score(without(judged, few.tokens))
                assert few.outcome.posterior == after.posterior
                assert few.outcome.class_ == policy.classify(after, filter.learnt) != now
                less = filter.score(without(judged, few.tokens[:-1]))
                assert policy.classify(less, filter.learnt) == now
                flips += 1
    assert flips


def test_a_word_that_two_voices_see_is_absent_from_both(store: Store) -> None:
    soft = LIKELIHOODS["soft"]()
    filter = Filter(store, (Voice("fields", soft), Voice("body", soft), Voice("grams", soft, 0.01)), whole=False)
    tokens: dict[str, dict[bytes, int]] = {
        "fields": {b"cheap": 1}, "body": {b"cheap": 1}, "grams": {b"cheap": 1, b"other": 1},
    }  # fmt: skip
    for name in "abcd":
        filter.learn(Reading(name.encode() * 16, tokens), "spam", "cli")
    filter.learn(reading("ham", "lunch"), "ham", "cli")
    _, evidence, found = explained(filter, Reading(b"x" * 16, tokens), Policy(spam=0.7, unsure=0.6))
    assert [(item.token, item.voice) for item in evidence[:2]] == [("cheap", "body"), ("cheap", "fields")]
    (few,) = found.without
    assert few.tokens == ["cheap"]
    gone = Reading(b"x" * 16, {**tokens, "fields": {}, "body": {}})
    assert few.outcome.posterior == filter.score(gone).posterior


def test_where_no_absence_changes_the_class_nothing_is_named(store: Store) -> None:
    filter = taught(store, "soft")
    _, _, found = explained(filter, UNSEEN[0], Policy(spam=1e-6, unsure=1e-6))
    assert found.without == []


@every
@pytest.mark.parametrize("judged", UNSEEN)
def test_a_distance_leads_to_the_threshold(name: str, judged: Reading, store: Store) -> None:
    filter = taught(store, name)
    state = store.load([])
    for policy in (POLICY, Policy(spam=0.99, unsure=0.01), Policy(spam=0.5, unsure=0.5)):
        score, _, found = explained(filter, judged, policy)
        now = policy.classify(score, filter.learnt)
        assert len(found.distances) == (2 if now == "unsure" else 1)
        for distance in found.distances:
            assert distance.class_ != now
            for further, class_ in ((1e-6, distance.class_), (-1e-6, now)):
                odds = score.log_odds + distance.log_odds + further * math.copysign(1, distance.log_odds)
                counted = odds - score.few_ham
                moved = replace(score, log_odds=odds, posterior=state.calibration.posterior(counted))
                assert policy.classify(moved, filter.learnt) == class_


def test_a_threshold_that_cannot_be_crossed_is_no_distance(store: Store) -> None:
    filter = taught(store, "soft")
    for policy in (Policy(spam=1.0, unsure=0.0), Policy(spam=0.0, unsure=0.0)):
        assert explained(filter, UNSEEN[0], policy)[2].distances == []


def test_what_is_unsure_only_since_no_ham_is_known_is_not_told_to_rise(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    for name in "abcdefgh":
        filter.learn(reading(name, "cheap", "pills"), "spam", "cli")
    score, _, found = explained(filter, reading("x", "cheap", "pills"), Policy(spam=0.55, unsure=0.5))
    assert score.posterior > 0.55
    assert [distance.class_ for distance in found.distances] == ["ham"]
    assert found.distances[0].log_odds < 0


def test_nothing_is_learnt_and_nothing_kept(store: Store) -> None:
    filter = taught(store, "eddc")
    whole = Filter(store, voices("eddc"))
    before = everything(store), whole.explained(UNSEEN[0])
    for judged in UNSEEN:
        assert explained(filter, judged)[2] == explained(whole, judged)[2]
    assert (everything(store), whole.explained(UNSEEN[0])) == before


@every
def test_an_empty_store_explains_nothing_and_tells_what_a_mark_would_do(name: str, store: Store) -> None:
    filter = Filter(store, voices(name), whole=False)
    _, evidence, found = explained(filter, UNSEEN[0], Policy())
    assert (evidence, found.traces, found.origins, found.forgotten, found.learnt) == ([], [], [], [], None)
    for label in LABELS:
        store = open_store("memory:")
        assert found.marked[label].posterior == Filter(store, voices(name)).learn(UNSEEN[0], label, "x").after.posterior


# Others learn meanwhile


class Interrupted(MemoryStore):
    """Somebody forgets a message, or learns it as something else, just before or after its counts are read."""

    meanwhile: Callable[[], object] | None = None
    first = True

    def state(self, words: Mapping[str, Iterable[Token]]) -> State:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile and self.first:
            meanwhile()
        state = super().state(words)
        if meanwhile and not self.first:
            meanwhile()
        return state


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("label", [None, *LABELS])
def test_what_changes_while_it_is_looked_at_is_taken_as_it_is_then(label: Label | None, first: bool) -> None:
    store = Interrupted()
    filter, other = Filter(store, VOICE), Filter(store, VOICE)
    judged = reading("judged", "cheap", "pills")
    filter.learn(judged, "spam", "cli")
    score, evidence = filter.explained(judged)
    store.meanwhile = lambda: other.learn(judged, label, "cli") if label else other.forget(judged, "cli")
    store.first = first
    found = provenance.provenance(filter, POLICY, judged, score, evidence)
    assert found.learnt == label
    assert found.marked["ham"].posterior == filter.learn(judged, "ham", "cli").after.posterior


def test_a_learning_that_was_taken_back_meanwhile_is_not_tried(store: Store) -> None:
    filter = Filter(store, VOICE, whole=False)
    one = reading("one", "cheap")
    filter.learn(one, "spam", "cli")
    entry = store.active(one.digest)
    assert entry is not None
    changed = Counterfactuals(filter, POLICY, filter.counts_of(one.tokens), "spam")
    assert changed.forgotten(one.tokens, entry) is not None
    filter.forget(one, "cli")
    assert changed.forgotten(one.tokens, entry) is None
