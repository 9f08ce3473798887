"""A relay that has much to catch up with does so without pauses."""

import asyncio
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from spamfilter.bayes.counts import Counts, Growth
from spamfilter.bayes.likelihoods.soft import Soft
from spamfilter.bayes.voices import Voice
from spamfilter.config.likelihood_settings import Learn
from spamfilter.errors import StoreBusy
from spamfilter.learning.filter import Filter
from spamfilter.learning.transaction import Reading
from spamfilter.relay.metrics import Metrics
from spamfilter.service import ledger_following
from spamfilter.service.ledger_following import Following
from spamfilter.stores import Entry
from spamfilter.system import logs
from tests.support.made import reading
from tests.support.memory_store import MemoryStore

VOICES = (Voice("fields", Soft()),)
LEARNT = 20


class Sparing(MemoryStore):
    """A store that shows few entries at a time, as every store does, and notes at each look what `watch` says."""

    def __init__(self) -> None:
        super().__init__()
        self.watch: Callable[[], bool] = lambda: False
        self.seen: list[bool] = []

    def entries_after(self, last: int) -> list[Entry]:
        self.seen.append(self.watch())
        return super().entries_after(last)[:3]


async def test_after_many_learnings_the_next_look_follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_following, "FOLLOW_EVERY", 3600.0)
    store = Sparing()
    filter = Filter(store, VOICES)
    assert filter.last == 0
    following = Following(filter, Learn(), Learn, Metrics())
    with Filter(store, VOICES, whole=False).training() as training:
        for number in range(LEARNT):
            training.learn(reading(f"m{number}", "lunch"), "ham", "cli")
    store.seen, store.watch = [], lambda: following.catching_up
    running = asyncio.create_task(following.run())
    following.wake()
    while filter.last < LEARNT or following.catching_up:
        await asyncio.sleep(0.001)
    running.cancel()
    assert store.seen == [False, *[True] * 6]  # seven looks have three entries each, or two
    assert filter.learnt["ham"] == LEARNT


async def followed(following: Following, well: bool) -> None:
    """The next look has been, and whether it went well."""
    following.wake()
    async with asyncio.timeout(10):
        while following.well != well:
            await asyncio.sleep(0.001)


async def test_an_entry_that_was_half_counted_where_memory_ends_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    voices = (Voice("fields", Soft()), Voice("body", Soft()))
    store = MemoryStore()
    filter = Filter(store, voices)
    assert filter.last == 0
    following = Following(filter, Learn(), Learn, Metrics())
    tokens = {voice.name: {b"pills": 1} for voice in voices}
    Filter(store, voices, whole=False).learn(Reading(b"a" * 16, tokens), "spam", "cli")
    calls = count()

    def fails_at_the_second_voice(*arguments: Any) -> Growth:
        if next(calls) % 2:
            raise MemoryError
        return add(*arguments)

    add = Counts.add
    with monkeypatch.context() as full:
        full.setattr(Counts, "add", fails_at_the_second_voice)
        running = asyncio.create_task(following.run())
        await followed(following, False)
    await followed(following, True)
    running.cancel()
    assert {name: counts.messages["spam"] for name, counts in filter.copied(voices).items()} == {"fields": 1, "body": 1}


async def test_an_empty_database_in_the_place_of_the_old_one_is_not_judged_by() -> None:
    store = MemoryStore()
    filter = Filter(store, VOICES)
    filter.learn(reading("a", "pills"), "spam", "cli")
    following = Following(filter, Learn(), Learn, Metrics())
    empty = MemoryStore()
    empty.generation = store.generation + 1
    Filter(empty, VOICES)
    filter.store = empty
    running = asyncio.create_task(following.run())
    await followed(following, False)
    assert filter.learnt["spam"] == 1
    Filter(empty, VOICES, whole=False).learn(reading("b", "lunch"), "ham", "cli")
    await followed(following, True)
    running.cancel()
    assert filter.learnt == {"ham": 1, "spam": 0}


async def test_a_ledger_that_ends_before_what_was_counted_is_loaded_anew() -> None:
    """As where the content of a backup was written into the file in use: it is the same file."""
    store, older = MemoryStore(), MemoryStore()
    filter = Filter(store, VOICES)
    for name in ("a", "b"):
        filter.learn(reading(name, "pills"), "spam", "cli")
    Filter(older, VOICES).learn(reading("a", "pills"), "spam", "cli")
    following = Following(filter, Learn(), Learn, Metrics())
    filter.store = older
    running = asyncio.create_task(following.run())
    async with asyncio.timeout(10):
        while filter.last != 1:
            await asyncio.sleep(0.001)
        assert filter.learnt["spam"] == 1
        Filter(older, VOICES, whole=False).learn(reading("c", "lunch"), "ham", "cli")
        following.wake()
        while filter.last != 2:
            await asyncio.sleep(0.001)
    running.cancel()
    assert filter.learnt == {"ham": 1, "spam": 1}


class Moody(MemoryStore):
    """A store whose ledger can be read at some looks only, as where connections are short."""

    def __init__(self, at: Callable[[int], bool]) -> None:
        super().__init__()
        self.at = at
        self.looks = 0

    def entries_after(self, last: int) -> list[Entry]:
        self.looks += 1
        if not self.at(self.looks):
            raise StoreBusy("too many connections")
        return super().entries_after(last)


async def test_a_store_that_fails_again_and_again_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 25 seconds, of a look in a quarter of a second each."""
    monkeypatch.setattr(ledger_following, "FOLLOW_EVERY", 0.0)
    store = Moody(lambda look: look % 2 == 0 and look < 70)
    filter = Filter(store, VOICES)
    assert filter.last == 0
    monkeypatch.setattr(logs, "OUTAGE_SECONDS", 40)
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: store.looks))
    running = asyncio.create_task(Following(filter, Learn(), Learn, Metrics()).run())
    async with asyncio.timeout(10):
        while store.looks < 100:
            await asyncio.sleep(0.001)
    running.cancel()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR", "WARNING", "ERROR"]
