"""The history of the quarantine, in each kind of store."""

from dataclasses import replace
from datetime import timedelta

from spamfilter.stores import QuarantineEvent, Store
from tests.support.made import NOON

FIRST = QuarantineEvent("01A", NOON, "announced", ["b@example.net"], "")
SECOND = QuarantineEvent("01A", NOON + timedelta(hours=1), "delivered", ["b@example.net", "ü@example.net"], "anna")
OTHER = QuarantineEvent("01B", NOON, "expired", [], "")


def test_events_come_back_in_their_order(store: Store) -> None:
    store.note_quarantine([])
    store.note_quarantine([FIRST, OTHER])
    store.note_quarantine([SECOND])
    assert store.quarantine_events(["01A", "01C"]) == {"01A": [FIRST, SECOND]}
    assert store.quarantine_events([]) == {}
    assert store.all_quarantine_events() == [FIRST, OTHER, SECOND]


def test_a_thousand_mails_are_asked_for_at_once(store: Store) -> None:
    many = [replace(OTHER, mail=f"{number:026}") for number in range(1200)]
    store.note_quarantine(many)
    assert store.quarantine_events([one.mail for one in many]) == {one.mail: [one] for one in many}


def test_old_events_expire(store: Store) -> None:
    store.note_quarantine([FIRST, SECOND])
    assert store.expire_quarantine_events(SECOND.at) == 1
    assert store.all_quarantine_events() == [SECOND]
