"""Work that a relay does again and again goes on after a fault."""

import asyncio
import logging

import pytest

from spamfilter.relay.metrics import Metrics
from spamfilter.service.background import Background


async def test_work_that_fails_is_logged_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    metrics, done = Metrics(), asyncio.Event()
    outcomes = [RuntimeError("planted"), KeyError(), None]

    async def work() -> None:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome
        done.set()
        outcomes.append(None)

    background = Background(metrics)
    background.start("the work", work, 0.001)
    await asyncio.wait_for(done.wait(), 30)
    background.stop()
    lines = [(record.levelno, record.getMessage(), record.exc_info is not None) for record in caplog.records]
    assert lines == [(logging.ERROR, "the work has failed; it is tried again in 0.001 s", True)] * 2
    assert metrics.snapshot()["faults"]["background",] == [2]


async def test_work_that_shall_wait_begins_later() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)

    background = Background(Metrics())
    background.start("later", lambda: work("later"), 3600, 0.05)
    background.start("at once", lambda: work("at once"), 3600)
    while "later" not in done:
        await asyncio.sleep(0.001)
    background.stop()
    assert done == ["at once", "later"]
