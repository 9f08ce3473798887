"""A store of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spamfilter.stores import Store
from tests.stores.made import URLS
from tests.support.memory_store import KINDS, open_store


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(URLS[request.param](tmp_path))
    yield store
    store.close()
