"""Rules of the database and of the configuration reach a running relay."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from spamfilter.config.sections import Lists
from spamfilter.config.settings import Settings
from spamfilter.errors import StoreError
from spamfilter.service.list_following import ListFollowing
from spamfilter.stores import Rule
from tests.relay.sender_lists.test_relay import HAM, listing, status
from tests.support.memory_store import MemoryStore


async def test_those_of_the_configuration_hold_where_the_database_was_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise StoreError("gone")

    async with listing(tmp_path) as (hop, running):
        monkeypatch.setattr(MemoryStore, "rules", gone)
        following = ListFollowing(running.relay, running.store, Settings(lists=Lists(block=["example.org"])))
        with pytest.raises(StoreError):
            await following.look()
        await (await running.connect()).send(HAM)
        assert status(hop).endswith(" blocked=example.org rule=config")


async def test_rules_come_and_go_while_the_relay_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listing(tmp_path) as (hop, running):
        following = ListFollowing(running.relay, running.store, Settings())
        client = await running.connect()

        async def said() -> str:
            await following.watch()
            await following.look()
            hop.messages.clear()
            await client.send(HAM)
            return status(hop).partition(" learnt=12/12")[2]

        now = datetime.now(UTC)
        assert await said() == ""
        rule = running.store.add_rule(Rule("block", "a@example.org", at=now), now)
        assert await said() == f" blocked=a@example.org rule={rule.id}"
        unchanged = running.relay.lists
        await following.watch()
        await following.look()
        assert running.relay.lists is unchanged

        def gone(*_: object) -> None:
            raise StoreError("gone")

        with monkeypatch.context() as broken:
            broken.setattr(MemoryStore, "rules_version", gone)
            with pytest.raises(StoreError):
                await following.watch()
        assert await said() == f" blocked=a@example.org rule={rule.id}"
        running.store.remove_rule(rule.id, "anna", now)
        assert await said() == ""
        following.configure(Settings(lists=Lists(block=["example.org"])))
        assert await said() == " blocked=example.org rule=config"


async def test_a_reload_changes_the_lists_of_the_configuration_at_once_and_keeps_the_rules(tmp_path: Path) -> None:
    async with listing(tmp_path) as (hop, running):
        now = datetime.now(UTC)
        running.store.add_rule(Rule("block", "example.org", at=now), now)
        following = ListFollowing(running.relay, running.store, Settings())
        await following.watch()
        await following.look()
        following.configure(Settings(lists=Lists(block=["a@example.org"])))  # what no look has followed yet
        await (await running.connect()).send(HAM)
        assert status(hop).endswith(" blocked=a@example.org rule=config")
        following.configure(Settings())
        hop.messages.clear()
        await (await running.connect()).send(HAM)
        assert " blocked=example.org " in status(hop)
