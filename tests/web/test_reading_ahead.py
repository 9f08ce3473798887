"""The overview is read before anybody asks for it, and a database that cannot be read then ends nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spamfilter.config.settings import Settings
from spamfilter.errors import StoreError
from spamfilter.stores import open_store
from spamfilter.web import overview
from spamfilter.web.server import application
from spamfilter.web.site import Site
from spamfilter.web.site.visitors import Accounts
from tests.support.made import journal_entry


async def test_the_overview_is_read_at_the_start_and_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(overview, "HOUR", timedelta(seconds=0.2))
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        yesterday = datetime.now(UTC) - timedelta(days=1)
        store.write_journal([journal_entry(id="1" * 26, at=yesterday)])
        (tmp_path / "accounts").write_text("")
        site: Site = application(Settings(), None, store, Accounts(tmp_path / "accounts")).state.site
        get_setting, fails = store.get_setting, True

        def struck(name: str) -> object:
            if fails:
                raise StoreError("the database is away")
            return get_setting(name)

        monkeypatch.setattr(store, "get_setting", struck)
        reading = asyncio.create_task(overview.read_ahead(site))
        while "the overview cannot be read ahead: the database is away" not in caplog.text:
            await asyncio.sleep(0.01)
        assert not site.parts
        fails = False
        while not any(part.entries for part in site.parts.values()):
            await asyncio.sleep(0.01)
        at_rest = asyncio.Event()

        def nothing() -> Iterator[str]:
            at_rest.set()
            yield from ()

        monkeypatch.setattr(overview, "AHEAD", nothing())
        await at_rest.wait()  # no thread reads any more, and the store can be closed
        reading.cancel()
