"""A next hop, and what reads a relay's metrics, that all tests of a file share."""

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
