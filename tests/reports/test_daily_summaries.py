"""The summary of a day is the same before and after its entries expire."""

import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spamfilter.bayes.labels import LABELS
from spamfilter.bayes.verdict import ACTIONS, CLASSES
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.reports import daily_summaries
from spamfilter.reports.daily_summaries import KEPT, MANY, Summary, bucket, by_day, duration, midnight, of_period, total
from spamfilter.reports.report import build
from spamfilter.reports.text import message_change
from spamfilter.stores import UNJUDGED, JournalEntry, Store
from tests.stores.conftest import store
from tests.support.made import NOON, VOICE, journal_entry

__all__ = ["store"]

DAY = timedelta(days=1)
NOW = NOON + 8 * DAY


def entries(seed: int, number: int = 300, days: float = 7) -> list[JournalEntry]:
    chance = random.Random(seed)
    return [
        journal_entry(
            id=f"{place:04}",
            digest=b"%016d" % place,
            at=NOON + timedelta(days=chance.uniform(0, days)),
            class_=chance.choice(CLASSES),
            score=chance.random(),
            action=chance.choice(ACTIONS),
            reply=chance.choice(["250 Ok", "451 later", "550 no", ""]),
            sender=chance.choice(["a@One.example", "b@two.example", ""]),
            recipients=chance.sample(["x@example.net", "y@example.net"], k=chance.randrange(3)),
            client=f"192.0.2.{chance.randrange(3)}",
            evidence=[(f"word{chance.randrange(9)}", chance.uniform(-2, 2)) for _ in range(3)],
            judge_us=chance.randrange(5000),
            total_us=chance.randrange(10**7),
            tokens=None,
        )
        for place in range(number)
    ]


def learn(store: Store, rows: list[JournalEntry], seed: int) -> None:
    chance = random.Random(seed)
    for row in chance.sample(rows, k=len(rows) // 4):
        label, source = chance.choice(LABELS), chance.choice(["cli", "imap", "train", "automatic"])
        Filter(store, VOICE).learn(Reading(row.digest, {"fields": {b"a": 1}}), label, source, "ann", row.at + DAY / 4)


def figures(store: Store, since: datetime, until: datetime) -> object:
    """A report without what is asked of the journal itself, or changes by keeping."""
    report = build(store, ["fields"], since, until)
    return replace(report, waiting=[], waiting_in_all=0, latest=[], size=None, advice=[])  # type: ignore[arg-type]


def test_a_summary_of_an_earlier_version_has_the_words_of_now() -> None:
    now = Summary()
    for reply, class_ in (
        ("451 x", "ham"),
        ("550 x", "spam"),
        ("250 x", "ham"),
        ("450 x", UNJUDGED),
        ("550 y", UNJUDGED),
    ):
        now.add(journal_entry(reply=reply, class_=class_))
    kept = json.dumps(now.to_json())
    earlier = kept.replace('"deferred"', '"put_off"').replace('"rejected"', '"refused"')
    assert earlier != kept
    assert Summary.of_json(json.loads(earlier)) == now


@pytest.mark.parametrize("microseconds", [0, 1, 2, 999, 1000, 10**6, 3_600_000_000])
def test_a_duration_is_at_most_a_twentieth_too_long(microseconds: int) -> None:
    assert microseconds <= duration(bucket(microseconds)) + 1 <= 1.05 * microseconds + 3


@pytest.mark.parametrize("seed", range(3))
def test_a_summary_survives_json_and_adds_up(store: Store, seed: int) -> None:
    rows = entries(seed)
    store.write_journal(rows)
    days = by_day(store, NOON, NOW)
    assert {day: Summary.of_json(json.loads(json.dumps(one.to_json()))) for day, one in days.items()} == days
    whole = Summary()
    for row in rows:
        whole.add(row)
    added = total(days.values())
    assert {token: number for token, (number, _) in added.words.items()} == {
        token: number for token, (number, _) in whole.words.items()
    }
    assert replace(added, words={}) == replace(whole, words={})


@pytest.mark.parametrize("since", [NOON, NOON + DAY / 3, midnight(NOON.date())])
def test_a_report_is_the_same_before_and_after_summaries_are_kept(store: Store, since: datetime) -> None:
    rows = entries(1)
    store.write_journal(rows)
    learn(store, rows, 2)
    before = figures(store, since, NOW)
    assert daily_summaries.keep(store, NOW, midnight(NOON.date())) > 5
    assert daily_summaries.keep(store, NOW, midnight(NOON.date())) == 0
    assert figures(store, since, NOW) == before


def test_a_report_is_the_same_when_the_entries_are_gone_but_for_parts_of_days(store: Store) -> None:
    rows = entries(1)
    store.write_journal(rows)
    learn(store, rows, 2)
    first, gone = midnight(NOON.date()), midnight((NOON + 4 * DAY).date())
    before = figures(store, first, NOW)
    daily_summaries.keep(store, NOW, gone)
    assert store.expire(gone, gone)[1] == sum(row.at < gone for row in rows)
    assert figures(store, first, NOW) == before
    daily_summaries.keep(store, NOW, gone)
    assert figures(store, first, NOW) == before
    # A day whose entries have expired cannot be divided.
    part = build(store, ["fields"], first + DAY * 1.5, NOW)
    assert part.since == first + DAY
    assert part.figures.messages == sum(row.at >= part.since for row in rows)
    part = build(store, ["fields"], first + DAY, first + DAY * 2.5)
    assert part.until == first + DAY * 3
    assert part.figures.messages == sum(part.since <= row.at < part.until for row in rows)
    assert build(store, ["fields"], first + DAY, first + DAY * 2).until == first + DAY * 2


def test_entries_that_come_late_are_counted_and_those_of_a_kept_day_kept_anew(store: Store) -> None:
    rows = entries(1)
    store.write_journal(rows[:200])
    daily_summaries.keep(store, NOW, midnight(NOON.date()))
    store.write_journal(rows[200:])
    assert total(by_day(store, NOON, NOW).values()).messages == len(rows)
    assert daily_summaries.keep(store, NOW, midnight(NOON.date())) > 0
    day = (NOON + DAY).date()
    assert Summary.of_json(store.summaries(day, day)[day]).messages == sum(row.at.date() == day for row in rows)


def test_marks_that_come_after_a_day_was_kept_count_until_its_entries_go(store: Store) -> None:
    rows = entries(1)
    store.write_journal(rows)
    daily_summaries.keep(store, NOW, midnight(NOON.date()))
    learn(store, rows, 2)
    marked = total(by_day(store, NOON, NOW).values()).marked
    assert marked.total() > 20
    gone = midnight(NOW.date())
    daily_summaries.keep(store, NOW, gone)
    store.expire(gone, gone)
    assert total(by_day(store, NOON, NOW).values()).marked == marked


def test_marks_stay_when_an_expiry_is_broken_off_or_two_relays_expire_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, gone = entries(1), midnight(NOW.date())
    store.write_journal(rows)
    learn(store, rows, 2)
    marked = total(by_day(store, NOON, NOW).values()).marked

    looked_at = daily_summaries.marks

    def half_gone(*when: Any) -> Any:
        """Another relay deletes entries as this one is about to look at their marks."""
        for row in rows[::2]:
            store.remove_journal(row.id)
        return looked_at(*when)

    daily_summaries.keep(store, NOW, gone)
    with monkeypatch.context() as patched:
        patched.setattr(daily_summaries, "marks", half_gone)
        daily_summaries.keep(store, NOW, gone)
    assert total(by_day(store, NOON, NOW).values()).marked == marked
    daily_summaries.keep(store, NOW, gone)
    store.expire(gone, gone)
    assert total(by_day(store, NOON, NOW).values()).marked == marked


def test_a_day_stays_whole_when_a_relay_that_keeps_entries_for_less_time_deletes_them_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, gone = entries(1), midnight(NOW.date())
    store.write_journal(rows)
    before = total(by_day(store, NOON, NOW).values())

    def deleted_before(*asked: Any) -> Summary:
        """The other relay keeps the summaries and deletes the entries, as this one is about to count a day."""
        with monkeypatch.context() as patched:
            patched.setattr(daily_summaries, "of_period", of_period)
            daily_summaries.keep(store, NOW, gone)
        store.expire(gone, gone)
        return of_period(*asked)

    monkeypatch.setattr(daily_summaries, "of_period", deleted_before)
    daily_summaries.keep(store, NOW, NOON - 30 * DAY)  # nothing is about to expire here
    monkeypatch.undo()
    assert total(by_day(store, NOON, NOW).values()).entries == before.entries


def test_a_day_is_kept_once_it_is_surely_over(store: Store) -> None:
    store.write_journal([journal_entry(at=NOON)])
    midnight_after = midnight(NOON.date()) + DAY
    assert daily_summaries.keep(store, midnight_after + DAY / 48, NOON - DAY) == 0
    assert daily_summaries.keep(store, midnight_after + DAY / 12, NOON - DAY) == 1


def test_a_flood_of_names_does_not_fill_the_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a name that comes all day nor any figure is counted short."""
    monkeypatch.setattr(daily_summaries, "COUNTED", 3 * KEPT)
    held, trim = list[int](), Summary.trim

    def noted(made: Summary, most: int) -> None:
        held.append(len(made.recipients))
        trim(made, most)

    monkeypatch.setattr(Summary, "trim", noted)
    store.write_journal([
        journal_entry(
            id=f"{number:04}", at=NOON + number * timedelta(minutes=1),
            recipients=("all@example.org", *(f"{number}-{other}@example.org" for other in range(10))),
        )
        for number in range(300)
    ])  # fmt: skip
    made = of_period(store, NOON, NOON + DAY, MANY + 1)
    assert made.recipients["all@example.org"] == (300, 0)
    assert made.messages == 300
    assert max(held) <= 2 * 3 * KEPT + 10 * 11


def test_a_mailbox_is_one_however_its_address_is_written(store: Store) -> None:
    rows = [
        journal_entry(id=f"{number}", recipients=(name,))
        for number, name in enumerate(("Ann@X.example", "ann@x.example"))
    ]
    store.write_journal(rows)
    assert of_period(store, NOON, NOON + DAY, MANY + 1).recipients == {"ann@x.example": (2, 0)}


def test_names_and_words_of_a_day_are_bounded(store: Store) -> None:
    store.write_journal([
        journal_entry(
            id=f"{number:04}", at=NOON, digest=b"%016d" % number, sender=f"a@d{number // 2}.example",
            evidence=[(f"word{number // 2}", 1.0)], reply=f"451 {number}",
        )
        for number in range(6 * KEPT)
    ])  # fmt: skip
    made = of_period(store, NOON, NOON + DAY, MANY + 1)
    assert [len(names) for names in (made.senders, made.words, made.troubles)] == [KEPT] * 3
    assert made.messages == 6 * KEPT


def test_parts_of_days_are_read_once_and_again_when_mail_came(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = entries(5)
    store.write_journal(rows)
    since, until, parts = NOON + DAY / 3, NOON + 5 * DAY, daily_summaries.Parts()
    plain = by_day(store, since, until)
    assert by_day(store, since, until, parts) == plain
    read: list[datetime] = []

    def noted(store: Store, begin: datetime, end: datetime, number: int, host: str) -> Summary:
        read.append(begin)
        return counted(store, begin, end, number, host)

    counted = daily_summaries._counted
    monkeypatch.setattr(daily_summaries, "_counted", noted)
    assert by_day(store, since, until, parts) == plain
    assert read == []
    store.write_journal([journal_entry(at=NOON + 2 * DAY)])
    assert by_day(store, since, until, parts) == by_day(store, since, until)
    assert read[0] == midnight((NOON + 2 * DAY).date())
    for hours in range(1, 4):
        hour = timedelta(hours=hours)
        plain = by_day(store, since + hour, until + hour)
        read.clear()
        assert by_day(store, since + hour, until + hour, parts) == plain
        assert read == [until + hour - timedelta(hours=1)]
    monkeypatch.setattr(daily_summaries, "PARTS", 1)
    by_day(store, since + DAY / 9, until, parts)
    assert len(parts) == 1


def test_a_period_before_that_begins_in_a_day_of_which_entries_are_gone_is_compared_by_its_length(store: Store) -> None:
    store.write_journal([journal_entry(id=f"{hour:04}", at=NOON + hour * timedelta(hours=1)) for hour in range(8 * 24)])
    gone = midnight((NOON + 4 * DAY).date())
    daily_summaries.keep(store, NOW, gone)
    store.expire(gone, gone)
    report = build(store, ["fields"], NOW - 3.5 * DAY, NOW)
    assert (report.before_since, report.before.messages) == (NOW - 7.5 * DAY, 96)
    assert (report.figures.messages, message_change(report)) == (84, "0 %")
    assert message_change(build(store, ["fields"], NOW, NOW)) == ""
