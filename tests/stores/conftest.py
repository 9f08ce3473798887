"""A store of each kind."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spamfilter.stores import Store
from tests.support.memory_store import KINDS, open_store, url_of


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with url_of(request.param, tmp_path) as url, closing(open_store(url)) as store:
        yield store
