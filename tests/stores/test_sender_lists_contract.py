"""The contract of the lists, tested on every store."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spamfilter.errors import InputError
from spamfilter.stores import Rule, Store, migration, open_store
from spamfilter.stores.schema import HEAD
from spamfilter.stores.sender_lists import FormerRule
from spamfilter.stores.sql import SqlStore
from spamfilter.stores.sql import sender_lists as sql_sender_lists
from tests.support import memory_sender_lists
from tests.support.made import NOON, journal_entry

RULE = Rule("block", "a@example.org", "me@example.net", NOON + timedelta(days=1), "anna", NOON, "grün 'x'")


def test_rules_are_kept_as_they_were_added(store: Store) -> None:
    kept = [store.add_rule(rule, NOON) for rule in (RULE, replace(RULE, whom="", expires=None, kind="allow"))]
    assert [rule.id for rule in kept] == [1, 2]
    assert store.rules() == kept == [replace(RULE, id=1), replace(RULE, whom="", expires=None, kind="allow", id=2)]


def test_the_last_rule_on_a_sender_and_its_recipients_holds(store: Store) -> None:
    store.add_rule(RULE, NOON)
    last = store.add_rule(replace(RULE, kind="allow"), NOON)
    assert store.rules() == [last]
    assert last.id == 2


def test_a_removed_rule_is_gone_and_its_number_is_not_used_again(store: Store) -> None:
    rule = store.add_rule(RULE, NOON)
    assert store.remove_rule(rule.id, "otto", NOON) == rule
    assert store.remove_rule(rule.id, "otto", NOON) is None
    assert store.add_rule(RULE, NOON).id == 2


def test_how_a_rule_ended_is_remembered(store: Store) -> None:
    later = NOON + timedelta(days=2)
    first = store.add_rule(replace(RULE, what="a.example"), NOON)
    second = store.add_rule(replace(RULE, what="b.example", expires=None), NOON)
    third = store.add_rule(replace(RULE, what="b.example", expires=None, by="otto"), NOON + timedelta(hours=1))
    store.remove_rule(third.id, "paula", later)
    store.end_expired_rules(later)
    expected = [
        FormerRule(third, later, "paula", "undone"),
        FormerRule(first, later, "", "expired"),
        FormerRule(second, NOON + timedelta(hours=1), "otto", "replaced"),
    ]
    assert store.former_rules() == expected
    assert store.former_rules(1) == expected[:1]


def test_there_is_an_end_to_former_rules(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sql_sender_lists, memory_sender_lists):
        monkeypatch.setattr(module, "MOST_FORMER", 2)
    for hours in range(4):
        rule = store.add_rule(RULE, NOON)
        store.remove_rule(rule.id, "otto", NOON + timedelta(hours=hours))
    assert [one.rule.id for one in store.former_rules()] == [4, 3]


def test_a_rule_ends_when_it_expires_and_not_when_one_is_added_by_a_wrong_clock(store: Store) -> None:
    rule = store.add_rule(RULE, NOON)
    new = store.add_rule(replace(RULE, what="b.example", expires=None), NOON + timedelta(days=365))
    assert store.rules() == [rule, new]
    again = store.add_rule(RULE, NOON + timedelta(days=2))
    assert store.former_rules() == [FormerRule(rule, NOON + timedelta(days=2), "", "expired")]
    store.end_expired_rules(NOON + timedelta(days=3))
    assert (store.rules(), [one.rule for one in store.former_rules()]) == ([new], [again, rule])


def test_each_change_has_a_version_of_its_own(store: Store) -> None:
    seen = [store.rules_version()]
    for change in ("a.example", "b.example", 2, "b.example", "b.example", 4, 1):
        if isinstance(change, int):
            assert store.remove_rule(change, "otto", NOON)
        else:
            store.add_rule(replace(RULE, what=change), NOON)
        assert store.rules_version() == store.rules_version()
        assert seen[-1] != store.rules_version()
        seen.append(store.rules_version())


def test_there_is_an_end_to_the_rules(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sql_sender_lists, memory_sender_lists):
        monkeypatch.setattr(module, "MOST_RULES", 2)
    for what in ("a.example", "b.example", "b.example"):
        store.add_rule(replace(RULE, what=what), NOON)
    before = store.rules()
    with pytest.raises(InputError):
        store.add_rule(replace(RULE, what="c.example"), NOON)
    assert store.rules() == before
    store.add_rule(replace(RULE, what="c.example"), NOON + timedelta(days=1))  # the others hold no more


def test_the_journal_keeps_the_rule_on_a_sender(store: Store) -> None:
    store.write_journal([journal_entry(id="01A", listed="blocked=example.org rule=1"), journal_entry(id="01B")])
    found = [store.find_journal(id) for id in ("01A", "01B")]
    assert [entry.listed for entry in found if entry] == ["blocked=example.org rule=1", ""]


def test_a_migration_down_and_up_keeps_the_journal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    entry = journal_entry(id="01A")
    with closing(open_store(url)) as store:
        store.write_journal([entry])
    assert migration.migrate(url, "0007") == (HEAD, "0007")
    assert migration.migrate(url) == ("0007", HEAD)
    with closing(SqlStore(url)) as store:
        assert store.find_journal("01A") == entry
        assert store.rules() == []


def test_a_migration_down_and_up_keeps_the_rules_and_forgets_former_ones(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with closing(open_store(url)) as store:
        store.add_rule(RULE, NOON)
        kept = store.add_rule(RULE, NOON)
    assert migration.migrate(url, "0008") == (HEAD, "0008")
    assert migration.migrate(url) == ("0008", HEAD)
    with closing(open_store(url)) as store:
        assert (store.rules(), store.former_rules()) == ([kept], [])
