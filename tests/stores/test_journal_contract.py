"""The contract of the journal, tested on every store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from spamfilter.bayes.labels import COUNTERPART
from spamfilter.bayes.token_codec import pack
from spamfilter.stores import Store, Wanted
from spamfilter.stores.journal import NAMED
from spamfilter.stores.sql import journal as sql_journal
from tests.stores.made import entry, learn
from tests.support.made import NOON, journal_entry


def test_the_journal_keeps_entries_as_they_were_written(store: Store) -> None:
    entries = [
        journal_entry(id="01A", at=NOON, subject="grün \N{PILE OF POO} \x00 '", evidence=[("a", 0.25), ("b", -3.0)]),
        journal_entry(id="01B", at=NOON + timedelta(seconds=1), tokens=None, recipients=[]),
    ]
    store.write_journal(entries)
    store.write_journal([])
    assert [store.find_journal(entry.id) for entry in entries] == entries
    assert store.find_journal("01C") is None


def test_a_journal_entry_that_is_there_already_stays_as_it_is(store: Store) -> None:
    store.write_journal([journal_entry(id="01A", subject="first")])
    store.write_journal([journal_entry(id="01A", subject="second"), journal_entry(id="01B", subject="new")])
    found = {id: store.find_journal(id) for id in ("01A", "01B")}
    assert {id: entry.subject for id, entry in found.items() if entry} == {"01A": "first", "01B": "new"}


def test_a_period_of_the_journal_begins_with_its_first_moment_and_ends_before_its_last(store: Store) -> None:
    entries = [journal_entry(id=f"0{hour}", at=NOON + timedelta(hours=hour)) for hour in range(4)]
    store.write_journal(entries[::-1])
    found = store.journal(NOON + timedelta(hours=1), NOON + timedelta(hours=3))
    assert [entry.id for entry in found] == ["01", "02"]
    assert [entry.tokens for entry in found] == [None, None]


def test_entries_from_after_a_moment_get_another_date(store: Store) -> None:
    later = {"0at": 0, "0after": 1, "0long-after": 4000}
    store.write_journal([journal_entry(id=id, at=NOON + timedelta(days=days)) for id, days in later.items()])
    assert store.date_journal_anew(NOON, NOON - timedelta(days=1)) == 2
    assert store.date_journal_anew(NOON, NOON - timedelta(days=1)) == 0
    assert [entry.id for entry in store.journal(NOON - timedelta(days=1), NOON)] == ["0after", "0long-after"]
    assert [entry.id for entry in store.journal(NOON, NOON + timedelta(days=5000))] == ["0at"]


def test_what_is_too_old_goes_first_the_tokens_then_the_entry(store: Store) -> None:
    ages = {"new": 1, "middle": 20, "old": 40, "oldest": 50}
    store.write_journal([journal_entry(id=id, at=NOON - timedelta(days=days)) for id, days in ages.items()])
    store.write_journal([journal_entry(id="bare", at=NOON - timedelta(days=20), tokens=None)])
    bounds = NOON - timedelta(days=14), NOON - timedelta(days=30)
    assert store.expire(*bounds) == (1, 2)
    assert store.expire(*bounds) == (0, 0)
    kept = {id: store.find_journal(id) for id in (*ages, "bare")}
    assert {id for id, entry in kept.items() if entry} == {"new", "middle", "bare"}
    assert {id for id, entry in kept.items() if entry and entry.tokens} == {"new"}


def journaled(store: Store) -> set[str]:
    """Ids of the entries that have tokens."""
    always = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    found = (store.find_journal(entry.id) for entry in store.journal(*always))
    return {entry.id for entry in found if entry and entry.tokens}


FAR = datetime(1980, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_tokens_that_take_too_much_go_the_oldest_first(
    store: Store, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_journal, "EXPIRE", batch)
    sizes: dict[str, int] = {}
    for number in range(7):
        words = {b"%d-%d" % (number, word): word for word in range(1, 5 * number % 13 + 2)}
        entry = journal_entry(id=f"{number:02}", at=NOON + timedelta(hours=number), tokens={"fields": words})
        sizes[entry.id] = len(pack(entry.tokens or {}))
        store.write_journal([entry])
    store.write_journal([journal_entry(id="99", at=NOON + timedelta(hours=99), tokens=None)])
    assert len(set(sizes.values())) > 3
    for kept in range(7, -1, -1):
        ids = sorted(sizes)[7 - kept :]
        room = sum(sizes[id] for id in ids)
        dropped = int(kept < 7)
        assert store.expire(FAR, FAR, room) == (dropped, 0)
        assert store.expire(FAR, FAR, room) == (0, 0)
        assert journaled(store) == set(ids)
    assert len(store.journal(NOON, NOON + timedelta(days=9))) == 8


def test_one_byte_too_much_costs_the_oldest_and_a_large_one_all_before_it(store: Store) -> None:
    small, large = {"fields": {b"a": 1}}, {"fields": {b"%d" % number: number for number in range(500)}}
    for id, tokens in (("1", small), ("2", small), ("3", large), ("4", small)):
        store.write_journal([journal_entry(id=id, tokens=tokens)])
    room = 3 * len(pack(small)) + len(pack(large))
    assert store.expire(FAR, FAR, room) == (0, 0)
    assert store.expire(FAR, FAR, room - 1) == (1, 0)
    assert journaled(store) == {"2", "3", "4"}
    assert store.expire(FAR, FAR, len(pack(large))) == (2, 0)
    assert journaled(store) == {"4"}


def test_tokens_that_go_for_their_age_take_no_room_from_others(store: Store) -> None:
    one = {"fields": {b"a": 1}}
    times = {"1": 0, "2": 5, "3": 1, "4": 6}  # a clock that was set back: the third is older than its id says
    store.write_journal([journal_entry(id=id, at=NOON + timedelta(days=day), tokens=one) for id, day in times.items()])
    assert store.expire(NOON + timedelta(days=3), FAR, 2 * len(pack(one))) == (2, 0)
    assert journaled(store) == {"2", "4"}


def test_all_three_bounds_hold_at_once(store: Store) -> None:
    one = {"fields": {b"a": 1}}
    store.write_journal([journal_entry(id=f"{day:02}", at=NOON + timedelta(days=day), tokens=one) for day in range(10)])
    moments = NOON + timedelta(days=5), NOON + timedelta(days=3)
    assert store.expire(*moments, 2 * len(pack(one)) + 1) == (5, 3)
    assert journaled(store) == {"08", "09"}
    assert [entry.id for entry in store.journal(NOON, NOON + timedelta(days=99))] == [
        f"{day:02}" for day in range(3, 10)
    ]


def test_the_latest_entries_of_a_message_id_are_found_the_latest_first(store: Store) -> None:
    ids = [f"{number:02}" for number in range(NAMED + 3)]
    store.write_journal([journal_entry(id=id, message_id="<a@x>") for id in [*ids[4:], *ids[:4]]])
    store.write_journal([journal_entry(id="90", message_id="<A@x>"), journal_entry(id="91", message_id="")])
    found = store.journal_named("<a@x>")
    assert [entry.id for entry in found] == ids[: -NAMED - 1 : -1]
    assert found == [store.find_journal(entry.id) for entry in found]
    assert found[0].tokens
    assert [entry.id for entry in store.journal_named("<A@x>")] == ["90"]
    assert store.journal_named("<unknown@x>") == []


def test_mail_without_a_message_id_is_not_found_by_it(store: Store) -> None:
    store.write_journal([journal_entry(id="1", message_id="")])
    assert store.journal_named("") == []


def test_an_entry_is_found_by_its_message_id_after_its_tokens_are_gone(store: Store) -> None:
    store.write_journal([journal_entry(id="1", message_id="<a@x>")])
    assert store.expire(FAR, FAR, 0) == (1, 0)
    (found,) = store.journal_named("<a@x>")
    assert (found.id, found.tokens) == ("1", None)


def test_an_entry_of_the_journal_is_removed_and_no_other(store: Store) -> None:
    store.write_journal([journal_entry(id=id, message_id="<a@x>") for id in ("1", "2")])
    store.remove_journal("1")
    store.remove_journal("1")
    store.remove_journal("unknown")
    assert store.find_journal("1") is None
    assert [entry.id for entry in store.journal_named("<a@x>")] == ["2"]


SOME = {
    "1": {"class_": "ham", "score": 0.1, "sender": "ann@example.org", "subject": "Lunch on Monday"},
    "2": {"class_": "unsure", "score": 0.6, "sender": "Bob@example.org", "subject": "100% off_now"},
    "3": {"class_": "spam", "score": 0.95, "sender": "x@spam.example", "subject": "monday sale", "action": "tag"},
    "4": {"class_": "unsure", "score": 0.8, "sender": "", "subject": "grün '; DROP TABLE journal; --"},
    "5": {"class_": "spam", "score": 1.0, "sender": "y@spam.example", "subject": "", "action": "quarantine"},
}


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param(Wanted(), "54321", id="all"),
        pytest.param(Wanted(class_="unsure"), "42", id="class"),
        pytest.param(Wanted(class_="judged"), "54321", id="judged"),
        pytest.param(Wanted(action="tag"), "3", id="action"),
        pytest.param(Wanted(sender="EXAMPLE.ORG"), "21", id="sender-in-either-case"),
        pytest.param(Wanted(subject="Mon day"), "31", id="parts-of-words"),
        pytest.param(Wanted(subject="monday sale"), "3", id="each-word"),
        pytest.param(Wanted(subject="%"), "2", id="no-pattern"),
        pytest.param(Wanted(subject="_"), "2", id="no-pattern-of-one"),
        pytest.param(Wanted(subject="'; DROP"), "4", id="no-statement"),
        pytest.param(Wanted(subject="grün"), "4", id="not-ascii"),
        pytest.param(Wanted(least=0.6, most=0.95), "432", id="scores"),
        pytest.param(Wanted(unsure_first=True), "42531", id="unsure-first"),
        pytest.param(Wanted(unsure_first=True, sender="example"), "2531", id="unsure-first-of-some"),
    ],
)
def test_what_is_wanted_is_found_page_by_page(store: Store, wanted: Wanted, ids: str) -> None:
    store.write_journal([journal_entry(id=id, **facts) for id, facts in SOME.items()])
    assert_found(store, wanted, ids)


def assert_found(store: Store, wanted: Wanted, ids: str) -> None:
    """That these entries are found: all at once, as a number, and page by page, down and up again."""
    assert "".join(entry.id for entry in store.search(wanted, 9)) == ids
    assert all(entry.tokens is None for entry in store.search(wanted, 9))
    assert store.number_found(wanted) == len(ids)
    pages = ""
    while found := store.search(wanted, 2, pages[-1:]):
        pages += "".join(entry.id for entry in found)
    assert pages == ids
    while found := store.search(wanted, 2, after=pages[:1]) if pages else []:
        assert len(found) == min(2, ids.index(pages[0]))
        pages = "".join(entry.id for entry in found)
        assert pages in ids
    assert pages[:1] == ids[:1]


MAILS: dict[str, dict[str, object]] = {
    "1": {"recipients": ["anna@example.org"], "client": "192.0.2.1", "message_id": "<a@x>", "at": NOON},
    "2": {"recipients": ["Joanna@Example.ORG", "bob@example.net"], "client": "192.0.2.10", "reply": "451 4.7.1 later"},
    "3": {"recipients": ["grün@example.com"], "client": "2001:db8::1", "at": NOON + timedelta(hours=1)},
    "4": {"recipients": [], "client": "", "message_id": "", "sender": "", "at": NOON + timedelta(days=1)},
    "5": {
        "recipients": ['"a, b"@[192.0.2.9]', "back\\slash@x"],
        "reply": "550 5.7.1 100% spam_451",
        "message_id": "b@x",
        "at": NOON - timedelta(microseconds=1),
    },
    "6": {"recipients": ["anna@example.org.example"], "client": "2001:db8::12", "reply": "", "message_id": "<B@x>"},
}


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param(Wanted(recipient="ANNA@example.org"), "621", id="recipient-in-either-case"),
        pytest.param(Wanted(recipient="<anna@example.org>"), "1", id="recipient-exactly"),
        pytest.param(Wanted(recipient="<joanna@EXAMPLE.org>"), "2", id="recipient-exactly-in-either-case"),
        pytest.param(Wanted(recipient="@example.org>"), "21", id="domain-of-recipient"),
        pytest.param(Wanted(recipient="bob@"), "2", id="second-recipient"),
        pytest.param(Wanted(recipient="grün"), "3", id="recipient-not-ascii"),
        pytest.param(Wanted(recipient="GRÜN"), "3", id="recipient-not-ascii-in-another-case"),
        pytest.param(Wanted(recipient="u00fc"), "", id="recipient-not-as-json-has-it"),
        pytest.param(Wanted(recipient=", "), "5", id="comma-in-a-recipient"),
        pytest.param(Wanted(recipient="["), "5", id="bracket-in-a-recipient"),
        pytest.param(Wanted(recipient='"'), "5", id="quote-in-a-recipient"),
        pytest.param(Wanted(recipient="\\"), "5", id="backslash-in-a-recipient"),
        pytest.param(Wanted(recipient="%"), "", id="recipient-is-no-pattern"),
        pytest.param(Wanted(recipient="org> <"), "", id="recipients-are-apart"),
        pytest.param(Wanted(recipient="x", sender="a@example.org"), "65321", id="recipient-and-sender"),
        pytest.param(Wanted(sender="<>"), "4", id="no-sender"),
        pytest.param(Wanted(client="192.0.2.1"), "51", id="client-exactly"),
        pytest.param(Wanted(client="192.0.2."), "521", id="part-of-client"),
        pytest.param(Wanted(client="2001:0DB8:0::1"), "3", id="ipv6-in-another-spelling"),
        pytest.param(Wanted(client="2001:DB8:"), "63", id="part-of-ipv6"),
        pytest.param(Wanted(message_id="<a@x>"), "1", id="message-id"),
        pytest.param(Wanted(message_id="a@x"), "1", id="message-id-bare"),
        pytest.param(Wanted(message_id="<b@x>"), "5", id="message-id-that-came-bare"),
        pytest.param(Wanted(message_id="a@"), "", id="message-id-is-whole"),
        pytest.param(Wanted(reply="451"), "2", id="code"),
        pytest.param(Wanted(reply="5"), "5", id="begin-of-code"),
        pytest.param(Wanted(reply="spam_451"), "5", id="text-of-reply"),
        pytest.param(Wanted(reply="4.7.1 LATER"), "2", id="text-in-either-case"),
        pytest.param(Wanted(reply="0%"), "5", id="reply-is-no-pattern"),
        pytest.param(Wanted(since=NOON + timedelta(hours=1)), "43", id="since"),
        pytest.param(Wanted(until=NOON), "5", id="until"),
        pytest.param(Wanted(since=NOON, until=NOON + timedelta(hours=2), reply="250"), "31", id="period"),
        pytest.param(Wanted(hour=12), "6421", id="hour"),
        pytest.param(Wanted(hour=11, class_="ham"), "5", id="hour-and-class"),
        pytest.param(Wanted(hour=0), "", id="midnight"),
    ],
)
def test_a_mail_is_found_by_each_of_its_facts(store: Store, wanted: Wanted, ids: str) -> None:
    made = {id: {"sender": "a@example.org", "client": "192.0.2.1", **facts} for id, facts in MAILS.items()}
    store.write_journal([journal_entry(id=id, **facts) for id, facts in made.items()])
    assert_found(store, wanted, ids)


def test_times_of_a_search_may_have_any_time_zone(store: Store) -> None:
    store.write_journal([journal_entry(id="1", at=NOON)])
    vienna = NOON.astimezone(timezone(timedelta(hours=1)))
    assert store.number_found(Wanted(since=vienna, until=vienna + timedelta(seconds=1))) == 1
    assert store.number_found(Wanted(until=vienna)) == 0


def test_a_search_goes_on_after_an_entry_that_has_expired(store: Store) -> None:
    store.write_journal([journal_entry(id=id, **facts) for id, facts in SOME.items() if id != "3"])
    assert [entry.id for entry in store.search(Wanted(), 9, "3")] == ["2", "1"]
    assert [entry.id for entry in store.search(Wanted(unsure_first=True), 9, "3")] == ["1"]


def test_the_journal_says_which_mails_it_may_know(store: Store) -> None:
    store.write_journal([journal_entry(id="01A", digest=b"a" * 16, message_id="<one@example.org>")])
    store.write_journal([journal_entry(id="01B", digest=b"b" * 16, message_id="")])
    found = store.in_journal([b"a" * 16, b"c" * 16], ["<one@example.org>", "<two@example.org>"])
    assert found == {b"a" * 16, "<one@example.org>"}
    assert store.in_journal([b"b" * 16], []) == {b"b" * 16}
    assert store.in_journal([], []) == set()


def test_mail_is_found_by_what_people_have_marked_it_as(store: Store) -> None:
    store.write_journal([journal_entry(id=str(number), digest=entry(number).digest) for number in range(1, 6)])
    _, undone, *_ = learn(store, entry(1, "ham"), entry(2, "spam"), entry(3, "spam"), replace(entry(5), source="train"))
    learn(store, entry(2, undoes=undone.id))
    assert_found(store, Wanted(marked="ham"), "1")
    assert_found(store, Wanted(marked="spam"), "3")


def test_entries_of_messages_that_are_not_learnt_are_those_of_the_period_oldest_first(store: Store) -> None:
    hours = {1: (0, 5), 2: (1,), 3: (2,), 4: (3, 4), 5: (-1, 6)}
    store.write_journal([
        journal_entry(id=f"{9 + hour:026}", digest=entry(number).digest, at=NOON + timedelta(hours=hour))
        for number, some in hours.items()
        for hour in some
    ])  # fmt: skip
    _, undone, _ = learn(store, entry(2), entry(3), replace(entry(1, "ham"), source=COUNTERPART))
    learn(store, entry(3, undoes=undone.id))
    learn(store, entry(4, "ham"))
    found = store.unlearnt(NOON, NOON + timedelta(hours=6))
    assert [(one.digest, one.at.hour - NOON.hour) for one in found] == [
        (entry(1).digest, 0), (entry(3).digest, 2), (entry(1).digest, 5),
    ]  # fmt: skip
    assert {one.tokens for one in found} == {None}
