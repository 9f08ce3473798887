"""Fixtures that all tests of a file share: a next hop, and a reader of the relay's metrics."""

from collections.abc import Iterator

import pytest

from tests.faults.hop import Hop, next_hop
from tests.relay.limits.scraping import Scraper


@pytest.fixture(scope="module")
def scraper() -> Scraper:
    return Scraper()


@pytest.fixture(scope="module")
def hop() -> Iterator[Hop]:
    with next_hop() as made:
        yield made
