"""The figures of reports, compared with a plain count."""

import random
from collections import Counter
from datetime import date, timedelta

from spamfilter.bayes.labels import LABELS, Label
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.stores import UNJUDGED, Store, Wanted
from tests.stores.made import entry, learn
from tests.support.made import NOON, VOICE, journal_entry

MESSAGES = 60


def digest(number: int) -> bytes:
    return b"%016d" % number


def test_entries_with_labels_are_those_of_the_period_that_people_have_marked(store: Store) -> None:
    chance = random.Random(1)
    entries = [
        journal_entry(
            id=f"{number:026}",
            digest=digest(number % 50),  # some came twice
            at=NOON - timedelta(days=40) * chance.random(),
            class_=chance.choice(("ham", "unsure", "spam")),
            score=chance.random(),
        )
        for number in range(MESSAGES)
    ]
    edges = NOON - timedelta(days=30), NOON - timedelta(days=5)
    entries += [journal_entry(id=f"edge{n}", digest=digest(0), at=edge) for n, edge in enumerate(edges)]
    store.write_journal(entries)
    filter, labels = Filter(store, VOICE), dict[bytes, Label]()
    for number in {0, *chance.sample(range(50), 45)}:
        reading, label = Reading(digest(number), {"fields": {b"a": 1}}), chance.choice(LABELS)
        source = "automatic" if number % 7 == 6 else "cli"
        filter.learn(reading, label, source, "ann", NOON)
        if number % 5 == 4:
            filter.forget(reading, source, "ann")
        elif source == "cli":
            labels[reading.digest] = label
    expected = [
        (entry.at, entry.class_, entry.score, labels[entry.digest])
        for entry in entries
        if edges[0] <= entry.at < edges[1] and entry.digest in labels
    ]
    found = [(one.at, one.class_, one.score, one.label) for one in store.labelled(*edges, ("automatic",))]
    assert sorted(found) == sorted(expected)
    assert expected


def test_days_are_those_that_have_entries(store: Store) -> None:
    midnight = NOON.replace(hour=0)
    moments = [
        midnight, midnight - timedelta(microseconds=1), midnight + timedelta(days=1, microseconds=-1), NOON,
        NOON - timedelta(days=400), NOON - timedelta(days=9000), midnight + timedelta(days=1),
    ]  # fmt: skip
    store.write_journal([journal_entry(id=f"{n:026}", digest=digest(n), at=at) for n, at in enumerate(moments)])
    days = Counter(at.date() for at in moments)
    assert store.journal_days(date.min, date.max) == days
    today, yesterday = NOON.date(), NOON.date() - timedelta(days=1)
    assert store.journal_days(today, today) == {today: 3}
    assert store.journal_days(yesterday, today) == {yesterday: 1, today: 3}
    assert store.journal_days(today + timedelta(days=2), date.max) == {}


def test_the_journal_of_one_host_is_what_its_relay_judged(store: Store) -> None:
    mx1 = [journal_entry(at=NOON, host="mx1.test", class_="unsure", digest=digest(number)) for number in (1, 2)]
    mx2 = [
        journal_entry(at=NOON, host="mx2.test", class_="unsure", digest=digest(3)),
        journal_entry(at=NOON, host="mx2.test", class_=UNJUDGED, action="defer", reply="451 later", digest=b""),
    ]
    store.write_journal([*mx1, *mx2])
    learn(store, entry(1))
    end = NOON + timedelta(minutes=1)
    for host, own, waiting in (("mx1.test", mx1, 1), ("mx2.test", mx2, 1), ("mx3.test", [], 0), ("", mx1 + mx2, 2)):
        ids = {one.id for one in own}
        assert {one.id for one in store.journal(NOON, end, host)} == ids
        assert {one.id for one in store.search(Wanted(host=host), 9)} == ids
        assert store.number_found(Wanted(host=host)) == len(ids)
        assert store.journal_days(NOON.date(), NOON.date(), host) == ({NOON.date(): len(ids)} if ids else {})
        assert store.unlabelled(NOON, end, 9, host)[1] == waiting
        assert len(store.labelled(NOON, end, (), host)) == (host in ("", "mx1.test"))
        assert len(store.deferrals(NOON, end, host)) == (host in ("", "mx2.test"))


def test_settings_of_a_kind_are_found_by_their_names(store: Store) -> None:
    for name in ("a b", "a c d", "a", "ab e"):
        store.put_setting(name, name)
    assert store.settings_of("a") == {"b": "a b", "c d": "a c d"}
