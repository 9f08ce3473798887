"""A store of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.stores import STORES, Store, open_store
from tests.stores.made import URLS


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(URLS[request.param](tmp_path))
    yield store
    store.close()
